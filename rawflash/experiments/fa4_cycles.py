"""FlashAttention-4, Tables 1 to 3: cycles per tile from its own rates, and what a kernel here needs of the same units.

A tile is M queries by N keys of head dimension d. Per SM and clock a B200 does 8192 FLOP of 16-bit products, 16 exponentials, and moves
128 bytes through SMEM:

    forward    products 4 M N d / 8192      SMEM 3 M N d / 8192 (operands of 128 x 128 tiles)      exponentials M N / 16
    backward   products 10 M N d / 8192     SMEM (4 M d + 3 N d + M N) / 64 operands, M N / 64 dS, M d / 16 dQ

For two CTAs that share a tile of 256 queries the paper gives numbers and no formula. Halving the operands that are not a CTA's own,
(4 M d + (3 N d + M N) / 2) / 64, and dQ gives those numbers: a fit, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rawflash.lab import Cell, Experiment, Lab, Row, checked, counted, judge, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT", "backward_cycles", "forward_cycles", "polynomial_error"]

FORWARD, BACKWARD, EXP, OURS = "Table 1: forward", "Table 3: backward, N = d = 128", "Table 2: 2^x as a polynomial", "fa2_pipe, per tile"
MMA, SFU, SMEM = 8192, 16, 128  # per clock and SM of a B200: FLOP, exponentials, bytes


def forward_cycles(M: int, N: int, d: int) -> dict[str, float]:
    """Cycles of one forward tile by resource, in the words of Table 1."""
    return {"MMA": 4 * M * N * d / MMA, "shared memory": 3 * M * N * d / MMA, "exponential": M * N / SFU}


def backward_cycles(M: int, N: int, d: int, ctas: int) -> dict[str, float]:
    """Cycles of one backward tile by resource, in the words of Table 3, where the formulas give them. M is that of one CTA."""
    operands = (4 * M * d + (3 * N * d + M * N) / ctas) / (SMEM / 2)
    return {
        "MMA": 10 * M * N * d / MMA,
        "smem MMA operands": operands,
        "smem dS write": M * N / (SMEM / 2),
        "smem dQ": M * d / 16 / ctas,
        "exponential": M * N / SFU,
    }


def polynomial_error(coefficients: Sequence[float], points: int = 1 << 20) -> tuple[float, float]:
    """(largest, mean) relative error of a polynomial for 2^x on [0, 1), in float64."""
    x = np.arange(points) / points
    error = np.abs(np.polynomial.polynomial.polyval(x, coefficients) / np.exp2(x) - 1)
    return float(error.max()), float(error.mean())


def _cases(lab: Lab) -> Sequence[Any]:
    return ("forward", "backward", "exp", "ours")


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    yield from {"forward": _forward, "backward": _backward, "exp": _exp, "ours": _ours}[case](lab)


def _forward(lab: Lab) -> Iterable[Row]:
    entry = lab.published("fa4_table1")
    for column, shape in enumerate(entry["columns"][1:], 1):
        found = forward_cycles(*map(int, shape.split("x")))
        for row in entry["rows"]:
            cells = {"formula": modelled(found[row[0]], "cycles"), "paper": published(row[column], "cycles")}
            yield Row({"tile": shape, "resource": row[0]}, cells, *judge(found[row[0]], row[column], 0), FORWARD)


def _backward(lab: Lab) -> Iterable[Row]:
    printed = {row[0]: row[1:] for row in lab.published("fa4_table3")["rows"]}
    for ctas in (1, 2):
        told = {name: row[ctas - 1] for name, row in printed.items()}
        found: dict[str, float] = backward_cycles(128, 128, 128, ctas)
        found["smem total"] = sum(value for name, value in told.items() if name.startswith("smem") and name != "smem total")
        for name, value in told.items():
            keys, cell = {"CTAs": ctas, "resource": name}, published(value, "cycles")
            if name in found:
                verdict, why = judge(found[name], value, 0)
                why += "; fitted, no formula is given" if ctas == 2 and name in ("smem MMA operands", "smem dQ") else ""
                yield Row(keys, {"formula": modelled(found[name], "cycles"), "paper": cell}, verdict, why, BACKWARD)
            else:
                yield Row(keys, {"paper": cell}, None, "no formula is given", BACKWARD)


def _exp(lab: Lab) -> Iterable[Row]:
    entry = lab.published("fa4_table2")
    printed = {row[0]: row[1:3] for row in entry["rows"]}["degree 3"]
    found = polynomial_error(entry["setting"]["coefficients_degree_3"])
    for name, value, told, tolerance in zip(("largest", "mean"), found, printed, (0.01, 0.01), strict=True):
        why = "the printed coefficients have four digits, the kernel's have more"
        cells = {"of the printed coefficients": checked(value, digits=3), "paper": published(told, digits=3)}
        yield Row({"degree": 3, "relative error": name}, cells, *judge(value, told, tolerance, why, digits=3), EXP)


def _ours(lab: Lab) -> Iterable[Row]:
    """Two key tiles less one: what a tile costs, without what a query tile costs once."""
    side, d = lab.options["side"], lab.options["d"]
    few, many = (lab.run("fa2_pipe", Problem(B=1, H=1, N=side, Nkv=side * n, d=d), Tiling(side, side)).metrics for n in (1, 2))
    tile = {name: many[name] - few[name] for name in ("ops/ex2", "smem/bytes", "io/hbm_total_bytes")}
    paper = forward_cycles(side, side, d)
    for resource, amount, rate in (("exponential", tile["ops/ex2"], SFU), ("shared memory", tile["smem/bytes"], SMEM)):
        cells = {
            "per tile": counted(amount, "ex2" if rate == SFU else "B"),
            "cycles": modelled(amount / rate, "cycles"),
            "FlashAttention-4's formula": modelled(paper[resource], "cycles"),
        }
        yield Row({"tile": f"{side}x{side}x{d}", "resource": resource}, cells, table=OURS)
    yield Row(
        {"tile": f"{side}x{side}x{d}", "resource": "MMA"},
        {"cycles": modelled(paper["MMA"], "cycles"), "kernel": Cell("m16n8k16")},
        table=OURS,
    )


EXPERIMENT = Experiment(
    title="Cycles per tile",
    claim="On a B200 exponentials and SMEM take as long as the products: 1024, 768 and 1024 cycles for a tile of 128 x 128 x 128.",
    source="FlashAttention-4, Tables 1 to 3",
    rows=_rows,
    cases=_cases,
    notes=("fa2_pipe reads operands through registers (ldmatrix), once per warp, where the tensor cores of a B200 read SMEM themselves.",),
)
