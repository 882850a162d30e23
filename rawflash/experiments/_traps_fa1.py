"""Checks of FlashAttention's printed numbers for the experiment `traps`."""

from __future__ import annotations

from collections.abc import Iterable

from rawflash.experiments._repeats import Repeat, bad_sums, repeated_rows
from rawflash.experiments._traps import against, trap_row
from rawflash.experiments.fa1_fig2 import setting
from rawflash.lab import Lab, Row, Verdict, checked, counted, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["fig1", "fig2_flops", "fig2_time", "fig8", "repeats"]


def fig2_flops(lab: Lab) -> Iterable[Row]:
    """FlashAttention, Figure 2 left: the GFLOP row is that of 64 heads, not of 64 x 16."""
    whole = setting()
    head = lab.run("fa1", Problem(B=1, H=1, N=whole.N, d=whole.d, dtype="fp16"), Tiling(64, 64)).metrics
    product = whole.flops() / 2
    printed = {row[0]: row[1] for row in lab.published("fa1_fig2_left")["rows"]}
    forward = counted(head["ops/fma"] * 2 * whole.B * whole.H / 1e9, "GFLOP", "FMAs of the forward pass alone", 4)
    for name, products in (("Standard", 6), ("FlashAttention", 7)):
        cells = {"printed": published(printed[name], "GFLOP"), "found": modelled(products * product / 1e9, "GFLOP"), "at least": forward}
        why = f"{products} products of 2 N^2 d for 1024 heads; the forward pass alone executes more than what is printed"
        yield trap_row("FlashAttention, Figure 2 left", f"GFLOPs, {name}", cells, Verdict.DIFFERS, why)
    gap = published(round(printed["FlashAttention"] - printed["Standard"], 3), "GFLOP")
    found = modelled(product / whole.H / 1e9, "GFLOP")
    why = "one product of 64 heads; the setting has 1024"
    yield trap_row("FlashAttention, Figure 2 left", "GFLOPs, the difference", {"printed": gap, "found": found}, Verdict.DIFFERS, why)


def fig2_time(lab: Lab) -> Iterable[Row]:
    """FlashAttention, Figure 2 left against Table 7: the same kernel and shape, at twice the length four times the work."""
    table = {row[0]: row[3] for row in lab.published("fa1_table7")["rows"]}["FlashAttention forward+backward"]
    time = {row[0]: row[3] for row in lab.published("fa1_fig2_left")["rows"]}["FlashAttention"]
    why = "Table 7 at N=512, times 4; 7.3 ms fits a causal run, while the bytes beside it fit a run without mask"
    found = modelled(4 * table, "ms")
    yield against("FlashAttention, Figure 2 left", "runtime, FlashAttention", found, published(time, "ms"), 0.1, why)


def fig8(lab: Lab) -> Iterable[Row]:
    """FlashAttention, Figure 8 bottom repeats Figure 7, another GPU and other passes."""
    first, second = (lab.published(f"fa1_{name}")["rows"] for name in ("fig7", "fig8_bottom"))
    pairs = [(x, y) for a, b in zip(first, second, strict=True) for x, y in zip(a[1:], b[1:], strict=True)]
    same = sum(x == y for x, y in pairs)
    cells = {"printed": published(len(pairs), "bars"), "found": checked(same, "bars equal")}
    why = "T4, forward, shows the bars of Figure 7: RTX 3090, forward and backward"
    yield trap_row("FlashAttention, Figure 8 bottom", "speedups", cells, Verdict.DIFFERS if same == len(pairs) else Verdict.REPRODUCED, why)


def repeats(lab: Lab) -> Iterable[Row]:
    """FlashAttention, Tables 9 to 20: rows that are equal in different settings, totals that are less than their parts."""
    tables = {n: lab.published(f"fa1_table{n}") for n in range(9, 21)}
    groups: dict[tuple[int, int], list[Repeat]] = {}
    for r in repeated_rows(tables):
        groups.setdefault(r.tables, []).append(r)
    for pair, found in groups.items():
        on = [" and ".join(k for k in ("dropout", "masking") if tables[n]["setting"][k]) or "neither" for n in pair]
        equal = sum(r.cells for r in found)
        cells = {"printed": published(equal, "cells"), "found": checked(equal, "cells equal")}
        why = f"the same to the last digit with {on[0]} as with {on[1]}"
        yield trap_row(f"FlashAttention, Tables {pair[0]} and {pair[1]}", ", ".join(r.method for r in found), cells, Verdict.DIFFERS, why)
    for s in bad_sums(tables, lab.options["least_sum"], lab.options["from_N"]):
        cells = {"printed": published(s.both, "ms"), "found": modelled(s.forward + s.backward, "ms")}
        where = f"FlashAttention, Tables {s.table - 2} to {s.table}"
        yield trap_row(where, f"{s.method}, N={s.N}", cells, Verdict.DIFFERS, f"{s.forward:g} forward + {s.backward:g} backward")


def fig1(lab: Lab) -> Iterable[Row]:
    """FlashAttention, Figure 1 right: the stages add up, and so does the ratio."""
    pytorch, fused = (row[-1] for row in lab.published("fa1_fig1_right")["rows"])
    stages = sum(lab.published("fa1_fig1_right")["rows"][0][1:-1])
    yield against("FlashAttention, Figure 1 right", "sum of the stages", modelled(stages, "ms"), published(pytorch, "ms"), 0.01, "")
    yield against("FlashAttention, Figure 1 right", "speedup", modelled(pytorch / fused, "x", digits=3), published(7.6, "x"), 0.01, "")
