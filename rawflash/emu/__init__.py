"""A PTX emulator with CuPy's RawModule and RawKernel on NumPy arrays: it executes NVRTC's PTX on the CPU, counts what the kernel
moves, and reports stray, uninitialised and racing accesses. See README.md in this folder for the floor plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rawflash.emu.errors import (
    ArgumentMismatch,
    BadMask,
    Deadlock,
    DeviceAssert,
    DivergentBarrier,
    EmuError,
    KernelFault,
    LaunchRefused,
    MemoryFault,
    Misaligned,
    NullPointer,
    NvrtcError,
    NvrtcMissing,
    OutOfBounds,
    PtxSyntaxError,
    RaceHazard,
    ReadOnlyWrite,
    ResourceLimit,
    SyncError,
    Trap,
    UninitializedRead,
    UnsupportedInstruction,
)
from rawflash.emu.machine.arena import OutOfDeviceMemory, device_memory
from rawflash.emu.machine.l2 import l2_reset
from rawflash.emu.module import RawKernel, RawModule
from rawflash.emu.params import EmuParams, L2Params
from rawflash.emu.traffic.l2 import L2Argument, L2Counts, L2Traffic
from rawflash.emu.traffic.report import ArgumentTraffic, LaunchReport, LineCounts, SpaceTraffic


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """An array in device memory, 256-byte aligned, filled with NaN patterns; reading what no one wrote is an error."""
    return device_memory().array(shape, dtype, initialised=False)


def asarray(x: ArrayLike, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A contiguous copy of ``x`` in device memory."""
    source = np.asarray(x, dtype)
    out = device_memory().array(source.shape, source.dtype, initialised=True)
    out[...] = source
    return out


__all__ = [
    "ArgumentMismatch",
    "ArgumentTraffic",
    "BadMask",
    "Deadlock",
    "DeviceAssert",
    "DivergentBarrier",
    "EmuError",
    "EmuParams",
    "KernelFault",
    "L2Argument",
    "L2Counts",
    "L2Params",
    "L2Traffic",
    "LaunchRefused",
    "LaunchReport",
    "LineCounts",
    "MemoryFault",
    "Misaligned",
    "NullPointer",
    "NvrtcError",
    "NvrtcMissing",
    "OutOfBounds",
    "OutOfDeviceMemory",
    "PtxSyntaxError",
    "RaceHazard",
    "RawKernel",
    "RawModule",
    "ReadOnlyWrite",
    "ResourceLimit",
    "SpaceTraffic",
    "SyncError",
    "Trap",
    "UninitializedRead",
    "UnsupportedInstruction",
    "asarray",
    "empty",
    "l2_reset",
]
