"""Closed-form HBM bytes of every variant, per tensor: what the papers count (no cache), exact for ragged sizes, masks and GQA.

Each function returns {tensor: (bytes read, bytes written)}. The emulator counts the same integers. The formulas are also the
fifth paragraph of each kernel's header, in the same letters; a test evaluates those and compares. GQA shares keys and values
between query heads, yet every query head reads them for itself, so Hkv appears in no formula but that of splitkv, which packs them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.splits import cut_keys
from rawflash.tiling import Tiling, softmax_warps

__all__ = ["HBM", "TensorIO", "hbm_bytes", "total_bytes", "unfused_stages"]

TensorIO = dict[str, tuple[int, int]]
_F32 = 4


def hbm_bytes(variant: str, problem: Problem, tiling: Tiling) -> TensorIO:
    """Bytes that `variant` reads and writes of each tensor. Raises UsageError for a variant without a model."""
    if variant not in HBM:
        raise UsageError(f"there is no IO model of {variant!r}; the known ones are {', '.join(HBM)}")
    return {} if problem.needs_no_launch else HBM[variant](problem, tiling)


def total_bytes(io: TensorIO) -> int:
    """Reads and writes of all tensors together."""
    return sum(read + write for read, write in io.values())


def _naive(p: Problem, t: Tiling) -> TensorIO:
    """Scores, softmax, output: Q read per key tile, K and V per query tile; S (float) and P make the trip. No tile is skipped."""
    heads, w = p.B * p.H, p.itemsize
    pairs, S_reads = p.N * p.Nkv, 1 if softmax_warps(p) else 3
    return {
        "Q": (heads * t.Tc(p) * p.N * p.d * w, 0),
        "K": (heads * t.Tr(p) * p.Nkv * p.d * w, 0),
        "V": (heads * t.Tr(p) * p.Nkv * p.dv * w, 0),
        "O": (0, heads * p.N * p.dv * w),
        "LSE": (0, heads * p.N * _F32),
        "S": (heads * pairs * _F32 * S_reads, heads * pairs * _F32),
        "P": (heads * pairs * w, heads * pairs * w),
    }


def unfused_stages(p: Problem, t: Tiling) -> dict[str, TensorIO]:
    """Bytes of each kernel of unfused, in launch order: {kernel: {tensor: (read, written)}}.

    One pass over the N x Nkv matrix is one read or one write of S, P or P_drop; Z, which elements dropout kept, takes a byte each.
    """
    heads, w = p.B * p.H, p.itemsize
    matrix, S_reads = heads * p.N * p.Nkv * w, 1 if softmax_warps(p) else 3
    P = "P_drop" if p.dropout_p else "P"
    in_place = {"S": (matrix, matrix)}
    keys = heads * t.Tr(p) * p.Nkv * w
    stages: dict[str, TensorIO] = {
        "unfused_scores": {"Q": (heads * t.Tc(p) * p.N * p.d * w, 0), "K": (keys * p.d, 0), "S": (0, matrix)},
        "unfused_scale": in_place if t.scale_pass else {},
        "unfused_softcap": in_place if p.softcap else {},
        "unfused_mask": in_place if p.masked else {},
        "unfused_softmax": {"S": (matrix * S_reads, 0), "P": (0, matrix), "LSE": (0, heads * p.N * _F32)},
        "unfused_dropout": {"P": (matrix, 0), "P_drop": (0, matrix), "Z": (0, matrix // w)} if p.dropout_p else {},
        "unfused_output": {P: (matrix, 0), "V": (keys * p.dv, 0), "O": (0, heads * p.N * p.dv * w)},
    }
    return {stage: moved for stage, moved in stages.items() if moved}


def _unfused(p: Problem, t: Tiling) -> TensorIO:
    """All stages together."""
    io: TensorIO = {}
    for stage in unfused_stages(p, t).values():
        for tensor, (read, written) in stage.items():
            before = io.get(tensor, (0, 0))
            io[tensor] = (before[0] + read, before[1] + written)
    return io


def _online(p: Problem, t: Tiling) -> TensorIO:
    """Every row reads every key and value that it sees."""
    heads, w = p.B * p.H, p.itemsize
    streamed = heads * p.visible_pairs() * w
    return {
        "Q": (heads * p.N * p.d * w, 0),
        "K": (streamed * p.d, 0),
        "V": (streamed * p.dv, 0),
        "O": (0, heads * p.N * p.dv * w),
        "LSE": (0, heads * p.N * _F32),
    }


def _fa1(p: Problem, t: Tiling) -> TensorIO:
    """K and V once; Q, O, m, l of a query tile once per key tile it meets (at least one, which initialises O, m, l unread)."""
    heads, w = p.B * p.H, p.itemsize
    first, past = t.key_tiles(p)
    rows_written = int((np.maximum(1, past - first) * t.rows(p)).sum())
    rows_read = rows_written - p.N
    keys = min(p.Nkv, int(past.max()) * t.Bc) - int(first[0]) * t.Bc
    qk, vo, statistic = heads * p.d * w, heads * p.dv * w, heads * _F32  # a row of Q and K, of V and O, of LSE
    return {
        "Q": (rows_written * qk, 0),
        "K": (keys * qk, 0),
        "V": (keys * vo, 0),
        "O": (rows_read * vo, rows_written * vo),
        "LSE": (0, p.N * statistic),
        "m": (rows_read * statistic, rows_written * statistic),
        "l": (rows_read * statistic, rows_written * statistic),
    }


def _q_outer(p: Problem, t: Tiling) -> TensorIO:
    """Q and O once; K and V once per query tile that meets them."""
    heads, w = p.B * p.H, p.itemsize
    first, past = t.key_tiles(p)
    keys = int((np.minimum(past * t.Bc, p.Nkv) - first * t.Bc).sum())
    qk, vo = heads * p.d * w, heads * p.dv * w  # a row of Q and K, of V and O
    return {
        "Q": (p.N * qk, 0),
        "K": (keys * qk, 0),
        "V": (keys * vo, 0),
        "O": (0, p.N * vo),
        "LSE": (0, heads * p.N * _F32),
    }


def _splitkv(p: Problem, t: Tiling) -> TensorIO:
    """K and V once per packed query tile, Q once per split that has keys; partial O, m and l out and back when there are several splits."""
    cut, w = cut_keys(p, t), p.itemsize
    kv_heads, rows = p.B * p.Hkv, p.B * p.H * p.N
    keys = kv_heads * int(cut.keys.sum()) * w
    io: TensorIO = {
        "Q": (kv_heads * int((cut.rows * cut.parts).sum()) * p.d * w, 0),
        "K": (keys * p.d, 0),
        "V": (keys * p.dv, 0),
        "O": (0, rows * p.dv * w),
        "LSE": (0, rows * _F32),
    }
    if cut.splits > 1:
        O_part, ml_part = kv_heads * cut.live * p.dv * _F32, rows * cut.splits * 2 * _F32
        io |= {"O_part": (O_part, O_part), "ml_part": (ml_part, ml_part)}
    return io


HBM: dict[str, Callable[[Problem, Tiling], TensorIO]] = {
    "naive": _naive,
    "unfused": _unfused,
    "online": _online,
    "fa1": _fa1,
    "fa1_qout": _q_outer,
    "fa2": _q_outer,
    "fa2_mma": _q_outer,
    "fa2_pipe": _q_outer,
    "fa2_lazy": _q_outer,
    "splitkv": _splitkv,
}
