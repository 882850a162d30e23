"""Which rows have finished OK before, in the same experiment: `resume=true` takes them over instead of running them again.

Two places know: the results on disk, and the store. What is only on disk is filed on the way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rawflash.filing import FINGERPRINT, ROW
from rawflash.metrics import METRICS
from rawflash.record import Record, starts_below
from rawflash.results import Row, read_rows, row_from, write_text
from rawflash.store import TrackingConf
from rawflash.sync import results_of, sync_folder
from rawflash.tracking import Tracker

__all__ = ["FINISHED", "finished_rows", "read_finished", "resumed", "write_finished"]

FINISHED = "finished.json"


def finished_rows(conf: TrackingConf, tracker: Tracker | None, places: Sequence[Path]) -> dict[str, Row]:
    """Fingerprint -> row, of all rows that finished OK below `places` (for the same store and experiment) or in the store."""
    filed = _in_store(tracker) if tracker is not None else {}
    found = dict(filed)
    for folder in starts_below(places):
        try:
            record = Record.read(folder)
            same = (record.tracking.enabled, record.tracking.uri, record.tracking.experiment) == (conf.enabled, conf.uri, conf.experiment)
            rows = [row for path in results_of(folder, record) for row in read_rows(path) if row.ok and row.fingerprint] if same else []
        except (OSError, ValueError, KeyError, TypeError):  # another program's files, or half of a folder
            continue
        if tracker is not None and any(row.fingerprint not in filed for row in rows):
            sync_folder(folder, record, tracker)
        found |= {row.fingerprint: row for row in rows}
    return found


def _in_store(tracker: Tracker) -> dict[str, Row]:
    found = {}
    for run in tracker.search("attributes.status = 'FINISHED' and tags.status = 'OK'"):
        tags = run.data.tags
        if tags.get(FINGERPRINT):
            found[tags[FINGERPRINT]] = _row(run)
    return found


def _row(run: Any) -> Row:
    """A row as far as the store has it: without bytes per tensor and samples."""
    tags, params = run.data.tags, dict(run.data.params)
    row = Row(params.pop("variant", ""), "OK", backend=tags.get("backend", ""), params=params)
    row.id, row.fingerprint, row.run_id = tags.get(ROW, ""), tags[FINGERPRINT], run.info.run_id
    row.metrics = {name: value for name, value in run.data.metrics.items() if name in METRICS}
    row.tags = {name: text for name, text in tags.items() if not name.startswith(("mlflow.", "rawflash."))}
    return row


def write_finished(folder: Path, rows: dict[str, Row]) -> None:
    """Tell the jobs of the sweep in `folder` what they need not run."""
    write_text(folder / FINISHED, json.dumps({mark: asdict(row) for mark, row in rows.items()}) + "\n")


def read_finished(folder: Path) -> dict[str, Row]:
    """What write_finished told; {} when nothing was."""
    try:
        return {mark: row_from(entry) for mark, entry in json.loads((folder / FINISHED).read_text("utf-8")).items()}
    except OSError:
        return {}


def resumed(rows: Sequence[Row]) -> str:
    """How many rows were taken over, in a sentence."""
    return f"resume: {sum(row.reused for row in rows)} of {len(rows)} rows had finished before and were not run again."
