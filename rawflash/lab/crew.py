"""The cases of experiments, computed here or by several processes at once.

What is remembered takes no time and is done here, and so is what takes two seconds in all: a new process takes as long to begin.
The rest is handed out in order, a case at a time. A process that dies says so; one whose master is gone ends by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any

from rawflash.config import Settings
from rawflash.errors import BackendUnavailable, InvalidConfiguration, RawflashError, Unsupported, UsageError
from rawflash.explain import internal_error
from rawflash.lab.cells import Row, Verdict
from rawflash.lab.experiment import Experiment
from rawflash.lab.memo import Memo
from rawflash.lab.registry import chosen
from rawflash.lab.workbench import Lab, lab_for
from rawflash.launchers import cores
from rawflash.output import Bar
from rawflash.provenance import impersonal
from rawflash.signals import deferred

__all__ = ["Crew", "Outcome", "run_case"]

# More processes than this gain little, since a few cases are long, and each may take a gigabyte.
_MOST = 8
PATIENCE_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """Rows of one case, whether all is well, what took part, and how many numbers were computed and reused."""

    rows: list[Row]
    well: bool
    tags: Mapping[str, str]
    computed: int
    reused: int


def run_case(experiment: Experiment, lab: Lab, case: Any, debug: bool = False) -> Outcome:
    """Compute one case. An error is a row that says what went wrong."""
    computed, reused, well = lab.memo.computed, lab.memo.reused, True
    try:
        rows = list(experiment.rows(lab, case))
    except Exception as error:
        if debug:
            traceback.print_exc()
        sentence = impersonal(str(error) if isinstance(error, RawflashError) else internal_error(error))
        told = f"could not be computed here: {sentence}"
        rows = [Row({"case": _named(case)}, {}, Verdict.NOT_COMPARABLE, told, "What could not be computed")]
        well = isinstance(error, InvalidConfiguration | BackendUnavailable | Unsupported)
    return Outcome(rows, well, dict(lab.tags), lab.memo.computed - computed, lab.memo.reused - reused)


def _named(case: Any) -> str:
    """A case in a few words, the same in every run: functions by their names."""
    if isinstance(case, tuple | list):
        return ", ".join(map(_named, case))
    return "" if case is None else getattr(case, "__name__", str(case)).strip("_")


class Crew:
    """Computes the grids of `experiments` with the `labs` made for them; a context manager, which leaves no process behind.

    Raises UsageError for several processes on a GPU, whose times would all be wrong.
    """

    def __init__(self, experiments: Mapping[str, Experiment], labs: Mapping[str, Lab], settings: Settings) -> None:
        self._experiments, self._labs, self._settings = experiments, labs, settings
        self.grids = {name: list(experiment.cases(labs[name])) for name, experiment in experiments.items()}
        timed = any(lab.device for lab in labs.values())
        if timed and (settings.jobs or 1) > 1:
            raise UsageError(
                f"experiment.jobs={settings.jobs} would run several kernels on one GPU at once, and the times of all of them would be "
                "wrong: leave it away, or add backend=emu"
            )
        self._jobs = 1 if timed else settings.jobs or min(cores(), _MOST)
        self._started = time.monotonic()
        self._pool: ProcessPoolExecutor | None = None
        self._futures: dict[tuple[str, int], Future[Outcome]] = {}
        self._workers: list[BaseProcess] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            for worker in self._workers:
                worker.terminate()
            self._pool.shutdown(cancel_futures=True)

    def outcomes(self, name: str, bar: Bar) -> Iterator[Outcome]:
        """The outcomes of one experiment's cases, in order. Raises RawflashError when a process dies."""
        lab = self._labs[name]
        for index, case in enumerate(self.grids[name]):
            with bar.step(f"{name} {_named(case)}".strip()):
                if self._jobs > 1 and not self._futures and time.monotonic() - self._started > PATIENCE_S:
                    self._hand_out(name, index)
                if (name, index) not in self._futures:
                    yield run_case(self._experiments[name], lab, case, self._settings.debug)
                    continue
                try:
                    outcome = self._futures[name, index].result()
                except BrokenProcessPool as error:
                    told = "a process that computed this could not start, or was killed, perhaps for want of memory"
                    way = "what was computed is kept, and the same command goes on from there; add experiment.jobs=1 if it happens again"
                    raise RawflashError(f"{name} {_named(case)}: {told}: {way}") from error
                lab.note(outcome.tags)
                lab.memo.computed += outcome.computed
                lab.memo.reused += outcome.reused
                yield outcome

    def _hand_out(self, name: str, index: int) -> None:
        """Give everything from case `index` of `name` on to other processes, if there is enough for two."""
        names = list(self._experiments)
        left = [(name, i) for i in range(index, len(self.grids[name]))]
        left += [(later, i) for later in names[names.index(name) + 1 :] for i in range(len(self.grids[later]))]
        jobs = min(self._jobs, len(left))
        if jobs < 2:
            return
        settings = replace(self._settings, threads=self._settings.threads or max(1, cores() // jobs))
        memo = self._labs[name].memo
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (settings, names, memo))
        # Ctrl-C reaches every process of a terminal; what it means is decided here alone, so the new ones inherit that it is held back.
        with deferred():
            others = multiprocessing.active_children()
            held = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                self._futures = {at: self._pool.submit(_compute, *at) for at in left}
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)
                self._workers = [child for child in multiprocessing.active_children() if child not in others]


class _Worker:
    """What a process of the crew keeps between cases."""

    debug = False
    experiments: Mapping[str, Experiment]
    labs: Mapping[str, Lab]
    grids: Mapping[str, Sequence[Any]]


def _begin(settings: Settings, names: Sequence[str], memo: Memo) -> None:
    threading.Thread(target=_end_with_master, daemon=True).start()
    experiments = chosen(names)
    labs = {name: lab_for(name, settings, None, memo, alone=len(names) == 1) for name in experiments}
    _Worker.debug, _Worker.experiments, _Worker.labs = settings.debug, experiments, labs
    _Worker.grids = {name: list(experiment.cases(labs[name])) for name, experiment in experiments.items()}


def _end_with_master() -> None:
    master = multiprocessing.parent_process()
    if master:
        master.join()
        os._exit(1)


def _compute(name: str, index: int) -> Outcome:
    return run_case(_Worker.experiments[name], _Worker.labs[name], _Worker.grids[name][index], _Worker.debug)
