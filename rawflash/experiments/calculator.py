"""The calculator's figures for the problem, tile and GPU of the command line, and its two curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rawflash.calculator import FIGURES, calculate
from rawflash.lab import Axis, Cell, Chart, Experiment, Lab, Picture, Row, Series, modelled

__all__ = ["EXPERIMENT"]

CURVES = "HBM bytes against N"


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    found = calculate(lab.problem, lab.tiling, lab.gpu, lab.options["layers"])
    for figure in FIGURES:
        value = found[figure.name]
        if isinstance(value, str):
            cell = Cell(value, provenance="modelled")
        else:
            cell = modelled(value, figure.unit, "" if value is not None else f"{lab.gpu.name} has no rate for {lab.problem.dtype}")
        yield Row({"figure": figure.label, "meaning": figure.meaning}, {"value": cell})
    p, t = lab.problem, lab.tiling
    shape = f"{p.dtype}, B={p.B} H={p.H} Hkv={p.Hkv} d={p.d}, mask {p.causal}, Br={t.Br} Bc={t.Bc}"
    for N in lab.options["N"]:
        found = calculate(replace(p, N=N, Nkv=N), t, lab.gpu)
        cells = {name: modelled(float(found[f"{name}_bytes"] or 0) / 2**20, "MiB") for name in ("naive", "tiled")}
        yield Row({"shape": shape, "N": N}, cells, table=CURVES)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    table = [row for row in rows if row.table == CURVES]
    lengths = [int(row.keys["N"]) for row in table]
    yield Chart(
        "calculator",
        "HBM bytes that attention asks",
        Axis("N (queries = keys)", "2", ticks=lengths[::2]),
        Axis("HBM read + written, modelled (MiB)", "2"),
        [Series(name, lengths, [row.cells[name].number for row in table], color=color) for color, name in enumerate(("naive", "tiled"))],
        f"{table[0].keys['shape']}. Closed forms of naive.cu and fa2.cu, no cache.",
    )


EXPERIMENT = Experiment(
    title="The calculator",
    claim="None of its own: the figures of one shape on one GPU.",
    source="rawflash/calculator",
    rows=_rows,
    pictures=_pictures,
    takes=("problem", "block_size", "kernel", "gpu"),
    notes=("Interactive: experiments/calculator.html; without filing anything: `rawflash calculator problem.N=8192 gpu=h100`.",),
)
