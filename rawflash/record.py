"""What the folder of an invocation says about it before its first row: invocation.json.

The points of a sweep, `resume=true` and `rawflash sync` know an invocation only through this file and the results below it. It
holds no credentials: a store whose URI has some is named by MLFLOW_TRACKING_URI alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from rawflash.owner import is_gone, this_process
from rawflash.results import write_text
from rawflash.store import TrackingConf, resolve_experiment, resolve_store

__all__ = ["RECORD", "Record", "ask_to_stop", "first_to_say", "fixed", "starts_below", "stop_reason"]

RECORD = "invocation.json"
_STOPPED, _SAID = "stopped", "unfiled"


@dataclass
class Record:
    """One invocation.

    id        names it in every store that it is filed in; `parent` is its MLflow run, "" while there is none
    name      of that run; `arguments` the command line; `axes` the swept keys, [] outside sweeps; `points` how many there are
    owner     the process that was started (rawflash.owner)
    tracking  where it is to be filed, resolved: not relative to any folder, and without credentials
    problem   why it could not be filed at once, "" when it could
    threads   of the emulator in each job, 0 for all cores
    """

    name: str
    arguments: list[str]
    tracking: TrackingConf
    axes: list[str] = field(default_factory=list)
    points: int = 1
    multirun: bool = False
    threads: int = 0
    parent: str = ""
    problem: str = ""
    id: str = field(default_factory=lambda: uuid4().hex)
    owner: str = field(default_factory=this_process)

    def write(self, folder: Path) -> None:
        """Write invocation.json into `folder`. Raises RawflashError when the disk refuses."""
        write_text(folder / RECORD, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Record:
        """The record in `folder`; entries of newer versions are left out. Raises OSError or ValueError when there is none."""
        known = {entry.name for entry in fields(cls)}
        values = {name: value for name, value in json.loads((folder / RECORD).read_text("utf-8")).items() if name in known}
        return cls(**{**values, "tracking": TrackingConf(**values["tracking"])})

    @property
    def gone(self) -> bool:
        """True when the process that was started has ended without doubt."""
        return is_gone(self.owner)


def fixed(conf: TrackingConf, cwd: Path) -> TrackingConf:
    """`conf` as every other process must read it, wherever it runs. Raises UsageError for a URI that MLflow would not take."""
    if not conf.enabled:
        return conf
    store = resolve_store(conf.uri, os.environ, cwd)
    uri = None if "@" in urlsplit(store.uri).netloc else store.uri
    return TrackingConf(True, uri, resolve_experiment(conf.experiment, os.environ), conf.timeout_s)


def ask_to_stop(folder: Path, reason: str) -> None:
    """Tell the jobs of a sweep, wherever they run, to stop; a disk that refuses is not worth a second error."""
    with contextlib.suppress(OSError):
        (folder / _STOPPED).write_text(reason, encoding="utf-8")


def stop_reason(folder: Path, record: Record) -> str:
    """Why a job of the sweep in `folder` should stop, "" when it should not."""
    with contextlib.suppress(OSError):
        return (folder / _STOPPED).read_text("utf-8") or "stopped"
    return "the program that started the sweep is gone" if record.gone else ""


def first_to_say(folder: Path, text: str) -> bool:
    """True for the first of all processes that wants to say that filing failed."""
    with contextlib.suppress(OSError), (folder / _SAID).open("x", encoding="utf-8") as file:
        file.write(text + "\n")
        return True
    return False


def starts_below(folders: Sequence[Path]) -> list[Path]:
    """Every folder with an invocation.json in or up to three levels below `folders` (outputs/<date>/<time>), in order."""
    found = {path.parent for folder in folders for depth in ("", "*/", "*/*/", "*/*/*/") for path in folder.glob(depth + RECORD)}
    return sorted(found)
