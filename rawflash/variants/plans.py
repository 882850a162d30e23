"""One launch plan per variant: macros, buffers, and launches with their grids, shared memory and arguments.

Shared-memory sizes are stated here once: the plan passes them to the compiler as macros, and each .cu asserts that the sum of
its tiles is that number, so a disagreement does not compile. The grid is one-dimensional, because only grid.x exceeds 65535.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rawflash.dropout import drop_below
from rawflash.io_model import unfused_stages
from rawflash.problem import Problem
from rawflash.splits import cut_keys
from rawflash.tiling import Tiling, ceil_div, softmax_warps
from rawflash.variants.base import Launch, Plan

__all__ = [
    "fa1_plan",
    "fa1_qout_plan",
    "fa2_lazy_plan",
    "fa2_mma_plan",
    "fa2_pipe_plan",
    "fa2_plan",
    "merge_plan",
    "naive_plan",
    "online_plan",
    "splitkv_plan",
    "unfused_plan",
]

_LANES = 32
_ROWS = 8  # query rows of one warp (rf_patch.cuh)
_PATCH = 16  # rows and columns that tensor cores take at once (rf_mma_sm80.cuh)
_ONLINE_WARPS = 8
_FEWEST_WARPS = 4  # of fa2_pipe, one for each scheduler of an SM
_MOST_COLUMNS = 160  # of O and S together: with more, two strips of 16 rows spill registers
_CROWDED = {"fa2_pipe": (128, 128, 64)}  # d, dv, Bc beyond that which do not: whatever mask, layout and type
_PASS_WARPS = 8  # rows of an elementwise CTA
_F32 = np.dtype(np.float32)
Arguments = tuple[str | np.generic, ...]


def _defines(p: Problem, **more: str | int) -> dict[str, str | int]:
    """The macros of every rung. A window that hides nothing is none, so that the kernel is the one without a window."""
    begin, end = p.visible(np.array([0, max(0, p.N - 1)]))
    return {
        "RF_DTYPE": p.dtype,
        "RF_CAUSAL": p.causal,
        "RF_WINDOW_LEFT": -1 if p.window_left is None or not begin[-1] else p.window_left,
        "RF_WINDOW_RIGHT": -1 if p.window_right is None or p.causal != "none" or end[0] == p.Nkv else p.window_right,
        "RF_SOFTCAP": f"{p.softcap or 0.0!r}f",
        "RF_LAYOUT": p.layout,
        "RF_D": p.d,
        "RF_DV": p.dv,
        **more,
    }


def _outputs(p: Problem) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    return {"O": (p.stored_shape_o, p.numpy_dtype), "LSE": (p.shape_lse, _F32)}


def _sizes(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(value) for value in values)


def _patch_threads(t: Tiling) -> tuple[int, int, int]:
    """One warp per 8 rows of a query tile."""
    return (t.Br // _ROWS * _LANES, 1, 1)


def _scores_smem(p: Problem, t: Tiling) -> int:
    """Q [Br][d], K transposed [d][Bp + 2]."""
    return 4 * (t.Br * p.d + p.d * (t.Bp + 2))


def _output_smem(p: Problem, t: Tiling) -> int:
    """V [Bc][dv], P [Br][Bp]."""
    return 4 * (t.Bc * p.dv + t.Br * t.Bp)


def _scores_launch(entry: str, p: Problem, t: Tiling, factor: np.float32) -> Launch:
    """One CTA per tile of S."""
    args: Arguments = ("Q", "K", "S", *_sizes(p.H, p.Hkv, p.N, p.Nkv), factor)
    return Launch(entry, (p.B * p.H * t.Tr(p) * t.Tc(p), 1, 1), _patch_threads(t), _scores_smem(p, t), args)


def _output_launch(entry: str, p: Problem, t: Tiling, P: str) -> Launch:
    """One CTA per query tile; `P`: the matrix that is multiplied by V."""
    args: Arguments = (P, "V", "O", *_sizes(p.H, p.Hkv, p.N, p.Nkv))
    return Launch(entry, (p.B * p.H * t.Tr(p), 1, 1), _patch_threads(t), _output_smem(p, t), args)


def naive_plan(p: Problem, t: Tiling) -> Plan:
    """Scores, softmax, output; S is float, P has the storage type."""
    heads, scores, output, warps = p.B * p.H, _scores_smem(p, t), _output_smem(p, t), softmax_warps(p)
    return Plan(
        _defines(p, RF_BR=t.Br, RF_BC=t.Bc, RF_SCORES_SMEM=scores, RF_OUTPUT_SMEM=output, RF_ROW_ON_CHIP=int(warps > 0)),
        {**_outputs(p), "S": ((p.B, p.H, p.N, p.Nkv), _F32), "P": ((p.B, p.H, p.N, p.Nkv), p.numpy_dtype)},
        (
            _scores_launch("naive_scores", p, t, np.float32(p.scale)),
            Launch(
                "naive_softmax",
                (ceil_div(heads * p.N, warps or 4), 1, 1),
                ((warps or 4) * _LANES, 1, 1),
                4 * warps * p.Nkv,
                ("S", "P", "LSE", *_sizes(p.B, p.H, p.N, p.Nkv)),
            ),
            _output_launch("naive_output", p, t, "P"),
        ),
    )


def unfused_plan(p: Problem, t: Tiling) -> Plan:
    """Scores, then only those passes that have something to do: a framework launched no mask and no dropout that were not asked for."""
    heads, sizes, matrix = p.B * p.H, _sizes(p.B, p.H, p.N, p.Nkv), (p.B, p.H, p.N, p.Nkv)
    scores, output, warps, scale = _scores_smem(p, t), _output_smem(p, t), softmax_warps(p), np.float32(p.scale)
    buffers = {**_outputs(p), "S": (matrix, p.numpy_dtype), "P": (matrix, p.numpy_dtype)}
    if p.dropout_p:
        buffers |= {"P_drop": (matrix, p.numpy_dtype), "Z": (matrix, np.dtype(np.uint8))}

    def over_rows(entry: str, *args: str | np.generic, warps: int = _PASS_WARPS, smem: int = 0) -> Launch:
        return Launch(entry, (ceil_div(heads * p.N, warps), 1, 1), (warps * _LANES, 1, 1), smem, args)

    drop = (np.uint32(drop_below(p.dropout_p)), np.float32(1 / (1 - p.dropout_p)), np.uint64(p.seed % 2**64))
    launches = {
        "unfused_scores": _scores_launch("unfused_scores", p, t, np.float32(1) if t.scale_pass else scale),
        "unfused_scale": over_rows("unfused_scale", "S", *sizes, scale),
        "unfused_softcap": over_rows("unfused_softcap", "S", *sizes),
        "unfused_mask": over_rows("unfused_mask", "S", *sizes),
        "unfused_softmax": over_rows("unfused_softmax", "S", "P", "LSE", *sizes, warps=warps or 4, smem=4 * warps * p.Nkv),
        "unfused_dropout": over_rows("unfused_dropout", "P", "P_drop", "Z", *sizes, *drop),
        "unfused_output": _output_launch("unfused_output", p, t, "P_drop" if p.dropout_p else "P"),
    }
    return Plan(
        _defines(p, RF_BR=t.Br, RF_BC=t.Bc, RF_SCORES_SMEM=scores, RF_OUTPUT_SMEM=output, RF_ROW_ON_CHIP=int(warps > 0)),
        buffers,
        tuple(launches[stage] for stage in unfused_stages(p, t)),
        S_roundings=1 + t.scale_pass + bool(p.softcap),
    )


def online_plan(p: Problem, t: Tiling) -> Plan:
    """One warp per query row of all heads; the tiling plays no part."""
    args: Arguments = ("Q", "K", "V", "O", "LSE", *_sizes(p.B, p.H, p.Hkv, p.N, p.Nkv), np.float32(p.scale))
    grid = (ceil_div(p.B * p.H * p.N, _ONLINE_WARPS), 1, 1)
    return Plan(_defines(p), _outputs(p), (Launch("online", grid, (_ONLINE_WARPS * _LANES, 1, 1), 0, args),))


def _tiled_smem(p: Problem, t: Tiling) -> int:
    """Q, K transposed, V, P."""
    return _scores_smem(p, t) + _output_smem(p, t)


def fa1_plan(p: Problem, t: Tiling) -> Plan:
    """One CTA per head; m and l are workspaces that outlive a step, not the launch."""
    smem = _tiled_smem(p, t)
    args: Arguments = ("Q", "K", "V", "O", "LSE", "m", "l", *_sizes(p.H, p.Hkv, p.N, p.Nkv), np.float32(p.scale))
    return Plan(
        _defines(p, RF_BR=t.Br, RF_BC=t.Bc, RF_FA1_SMEM=smem),
        {**_outputs(p), "m": (p.shape_lse, _F32), "l": (p.shape_lse, _F32)},
        (Launch("fa1", (p.B * p.H, 1, 1), _patch_threads(t), smem, args),),
    )


def _q_tile_plan(entry: str, p: Problem, t: Tiling, smem: int, cta: tuple[int, int, int], **more: str | int) -> Plan:
    """One CTA per query tile of each head. `more`: macros of this kernel alone."""
    args: Arguments = ("Q", "K", "V", "O", "LSE", *_sizes(p.H, p.Hkv, p.N, p.Nkv), np.float32(p.scale))
    return Plan(
        _defines(p, RF_BR=t.Br, RF_BC=t.Bc, **{f"RF_{entry.upper()}_SMEM": smem}, **more),
        _outputs(p),
        (Launch(entry, (p.B * p.H * t.Tr(p), 1, 1), cta, smem, args),),
    )


def fa1_qout_plan(p: Problem, t: Tiling) -> Plan:
    """fa2's grid and tiles."""
    return _q_tile_plan("fa1_qout", p, t, _tiled_smem(p, t), _patch_threads(t))


def fa2_plan(p: Problem, t: Tiling) -> Plan:
    """One CTA per query tile of each head."""
    return _q_tile_plan("fa2", p, t, _tiled_smem(p, t), _patch_threads(t))


def _mma_smem(p: Problem, t: Tiling) -> int:
    """Q [Br][D] and later O [Br][DV], K [Bc][D], V [Bc][DV] of 16 bits; D and DV are d and dv rounded up to whole 16 x 16 patches."""
    D, DV = (ceil_div(size, _PATCH) * _PATCH for size in (p.d, p.dv))
    return 2 * (t.Br * max(D, DV) + t.Bc * (D + DV))


def fa2_mma_plan(p: Problem, t: Tiling) -> Plan:
    """fa2's grid; one warp per 16 rows of a query tile."""
    return _q_tile_plan("fa2_mma", p, t, _mma_smem(p, t), (t.Br // _PATCH * _LANES, 1, 1))


def fa2_pipe_plan(p: Problem, t: Tiling) -> Plan:
    """fa2_mma's grid and tiles. Warps of 32 rows read each patch of K and V for twice as many products as warps of 16."""
    return _pipe_plan("fa2_pipe", p, t)


def _pipe_plan(entry: str, p: Problem, t: Tiling, **more: str | int) -> Plan:
    warps = _pipe_warps(entry, p, t) if t.warps is None else t.warps
    plan = _q_tile_plan(entry, p, t, _mma_smem(p, t), (warps * _LANES, 1, 1), RF_WARPS=warps, **more)
    return replace(plan, chosen={"warps": warps})


def _pipe_warps(entry: str, p: Problem, t: Tiling) -> int:
    """Warps of fa2_pipe: 32 rows each where four of them remain and O and S of two strips fit in registers, else 16 rows each."""
    fits = p.dv + t.Bc <= _MOST_COLUMNS or (p.d, p.dv, t.Bc) == _CROWDED.get(entry)
    wide = t.Br % (2 * _PATCH) == 0 and t.Br // (2 * _PATCH) >= _FEWEST_WARPS and fits
    return t.Br // (2 * _PATCH if wide else _PATCH)


def fa2_lazy_plan(p: Problem, t: Tiling) -> Plan:
    """fa2_pipe's, with the knobs of the tiling."""
    threshold = -1.0 if t.lazy_threshold is None else t.lazy_threshold
    macros: dict[str, str | int] = {
        "RF_LAZY_THRESHOLD": f"{threshold!r}f",
        "RF_POLY_PERCENT": round(100 * t.poly_fraction),
        "RF_POLY_DEGREE": t.poly_degree,
    }
    return _pipe_plan("fa2_lazy", p, t, **macros)


def splitkv_plan(p: Problem, t: Tiling) -> Plan:
    """`splits` CTAs per packed query tile, then the merge; a single split writes O and LSE itself."""
    cut, smem = cut_keys(p, t), _tiled_smem(p, t)
    merged, parts = cut.splits > 1, (cut.splits, p.B, p.H, p.N)
    O, LSE = ("O_part", "ml_part") if merged else ("O", "LSE")
    args: Arguments = ("Q", "K", "V", O, LSE, *_sizes(p.B, p.H, p.Hkv, p.N, p.Nkv, cut.splits), np.float32(p.scale))
    grid = (p.B * p.Hkv * len(cut.rows) * cut.splits, 1, 1)
    return Plan(
        _defines(p, RF_BR=t.Br, RF_BC=t.Bc, RF_SPLITKV_SMEM=smem, RF_MERGED=int(merged)),
        {**_outputs(p), **({"O_part": ((*parts, p.dv), _F32), "ml_part": ((*parts, 2), _F32)} if merged else {})},
        (Launch("splitkv", grid, _patch_threads(t), smem, args), *([_merge(*parts)] if merged else [])),
        chosen={"num_splits": cut.splits},
    )


def _merge(splits: int, B: int, H: int, N: int) -> Launch:
    args: Arguments = ("O_part", "ml_part", "O", "LSE", *_sizes(B, H, N, splits))
    return Launch("splitkv_merge", (ceil_div(B * H * N, _PASS_WARPS), 1, 1), (_PASS_WARPS * _LANES, 1, 1), 0, args)


def merge_plan(parts: int, B: int, H: int, N: int, d: int, dtype: str = "fp32") -> Plan:
    """splitkv's merge by itself, for partial results from anywhere.

    Takes O_part [parts, B, H, N, d] and ml_part [parts, B, H, N, 2], float32: what a part found undivided, with its m and l; or divided,
    with its LSE and 1. A part with m = -inf has no weight, and its O is not read. Buffers are O [B, H, N, d] of storage type `dtype` and
    LSE [B, H, N]. rawflash.merge_partials does the same in NumPy.
    """
    p = Problem(B=B, H=H, N=N, d=d, dtype=dtype)
    plan = splitkv_plan(p, Tiling(16, 16, num_splits=1))
    return replace(plan, buffers=_outputs(p), launches=(_merge(parts, B, H, N),), chosen={})
