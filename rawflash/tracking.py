"""MLflow, and only MLflow: the one module that imports it, and not before a run is to be filed.

A `Tracker` talks to one store through MlflowClient, never through MLflow's "active run": a leaked MLFLOW_RUN_ID or a run that
somebody else left open cannot interfere, and every run that was started here is ended here, whatever happens.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawflash.errors import RawflashError, TrackingError
from rawflash.metrics import METRICS, metric, validate
from rawflash.owner import is_gone, this_process
from rawflash.store import Store, TrackingConf, reach, resolve_experiment, resolve_store
from rawflash.views import view_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["FAILED", "FINISHED", "KILLED", "OWNER", "Tracker", "alone", "open_tracker", "quiet", "store_errors"]

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
# MLflow cuts values above 6000 characters without a word; the whole text is in the run's artifacts.
MAX_VALUE = 5000
# Makes the UI open the view of runs, with charts, instead of the one for language-model traces.
_KIND = {"mlflow.experimentKind": "custom_model_development"}
OWNER = "rawflash.owner"
_PARAMS, _METRICS = 100, 800  # a server takes 100 params, 100 tags and 1000 entities in one call


def open_tracker(conf: TrackingConf, cwd: Path) -> Tracker | None:
    """A tracker on the store that `conf` and the environment name, created if need be; None when tracking is off.

    Raises UsageError or TrackingError, in one sentence, before anything is run.
    """
    if not conf.enabled:
        return None
    store = resolve_store(conf.uri, os.environ, cwd)
    reach(store, conf.timeout_s)
    return Tracker(store, resolve_experiment(conf.experiment, os.environ), conf.timeout_s)


class Tracker:
    """Runs of one experiment in one store. Every method raises TrackingError, with one sentence, when the store fails."""

    def __init__(self, store: Store, experiment: str, timeout_s: float) -> None:
        self.store, self.experiment = store, experiment
        self._open: list[str] = []
        quiet(timeout_s)
        with self._errors("opened"), alone(store), _whole_or_absent(store):
            from mlflow import MlflowClient

            self._client: MlflowClient = MlflowClient(store.uri)
            self.experiment_id = self._experiment_id()
            self._bury()

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return self._client.create_experiment(self.experiment, artifact_location=self.store.artifacts, tags=_KIND | view_tags())
            except Exception:
                found = self._client.get_experiment_by_name(self.experiment)  # another process was faster
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"the experiment {self.experiment!r} was deleted in {self.store.shown}: restore it with "
                f"`mlflow experiments restore --experiment-id {found.experiment_id}`, or choose another with tracking.experiment="
            )
        for name, value in view_tags().items():
            if name not in found.tags:
                self._client.set_experiment_tag(found.experiment_id, name, value)
        return found.experiment_id

    def _bury(self) -> None:
        """End runs that say RUNNING though the process that started them is gone (kill -9)."""
        for run in self._client.search_runs([self.experiment_id], "attributes.status = 'RUNNING'", max_results=1000):
            if is_gone(run.data.tags.get(OWNER, "")):
                self._client.set_tag(run.info.run_id, "rawflash.reason", "the process that ran this is gone")
                self._client.set_terminated(run.info.run_id, KILLED)

    def start(self, name: str, tags: Mapping[str, str], parent: str | None = None, when_s: float = 0.0) -> str:
        """Start a run, below `parent` if given; returns its id. `when_s`: seconds since 1970, 0 for now."""
        labels = {"mlflow.source.name": "rawflash", "mlflow.source.type": "LOCAL", OWNER: this_process(), **tags}
        if parent is not None:
            labels["mlflow.parentRunId"] = parent
        with self._errors("written"):
            made = self._client.create_run(self.experiment_id, start_time=_milliseconds(when_s), tags=_cut(labels), run_name=name)
            run_id = made.info.run_id
            self._open.append(run_id)
        return run_id

    def log(
        self,
        run_id: str,
        params: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        when_s: float = 0.0,
    ) -> None:
        """Add to a run. Metric names must be in rawflash.metrics; NaN and infinities become the tag rawflash.nonfinite.

        Metrics that are logged again with the same `when_s` (seconds since 1970, 0 for now) are there once.
        """
        from mlflow.entities import Metric, Param, RunTag

        values = validate(dict(metrics or {}))
        labels = _cut(tags or {})
        odd = {name: value for name, value in values.items() if not math.isfinite(value)}
        if odd:
            labels["rawflash.nonfinite"] = ", ".join(f"{name}={value}" for name, value in odd.items())
        now = _milliseconds(when_s)
        entries = [Metric(name, float(value), now, 0) for name, value in values.items() if name not in odd]
        inputs = [Param(name, value) for name, value in _cut(params or {}).items()]
        marks = [RunTag(name, value) for name, value in labels.items()]
        with self._errors("written"):
            while entries or inputs or marks:
                # One call is one transaction: everything that fits goes along.
                self._client.log_batch(run_id, entries[:_METRICS], inputs[:_PARAMS], marks[:_PARAMS])
                entries, inputs, marks = entries[_METRICS:], inputs[_PARAMS:], marks[_PARAMS:]

    def series(self, run_id: str, curves: Mapping[str, Sequence[tuple[int, float]]], when_s: float = 0.0) -> None:
        """Add curves to a run: name -> (step, value) pairs. A name is a metric's, alone or followed by /<which curve>.

        NaN and infinities are left out: charts cannot draw them.
        """
        from mlflow.entities import Metric

        for name in curves:
            if name not in METRICS:
                metric(name.rpartition("/")[0])
        now = _milliseconds(when_s)
        entries = [Metric(name, float(v), now, step) for name, points in curves.items() for step, v in points if math.isfinite(v)]
        with self._errors("written"):
            for start in range(0, len(entries), _METRICS):
                self._client.log_batch(run_id, metrics=entries[start : start + _METRICS])

    def attach(self, run_id: str, path: Path) -> None:
        """Upload a file, or what a folder holds, as the run's artifacts."""
        with self._errors("written"):
            (self._client.log_artifacts if path.is_dir() else self._client.log_artifact)(run_id, str(path))

    def end(self, run_id: str, status: str, when_s: float = 0.0) -> None:
        """End a run as FINISHED, FAILED or KILLED. `when_s`: seconds since 1970, 0 for now."""
        with self._errors("written"):
            self._client.set_terminated(run_id, status, end_time=_milliseconds(when_s))
            if run_id in self._open:
                self._open.remove(run_id)

    def search(self, condition: str) -> list[Any]:
        """All runs of the experiment, oldest first, that meet a condition in MLflow's search syntax (mlflow.entities.Run)."""
        found: list[Any] = []
        token = None
        with self._errors("read"):
            while True:
                page = self._client.search_runs(
                    [self.experiment_id], condition, max_results=1000, order_by=["start_time"], page_token=token
                )
                found += page
                token = page.token
                if not token:
                    return found

    def ended_with(self, run_id: str, tag: str) -> bool:
        """True when a run has ended and has `tag`."""
        with self._errors("read"):
            run = self._client.get_run(run_id)
        return run.info.status != "RUNNING" and tag in run.data.tags

    def delete(self, run_id: str) -> None:
        """Take a run out of the lists (MLflow keeps it as deleted)."""
        with self._errors("written"):
            self._client.delete_run(run_id)

    def abandon(self, status: str, reason: str) -> None:
        """End every run that is still open, children first; a store that fails now is left alone."""
        for run_id in reversed(self._open.copy()):
            with contextlib.suppress(RawflashError):
                self.end(run_id, status)
                self.log(run_id, tags={"rawflash.reason": reason})

    def _errors(self, verb: str) -> contextlib.AbstractContextManager[None]:
        return store_errors(self.store, verb)


@contextlib.contextmanager
def store_errors(store: Store, verb: str) -> Iterator[None]:
    """Turn whatever MLflow raises inside into one TrackingError: the store could not be <verb>."""
    try:
        yield
    except RawflashError:
        raise
    except ImportError as error:
        raise TrackingError(f"MLflow cannot be imported ({error}): install it with `pip install mlflow`, or add tracking=none") from error
    except Exception as error:
        raise TrackingError(f"the MLflow store {store.shown} could not be {verb}: {_reason(error, store)}") from error


def _milliseconds(when_s: float) -> int:
    return int((when_s or time.time()) * 1000)


def _reason(error: Exception, store: Store) -> str:
    """First line of what MLflow said, and the way out."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
    if "Max retries exceeded" in text or "Read timed out" in text:
        return "the server no longer answers"
    if store.file is not None and "already exists" in text:
        return f"{text} (its creation was interrupted: move {store.file} away; `rawflash sync` files what lies in outputs/)"
    if store.file is not None and ("schema" in text or "migrat" in text or "no such table" in text):
        return (
            f"{text} (the file was made by another version of MLflow, or its creation was interrupted: "
            f"run `mlflow db upgrade '{store.uri}'`, or move {store.file} away)"
        )
    return f"{text} (choose another place with tracking.uri=, or add tracking=none)"


def _cut(values: Mapping[str, str]) -> dict[str, str]:
    """Values as text, those that MLflow would cut replaced by a start and a pointer to the artifacts."""
    texts = {name: str(value) for name, value in values.items()}
    return {
        name: text if len(text) <= MAX_VALUE else f"{text[:200]}... ({len(text)} characters; whole in the artifact config.yaml)"
        for name, text in texts.items()
    }


def quiet(timeout_s: float) -> None:
    """MLflow without chatter, usage reports, or minutes of retries; what the user set in the environment stays."""
    seconds = str(max(1, math.ceil(timeout_s)))
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": seconds,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextlib.contextmanager
def _whole_or_absent(store: Store) -> Iterator[None]:
    """Making the tables of a new file takes seconds: interrupted (Ctrl-C), it takes the file away, which no later run could open."""
    new = store.file if store.file is not None and not store.file.exists() else None
    try:
        yield
    except BaseException:
        if new is not None:
            new.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def alone(store: Store) -> Iterator[Any]:
    """Hold a lock on the folder of a sqlite store: two processes that create its tables at once destroy it."""
    if store.file is None:
        yield
        return
    handle = os.open(store.file.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # releases the lock
