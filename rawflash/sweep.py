"""A sweep: one folder, one parent run, and as many points as the command line spells, in one process or in many.

    open_sweep     before the first point, in the process that was started: claims the folder, makes the store, opens the parent run
    run_point      in whatever process a launcher gives it: runs one point, writes its rows into <folder>/<number>/, files them
    finish_sweep   after the last point: reads every row from disk, files what is missing, prints one table, closes the parent run

The points know each other only through the folder: invocation.json there (rawflash.record) names the parent run and the swept
keys. A store that fails costs nothing but the filing: the rows are on disk, and `rawflash sync` files them later.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rawflash.config import Settings
from rawflash.errors import BackendUnavailable, RawflashError, TrackingError, UsageError
from rawflash.explain import internal_error
from rawflash.filing import Filing
from rawflash.job import Machine, Place, any_finished, finish, run_rows
from rawflash.output import Progress, print_tables, say
from rawflash.owner import this_process
from rawflash.provenance import about
from rawflash.record import RECORD, Record, ask_to_stop, first_to_say, fixed, stop_reason
from rawflash.results import CONFIG, OUTPUTS, RESULTS, Claim, Row, claim_folder, interrupt, write_results, write_text
from rawflash.resume import FINISHED, finished_rows, read_finished, resumed, write_finished
from rawflash.signals import Stopped
from rawflash.store import TrackingConf
from rawflash.sync import conclude, file_missing, gather, results_of
from rawflash.tracking import FAILED, KILLED, Tracker, open_tracker
from rawflash.watch import Bar, leave_with, obedient

__all__ = ["Sweep", "finish_sweep", "open_sweep", "run_point"]

# How long a store that failed is left alone, and how long the jobs of a stopped sweep may take to write what they have.
_PAUSE_S, _GRACE_S = 30.0, 10.0
_trackers: dict[str, Tracker] = {}
_down: dict[str, tuple[float, str]] = {}


@dataclass
class Sweep:
    """An open sweep, in the process that was started."""

    claim: Claim
    filing: Filing
    record: Record
    cwd: Path
    resume: bool
    bar: Bar

    @property
    def folder(self) -> Path:
        """Where the sweep's results lie."""
        return self.claim.folder

    @property
    def kept(self) -> Path | None:
        """The same when some row was finished."""
        return self.folder if self.folder.is_dir() and any_finished(self.folder) else None

    def abandon(self, status: str, reason: str) -> None:
        """Stop the jobs and end what is open. A sweep that did not get to its first point leaves nothing behind."""
        self.bar.stop()
        if not results_of(self.folder, self.record):
            self.filing.abandon(status, reason)
            self.filing.discard()
            for left in (RECORD, FINISHED, "multirun.yaml"):
                (self.folder / left).unlink(missing_ok=True)
            self.claim.release()
            return
        ask_to_stop(self.folder, reason)
        with contextlib.suppress(RawflashError):  # a full disk may be the very reason
            if self._jobs_ended() and status == KILLED:
                found = gather(self.folder, self.record, over=False)
                file_missing(self.filing, self.folder, self.record, found, over=True)
                conclude(self.filing, self.folder, self.record, found)
        self.filing.abandon(status, reason)
        self.filing.end_family(self.record.id, reason)

    def _jobs_ended(self) -> bool:
        """Wait a little until no row is under way; False when some still is, on another machine for example."""
        deadline = time.monotonic() + _GRACE_S
        while any(row.status == "RUNNING" for rows in gather(self.folder, self.record, over=False).values() for row in rows):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True


def open_sweep(
    conf: TrackingConf, arguments: tuple[str, ...], axes: list[str], points: int, wanted: Path, cwd: Path, resume: bool, threads: int
) -> Sweep:
    """Claim the folder `wanted` (or wanted-2, ...) and open the parent run.

    `axes`: the swept keys; `threads`: of the emulator in each job, 0 for all cores. A store that does not answer is told on stderr.
    Raises UsageError.
    """
    name = _name(axes)
    record = Record(name, list(arguments), fixed(conf, cwd), axes, points, True, threads)
    filing = _opened(conf, cwd)
    if filing.tracker:
        _trackers[repr((record.tracking, cwd))] = filing.tracker  # which the points will ask for
    claim = claim_folder((cwd / wanted).resolve(), "hydra.sweep.dir=<folder>")
    try:
        record.parent = filing.open_parent(name, arguments, record.id)
        record.problem = filing.problem
        record.write(claim.folder)
        if resume:
            write_finished(claim.folder, finished_rows(record.tracking, filing.tracker, [cwd / OUTPUTS, claim.folder.parent]))
    except BaseException:
        filing.abandon(FAILED, "the sweep could not be opened")
        (claim.folder / RECORD).unlink(missing_ok=True)
        claim.release()
        raise
    if filing.problem:
        _say_once(claim.folder, filing.problem)
    bar = Bar(claim.folder, points)
    bar.start()
    return Sweep(claim, filing, record, cwd, resume, bar)


def _name(axes: Sequence[str]) -> str:
    """N block_size sweep: what differs between sweeps first, since lists show the first dozen characters."""
    told = [axis.rpartition(".")[2] for axis in axes if axis != "kernel"] or list(axes) or ["one point"]
    return f"{' '.join(told)} sweep"[:120]


def _opened(conf: TrackingConf, cwd: Path) -> Filing:
    """Filing in the store of `conf`; one that fails, or failed a moment ago, is left alone and its sentence kept."""
    key = repr((conf, cwd))
    since, problem = _down.get(key, (0.0, ""))
    if problem and time.monotonic() - since < _PAUSE_S:
        return Filing(None, problem=problem)
    _down.pop(key, None)
    try:
        if key not in _trackers:
            tracker = open_tracker(conf, cwd)
            if tracker is None:
                return Filing(None)
            _trackers[key] = tracker
        return Filing(_trackers[key])
    except TrackingError as error:
        _down[key] = time.monotonic(), str(error)
        return Filing(None, problem=str(error))


def _say_once(folder: Path, problem: str) -> None:
    if first_to_say(folder, problem):
        print(f"rawflash: results are not filed for now: {problem}; they are kept in {folder}", file=sys.stderr, flush=True)


def run_point(compose: Callable[[], Settings], overrides: tuple[str, ...], folder: Path, sweep_folder: Path, cwd: Path) -> None:
    """Run one point and write its rows below `folder`. Never raises for a bad point: that is a row with a sentence.

    A signal ends the sweep in the process that was started, and only the point in another one.
    """
    record = Record.read(sweep_folder)
    place = Place(f"{record.id}/{folder.relative_to(sweep_folder)}", folder, _point(overrides, record.axes), read_finished(sweep_folder))
    filing = _filing(record, cwd)
    leave_with(record)
    try:
        with obedient(sweep_folder, record):
            _run(compose, overrides, place, filing, record, sweep_folder)
    except Stopped:
        if record.owner == this_process():
            raise
    if filing.problem and record.tracking.enabled:
        _down.setdefault(repr((record.tracking, cwd)), (time.monotonic(), filing.problem))
        _say_once(sweep_folder, filing.problem)


def _run(
    compose: Callable[[], Settings], overrides: tuple[str, ...], place: Place, filing: Filing, record: Record, sweep_folder: Path
) -> None:
    reason = stop_reason(sweep_folder, record)
    if reason:
        row = _row(overrides, place)
        interrupt(row, reason)
        return _write_only(row, overrides, place, filing)
    try:
        settings = compose()
        settings = replace(settings, threads=settings.threads or record.threads)
        machine = Machine.for_settings(settings)
        write_text(place.folder / CONFIG, settings.yaml)
    except Exception as error:
        return _write_only(_failed(error, overrides, place), overrides, place, filing)
    try:
        run_rows(settings, machine, overrides, place, filing, Progress(0, quiet=True), keep_going=True)
    except BaseException as stop:
        filing.abandon(KILLED if not isinstance(stop, Exception) else FAILED, str(stop))
        raise


def _write_only(row: Row, overrides: tuple[str, ...], place: Place, filing: Filing) -> None:
    """The one row of a point that did not get as far as a variant."""
    write_results(place.folder / RESULTS, [row], about(overrides, {}))
    filing.open_child(row)
    filing.close_child(row, place.folder)
    write_results(place.folder / RESULTS, [row], about(overrides, {}))


def _filing(record: Record, cwd: Path) -> Filing:
    """Filing below the sweep's parent; without a parent, the end of the sweep files everything."""
    if not record.tracking.enabled:
        return Filing(None)
    if not record.parent:
        return Filing(None, problem=record.problem or "the parent run could not be made")
    try:
        filing = _opened(record.tracking, cwd)
    except RawflashError as error:
        filing = Filing(None, problem=str(error))
    filing.parent = record.parent
    return filing


def _row(overrides: Sequence[str], place: Place) -> Row:
    """A row without a variant of its own."""
    kernel = next((o.partition("=")[2] for o in reversed(overrides) if o.startswith("kernel=")), "all")
    row = Row(kernel, "RUNNING", point=dict(place.point), params=dict(place.point), overrides=list(overrides))
    row.id, row.started = f"{place.id}/{kernel}", time.time()
    return row


def _failed(error: Exception, overrides: Sequence[str], place: Place) -> Row:
    """The row of a point that did not get as far as a variant."""
    row = _row(overrides, place)
    row.status, row.sentence, row.exit_code, row.ended = "INVALID", str(error), 2, time.time()
    if not isinstance(error, RawflashError):
        row.status, row.sentence, row.exit_code = "RUNTIME_ERROR", internal_error(error), 1
    elif not isinstance(error, UsageError):
        row.status = "UNSUPPORTED" if isinstance(error, BackendUnavailable) else "RUNTIME_ERROR"
        row.exit_code = error.exit_code
    return row


def _point(overrides: Sequence[str], axes: Sequence[str]) -> dict[str, str]:
    """The swept keys of one point and their values, as they were written; the variant has a column of its own."""
    values = dict(o.lstrip("+").partition("=")[::2] for o in overrides)
    return {axis: values[axis] for axis in axes if axis in values and axis != "kernel"}


def finish_sweep(sweep: Sweep) -> int:
    """One table over all points; closes the parent run. Returns the exit code, or raises TrackingError when rows were not filed."""
    sweep.bar.stop()
    record, folder = sweep.record, sweep.folder
    found = gather(folder, record, over=True)
    _down.clear()
    filing = sweep.filing if sweep.filing.tracker else _opened(record.tracking, sweep.cwd)
    filing.problem = "" if filing.tracker else filing.problem
    file_missing(filing, folder, record, found, over=True)
    rows, title = conclude(filing, folder, record, found)
    for line in dict.fromkeys(row.told for row in rows if row.told):
        say(line)
    if sweep.resume:
        say(resumed(rows))
    print_tables(rows, title)
    return finish(rows, filing, folder, record.arguments)
