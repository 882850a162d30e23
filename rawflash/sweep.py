"""A sweep: one folder, one parent run, and as many points as the command line spells, in one process or in many.

    open_sweep     before the first point, in the process that was started: claims the folder, opens the parent run
    run_point      in whatever process a launcher gives it: runs one point, writes its rows into <folder>/<number>/
    finish_sweep   after the last point: reads every row from disk, prints one table, closes the parent run

The points know each other only through the folder: sweep.json there names the parent run and the swept keys.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rawflash.config import Settings
from rawflash.errors import BackendUnavailable, RawflashError, TrackingError, UsageError
from rawflash.explain import internal_error
from rawflash.filing import Filing, describe
from rawflash.job import CONFIG, RESULTS, Machine, finish, run_rows, write_summary
from rawflash.output import Progress, print_tables, say
from rawflash.provenance import about
from rawflash.results import Claim, Row, claim_folder, read_rows, write_results, write_text
from rawflash.signals import Stopped
from rawflash.store import TrackingConf
from rawflash.tracking import FAILED, KILLED, Tracker, open_tracker

__all__ = ["Sweep", "finish_sweep", "open_sweep", "run_point"]

SWEEP = "sweep.json"
_trackers: dict[str, Tracker] = {}


@dataclass
class Sweep:
    """An open sweep, in the process that was started."""

    claim: Claim
    filing: Filing
    arguments: tuple[str, ...]
    axes: list[str]

    @property
    def folder(self) -> Path:
        """Where the sweep's results lie."""
        return self.claim.folder

    def abandon(self, status: str, reason: str) -> None:
        """End what is open. A sweep that did not get to its first point leaves nothing behind."""
        self.filing.abandon(status, reason)
        if not any(entry.is_dir() for entry in self.folder.iterdir()):
            self.filing.discard()
            for left in (self.folder / SWEEP, self.folder / "multirun.yaml"):
                left.unlink(missing_ok=True)
            self.claim.release()


def open_sweep(conf: TrackingConf, arguments: tuple[str, ...], axes: dict[str, int], wanted: Path, cwd: Path) -> Sweep:
    """Claim the folder `wanted` (or wanted-2, ...) and open the parent run. `axes`: swept keys and their numbers of values.

    Raises UsageError or TrackingError.
    """
    tracker = _tracker(conf, cwd)
    claim = claim_folder((cwd / wanted).resolve(), "hydra.sweep.dir=<folder>")
    filing = Filing(tracker)
    parent = filing.open_parent(_name(list(axes)), arguments)
    if filing.problem:
        claim.release()
        raise TrackingError(filing.problem)
    told = {"parent": parent, "axes": list(axes), "points": math.prod(axes.values()), "tracking": asdict(conf)}
    write_text(claim.folder / SWEEP, json.dumps(told) + "\n")
    return Sweep(claim, filing, arguments, list(axes))


def _name(axes: Sequence[str]) -> str:
    """N block_size sweep: what differs between sweeps first, since lists show the first dozen characters."""
    told = [axis.rpartition(".")[2] for axis in axes if axis != "kernel"] or list(axes) or ["one point"]
    return f"{' '.join(told)} sweep"[:120]


def _tracker(conf: TrackingConf, cwd: Path) -> Tracker | None:
    """One tracker per process and configuration: opening a store takes seconds."""
    key = repr((conf, cwd))
    if key not in _trackers:
        tracker = open_tracker(conf, cwd)
        if tracker is None:
            return None
        _trackers[key] = tracker
    return _trackers[key]


def run_point(compose: Callable[[], Settings], overrides: tuple[str, ...], folder: Path, sweep_folder: Path, cwd: Path) -> None:
    """Run one point and write its rows below `folder`. Never raises for a bad point: that is a row with a sentence."""
    told = json.loads((sweep_folder / SWEEP).read_text("utf-8"))
    point = _point(overrides, told["axes"])
    filing = _filing(TrackingConf(**told["tracking"]), cwd, told["parent"])
    try:
        settings = compose()
        each = len(settings.variants)
        progress = Progress(told["points"] * each, done=_number(folder) * each)
        machine = Machine.for_settings(settings)
        write_text(folder / CONFIG, settings.yaml)
        rows = run_rows(settings, machine, overrides, point, folder, filing, progress, keep_going=True)
    except Exception as error:
        rows = [_failed(error, overrides, point)]
        write_results(folder / RESULTS, rows, about(overrides, {}))
        filing.open_child(rows[0])
        filing.close_child(rows[0], folder)
    except BaseException as stop:
        filing.abandon(KILLED if isinstance(stop, Stopped) else FAILED, str(stop))
        raise
    if not sys.stderr.isatty():
        print(f"{' '.join(overrides)}: {' '.join(row.status for row in rows)}", file=sys.stderr, flush=True)


def _filing(conf: TrackingConf, cwd: Path, parent: str) -> Filing:
    """Filing below the sweep's parent. A store that is gone by now costs the filing, not the point."""
    try:
        return Filing(_tracker(conf, cwd), parent)
    except RawflashError as error:
        filing = Filing(None, parent)
        filing.problem = str(error)
        return filing


def _failed(error: Exception, overrides: tuple[str, ...], point: dict[str, str]) -> Row:
    """The row of a point that did not get as far as a variant."""
    row = Row(_chosen_kernel(overrides), "INVALID", str(error), exit_code=2, point=point, params=dict(point), overrides=list(overrides))
    if not isinstance(error, RawflashError):
        row.status, row.sentence, row.exit_code = "RUNTIME_ERROR", internal_error(error), 1
    elif not isinstance(error, UsageError):
        row.status = "UNSUPPORTED" if isinstance(error, BackendUnavailable) else "RUNTIME_ERROR"
        row.exit_code = error.exit_code
    return row


def _chosen_kernel(overrides: Sequence[str]) -> str:
    return next((o.partition("=")[2] for o in reversed(overrides) if o.startswith("kernel=")), "all")


def _point(overrides: Sequence[str], axes: Sequence[str]) -> dict[str, str]:
    """The swept keys of one point and their values, as they were written; the variant has a column of its own."""
    values = dict(o.lstrip("+").partition("=")[::2] for o in overrides)
    return {axis: values[axis] for axis in axes if axis in values and axis != "kernel"}


def _number(folder: Path) -> int:
    """Number of a point, from 0: its folder's name, unless hydra.sweep.subdir gives it another."""
    return int(folder.name) if folder.name.isdecimal() else 0


def _row_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*/{RESULTS}"), key=lambda path: (len(path.parent.name), path.parent.name))


def finish_sweep(sweep: Sweep) -> int:
    """One table over all points; closes the parent run. Returns the exit code, or raises TrackingError when rows were not filed."""
    rows: list[Row] = []
    for path in _row_files(sweep.folder):
        part = read_rows(path)
        for row in part:
            row.folder = f"{path.parent.name}/{row.folder}"
        rows += part
    sweep.filing.problem = sweep.filing.problem or next((row.unfiled for row in rows if row.unfiled), "")
    shared = {k: v for k, v in rows[0].params.items() if all(row.params.get(k) == v for row in rows)} if rows else {}
    title = "; ".join(filter(None, [f"{len(rows)} rows over {', '.join(sweep.axes) or 'one point'}", describe(shared)]))
    files = write_summary(sweep.folder, rows, title, sweep.arguments, {})
    sweep.filing.close_parent(rows, files, title, sweep.arguments)
    for line in dict.fromkeys(row.told for row in rows if row.told):
        say(line)
    print_tables(rows, title)
    return finish(rows, sweep.filing, sweep.folder, sweep.arguments)
