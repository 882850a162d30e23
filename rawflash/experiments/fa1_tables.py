"""FlashAttention, Tables 9 to 20: runtimes over N, of forward, backward and both, with and without dropout and masking.

The protocol is ready: a table is a grid of lengths at 16 x 8 heads of 64, fp16. On a GPU the unfused baseline and a FlashAttention kernel
are timed where a kernel here computes what the table's method did; elsewhere the row says what is missing. Beside the printed times
stands the least that they can be: nominal FLOPs at the A100's tensor peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.config import gpu_values
from rawflash.lab import Axis, Cell, Chart, Experiment, Lab, Picture, Row, Series, Verdict, modelled, published
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT", "missing", "table_problem"]

PRODUCTS = {"forward": 2, "backward": 5, "forward+backward": 7}  # of 2 N^2 d FLOPs each
PYTORCH, FLASH = "PyTorch Attention", "FlashAttention"


def table_problem(N: int, dropout: bool = False) -> Problem:
    """The tables' problem at length N."""
    return Problem(B=16, H=8, N=N, d=64, dtype="fp16", dropout_p=0.1 if dropout else 0.0)


def missing(passes: str, dropout: bool, masking: bool, method: str) -> str:
    """What no kernel here does that `method` did in a table, or ""."""
    lacks = ["a backward pass"] if passes != "forward" else []
    lacks += ["padding masks"] if masking else []
    lacks += ["dropout in a fused kernel"] if dropout and method == FLASH else []
    return " and ".join(lacks)


def _cases(lab: Lab) -> Sequence[Any]:
    return [(n, N) for n in lab.options["tables"] for N in lab.published(f"fa1_table{n}")["columns"][1:]]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    n, N = case
    o, entry = lab.options, lab.published(f"fa1_table{n}")
    s, at = entry["setting"], entry["columns"].index(N)
    printed = {row[0]: row[at] for row in entry["rows"]}
    p, gpu = table_problem(N), Gpu.from_dict(gpu_values(o["gpu"]))
    least = p.flops() / 2 * PRODUCTS[s["passes"]] / gpu.fp16_tflops / 1e9
    told = f"Table {n}: {s['passes']}, " + (" and ".join(k for k in ("dropout", "masking") if s[k]) or "neither dropout nor masking")
    cells: dict[str, Cell] = {}
    lacks = []
    for method, kernel, tile in ((PYTORCH, o["baseline"], o["baseline_tile"]), (FLASH, o["kernel"], o["tile"])):
        cells[method] = published(printed[method], "ms", "" if printed[method] is not None else "none printed")
        lack = missing(s["passes"], s["dropout"], s["masking"], method)
        if lack:
            lacks.append(lack)
        else:
            cells[kernel] = lab.time(kernel, table_problem(N, s["dropout"]), Tiling(*tile))
    cells["least, FLOPs at peak"] = modelled(least, "ms", digits=3)
    cells[f"{FLASH} / least"] = modelled(printed[FLASH] / least, "x", digits=3)
    yield Row({"N": N}, cells, *_verdict(lab, cells, lacks, printed[FLASH] >= least), told)


def _verdict(lab: Lab, cells: dict[str, Cell], lacks: list[str], possible: bool) -> tuple[Verdict, str]:
    if not possible:
        return Verdict.DIFFERS, "the printed time is less than the FLOPs need at the tensor peak"
    if lacks:
        return Verdict.NOT_COMPARABLE, f"needs {lacks[-1]}, which no kernel here has"
    kernel, baseline = (cells[lab.options[name]] for name in ("kernel", "baseline"))
    if kernel.value is None or baseline.value is None:
        return Verdict.NEEDS_GPU, "ready to be timed" if lab.device is None else kernel.note or baseline.note
    if cells[PYTORCH].value is None:
        return Verdict.NOT_COMPARABLE, "no number is printed to compare with"
    ours, theirs = baseline.number / kernel.number, cells[PYTORCH].number / cells[FLASH].number
    near = ours >= theirs * lab.options["tolerance"]
    return Verdict.REPRODUCED if near else Verdict.DIFFERS, f"{ours:.1f} times faster than the baseline, printed {theirs:.1f}"


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    table = next((row.table for row in rows if row.table.startswith(f"Table {lab.options['pictured']}:")), "")
    mine = [row for row in rows if row.table == table]
    if not mine:
        return
    series = []
    for method in (PYTORCH, FLASH, "least, FLOPs at peak"):
        told = [row for row in mine if row.cells[method].value is not None]
        points = [int(row.keys["N"]) for row in told], [row.cells[method].number for row in told]
        series.append(Series(method, *points, kind="line" if method != "least, FLOPs at peak" else "theory"))
    yield Chart(
        "fa1_tables",
        f"FlashAttention, {table}",
        Axis("N (queries = keys)", "2", [int(row.keys["N"]) for row in mine]),
        Axis("time (ms), published and modelled", "10"),
        series,
        "16 x 8 heads, d=64, fp16. Times: published, A100 40GB. Dashed: modelled, nominal FLOPs at the tensor peak, 312 TFLOP/s.",
        legend=True,
    )


EXPERIMENT = Experiment(
    title="Runtimes against N",
    claim="FlashAttention is up to 3 times faster than PyTorch's attention at N from 128 to 2048, and runs where that is out of memory.",
    source="FlashAttention, Tables 9 to 20",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "Measured columns: milliseconds of the kernel named at the head, by this project's protocol (L2 flushed, median).",
        "Least: 2, 5 or 7 products of 2 N^2 d FLOPs per head at 312 TFLOP/s; below about 0.5 ms the printed times are launches.",
        "The verdict on a GPU compares speedups over the unfused baseline, which depend less on the device than milliseconds do.",
    ),
)
