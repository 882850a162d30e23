"""Which backend and which GPU's limits: backend=auto|cupy|emu and the group gpu, decided once, with a sentence that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rawflash.backends.base import Backend
from rawflash.errors import UsageError
from rawflash.roofline import Gpu

__all__ = ["choose_backend", "choose_gpu"]


def choose_backend(name: str) -> tuple[Backend, str]:
    """The backend for `name` and a line about the choice ("" when there was none). Raises BackendUnavailable."""
    from rawflash.backends import cupy_gpu

    if name == "cupy":
        return cupy_gpu.CupyBackend(), ""
    if name == "emu":
        return _emulated(), ""
    if name != "auto":
        raise UsageError(f"backend={name} is unknown: choose one of auto, cupy, emu")
    ok, found = cupy_gpu.usable()
    if ok:
        return cupy_gpu.CupyBackend(), f"auto: {found} is usable; checking and timing on it, nothing is counted."
    return _emulated(), f"auto: no usable CUDA GPU ({found}); emulating on the CPU: counts are exact, no GPU time is shown."


def _emulated() -> Backend:
    from rawflash.backends.emulated import EmulatedBackend

    return EmulatedBackend()


def choose_gpu(asked: Mapping[str, Any] | None, default: Mapping[str, Any], backend: Backend) -> Gpu:
    """The GPU whose limits hold: the one asked for, else `default`; a real device has the last word about itself."""
    return backend.gpu(Gpu.from_dict(default if asked is None else asked))
