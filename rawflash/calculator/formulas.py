"""FLOPs, bytes, memory, KV cache, ridge point and bound of one attention problem on one GPU. Everything is modelled.

formulas.js states the same for the page; a test runs both and compares. Bytes of HBM are what the kernels naive and fa2 ask, without a
cache (rawflash/io_model.py, the papers' model); times are the roofline's: the slower of bytes / bandwidth and FLOPs / peak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rawflash.errors import UsageError
from rawflash.io_model import hbm_bytes, total_bytes
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants.limits import MOST_LENGTH

__all__ = ["FIGURES", "Figure", "calculate", "memory_bytes", "score_bytes"]

_LSE_BYTES = 4


@dataclass(frozen=True)
class Figure:
    """One result. `unit`: "B", "flop", "flop/B", "ms", "TFLOP/s", "x" or "" for a word."""

    name: str
    unit: str
    label: str
    meaning: str


FIGURES = tuple(
    Figure(*row)
    for row in (
        ("flops", "flop", "FLOPs", "2*B*H*(d + dv)*visible pairs; masked pairs are not counted"),
        ("ideal_bytes", "B", "HBM bytes, least possible", "Q, K, V read once, O written once"),
        ("naive_bytes", "B", "HBM bytes, naive", "three kernels: S and P are written and read"),
        ("tiled_bytes", "B", "HBM bytes, tiled", "fa2: K and V are read once per query tile; no S, no P"),
        ("saving", "x", "naive / tiled", "how many times more bytes naive moves"),
        ("score_bytes", "B", "One score matrix", "B*H*N*Nkv elements; naive needs two of them, S and P"),
        ("naive_memory_bytes", "B", "Memory, naive", "Q, K, V, O, LSE, S and P"),
        ("tiled_memory_bytes", "B", "Memory, tiled", "Q, K, V, O and LSE"),
        ("kv_mha_bytes", "B", "KV cache, MHA", "B*H*Nkv*(d + dv) elements per layer: every query head has its own keys and values"),
        ("kv_gqa_bytes", "B", "KV cache, GQA", "B*Hkv*Nkv*(d + dv) elements per layer: H/Hkv query heads share them"),
        ("kv_mqa_bytes", "B", "KV cache, MQA", "B*Nkv*(d + dv) elements per layer: all query heads share them"),
        ("ridge", "flop/B", "Ridge point", "peak rate / bandwidth: below it memory binds, above it arithmetic"),
        ("naive_intensity", "flop/B", "Intensity, naive", "FLOPs / HBM bytes"),
        ("tiled_intensity", "flop/B", "Intensity, tiled", "FLOPs / HBM bytes"),
        ("ideal_intensity", "flop/B", "Intensity, least bytes", "FLOPs / HBM bytes"),
        ("naive_bound", "", "What binds naive", "memory below the ridge point, else compute"),
        ("tiled_bound", "", "What binds tiled", "memory below the ridge point, else compute"),
        ("naive_ms", "ms", "Roofline time, naive", "the slower of bytes / bandwidth and FLOPs / peak"),
        ("tiled_ms", "ms", "Roofline time, tiled", "the slower of bytes / bandwidth and FLOPs / peak"),
        ("ideal_ms", "ms", "Roofline time, least bytes", "the slower of bytes / bandwidth and FLOPs / peak"),
        ("tiled_tflops", "TFLOP/s", "Roofline rate, tiled", "FLOPs / roofline time"),
    )
)


def score_bytes(problem: Problem) -> int:
    """Bytes of one score matrix of all heads, in the storage type."""
    return problem.B * problem.H * problem.N * problem.Nkv * problem.itemsize


def memory_bytes(problem: Problem, matrices: int) -> int:
    """Bytes of Q, K, V, O, LSE and so many score matrices."""
    return problem.ideal_bytes() + _LSE_BYTES * math.prod(problem.shape_lse) + matrices * score_bytes(problem)


def calculate(problem: Problem, tiling: Tiling, gpu: Gpu, layers: int = 1) -> dict[str, float | str | None]:
    """Every figure of FIGURES by name. None: the GPU has no rate for the type, or nothing is moved.

    `layers` multiplies the KV cache alone. Raises UsageError for fewer than one, and for lengths that no kernel takes.
    """
    if layers < 1:
        raise UsageError(f"layers={layers} is not a number of layers: give a whole number of at least 1")
    for name, size in (("N", problem.N), ("Nkv", problem.Nkv)):
        if size >= MOST_LENGTH:
            raise UsageError(f"problem.{name}={size} is too long: the kernels take fewer than {MOST_LENGTH} rows and keys per head")
    flops = problem.flops()
    moved = {
        "ideal": problem.ideal_bytes(),
        "naive": total_bytes(hbm_bytes("naive", problem, tiling)),
        "tiled": total_bytes(hbm_bytes("fa2", problem, tiling)),
    }
    cache = layers * problem.B * problem.Nkv * (problem.d + problem.dv) * problem.itemsize
    found: dict[str, float | str | None] = {
        "flops": flops,
        **{f"{name}_bytes": n for name, n in moved.items()},
        "saving": _over(moved["naive"], moved["tiled"]),
        "score_bytes": score_bytes(problem),
        "naive_memory_bytes": memory_bytes(problem, 2),
        "tiled_memory_bytes": memory_bytes(problem, 0),
        "kv_mha_bytes": cache * problem.H,
        "kv_gqa_bytes": cache * problem.Hkv,
        "kv_mqa_bytes": cache,
        **{f"{name}_intensity": _over(flops, n) for name, n in moved.items()},
    }
    return _in_order({**found, **_roofline(flops, moved, gpu.peak_tflops(problem.dtype), gpu.hbm_gb_s)})


def _roofline(flops: int, moved: dict[str, int], peak_tflops: float, hbm_gb_s: float) -> dict[str, float | str | None]:
    """Ridge point, times and bounds; None where a rate is not known."""
    if not peak_tflops or not hbm_gb_s:
        return {}
    ridge = peak_tflops * 1e3 / hbm_gb_s
    ms = {name: max(flops / (peak_tflops * 1e9), n / (hbm_gb_s * 1e6)) for name, n in moved.items()}
    return {
        "ridge": ridge,
        **{f"{name}_ms": time for name, time in ms.items()},
        **{f"{name}_bound": "memory" if flops < ridge * moved[name] else "compute" for name in ("naive", "tiled")},
        "tiled_tflops": _over(flops / 1e9, ms["tiled"]),
    }


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


def _in_order(found: dict[str, float | str | None]) -> dict[str, float | str | None]:
    return {figure.name: found.get(figure.name) for figure in FIGURES}
