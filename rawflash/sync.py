"""Files what lies on disk and is not in the store: `rawflash sync`, the end of every sweep, and `resume=true` all go this way.

    rawflash sync [folder ...] [tracking.uri=...] [tracking.experiment=...] [--over]

A run is known again by its tags (rawflash.filing.ID, ROW, COMPLETE), so that doing it twice adds nothing. A row that was under
way when its process ended becomes INTERRUPTED, and its run KILLED.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rawflash.errors import TrackingError, UsageError
from rawflash.filing import COMPLETE, ROW, Filing, describe, family_of
from rawflash.owner import is_gone
from rawflash.record import Record, starts_below
from rawflash.results import CONFIG, OUTPUTS, RESULTS, TABLE, Row, plain_json, settle, write_text
from rawflash.store import TrackingConf
from rawflash.summary import write_summary
from rawflash.tracking import KILLED, OWNER, Tracker, open_tracker

__all__ = ["conclude", "file_missing", "gather", "results_of", "sync", "sync_folder"]


def results_of(folder: Path, record: Record) -> list[Path]:
    """Every results.json of an invocation that rows are written to: one per point, in the order of their numbers."""
    if not record.multirun:
        return [path for path in [folder / RESULTS] if path.is_file()]
    points = [path for path in folder.rglob(RESULTS) if path.parent != folder]
    return sorted(points, key=lambda path: (len(str(path)), str(path)))


def gather(folder: Path, record: Record, over: bool) -> dict[Path, list[Row]]:
    """results.json -> its rows. `over`: nobody works on them any more, though it may look so."""
    return {path: settle(path, over) for path in results_of(folder, record)}


def file_missing(filing: Filing, folder: Path, record: Record, found: Mapping[Path, Sequence[Row]], over: bool) -> int:
    """File the rows that the store lacks or has in part; returns how many runs were made or completed.

    What fails goes to filing.problem, as everywhere.
    """
    if filing.tracker is None or filing.problem:
        return 0
    try:
        family = {run.data.tags.get(ROW, ""): run for run in filing.tracker.search(family_of(record.id))}
    except TrackingError as error:
        filing.problem = str(error)
        return 0
    if "" not in family:
        record.parent = filing.open_parent(record.name, record.arguments, record.id)
        record.write(folder)
    filing.parent = family[""].info.run_id if "" in family else record.parent
    done = 0
    for path, rows in found.items():
        wanted = [row for row in rows if not row.reused and row.status != "RUNNING" and _missing(row, family.get(row.id), over)]
        for row in wanted:
            _file(filing, row, family.get(row.id), path.parent / row.folder)
            done += not filing.problem
        if wanted or any(row.unfiled for row in rows):
            for row in rows:
                row.unfiled = filing.problem
            _rewrite(path, rows)
    return done


def _missing(row: Row, run: Any, over: bool) -> bool:
    """True when the store lacks something of a row, and nobody else is about to add it."""
    if run is None:
        return True
    if COMPLETE in run.data.tags and run.info.status != "RUNNING":
        return False
    return over or run.info.status != "RUNNING" or is_gone(run.data.tags.get(OWNER, ""))


def _file(filing: Filing, row: Row, run: Any, artifacts: Path) -> None:
    filing.open_child(row, "" if run is None else run.info.run_id)
    filing.close_child(row, artifacts)


def _rewrite(path: Path, rows: Sequence[Row]) -> None:
    document = json.loads(path.read_text("utf-8")) | {"rows": [asdict(row) for row in rows]}
    write_text(path, json.dumps(plain_json(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def conclude(filing: Filing, folder: Path, record: Record, found: Mapping[Path, Sequence[Row]]) -> tuple[list[Row], str]:
    """One table over all rows of an invocation, on disk and in its parent run, which ends; returns the rows and the title."""
    rows: list[Row] = []
    for path, part in found.items():
        rows += [replace(row, folder=(path.parent / row.folder).relative_to(folder).as_posix()) for row in part]
    shared = {k: v for k, v in rows[0].params.items() if all(row.params.get(k) == v for row in rows)} if rows else {}
    over = f"{len(rows)} rows over {', '.join(record.axes) or 'one point'}" if record.multirun else ""
    short = f"only {len(found)} of {record.points} points were begun" if len(found) < record.points else ""
    title = "; ".join(filter(None, [over, describe(shared), short]))
    files = write_summary(folder, rows, title, record.arguments, {})
    config = folder / CONFIG
    filing.close_parent(rows, [*files, *([config] if config.is_file() else [])], title, record.arguments, cut=bool(short))
    return rows, title


def sync_folder(folder: Path, record: Record, tracker: Tracker, over: bool = False) -> tuple[int, str]:
    """File what one invocation's folder holds beyond the store: (runs made or completed, what is left to say)."""
    over = over or record.gone or (folder / TABLE).is_file()
    found = gather(folder, record, over)
    if not found:
        return 0, ""
    filing = Filing(tracker)
    done = file_missing(filing, folder, record, found, over)
    left = any(row.status == "RUNNING" for rows in found.values() for row in rows)
    if not over or left:
        return done, filing.problem or "still running: what is finished is filed, the rest later (--over says that nothing runs any more)"
    if not filing.problem and not ((folder / TABLE).is_file() and filing.parent_complete()):
        done += 1
        conclude(filing, folder, record, found)
    return done, filing.problem


def sync(arguments: Sequence[str]) -> int:
    """The command: returns the exit code. Raises UsageError or TrackingError."""
    over = "--over" in arguments
    chosen = dict(a.removeprefix("tracking.").split("=", 1) for a in arguments if a.startswith(("tracking.uri=", "tracking.experiment=")))
    places = [Path(a) for a in arguments if not a.startswith(("-", "tracking."))]
    odd = [
        a
        for a in arguments
        if a.startswith(("-", "tracking.")) and a != "--over" and a.split("=")[0].removeprefix("tracking.") not in chosen
    ]
    if odd:
        raise UsageError(f"sync takes folders, tracking.uri=, tracking.experiment= and --over, not {odd[0]}")
    absent = [place for place in places if not place.is_dir()]
    if absent:
        raise UsageError(f"there is no folder {absent[0]}: give folders with results, or none for {OUTPUTS}/")
    folders = starts_below(places or [Path(OUTPUTS)])
    if not folders:
        raise UsageError(f"there are no results below {', '.join(map(str, places)) or OUTPUTS}: give the folder that holds them")
    trackers: dict[str, Tracker | None] = {}
    try:
        return _sync_all(folders, chosen, over, trackers)
    except BaseException as error:
        for tracker in filter(None, trackers.values()):
            tracker.abandon(KILLED, str(error))
        raise


def _sync_all(folders: Sequence[Path], chosen: Mapping[str, str], over: bool, trackers: dict[str, Tracker | None]) -> int:
    total, failed = 0, ""
    for folder in folders:
        record = Record.read(folder)
        conf = record.tracking
        conf = TrackingConf(
            conf.enabled or "uri" in chosen, chosen.get("uri", conf.uri), chosen.get("experiment", conf.experiment), conf.timeout_s
        )
        tracker = trackers.setdefault(repr(conf), None) or _open(conf, folder)
        trackers[repr(conf)] = tracker
        if tracker is None:
            continue
        done, left = sync_folder(folder, record, tracker, over)
        total += done
        if done or left:
            print(f"{folder}: {done} runs filed{f'; {left}' if left else ''}")
        failed = failed or ("" if left.startswith("still") else left)
    print(f"{total} runs filed in all" if total else "nothing new to file")
    return 1 if failed else 0


def _open(conf: TrackingConf, folder: Path) -> Tracker | None:
    if conf.enabled and not conf.uri and not os.environ.get("MLFLOW_TRACKING_URI", "").strip():
        raise UsageError(f"the store of {folder} is named by MLFLOW_TRACKING_URI alone, which is not set: set it, or add tracking.uri=")
    return open_tracker(conf, Path.cwd())
