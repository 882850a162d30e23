"""FlashAttention, Figure 1 (right): what each kernel of unfused attention moves, and the bandwidth that its printed time implies.

One head is executed, one kernel at a time, and scaled to B*H. In passes over the N x N matrix (S) and over [N, d] tensors (U) the
stages are: scores 1 S + 2 U, mask 2 S, softmax 2 S, dropout 2.5 S (its mask is a byte per element), output 1 S + 2 U.

The figure states no shape. The bytes here assume the one of Figure 2, so a bandwidth is evidence that the shape fits, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rawflash.experiments.fa1_fig2 import TENSORS, flash_passes, setting
from rawflash.lab import Axis, Bars, Cell, Experiment, Lab, Picture, Row, Verdict, counted, modelled, published
from rawflash.problem import Problem, make_inputs
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT", "STAGES", "stage_bytes"]

# Stage of the figure -> kernel, passes over S, passes over U (each tensor once, which is what a cache makes of the tiles' reads).
STAGES: dict[str, tuple[str, float, int]] = {
    "matmul_qk": ("unfused_scores", 1, 2),
    "mask": ("unfused_mask", 2, 0),
    "softmax": ("unfused_softmax", 2, 0),
    "dropout": ("unfused_dropout", 2.5, 0),
    "matmul_pv": ("unfused_output", 1, 2),
}


def stage_bytes(lab: Lab, head: Problem, tiling: Tiling) -> dict[str, tuple[int, int]]:
    """Kernel -> (bytes of S, P, P_drop and Z, bytes of Q, K, V and O) of one head, each kernel executed on its own."""

    def make() -> dict[str, tuple[int, int]]:
        plan, arrays, found = LADDER["unfused"].plan(head, tiling), dict(make_inputs(head)), {}
        for launch in plan.launches:
            names = [argument for argument in launch.args if isinstance(argument, str)]
            made = {name: plan.buffers[name] for name in names if name not in arrays}
            one = replace(plan, launches=(launch,), buffers=made)
            # The mask works in place, on a copy that is not handed on: what a kernel moves does not depend on the numbers.
            out, counters = lab.launch("unfused.cu", one, {name: arrays[name] for name in names if name in arrays})
            arrays |= out
            moved = {name: t.read_bytes + t.write_bytes for name, t in counters.tensors.items() if name != "LSE"}
            in_vectors = sum(n for name, n in moved.items() if name in TENSORS)
            found[launch.entry] = (sum(moved.values()) - in_vectors, in_vectors)
        return found

    return {k: tuple(v) for k, v in lab.remember(("fa1_fig1", repr(head), repr(tiling)), make, ("unfused.cu",)).items()}


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    whole, o = setting(), lab.options
    heads, U = whole.B * whole.H, whole.B * whole.H * whole.N * whole.d * whole.itemsize
    head = Problem(B=1, H=1, N=whole.N, d=whole.d, dtype=whole.dtype, causal="bottom_right", dropout_p=0.1)
    found = stage_bytes(lab, head, Tiling(o["block"], o["block"]))
    entry = lab.published("fa1_fig1_right")
    printed = {row[0]: dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]}
    total = 0.0
    for stage, (kernel, in_S, in_U) in STAGES.items():
        matrix, vectors = (heads * n for n in found[kernel])
        least = matrix + in_U * U
        total += least
        S = U // whole.d * whole.N
        cells = {"kernel": Cell(kernel), "of S": counted(matrix / S), "of S in the figure": modelled(in_S), "U asked": counted(vectors / U)}
        yield _stage(lab, stage, cells, least, printed["PyTorch"][stage], matrix == in_S * S)
    timed = lab.time("unfused", replace(head, B=whole.B, H=whole.H, Hkv=whole.H), Tiling(o["block"], o["block"]))
    yield _stage(lab, "all five", {"kernel": Cell("unfused"), "time": timed}, total, printed["PyTorch"]["total_ms"], True)
    timed, flash = lab.time("fa1", whole, Tiling(16, 256)), printed["FlashAttention fused"]["total_ms"]
    yield _stage(lab, "fused", {"kernel": Cell("fa1, key block 256"), "time": timed}, flash_passes(4) * U, flash, True)


def _stage(lab: Lab, stage: str, cells: dict[str, Cell], least: float, ms: float, exact: bool) -> Row:
    """`least`: counted bytes of the matrix and Q, K, V and O once. The verdict is on whether the printed time can be theirs."""
    rate, peak = least / ms / 1e6, lab.options["peak_gb_s"]
    cells = cells | {
        "bytes, Q K V O once": modelled(least / 1e9, "GB"),
        "paper": published(ms, "ms"),
        "implied bandwidth": modelled(rate, "GB/s"),
        "of the A100's": modelled(rate / peak, digits=2),
    }
    right = exact and rate <= peak
    why = f"the printed time moves these bytes at {rate / peak:.0%} of {peak:g} GB/s" + ("" if rate <= peak else ", more than there is")
    return Row({"stage": stage}, cells, Verdict.REPRODUCED if right else Verdict.DIFFERS, why if exact else "other passes over S")


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    yield Bars(
        "fa1_fig1",
        "FlashAttention, Figure 1 (right): the bandwidth that the printed times imply",
        [str(row.keys["stage"]) for row in rows],
        Axis("counted bytes / printed time (TB/s), modelled", limits=(0, 1.6)),
        ("implied",),
        [[row.cells["implied bandwidth"].number / 1e3 for row in rows]],
        f"64 x 16 heads, N=1024, d=64 (assumed); Q, K, V, O once. Times published. An A100 has {lab.options['peak_gb_s'] / 1e3:g} TB/s.",
    )


EXPERIMENT = Experiment(
    title="Bytes per stage of unfused attention",
    claim="Attention of GPT-2 spends its time on moving the N x N matrix: mask, softmax and dropout take longer than the two products.",
    source="FlashAttention, Figure 1 right",
    rows=_rows,
    pictures=_pictures,
    notes=(
        "U asked: what tiles of Q, K, V and O ask of HBM when no cache helps; the implied bandwidth takes each tensor once.",
        "Implied bandwidth = counted bytes of the matrix and Q, K, V, O once, over the printed time.",
        "The figure states no shape: that of Figure 2 is assumed (64 x 16 heads, N=1024, d=64).",
    ),
)
