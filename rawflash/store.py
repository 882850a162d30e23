"""Which MLflow store a run goes to, decided without MLflow.

Order: tracking.uri, then MLFLOW_TRACKING_URI, then sqlite:///mlflow.db in the working directory. Empty means unset. A relative
sqlite path is taken from the working directory that the program was started in, and made absolute.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from rawflash.errors import TrackingError, UsageError

__all__ = ["Store", "TrackingConf", "reach", "resolve_experiment", "resolve_store"]

DEFAULT_URI = "sqlite:///mlflow.db"
DEFAULT_EXPERIMENT = "rawflash"
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


@dataclass
class TrackingConf:
    """Where results are filed: group tracking of the configuration (conf/tracking/)."""

    enabled: bool = True
    uri: Optional[str] = None  # noqa: UP045 - OmegaConf reads typing.Optional
    experiment: Optional[str] = None  # noqa: UP045
    timeout_s: float = 5.0


@dataclass(frozen=True)
class Store:
    """`uri` for MLflow; `shown` the same without a password; `origin` who chose it; `file` the database of a sqlite store."""

    uri: str
    origin: str
    file: Path | None = None

    @property
    def shown(self) -> str:
        """The URI as it may be printed: without user and password."""
        return re.sub(r"//[^/@]*@", "//", self.uri)

    @property
    def artifacts(self) -> str | None:
        """URI of the artifact folder beside a sqlite file; None when the server decides."""
        return (self.file.parent / "mlruns").as_uri() if self.file else None


def resolve_store(chosen: str | None, environ: Mapping[str, str], cwd: Path) -> Store:
    """The store for tracking.uri=`chosen`. Raises UsageError for a URI that MLflow would not take."""
    asked, env = (chosen or "").strip(), environ.get("MLFLOW_TRACKING_URI", "").strip()
    uri, origin = (asked, "tracking.uri") if asked else (env, "MLFLOW_TRACKING_URI") if env else (DEFAULT_URI, "default")
    if asked and "@" in urlsplit(asked).netloc:
        raise UsageError(
            "tracking.uri holds a user or a password, which would end up in logs: put the URI in MLFLOW_TRACKING_URI, "
            "or the two in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if uri.startswith("sqlite:"):
        file = _sqlite_file(uri, origin, cwd)
        return Store(f"sqlite:///{file}", origin, file)
    scheme = urlsplit(uri).scheme
    if scheme in ("", "file") and environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        raise UsageError(
            f"{origin}={uri} is a file store, which MLflow no longer takes: give a database such as {DEFAULT_URI}, or a server"
        )
    return Store(uri, origin)


def _sqlite_file(uri: str, origin: str, cwd: Path) -> Path:
    found = re.fullmatch(r"sqlite:///([^?]+)", uri)
    if not found or found[1] == ":memory:":
        raise UsageError(f"{origin}={uri} names no database file: write sqlite:///name.db, or sqlite:////absolute/path/name.db")
    return Path(os.path.abspath(cwd / found[1]))


def resolve_experiment(chosen: str | None, environ: Mapping[str, str]) -> str:
    """Name of the MLflow experiment: tracking.experiment, then MLFLOW_EXPERIMENT_NAME, then rawflash."""
    return (chosen or "").strip() or environ.get("MLFLOW_EXPERIMENT_NAME", "").strip() or DEFAULT_EXPERIMENT


def reach(store: Store, timeout_s: float) -> None:
    """Raise TrackingError when a server does not answer in time, or a sqlite file cannot be written. Cheap; no MLflow.

    MLflow itself would try again for minutes.
    """
    parts = urlsplit(store.uri)
    if store.file is not None:
        _reach_file(store, timeout_s)
    elif parts.scheme in ("http", "https"):
        _reach_server(store, timeout_s)
    elif parts.hostname and (parts.port or _PORTS.get(parts.scheme.partition("+")[0])):
        _reach_database(store, parts.hostname, parts.port or _PORTS[parts.scheme.partition("+")[0]], timeout_s)


def _reach_file(store: Store, timeout_s: float) -> None:
    assert store.file is not None
    folder = store.file.parent
    if not folder.is_dir():
        raise TrackingError(f"{store.origin}: the folder {folder} of {store.shown} does not exist; make it, or add tracking=none")
    try:
        if store.file.exists():
            with store.file.open("r+b"), contextlib.closing(sqlite3.connect(store.file, timeout_s)) as database:
                database.execute("pragma schema_version")
            return
        with tempfile.TemporaryFile(dir=folder):
            return
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise TrackingError(
                f"the MLflow store {store.shown} ({store.origin}) is locked by another program for more than {timeout_s:g} s: "
                "wait for it, or choose another with tracking.uri="
            ) from error
        raise TrackingError(
            f"the MLflow store {store.shown} ({store.origin}) is no database ({error}): move it away, or choose another with tracking.uri="
        ) from error
    except OSError as error:
        raise TrackingError(
            f"the MLflow store {store.shown} ({store.origin}) cannot be written ({error.strerror or error}): run in a folder that you may "
            "write to, choose another place with tracking.uri=, or add tracking=none"
        ) from error


def _reach_server(store: Store, timeout_s: float) -> None:
    try:
        with urlopen(f"{store.uri.rstrip('/')}/health", timeout=timeout_s):
            return
    except HTTPError:
        return  # it answers; whether it lets us in is MLflow's to find out
    except (URLError, OSError, ValueError) as error:
        raise _silent(store, timeout_s, getattr(error, "reason", error)) from error


def _reach_database(store: Store, host: str, port: int, timeout_s: float) -> None:
    try:
        with socket.create_connection((host, port), timeout_s):
            return
    except OSError as error:
        raise _silent(store, timeout_s, error) from error


def _silent(store: Store, timeout_s: float, reason: object) -> TrackingError:
    text = getattr(reason, "strerror", None) or str(reason)
    return TrackingError(
        f"the tracking server {store.shown} (from {store.origin}) does not answer within {timeout_s:g} s ({text}): "
        "start it, correct the address, or add tracking=none"
    )
