"""Offsets have 64 bits (A40, C04): executed on tensors of 2^31 elements, of which only the few rows that are read exist.

In [B, N, H, d] with H = 2^22 heads the rows of one head lie 2^29 elements apart, so row 4 starts where 32 bits end. Eight heads run.
Q, K, V and O are heads 0, 8, 16 and 24 of one array, since four would be more addresses than some machines give; between its rows is
nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from rawflash import paths
from rawflash.backends.emulated import EmulatedBackend
from rawflash.check import expect
from rawflash.compile import compile_source
from rawflash.emu.machine import arena
from rawflash.emu.machine.arena import Arena
from rawflash.errors import LaunchError
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER, Plan

N, H, d = 5, 8, 128  # of the problem that is run (all CTAs have whole warps of rows); the kernels are told HEADS
HEADS = 1 << 22
PROBLEM = Problem(B=1, H=H, N=N, d=d, dtype="fp16", layout="bnhd")
TILING = Tiling(16, 16)
TENSORS = ("Q", "K", "V", "O")


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> NDArray[np.float16]:
    """Memory [N, HEADS, d], of which the last row ends after the heads that are used; these are poisoned and count as never written."""
    monkeypatch.setattr(arena, "_arena", Arena())
    memory, heads = arena.device_memory(), H * len(TENSORS)
    size = ((N - 1) * HEADS + heads) * d * 2
    if memory.size < size + (1 << 20):
        told = f"this machine reserves {memory.size >> 20} MiB of addresses for the emulator's memory"
        pytest.skip(f"{told}, and the test needs {size >> 20}")
    allocation = memory.allocate(1, initialised=False)  # allocating all of it would touch every byte
    allocation.hi = allocation.lo + size
    memory._next += size
    made = as_strided(memory.view(allocation).view(np.float16), (N, heads, d), (HEADS * d * 2, d * 2, 2))
    made[...] = np.nan
    return made


def shadow_of(array: NDArray[np.float16]) -> NDArray[np.uint8]:
    """A byte for each element's first byte in the emulator's memory of what was written; setting it sets both."""
    memory = arena.device_memory()
    start = array.ctypes.data - memory.base + memory.shadow_delta
    return as_strided(memory._bytes[start:], (*array.shape, 2), (*array.strides, 1))


def told_many_heads(plan: Plan) -> Plan:
    """The plan with HEADS in place of every argument that is H: H heads of a larger tensor."""
    heads = {np.int32(H): np.int32(HEADS)}
    return replace(plan, launches=tuple(replace(x, args=tuple(heads.get(a, a) for a in x.args)) for x in plan.launches))


def run(name: str, folder: Path, far: NDArray[np.float16]) -> tuple[NDArray[Any], dict[str, Any]]:
    """O [1, H, N, d] of a rung compiled from `folder`, and the inputs."""
    inputs = make_inputs(PROBLEM)
    plan = told_many_heads(LADDER[name].plan(PROBLEM, TILING))
    backend = EmulatedBackend()
    module = backend.compile(compile_source(read_source(LADDER[name].file, folder), plan.defines, "80"), plan)
    arrays = {tensor: far[:, i * H : (i + 1) * H] for i, tensor in enumerate(TENSORS)}
    for tensor, x in inputs.items():
        arrays[tensor][...] = x[0].transpose(1, 0, 2)
        shadow_of(arrays[tensor])[...] = 1
    O = arrays["O"]
    arrays = {tensor: x[0, 0] for tensor, x in arrays.items()}  # the first row: a pointer, as far as a kernel can tell
    arrays |= {b: backend.empty(shape, np.dtype(kind)) for b, (shape, kind) in plan.buffers.items() if b != "O"}
    backend.run(module, plan, arrays)
    return O.transpose(1, 0, 2)[None].copy(), inputs


@pytest.mark.parametrize("name", list(LADDER))
def test_rows_that_lie_far_apart_are_found(name: str, far: NDArray[np.float16]) -> None:
    O, inputs = run(name, paths.kernels_dir(), far)
    want = expect(PROBLEM, inputs)
    assert np.abs(O.astype(np.float64) - want.O).max() <= want.tol


def test_a_32_bit_offset_is_caught(far: NDArray[np.float16], tmp_path: Path) -> None:
    folder = tmp_path / "kernels_cu"
    shutil.copytree(paths.kernels_dir(), folder)
    header = folder / "include" / "rf_layout.cuh"
    right = "static_cast<size_t>(n) * (ROWS_FOLLOW ? d : pitch)"
    assert header.read_text("utf-8").count(right) == 1
    header.write_text(header.read_text("utf-8").replace(right, "n * static_cast<int>(ROWS_FOLLOW ? d : pitch)"), "utf-8")
    with pytest.raises(LaunchError, match="global"):
        run("fa2", folder, far)
