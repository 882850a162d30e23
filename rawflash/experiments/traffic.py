"""Bytes against N: the lesson in one picture.

One head; what a kernel moves is the same for every head. The lines of theory stand in `_theory`: leading terms in N only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.execute import RunResult
from rawflash.lab import Axis, Chart, Experiment, Lab, Picture, Row, Series, counted, judge, modelled
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT"]

BYTES, GROWTH, FLOPS = "HBM bytes of one head", "What N times 4 does", "The arithmetic is the same"


def _run(lab: Lab, kernel: str, N: int) -> RunResult:
    o = lab.options
    return lab.run(kernel, Problem(B=1, H=1, N=N, d=o["d"], dtype=o["dtype"]), Tiling(o["block"], o["block"]))


def _cases(lab: Lab) -> Sequence[Any]:
    return [(kernel, N) for N in lab.options["N"] for kernel in lab.options["kernels"]]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    kernel, N = case
    m = _run(lab, kernel, N).metrics
    total = m["io/hbm_total_bytes"]
    cells = {
        "read": counted(m["io/hbm_read_bytes"], "B"),
        "written": counted(m["io/hbm_write_bytes"], "B"),
        "total": counted(total, "B"),
        "closed form": modelled(m["io/model_bytes"], "B"),
        "x ideal": counted(total / m["io/ideal_bytes"], digits=3),
    }
    yield Row({"kernel": kernel, "N": N}, cells, *judge(total, m["io/model_bytes"], 0), BYTES)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    o = lab.options
    table = [row for row in rows if row.table == BYTES]
    series = []
    for color, kernel in enumerate(o["kernels"]):
        mine = [row for row in table if row.keys["kernel"] == kernel]
        N, total = [int(row.keys["N"]) for row in mine], [row.cells["total"].number / 2**20 for row in mine]
        series.append(Series(kernel, N, total, color=color))
    yield Chart(
        "traffic",
        "Bytes that attention asks of HBM, one head",
        Axis("N (queries = keys)", "2", o["N"]),
        Axis("HBM read + written (MiB), counted", "2"),
        series,
        f"{o['dtype']}, d={o['d']}, Br=Bc={o['block']}. Counted by executing the kernels' PTX; no cache.",
    )


EXPERIMENT = Experiment(
    title="HBM bytes against N",
    claim="When N grows 4 times, what naive attention moves grows 16 times and what tiled attention moves 4 times; the FLOPs are the same.",
    source="the lesson",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
)
