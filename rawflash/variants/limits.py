"""Rules that variants share: each looks at one property and answers None or one sentence that names it and the way out."""

from __future__ import annotations

from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

__all__ = [
    "MOST_LENGTH",
    "bf16_needs_sm80",
    "head_dim",
    "lengths",
    "long_key_tiles",
    "no_dropout",
    "packed_rows",
    "tensor_cores",
    "tile_sides",
    "warps_of_strips",
]

_MOST_D = 256
MOST_LENGTH = 2**30  # row and key indices are 32-bit integers, with room for a tile past the end; offsets are 64-bit


def head_dim(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """d and dv: multiples of 8 up to 256."""
    for name, size in (("d", problem.d), ("dv", problem.dv)):
        if size % 8 or size > _MOST_D:
            return f"{name}={size} is not supported: {name} must be a multiple of 8 between 8 and {_MOST_D}"
    return None


def tile_sides(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """Br, Bc: multiples of 16 between 16 and 128."""
    return _sides(tiling, 128)


def long_key_tiles(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """Br as in tile_sides, Bc up to 512: where K/V tiles are the outer loop, their length decides how often Q and O travel."""
    return _sides(tiling, 512)


def _sides(tiling: Tiling, most_Bc: int) -> str | None:
    for name, side, most in (("Br", tiling.Br, 128), ("Bc", tiling.Bc, most_Bc)):
        if side % 16 or not 16 <= side <= most:
            what = "block_size" if most == 128 else "kernel.Bc"
            return f"{name}={side} is not supported: {what} must be a multiple of 16 between 16 and {most}"
    return None


def bf16_needs_sm80(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """The bf16 conversions are instructions of compute capability 8.0."""
    if problem.dtype != "bf16" or int(gpu.arch) >= 80:
        return None
    return f"dtype=bf16 needs compute capability 8.0, {gpu.name} has {int(gpu.arch) / 10:.1f}: take fp16 or fp32"


def tensor_cores(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """mma.m16n8k16 came with compute capability 8.0."""
    if int(gpu.arch) >= 80:
        return None
    return f"mma.m16n8k16 needs compute capability 8.0, {gpu.name} has {int(gpu.arch) / 10:.1f}: take kernel=fa2"


def packed_rows(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """The rows of the query heads that share a kv head, together: below 2^30."""
    rows = problem.N * (problem.H // problem.Hkv) if problem.Hkv else 0
    if rows < MOST_LENGTH:
        return None
    return f"H/Hkv * N={rows} is not supported: the query heads of a kv head may have fewer than {MOST_LENGTH} rows together"


def no_dropout(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """Of the forward kernels here only the framework's baseline drops probabilities."""
    if not problem.dropout_p:
        return None
    return f"dropout_p={problem.dropout_p:g} is not supported: take kernel=unfused, or problem.dropout_p=0"


def warps_of_strips(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """warps: those that own one or two strips of 16 rows."""
    fit = [tiling.Br // rows for rows in (16, 32) if tiling.Br % rows == 0]
    if tiling.warps is None or tiling.warps in fit:
        return None
    return f"kernel.warps={tiling.warps} is not supported: Br={tiling.Br} takes {' or '.join(map(str, fit))}, or auto"


def lengths(problem: Problem, tiling: Tiling, gpu: Gpu) -> str | None:
    """N and Nkv: below 2^30."""
    for name, length in (("N", problem.N), ("Nkv", problem.Nkv)):
        if length >= MOST_LENGTH:
            return f"{name}={length} is not supported: a head may have fewer than {MOST_LENGTH} rows and keys"
    return None
