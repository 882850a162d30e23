"""From counters to work: what a run asked of each resource, for rawflash.light. Counted, but for the bytes that must reach HBM (modelled).

l2_bytes     sectors that the emulator counted, 32 bytes each: every request of an SM goes to L2 (no L1 hits are assumed)
hbm_bytes    each input once, as far as it is read; results as far as they exceed L2 (the rest may stay there); and where a later
             kernel reads what an earlier one wrote, again what exceeds L2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rawflash.light import Work
from rawflash.problem import Problem

if TYPE_CHECKING:
    from rawflash.backends.base import KernelCounters
    from rawflash.roofline import Gpu
    from rawflash.variants import Plan

__all__ = ["Counts", "flat_counts", "work_from"]

# "hbm/Q/read", "sectors", "wavefronts", "pipe/fma", "flops/mma.f16", "ctas" -> count
Counts = dict[str, int]
_SECTOR_BYTES = 32
_TENSOR_TYPES = {"mma.f16": "fp16", "mma.bf16": "bf16", "mma.e4m3": "fp8", "mma.e5m2": "fp8"}


def flat_counts(counters: KernelCounters) -> Counts:
    """The counters that work is made of, under flat names, so that they can be added and scaled."""
    counts = {
        "sectors": counters.hbm.read_sectors + counters.hbm.write_sectors,
        "wavefronts": counters.smem_wavefronts,
        "ctas": counters.ctas,
    }
    for name, moved in counters.tensors.items():
        counts[f"hbm/{name}/read"], counts[f"hbm/{name}/write"] = moved.read_bytes, moved.write_bytes
    counts |= {f"pipe/{pipe}": n for pipe, n in counters.pipes.items()}
    return counts | {f"flops/{kind}": n for kind, n in counters.flops.items()}


def _group(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}


def asked_bytes(counts: Mapping[str, int]) -> int:
    """Bytes that the kernels ask of HBM: the papers' model, without a cache."""
    return sum(_group(counts, "hbm/").values())


def work_from(counts: Mapping[str, int], problem: Problem, plan: Plan, gpu: Gpu) -> Work:
    """Work of a run of `plan` whose counters are `counts`, on a GPU with the L2 of `gpu`."""
    tensor_flops: dict[str, float] = {}
    for kind, n in _group(counts, "flops/").items():
        if kind in _TENSOR_TYPES:
            tensor_flops[_TENSOR_TYPES[kind]] = tensor_flops.get(_TENSOR_TYPES[kind], 0) + n
    return Work(
        hbm_bytes=least_hbm_bytes(counts, problem, plan, gpu.l2_bytes),
        l2_bytes=counts.get("sectors", 0) * _SECTOR_BYTES,
        smem_wavefronts=counts.get("wavefronts", 0),
        tensor_flops=tensor_flops,
        pipes=_group(counts, "pipe/"),
    )


def least_hbm_bytes(counts: Mapping[str, int], problem: Problem, plan: Plan, l2_bytes: int) -> int:
    """Bytes that must cross HBM, however well an L2 of `l2_bytes` is used, when it held nothing at the start."""
    inputs = {name: math.prod(shape) * problem.itemsize for name, shape in _inputs(problem)}
    made = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in plan.buffers.items()}
    read = sum(min(counts.get(f"hbm/{name}/read", 0), size) for name, size in inputs.items())
    written = {name: min(counts.get(f"hbm/{name}/write", 0), size) for name, size in made.items()}
    kept = max(0, sum(written.values()) - l2_bytes)
    if len(plan.launches) < 2:
        return read + kept
    return read + kept + sum(max(0, min(counts.get(f"hbm/{name}/read", 0), size) - l2_bytes) for name, size in written.items())


def _inputs(problem: Problem) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return (("Q", problem.shape_q), ("K", problem.shape_k), ("V", problem.shape_v))
