"""FlashAttention-4, section 3.1: rescaling only when a maximum grew by much, and exponentials on the FMA pipe, counted in fa2_lazy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rawflash.lab import Axis, Bars, Experiment, Lab, Picture, Row, Verdict, checked, counted, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT", "lazy_metrics"]

RESCALE, POLY, DEGREE = "Rescaling", "Exponentials", "Degree of the polynomial: all exponentials by it, bf16"
KERNEL = "fa2_lazy"


def lazy_metrics(lab: Lab, p: Problem, threshold: float | None, share: float, degree: int = 4) -> dict[str, float]:
    """Counted and checked metrics of fa2_lazy: threshold in powers of 2 (None: rescale in every tile), share and degree of polynomials.

    A result outside the tolerance is no error here: its metrics say so.
    """
    side = lab.options["block"]
    tile = Tiling(side, side, lazy_threshold=threshold, poly_fraction=share, poly_degree=degree)
    return lab.run(KERNEL, p, tile, raise_errors=False).metrics


def _problem(lab: Lab, distribution: str, dtype: str = "fp16") -> Problem:
    o = lab.options
    return Problem(B=1, H=1, N=o["N"], d=o["d"], dtype=dtype, distribution=distribution)


def _cases(lab: Lab) -> Sequence[Any]:
    o = lab.options
    rescale = [(RESCALE, name, t) for name in o["distributions"] for t in o["thresholds"]]
    return [*rescale, *((POLY, "randn", share) for share in o["shares"]), *((DEGREE, "randn", degree) for degree in o["degrees"])]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    table, distribution, value = case
    if table == RESCALE:
        yield _rescale(lab, distribution, value)
    else:
        yield _poly(lab, value) if table == POLY else _degree(lab, value)


def _rescale(lab: Lab, distribution: str, threshold: float | None) -> Row:
    p = _problem(lab, distribution)
    m, always = lazy_metrics(lab, p, threshold, 0.0), lazy_metrics(lab, p, None, 0.0)
    cells = {
        "rescale multiplications": counted(m["ops/rescale_mul"]),
        "of those in every tile": counted(m["ops/rescale_mul"] / always["ops/rescale_mul"], digits=3),
        "error / tolerance": checked(m["err/ratio"], digits=3),
        "HBM": counted(m["io/hbm_total_bytes"], "B"),
    }
    keys: dict[str, str | int | float] = {"inputs": distribution, "threshold": "none" if threshold is None else f"2^{threshold:g}"}
    if threshold is None:
        return Row(keys, cells, None, "every tile rescales", RESCALE)
    fewer, right = m["ops/rescale_mul"] < always["ops/rescale_mul"], m["err/ratio"] <= 1
    why = f"{1 - m['ops/rescale_mul'] / always['ops/rescale_mul']:.1%} skipped, result right"
    return Row(keys, cells, Verdict.REPRODUCED, why, RESCALE) if fewer and right else _differs(keys, cells, RESCALE, m)


def _differs(keys: Mapping[str, str | int | float], cells: Any, table: str, m: Mapping[str, float]) -> Row:
    return Row(keys, cells, Verdict.DIFFERS, f"nothing saved, or wrong: error {m['err/ratio']:.2g} of the tolerance", table)


def _poly(lab: Lab, share: float) -> Row:
    p, gpu = _problem(lab, "randn"), lab.gpu
    m, none = (lazy_metrics(lab, p, lab.options["threshold"], s) for s in (share, 0.0))
    cells = {
        "ex2": counted(m["ops/ex2"]),
        "FMA": counted(m["ops/fma"]),
        "SFU cycles": modelled(m["ops/ex2"] / gpu.sfu_per_clk_sm, "SM clocks"),
        "FMA-pipe cycles": modelled((m["ops/fma"] + m["ops/mul"] + m["ops/add"]) / gpu.fma_per_clk_sm, "SM clocks"),
        "error / tolerance": checked(m["err/ratio"], digits=3),
    }
    keys: dict[str, str | int | float] = {"on the FMA pipe": f"{share:.0%}"}
    if not share:
        return Row(keys, cells, None, "every exponential on the special-function unit", POLY)
    moved = 1 - m["ops/ex2"] / none["ops/ex2"]
    right = m["err/ratio"] <= 1 and abs(moved - share) <= lab.options["tolerance"]
    return Row(keys, cells, Verdict.REPRODUCED, f"{moved:.1%} moved, result right", POLY) if right else _differs(keys, cells, POLY, m)


def _degree(lab: Lab, degree: int) -> Row:
    """Table 2's claim: rounded to bf16, a polynomial is as good as the special-function unit. LSE is stored in fp32 and shows it."""
    p, threshold = _problem(lab, "randn", "bf16"), lab.options["threshold"]
    m, none = lazy_metrics(lab, p, threshold, 1.0, degree), lazy_metrics(lab, p, threshold, 0.0)
    printed = {row[0]: row[1] for row in lab.published("fa4_table2")["rows"]}[f"degree {degree}"]
    cells = {
        "FMAs per exponential": counted((m["ops/fma"] - none["ops/fma"]) / none["ops/ex2"], digits=3),
        "error of O / tolerance": checked(m["err/ratio"], digits=3),
        "the same by ex2": checked(none["err/ratio"], digits=3),
        "error of LSE / tolerance": checked(m["err/lse_max_abs"] / m["err/lse_tolerance"], digits=3),
        "paper, relative error of 2^x": published(printed, digits=3),
    }
    near = m["err/ratio"] <= none["err/ratio"] * (1 + lab.options["as_good"])
    told = "O is as exact as with ex2" if near else "O is less exact than with ex2"
    seen = m["err/lse_max_abs"] > m["err/lse_tolerance"]
    why = told + (", LSE is not: it is stored in fp32, where the error of 2^x shows" if seen else ", and LSE is within its tolerance")
    return Row({"degree": degree}, cells, Verdict.REPRODUCED if near else Verdict.DIFFERS, why, DEGREE)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    mine = [row for row in rows if row.table == POLY]
    units = ("SFU cycles", "FMA-pipe cycles")
    yield Bars(
        "fa4_lazy",
        "Exponentials by polynomial: from the SFU to the FMA pipe",
        [str(row.keys["on the FMA pipe"]) for row in mine],
        Axis("thousand clocks of one SM for one head, modelled"),
        units,
        [[row.cells[unit].number / 1e3 for row in mine] for unit in units],
        f"fa2_lazy, N={lab.options['N']}, d={lab.options['d']}, fp16; rates of {lab.gpu.name}. Groups: share of polynomials.",
    )


EXPERIMENT = Experiment(
    title="Lazy rescaling and exponentials by polynomial",
    claim="Rescaling only when a maximum grew by more than 2^8 saves most rescaling, polynomials unload the SFU; the result stays right.",
    source="FlashAttention-4, section 3.1 and Table 2",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "SFU cycles: ex2 over an SM's special-function lanes; FMA-pipe cycles: FMAs, multiplications, additions over its fp32 lanes.",
        "The two run side by side, so the larger one counts; tensor cores, SMEM and the rest are in no column.",
    ),
)
