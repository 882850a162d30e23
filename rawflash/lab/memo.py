"""Numbers that were computed before, on disk: what makes an interrupted experiment go on where it stopped.

A key holds everything the number depends on: what is asked, the sources of the kernels, the code that makes numbers, the
versions of compiler and libraries. Anything else is computed again. A damaged entry is no entry.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rawflash import __version__, paths
from rawflash.emu import nvrtc
from rawflash.source import read_source

__all__ = ["Memo", "code_hash"]

_ROOT = Path(__file__).resolve().parent.parent
# Rooms of the package that only show or file numbers: an edit there changes none.
_SHOWING = frozenset(
    "lab experiments run.py sweep.py job.py filing.py tracking.py store.py report.py tables.py output.py provenance.py doctor.py "
    "explain.py signals.py owner.py results.py speed.py passes.py config.py artifacts.py gallery.py page.py swept.py calculator "
    "compare.py compare_text.py side_by_side.py stored.py verdict.py views.py".split()
)


@cache
def code_hash() -> str:
    """16 hex digits over the Python code that makes numbers."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        inside = path.relative_to(_ROOT)
        if inside.parts[0] not in _SHOWING and inside.parts[0] != "_data":
            digest.update(f"{inside}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Memo:
    """JSON values by key, shared by the processes of one run. `fresh`: compute again, once, what an earlier run remembered."""

    def __init__(self, folder: Path | None = None, *, fresh: bool = False) -> None:
        self.folder, self.fresh = folder or paths.cache_dir("experiments"), fresh
        self.reused = self.computed = 0
        self._began = time.time()

    def get(self, question: Sequence[Any], files: Sequence[str], make: Callable[[], Any]) -> Any:
        """The JSON value of `make()`, remembered under `question` (anything with a faithful repr) and the kernel sources `files`."""
        key = (__version__, code_hash(), np.__version__, _compiler(), *(read_source(file).hash for file in files), *question)
        entry = self.folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:40]}.json"
        try:
            earlier = entry.stat().st_mtime < self._began
            if not (self.fresh and earlier):
                value = json.loads(entry.read_text("utf-8"))["value"]
                self.reused += earlier
                return value
        except (OSError, ValueError, KeyError, TypeError):
            pass
        text = json.dumps({"question": repr(question), "value": make()})
        self.computed += 1
        paths.keep(entry, text)
        return json.loads(text)["value"]


def _compiler() -> str:
    """NVRTC's version, "" where there is none: what needs no compiler is remembered all the same."""
    try:
        return nvrtc.version_text()
    except nvrtc.NvrtcError:
        return ""
