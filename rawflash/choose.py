"""Which backend and which GPU's limits: backend=auto|cupy|emu and the group gpu, decided once, with a sentence that says why."""

from __future__ import annotations

from rawflash.backends.base import Backend
from rawflash.errors import UsageError

__all__ = ["choose_backend"]


def choose_backend(name: str, threads: int = 0, racecheck: bool = False) -> tuple[Backend, str]:
    """The backend for `name` and a line about the choice ("" when there was none). Raises BackendUnavailable or UsageError.

    `threads` (0: one per core that this process may use) and `racecheck` are the emulator's.
    """
    from rawflash.backends import cupy_gpu

    if name not in ("auto", "cupy", "emu"):
        raise UsageError(f"backend={name} is unknown: choose one of auto, cupy, emu")
    if racecheck and name == "cupy":
        raise UsageError("backend.racecheck=true is the emulator's: add backend=emu")
    if name == "cupy":
        return cupy_gpu.CupyBackend(), ""
    if name == "emu" or racecheck:
        return _emulated(threads, racecheck), ""
    ok, found = cupy_gpu.usable()
    if ok:
        return cupy_gpu.CupyBackend(), f"auto: {found} is usable; checking and timing on it, nothing is counted."
    return _emulated(
        threads, racecheck
    ), f"auto: no usable CUDA GPU ({found}); emulating on the CPU: counts are exact, no GPU time is shown."


def _emulated(threads: int, racecheck: bool) -> Backend:
    from rawflash.backends.emulated import EmulatedBackend
    from rawflash.emu import EmuParams

    return EmulatedBackend(EmuParams(threads=threads, racecheck=racecheck))
