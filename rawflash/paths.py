"""Where rawflash's data lives: the only module that knows a checkout from an installed wheel.

    checkout or editable install    <repository>/kernels_cu, <repository>/conf, <repository>/experiments
    installed wheel                 rawflash/_data/kernels_cu, rawflash/_data/conf, rawflash/_data/experiments

Compiled PTX and machine code are cached under RAWFLASH_CACHE_DIR, else $XDG_CACHE_HOME/rawflash, that is ~/.cache/rawflash, else
(neither can be written) a per-user folder in the system's temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from pathlib import Path

from rawflash.errors import RawflashError

__all__ = ["cache_dir", "cache_root", "conf_dir", "experiments_dir", "include_dir", "is_checkout", "keep", "kernels_dir", "make_writable"]

_PACKAGE = Path(__file__).resolve().parent


def is_checkout() -> bool:
    """True when the package lies beside kernels_cu/ and conf/ (a checkout or an editable install)."""
    return (_PACKAGE.parent / "kernels_cu").is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file()


def _data(folder: str) -> Path:
    base = _PACKAGE.parent if is_checkout() else _PACKAGE / "_data"
    path = base / folder
    if not path.is_dir():
        raise RawflashError(f"the folder {path} is missing, so this installation of rawflash is incomplete; reinstall it with pip")
    return path


def kernels_dir() -> Path:
    """Absolute path of the folder that holds the .cu files."""
    return _data("kernels_cu")


def include_dir() -> Path:
    """Absolute path of the folder that holds the shared rf_*.cuh headers."""
    return kernels_dir() / "include"


def conf_dir() -> Path:
    """Absolute path of the Hydra configuration folder."""
    return _data("conf")


def experiments_dir() -> Path:
    """Absolute path of the folder that holds published.yaml (in a checkout also README and results/)."""
    return _data("experiments")


def make_writable(folder: Path) -> None:
    """Create `folder` if need be and try to write in it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _writable(folder: Path) -> bool:
    try:
        make_writable(folder)
    except OSError:
        return False
    return True


def _candidates() -> list[Path]:
    chosen = os.environ.get("RAWFLASH_CACHE_DIR")
    first = [Path(chosen)] if chosen else []
    with contextlib.suppress(RuntimeError):  # no HOME and no passwd entry
        first.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rawflash")
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return [*first, Path(tempfile.gettempdir()) / f"rawflash-cache-{user}"]


@cache
def _first_writable(candidates: tuple[Path, ...]) -> Path:
    for folder in candidates:
        if _writable(folder):
            return folder.resolve()
    return Path(tempfile.mkdtemp(prefix="rawflash-cache-"))


def cache_root() -> Path:
    """The cache folder (exists, writable). Honours RAWFLASH_CACHE_DIR at each call."""
    return _first_writable(tuple(_candidates()))


def cache_dir(room: str) -> Path:
    """The cache folder's sub-folder `room` (for example "ptx"), created when missing."""
    folder = cache_root() / room
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep(entry: Path, text: str) -> None:
    """Write an entry of a cache so that no other process ever sees half of it. A cache that cannot be written is no error."""
    try:
        handle, part = tempfile.mkstemp(dir=entry.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, entry)
    except OSError:
        Path(part).unlink(missing_ok=True)
