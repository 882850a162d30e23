"""What a row depends on, as one short text: equal fingerprints mean that running again would give the same row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from rawflash import __version__
from rawflash.backends.base import Backend
from rawflash.errors import RawflashError
from rawflash.roofline import Gpu
from rawflash.source import read_source
from rawflash.variants import LADDER

__all__ = ["fingerprint"]

_PACKAGE = Path(__file__).resolve().parent
# The code behind a number; a change of the program around it (tables, filing, sweeps) does not make a row stale.
_LIBRARY = ("backends", "emu", "variants", "bench", "check", "compile", "counted", "execute", "io_model", "problem", "reference", "source")
# Tags of a device that do not change what it computes.
_PLACE = ("pci_bus_id",)


def fingerprint(variant: str, params: Mapping[str, str], gpu: Gpu, backend: Backend) -> str:
    """The fingerprint of one row: its configuration, the .cu with its includes, and the versions of all that takes part.

    "" when the sources cannot be read: such a row is never taken for finished.
    """
    try:
        source = read_source(LADDER[variant].file).hash
    except RawflashError:
        return ""
    device = {name: text for name, text in backend.describe().items() if name not in _PLACE}
    return _digest([variant, sorted(params.items()), repr(gpu), source, sorted(device.items()), __version__, _library(), _nvrtc()])


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(parts), default=str).encode()).hexdigest()[:24]


@cache
def _library() -> str:
    """Digest of the code behind the numbers."""
    digest = hashlib.sha256()
    for name in _LIBRARY:
        single = _PACKAGE / f"{name}.py"
        for path in [single] if single.is_file() else sorted((_PACKAGE / name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _nvrtc() -> str:
    from rawflash.emu import nvrtc

    return nvrtc.version_text()
