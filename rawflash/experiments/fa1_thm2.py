"""FlashAttention, Theorem 2: HBM accesses of Theta(N^2 d^2 / M), against Theta(N d + N^2) of attention that writes its scores.

The block rule of Algorithm 1 turns M elements of SRAM into tiles, Bc = M / 4d and Br = min(Bc, d). Then N / Bc = 4 N d / M passes of
3 N d elements each are made, plus K and V and one pass less: counted elements = 12 N^2 d^2 / M + N d. The theorem hides the 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.experiments.fa1_fig2 import TENSORS, moved
from rawflash.lab import Axis, Chart, Experiment, Lab, Picture, Row, Series, counted, judge, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT", "block_rule", "slope"]

FLASH, SLOPE, SCORES = "Elements that fa1 moves", "Exponent of M", "Elements of S and P that unfused attention moves"


def block_rule(M: int, d: int) -> Tiling:
    """Algorithm 1's tiles for M elements of SRAM: Bc = ceil(M / 4d), Br = min(Bc, d)."""
    Bc = math.ceil(M / (4 * d))
    return Tiling(min(Bc, d), Bc)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Exponent of a power law through the first and the last point."""
    return math.log(y[-1] / y[0]) / math.log(x[-1] / x[0])


def _cases(lab: Lab) -> Sequence[Any]:
    sizes = [tuple(size) for size in lab.options["sizes"]]
    points = [("fa1", N, d, M) for N, d in sizes for M in _in_domain(lab, N, d)]
    return [*points, *(("slope", N, d, 0) for N, d in sizes), *(("unfused", N, d, 0) for N, d in sizes)]


def _in_domain(lab: Lab, N: int, d: int) -> list[int]:
    """The theorem speaks of d <= M <= N d."""
    return [M for M in lab.options["M"] if d <= M <= N * d]


def _elements(lab: Lab, N: int, d: int, M: int) -> int:
    """Elements of Q, K, V and O that fa1 moves for one head under the block rule."""
    tile = block_rule(M, d)
    # Low query tiles beside long key tiles keep fp32 tiles within a GPU's SMEM; no byte of Q, K, V and O depends on Br.
    Br = min(tile.Br, lab.options["most_Br"].get(tile.Bc, tile.Br))
    head = Problem(B=1, H=1, N=N, d=d, dtype="fp16")
    return moved(lab.run("fa1", head, Tiling(Br, tile.Bc)), TENSORS) // head.itemsize


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    kind, N, d, M = case
    if kind == "fa1":
        yield _point(lab, N, d, M)
    elif kind == "slope":
        Ms = _in_domain(lab, N, d)
        found = slope(Ms, [_elements(lab, N, d, M) for M in Ms])
        verdict, why = judge(found, -1, lab.options["tolerance"], "not a fall with 1 / M")
        yield Row({"N": N, "d": d}, {"found": counted(found), "claimed": published(-1)}, verdict, why, SLOPE)
    else:
        head = Problem(B=1, H=1, N=N, d=d, dtype="fp16")
        found = moved(lab.run("unfused", head, Tiling(64, 64)), ("S", "P")) // head.itemsize
        yield Row(
            {"N": N, "d": d},
            {"elements": counted(found), "/ N^2": counted(found / N**2)},
            *judge(found / N**2, 4, 0, "other passes than S and P written and read"),
            SCORES,
        )


def _point(lab: Lab, N: int, d: int, M: int) -> Row:
    found, bound = _elements(lab, N, d, M), N**2 * d**2 / M
    exact = 12 * bound + N * d
    cells = {
        "Bc": modelled(block_rule(M, d).Bc),
        "elements": counted(found),
        "12 N^2 d^2 / M + N d": modelled(exact),
        "N^2 d^2 / M": modelled(bound),
        "elements / bound": counted(found / bound, digits=5),
    }
    return Row({"N": N, "d": d, "M": M}, cells, *judge(found, exact, 0, "the block rule does not give whole tiles"), FLASH)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    series = []
    for color, (N, d) in enumerate(lab.options["sizes"]):
        mine = [row for row in rows if row.table == FLASH and (row.keys["N"], row.keys["d"]) == (N, d)]
        M = [int(row.keys["M"]) for row in mine]
        series.append(Series(f"N={N}, d={d}", M, [row.cells["elements"].number for row in mine], color=color))
        series.append(Series("", M, [12 * row.cells["N^2 d^2 / M"].number for row in mine], kind="theory", color=color))
    yield Chart(
        "fa1_thm2",
        "FlashAttention, Theorem 2: accesses fall as 1 / M",
        Axis("SRAM M that the block rule fills (elements)", "2", lab.options["M"]),
        Axis("HBM elements of one head, counted", "10"),
        series,
        "Points: Q, K, V and O counted by executing fa1. Dashed: 12 N^2 d^2 / M, modelled; what is above it is the term N d.",
    )


EXPERIMENT = Experiment(
    title="HBM accesses against SRAM",
    claim="FlashAttention makes Theta(N^2 d^2 / M) HBM accesses for every N and d, standard attention Theta(N d + N^2) whatever M is.",
    source="FlashAttention, Theorem 2",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "M is the paper's: elements, shared by four tiles of Bc x d. This kernel keeps fp32 tiles and P, so its own SMEM is larger.",
        "Counted are Q, K, V and O; the row statistics add 4 (4 N / Bc - 1) N bytes and LSE, which fall with M in the same way.",
    ),
)
