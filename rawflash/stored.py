"""Runs read back from an MLflow store, as plain objects: the reading half of rawflash.tracking. Nothing here writes.

A run is found by its id, by the start of its id, or by its name; the names of MLflow's own search syntax are passed through.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawflash.errors import UsageError
from rawflash.metrics import SAMPLES
from rawflash.store import Store, TrackingConf, reach, resolve_experiment, resolve_store
from rawflash.tracking import alone, quiet, store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Reader", "StoredRun", "open_reader"]

INVOCATION = "invocation"
_PAGE = 1000
_LEAST_PREFIX = 6
_PARENT = "mlflow.parentRunId"
# What MLflow stores for infinity.
_HUGE = 1.797e308


@dataclass(frozen=True)
class StoredRun:
    """One run of a store. `state` is MLflow's word (RUNNING, FINISHED, ...), `status` rawflash's (OK, INCORRECT, ...), "" without one.

    `metrics` may hold NaN and infinities; `samples_ms` are filled on request (Reader.with_samples).
    """

    run_id: str
    name: str
    state: str
    started: datetime
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    samples_ms: tuple[float, ...] = ()

    @property
    def variant(self) -> str:
        """Name of the kernel, "" for a parent run."""
        return self.params.get("variant", "")

    @property
    def status(self) -> str:
        """What became of the variant."""
        return self.tags.get("status", "")

    @property
    def is_parent(self) -> bool:
        """True for the run that holds the runs of one invocation or sweep."""
        return self.tags.get("rawflash.kind") == INVOCATION


def open_reader(conf: TrackingConf, cwd: Path) -> Reader:
    """A reader of the store and experiment that `conf` and the environment name.

    Raises UsageError when there is no such store or experiment, TrackingError when the store does not answer.
    """
    store = resolve_store(conf.uri, os.environ, cwd)
    if store.file is not None and not (store.file.is_file() and store.file.stat().st_size):
        raise UsageError(
            f"there is no MLflow store at {store.file} ({store.origin}): run in the folder that holds it, "
            "or name it with tracking.uri=sqlite:////absolute/path/mlflow.db"
        )
    reach(store, conf.timeout_s)
    return Reader(store, resolve_experiment(conf.experiment, os.environ), conf.timeout_s)


class Reader:
    """Runs of one experiment in one store."""

    def __init__(self, store: Store, experiment: str, timeout_s: float) -> None:
        self.store, self.experiment = store, experiment
        quiet(timeout_s)
        with store_errors(store, "opened"), alone(store):
            from mlflow import MlflowClient

            self._client: MlflowClient = MlflowClient(store.uri)
            found = self._client.get_experiment_by_name(experiment)
            if found is None:
                known = ", ".join(sorted(e.name for e in self._client.search_experiments(max_results=50)))
                raise UsageError(f"{store.shown} has no experiment {experiment!r}: choose one with tracking.experiment= (it has {known})")
        self._experiment_id = found.experiment_id

    def search(self, where: str = "", order_by: Sequence[str] = ("attributes.start_time DESC",), limit: int = 10**9) -> list[StoredRun]:
        """Runs that fit `where`, in MLflow's search syntax, in `order_by`; at most `limit`. Raises UsageError for a syntax error."""
        found: list[StoredRun] = []
        for run in self._pages(where, order_by):
            found.append(run)
            if len(found) >= limit:
                break
        return found

    def _pages(self, where: str, order_by: Sequence[str]) -> Iterator[StoredRun]:
        token = None
        while True:
            with store_errors(self.store, "read"):
                from mlflow.exceptions import MlflowException

                try:
                    page: Any = self._client.search_runs(
                        [self._experiment_id], where, max_results=_PAGE, order_by=[*order_by], page_token=token
                    )
                except MlflowException as error:
                    if error.error_code != "INVALID_PARAMETER_VALUE":
                        raise
                    raise UsageError(_syntax(where, order_by, str(error))) from error
            yield from map(_stored, page)
            token = page.token
            if not token:
                return

    def newest_parent(self) -> StoredRun:
        """The invocation or sweep with runs below it that was started last: resume=true may leave one without. Else UsageError."""
        for parent in self._pages(f"tags.`rawflash.kind` = '{INVOCATION}'", ("attributes.start_time DESC",)):
            if self.search(f"tags.`{_PARENT}` = '{parent.run_id}'", limit=1):
                return parent
        raise UsageError(f"the experiment {self.experiment!r} in {self.store.shown} holds no run yet: `rawflash` makes some")

    def children(self, parent: StoredRun) -> list[StoredRun]:
        """The runs below `parent`, oldest first."""
        return self.search(f"tags.`{_PARENT}` = '{parent.run_id}'", ("attributes.start_time ASC",))

    def named(self, word: str) -> list[StoredRun]:
        """All runs that `word` may mean, newest first: an id, else a name, else the first characters (6 or more) of ids."""
        if re.fullmatch(r"[0-9a-f]{32}", word):
            found = self.search(f"attributes.run_id = '{word}'")
            return found or self._elsewhere(word)
        quote = '"' if "'" in word else "'"
        found = self.search(f"attributes.run_name = {quote}{word}{quote}") if not ("'" in word and '"' in word) else []
        if not found and len(word) >= _LEAST_PREFIX and re.fullmatch(r"[0-9a-f]+", word):
            found = [run for run in self._pages("", ("attributes.start_time DESC",)) if run.run_id.startswith(word)]
        return found

    def _elsewhere(self, run_id: str) -> list[StoredRun]:
        """A full id is good in every experiment of the store."""
        with store_errors(self.store, "read"):
            from mlflow.exceptions import MlflowException

            try:
                return [_stored(self._client.get_run(run_id))]
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return []

    def samples(self, run: StoredRun) -> tuple[float, ...]:
        """Raw timing samples of a run in ms, in the order in which they were taken; () when none were stored."""
        if SAMPLES not in run.metrics:
            return ()
        with store_errors(self.store, "read"):
            history = self._client.get_metric_history(run.run_id, SAMPLES)
        return tuple(entry.value for entry in sorted(history, key=lambda entry: entry.step))


def _stored(run: Any) -> StoredRun:
    metrics = {name: math.copysign(math.inf, v) if abs(v) >= _HUGE else v for name, v in run.data.metrics.items()}
    started = datetime.fromtimestamp((run.info.start_time or 0) / 1000, UTC)
    return StoredRun(
        run.info.run_id, run.info.run_name or "", run.info.status, started, dict(run.data.params), dict(run.data.tags), metrics
    )


def _syntax(where: str, order_by: Sequence[str], said: str) -> str:
    """What is wrong with a filter, in one sentence, with an example that is right."""
    first = next((line.strip() for line in said.splitlines() if line.strip()), "").removeprefix("INVALID_PARAMETER_VALUE: ").rstrip(".")
    asked = f"--filter {where!r}" if where else f"--order-by {', '.join(order_by)!r}"
    return (
        f"MLflow does not understand {asked} ({first[:200]}): write for example "
        "--filter 'params.`problem.dtype` = \"fp16\" and metrics.`io/times_ideal` < 10'"
    )
