"""Results on disk: one row per variant and point, written whole or not at all, before anything is filed elsewhere.

    outputs/<date>/<time>/           one invocation
        invocation.json              who started it, where it is to be filed (rawflash.record)
        results.json                 every row, exact numbers
        table.md  config.yaml
        <variant>/                   the .cu, the PTX, the traffic table, ...
    outputs/<date>/<time>/<point>/   the same, for each point of a sweep

JSON has no NaN and no infinity: they are written as the texts "nan", "inf" and "-inf", and read back as numbers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rawflash.errors import RawflashError, UsageError
from rawflash.owner import is_gone, this_process

__all__ = [
    "CONFIG",
    "OUTPUTS",
    "RESULTS",
    "STATUSES",
    "TABLE",
    "Claim",
    "Row",
    "claim_folder",
    "interrupt",
    "plain_json",
    "read_rows",
    "row_from",
    "settle",
    "write_results",
    "write_text",
]

# Names of the files in an invocation's folder, and the folder that holds those folders.
RESULTS, TABLE, CONFIG, OUTPUTS = "results.json", "table.md", "config.yaml", "outputs"
# What may become of a row besides OK. INTERRUPTED: the program was stopped, or killed, while the row was computed.
STATUSES = ("INCORRECT", "INVALID", "COMPILE_ERROR", "RUNTIME_ERROR", "RACE", "OOM", "UNSUPPORTED", "INTERRUPTED")


@dataclass
class Row:
    """One variant at one point: what was asked, what came out.

    status     OK, or one of STATUSES (RUNNING while it is computed); `sentence` says why it is not OK
    exit_code  what a program that ran only this row should return
    params     the inputs, flat; `point` the swept ones among them; `overrides` the command-line arguments that repeat the row
    metrics    names of rawflash.metrics only; `tensors` bytes per tensor, counted and modelled; times in milliseconds
    folder     where the row's artifacts lie, relative to its results.json
    id         <invocation>/<point>/<variant>: the same in every store; `fingerprint` what the row depends on (rawflash.fingerprint)
    started    seconds since 1970, like `ended`
    reused     taken over from an earlier invocation by resume=true; it is filed there
    run_id     its MLflow run, "" when there is none; `unfiled` says why the run is missing or incomplete though it was wanted
    told       the line about the choice of the backend
    """

    variant: str
    status: str
    sentence: str = ""
    exit_code: int = 0
    backend: str = ""
    params: dict[str, str] = field(default_factory=dict)
    point: dict[str, str] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    tensors: list[dict[str, Any]] = field(default_factory=list)
    samples_ms: list[float] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    id: str = ""
    fingerprint: str = ""
    started: float = 0.0
    ended: float = 0.0
    reused: bool = False
    run_id: str = ""
    unfiled: str = ""
    told: str = ""

    @property
    def ok(self) -> bool:
        """True when the variant ran and its result is right."""
        return self.status == "OK"


@dataclass(frozen=True)
class Claim:
    """A new folder that is ours alone, and the folders that had to be made for it, outermost first."""

    folder: Path
    made: tuple[Path, ...]

    def release(self) -> None:
        """Remove what was made, as far as it is empty: a request that came to nothing leaves nothing behind."""
        with contextlib.suppress(OSError):
            for folder in reversed(self.made):
                folder.rmdir()


def claim_folder(wanted: Path, remedy: str) -> Claim:
    """Make the folder `wanted`, or wanted-2, wanted-3, ... for those who come in the same second.

    Raises UsageError when nothing can be written there; `remedy` names the key that chooses another place.
    """
    missing = [folder for folder in wanted.parents if not folder.exists()]
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            folder = wanted if attempt == 1 else wanted.with_name(f"{wanted.name}-{attempt}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return Claim(folder, (*reversed(missing), folder))
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {wanted} ({error.strerror or error}): run in a folder that you may write to, or add {remedy}"
        ) from error
    raise UsageError(f"there are already 999 folders called {wanted}: add {remedy}")


def write_text(path: Path, text: str) -> None:
    """Write `text` so that the file is either the old one or the whole new one. Raises RawflashError when the disk refuses."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RawflashError(f"{path} could not be written ({error.strerror or error}): free some space or choose another folder") from error


def write_results(path: Path, rows: Iterable[Row], about: dict[str, Any], complete: bool = True) -> None:
    """Write results.json: `about` (command, versions, provenance), then the rows. `complete`: no more will come."""
    document = {"format": 1, "complete": complete, "owner": this_process(), **about, "rows": [asdict(row) for row in rows]}
    write_text(path, json.dumps(plain_json(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The rows of a results.json, non-finite numbers restored. Unknown entries of newer versions are left out."""
    return [row_from(entry) for entry in json.loads(path.read_text("utf-8"))["rows"]]


def row_from(entry: Mapping[str, Any]) -> Row:
    """A row from its JSON."""
    names = {known.name for known in fields(Row)}
    row = Row(**{k: v for k, v in entry.items() if k in names})
    row.metrics = {name: float(value) for name, value in row.metrics.items()}
    return row


def settle(path: Path, over: bool) -> list[Row]:
    """The rows of a results.json; a row that was under way when its process ended becomes INTERRUPTED, in the file too.

    `over`: the process has ended for sure, though it cannot be judged from here. A row that is under way now stays RUNNING.
    """
    document = json.loads(path.read_text("utf-8"))
    rows = [row_from(entry) for entry in document["rows"]]
    if document.get("complete", True) or not (over or is_gone(document.get("owner", ""))):
        return rows
    for row in rows:
        if row.status == "RUNNING":
            interrupt(row, "its process ended before it did")
    document |= {"complete": True, "rows": [asdict(row) for row in rows]}
    write_text(path, json.dumps(plain_json(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    return rows


def interrupt(row: Row, why: str) -> None:
    """Make INTERRUPTED out of a row that was under way."""
    row.status, row.sentence, row.exit_code, row.ended = "INTERRUPTED", f"{why}; resume=true runs it again", 1, time.time()


def plain_json(value: Any) -> Any:
    """`value` with NumPy scalars as Python numbers and non-finite floats as texts."""
    if isinstance(value, dict):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
