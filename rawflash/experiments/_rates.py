"""What the figures of TFLOP/s share: their grid, the nominal rate, and the speed of light of a kernel here on a GPU.

16384 tokens are cut into sequences of N, the hidden size of 2048 into heads of d. The papers' rate is nominal: 4 N^2 d per head over the
time, exactly half of it under a causal mask, 3.5 times for forward and backward. The speed of light is modelled from counts of a few
tiles (rawflash.extend) and a data sheet: what the busiest resource needs at its peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rawflash.config import gpu_values
from rawflash.extend import extended_counts
from rawflash.lab import Cell, Lab, Row, Verdict, measured, modelled, published
from rawflash.light import speed_of_light
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.work import work_from

__all__ = ["Panel", "grid_problem", "light_rate", "nominal_flops", "panel_row", "series_of"]

TOKENS, HIDDEN = 16384, 2048
Panel = dict[str, Any]  # entry, passes, d, causal, tile, method: one panel of a figure, as the YAML of an experiment gives it


def grid_problem(N: int, d: int, causal: bool) -> Problem:
    """The grid's problem at one length."""
    return Problem(B=TOKENS // N, H=HIDDEN // d, N=N, d=d, dtype="fp16", causal=causal)


def nominal_flops(p: Problem) -> float:
    """The papers' FLOPs of a forward pass: 4 B H N^2 d, half of it under a mask (whose pairs are N (N + 1) / 2)."""
    return 4 * p.B * p.H * p.N**2 * p.d / (1 if p.causal == "none" else 2)


def light_rate(lab: Lab, kernel: str, p: Problem, tile: Tiling, gpu_name: str) -> tuple[float, str]:
    """(nominal TFLOP/s at the speed of light, the resource that bounds it) of `kernel`, forward pass."""
    gpu, variant = Gpu.from_dict(gpu_values(gpu_name)), LADDER[kernel]

    def make() -> dict[str, int]:
        return extended_counts(variant, p, tile, gpu, lab.emulator).counts

    counts = lab.remember(("rates", kernel, repr(p), repr(tile), gpu.arch), make, (variant.file,))
    light = speed_of_light(work_from(counts, p, variant.plan(p, tile), gpu), gpu)
    return nominal_flops(p) / light.least_ms / 1e9, light.binding


def panel_row(lab: Lab, panel: Panel, N: int, table: str) -> Row:
    """One length of one panel: printed rates, the modelled one, and the measured one where there is a GPU of that kind."""
    o, d = lab.options, panel["d"]
    p, tile = grid_problem(N, d, panel["causal"]), Tiling(*panel["tile"])
    entry = lab.published(panel["entry"])
    printed = {row[0]: row[entry["columns"].index(N)] for row in entry["rows"]}[panel["method"]]
    rate, binding = light_rate(lab, o["kernel"], p, tile, o["gpu"])
    peak = Gpu.from_dict(gpu_values(o["gpu"])).fp16_tflops
    found = measured_rate(lab, o["kernel"], p, tile)
    cells = {
        f"{o['kernel']}, speed of light": modelled(rate, "TFLOP/s", digits=3),
        "bound by": Cell(binding, provenance="modelled"),
        f"{o['kernel']}, forward": found,
        "paper": published(printed, "TFLOP/s"),
        "paper / tensor peak": modelled(printed / peak, digits=2),
    }
    keys: dict[str, str | int | float] = {"passes": panel["passes"], "d": d, "mask": "causal" if panel["causal"] else "none", "N": N}
    if found.value is None:
        return Row(keys, cells, Verdict.NEEDS_GPU, f"time {o['kernel']} on the paper's {o['gpu']}", table)
    if panel["passes"] != "forward":
        return Row(keys, cells, Verdict.NOT_COMPARABLE, "the paper times forward and backward, the kernel is a forward one", table)
    near = found.number >= printed * o["tolerance"]
    why = f"{found.number / printed:.2f} of the paper's rate, on {lab.gpu.name}"
    return Row(keys, cells, Verdict.REPRODUCED if near else Verdict.DIFFERS, why, table)


def measured_rate(lab: Lab, kernel: str, p: Problem, tile: Tiling) -> Cell:
    """Nominal TFLOP/s of the forward pass on the GPU; a cell that says so where there is none."""
    ms = lab.time(kernel, p, tile)
    return measured(None, "TFLOP/s", ms.note) if ms.value is None else measured(nominal_flops(p) / ms.number / 1e9, "TFLOP/s", digits=3)


def series_of(rows: list[Row], title: str) -> Iterator[tuple[str, list[int], list[float]]]:
    """(panel, lengths, numbers) of one column, panel by panel."""
    for panel in dict.fromkeys((row.keys["d"], row.keys["mask"]) for row in rows):
        mine = [row for row in rows if (row.keys["d"], row.keys["mask"]) == panel]
        yield (
            f"d={panel[0]}{', causal' if panel[1] == 'causal' else ''}",
            [int(row.keys["N"]) for row in mine],
            [row.cells[title].number for row in mine],
        )
