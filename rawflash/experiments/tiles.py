"""Which tile? Bytes, shared memory, occupancy and speed of light over a grid of (Br, Bc, warps), on every GPU; beside the paper's rule.

The tile that is recommended spills no registers and needs the least time in whole waves of CTAs; among those within the tolerance, it is
the one with the most warps per SM to hide latency behind, then the one with the least shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rawflash.experiments._light import Judged, all_gpus, judge_on, problem_of, refusal, sheet
from rawflash.lab import Axis, Cell, Experiment, HeatMap, Lab, Picture, Row, counted, modelled
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling, ceil_div

__all__ = ["EXPERIMENT", "paper_rule"]

GRID, CHOICE = "The grid", "The tile for each GPU"


@dataclass(frozen=True)
class _Point:
    """One tile on one GPU. `ms`: the speed of light, in whole waves."""

    tiling: Tiling
    found: Judged

    @property
    def ms(self) -> float:
        return self.found.light.least_ms * math.ceil(self.found.waves) / self.found.waves

    @property
    def name(self) -> str:
        return f"{self.tiling.Br}x{self.tiling.Bc}, {_warps(self.found.warps)}"


def _warps(n: int) -> str:
    return f"{n} warp{'s' * (n > 1)}"


def paper_rule(gpu: Gpu, problem: Problem) -> tuple[int, int]:
    """(Br, Bc) of Algorithm 1 of FlashAttention: Bc = ceil(M / 4d), Br = min(Bc, d), M elements of the storage type in a CTA's SMEM."""
    Bc = ceil_div(gpu.smem_block_bytes // problem.itemsize, 4 * problem.d)
    return min(Bc, problem.d), Bc


def _kernel(lab: Lab, gpu: Gpu) -> str:
    """The kernel whose tile is chosen: the one without tensor cores where mma.m16n8k16 is missing."""
    first, second = lab.options["kernels"]
    return str(first if int(gpu.arch) >= 80 else second)


def _tilings(lab: Lab, kernel: str) -> Iterator[Tiling]:
    sides = lab.options["sides"][kernel]
    for Br in sides["Br"]:
        for Bc in sides["Bc"]:
            for rows in sides.get("rows_per_warp", [None]):
                if rows is None or Br % rows == 0:
                    yield Tiling(Br, Bc, warps=rows and Br // rows)


def _cases(lab: Lab) -> Sequence[Any]:
    return [*((kernel, t) for kernel in lab.options["kernels"] for t in _tilings(lab, kernel)), CHOICE]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    if case == CHOICE:
        yield from (_choice(lab, sheet(name)) for name in all_gpus())
        return
    kernel, tiling = case
    for gpu in dict.fromkeys((lab.gpu, *map(sheet, all_gpus()))):
        if _kernel(lab, gpu) == kernel:
            yield _grid_row(lab, kernel, tiling, gpu)


def _point(lab: Lab, kernel: str, tiling: Tiling, gpu: Gpu) -> _Point | str:
    """The tile on the GPU, or why it is not feasible there."""
    reason = refusal(kernel, problem_of(lab), tiling, gpu)
    if reason:
        return reason
    found = judge_on(lab, kernel, problem_of(lab), tiling, gpu)
    return _Point(tiling, found) if found.occupancy.ctas else f"not one CTA fits: {found.registers} registers in {32 * found.warps} threads"


def _grid_row(lab: Lab, kernel: str, tiling: Tiling, gpu: Gpu) -> Row:
    keys: dict[str, str | int | float] = {"GPU": gpu.name, "kernel": kernel, "Br": tiling.Br, "Bc": tiling.Bc}
    point = _point(lab, kernel, tiling, gpu)
    table = GRID if gpu == lab.gpu else f"{GRID}, {gpu.name}"
    if isinstance(point, str):
        return Row(keys, {"time": modelled(None, "ms", point)}, table=table)
    found = point.found
    cells = {
        "warps": modelled(found.warps),
        "HBM asked": counted(found.hbm_bytes / 1e9, "GB", digits=3),
        "SMEM": modelled(found.smem_bytes / 1024, "KiB"),
        "registers": modelled(found.registers),
        "spills": modelled(found.spill_bytes, "B"),
        "CTAs per SM": modelled(found.occupancy.ctas),
        "occupancy": modelled(100 * found.occupancy.fraction, "%", digits=3),
        "limited by": Cell(", ".join(found.occupancy.limiters), provenance="modelled"),
        "light": modelled(found.light.least_ms, "ms", digits=3),
        "binds": Cell(found.light.binding, provenance="modelled"),
        "time": modelled(point.ms, "ms", digits=3),
    }
    return Row(keys, cells, table=table)


def _best(lab: Lab, gpu: Gpu) -> tuple[_Point, list[_Point]] | None:
    """The recommended tile and all feasible ones without spills, fastest first; None where there is none."""
    kernel = _kernel(lab, gpu)
    points = [p for t in _tilings(lab, kernel) if isinstance(p := _point(lab, kernel, t, gpu), _Point) and not p.found.spill_bytes]
    if not points:
        return None
    points.sort(key=lambda p: p.ms)
    near = [p for p in points if p.ms <= points[0].ms * (1 + lab.options["tolerance"])]
    return max(near, key=lambda p: (p.found.occupancy.warps, -p.found.smem_bytes)), points


def _choice(lab: Lab, gpu: Gpu) -> Row:
    kernel, problem = _kernel(lab, gpu), problem_of(lab)
    Br, Bc = paper_rule(gpu, problem)
    keys = {"GPU": gpu.name, "kernel": kernel}
    rule = {"rule of the paper": Cell(f"{Br}x{Bc}", provenance="published")}
    chosen = _best(lab, gpu)
    if chosen is None:
        return Row(keys, rule, reason="no tile of the grid fits", table=CHOICE)
    best, points = chosen
    by_rule = _of_rule(points, Br, Bc)
    cells = {
        "tile": Cell(best.name, provenance="modelled"),
        "time": modelled(best.ms, "ms", digits=3),
        "binds": Cell(best.found.light.binding, provenance="modelled"),
        "rate": modelled(problem.flops() / best.ms / 1e9, "TFLOP/s", digits=3),
        **rule,
        "nearest to it": Cell(by_rule.name, provenance="modelled"),
        "its time": modelled(by_rule.ms, "ms", digits=3),
    }
    return Row(keys, cells, reason=_reason(best, points, lab.options["tolerance"]), table=CHOICE)


def _of_rule(points: Sequence[_Point], Br: int, Bc: int) -> _Point:
    """The feasible tile that comes nearest to the rule's from below, else the smallest."""
    inside = [p for p in points if p.tiling.Br <= Br and p.tiling.Bc <= Bc]
    return max(inside or points, key=lambda p: (p.tiling.Br * p.tiling.Bc * (1 if inside else -1), -p.ms))


def _reason(best: _Point, points: Sequence[_Point], tolerance: float) -> str:
    light, o = best.found.light, best.found.occupancy
    others = sorted((r for r in light.ms if r != light.binding), key=light.ms.__getitem__, reverse=True)
    near = [p for p in points if p.ms <= points[0].ms * (1 + tolerance)]
    company = "alone at the top" if len(near) == 1 else f"most warps per SM of {len(near)} tiles within {100 * tolerance:g} %"
    held = f"{o.ctas} CTA{'s' * (o.ctas > 1)} of {_warps(best.found.warps)} per SM ({', '.join(o.limiters)})"
    return f"{company}; {light.binding} binds, next is {others[0]} with {100 * light.share(others[0]):.0f} %; {held}"


# ------------------------------------------------------------------------------------------------------------- pictures
def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    fit = {_place(row): row.cells for row in rows if row.table == GRID and "spills" in row.cells and not row.cells["spills"].number}
    if not fit:
        return
    lines, columns = sorted({place[:2] for place in fit}), sorted({place[2] for place in fit})
    grid = [[fit.get((*line, Bc)) for Bc in columns] for line in lines]
    chosen = [row.cells["tile"].value for row in rows if row.table == CHOICE and row.keys["GPU"] == lab.gpu.name and "tile" in row.cells]
    framed = [(i, j) for i, (Br, warps) in enumerate(lines) for j, Bc in enumerate(columns) if f"{Br}x{Bc}, {_warps(warps)}" in chosen]
    problem = problem_of(lab)
    yield HeatMap(
        "tiles",
        f"Time of {_kernel(lab, lab.gpu)} by tile on {lab.gpu.name}",
        Axis("Bc, keys of a key tile"),
        Axis("Br, rows of a query tile"),
        [str(Bc) for Bc in columns],
        [f"{Br}, {_warps(warps)}" for Br, warps in lines],
        [[cells["time"].number if cells else None for cells in line] for line in grid],
        [[_text(cells) for cells in line] for line in grid],
        "speed of light in whole waves (ms), modelled",
        f"{problem.dtype}, B={problem.B} H={problem.H} N={problem.N} d={problem.d}, mask {problem.causal}. Modelled from counts. "
        "In each field: ms, what binds, HBM bytes asked, occupancy. Framed: recommended. Empty: does not fit, or spills.",
        framed[0] if framed else None,
    )


def _place(row: Row) -> tuple[int, int, int]:
    """(Br, warps, Bc) of a row of the grid."""
    return int(row.keys["Br"]), int(row.cells["warps"].number), int(row.keys["Bc"])


def _text(cells: Mapping[str, Cell] | None) -> str:
    if cells is None:
        return ""
    asked, held = cells["HBM asked"].number, cells["occupancy"].number
    return f"{cells['time'].number:.3g} {cells['binds'].value}\n{asked:.3g} GB, {held:.3g} %"


EXPERIMENT = Experiment(
    title="Block sizes",
    claim="None of the paper's: Bc = ceil(M/4d) minimises bytes; what is best for time depends on what binds.",
    source="FlashAttention, Algorithm 1; the lesson",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    takes=("gpu",),
    notes=(
        "time: speed of light times ceil(waves) / waves. HBM asked: without a cache. Nothing here is measured.",
        "Rule of the paper: M counts elements of the storage type in the largest SMEM of one CTA.",
        "nearest to it: the largest tile of the grid within the rule's.",
        "Counts and registers are those of code compiled for 8.0.",
    ),
)
