"""FlashAttention, Table 21: memory of forward and backward against N, and what the kernels here allocate for the forward pass.

The table's cells are reproduced by counting tensors, in elements of w = 2 bytes unless said (B = 16, H = 8, d = 64):

    PyTorch                  4 matrices of N x N and 10 of N x d
    FlashAttention           11 (N <= 256) or 13 of N x d, and two rows of fp32 statistics
    block-sparse             the same, and 8 bytes for each 16 x 256 block of the mask

The coefficients are fitted to the table, the paper does not give them. 13 is 11 and an fp32 accumulator of N x d, which the first
release allocates once it loops over key blocks of 256.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rawflash.lab import Axis, Chart, Experiment, Lab, Picture, Row, Series, Verdict, modelled, published
from rawflash.problem import Problem
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT", "MODELS", "allocated", "table_problem"]

TABLE, OURS = "Forward and backward, against Table 21", "Forward pass here: Q, K, V, O, LSE and workspaces"
METHODS = ("PyTorch Attention", "FlashAttention", "Block-Sparse FlashAttention")
MIB = 2**20


def table_problem(N: int) -> Problem:
    """The table's problem at length N."""
    return Problem(B=16, H=8, N=N, d=64, dtype="fp16")


def _matrix(p: Problem, columns: int) -> int:
    """Bytes of one [B, H, N, columns] tensor."""
    return p.B * p.H * p.N * columns * p.itemsize


def _pytorch(p: Problem) -> float:
    return 4 * _matrix(p, p.N) + 10 * _matrix(p, p.d)


def _flash(p: Problem) -> float:
    return (11 if p.N <= 256 else 13) * _matrix(p, p.d) + 2 * 4 * p.B * p.H * p.N


def _block_sparse(p: Problem) -> float:
    return _flash(p) + 8 * (p.N / 16) * (p.N / 256)


MODELS = dict(zip(METHODS, (_pytorch, _flash, _block_sparse), strict=True))


def allocated(kernel: str, p: Problem, tiling: Tiling) -> int:
    """Bytes that a kernel of the ladder needs in HBM at once: Q, K, V, its outputs and its workspaces."""
    inputs = math.prod(p.shape_q) + math.prod(p.shape_k) + math.prod(p.shape_v)
    buffers = LADDER[kernel].plan(p, tiling).buffers.values()
    return inputs * p.itemsize + sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in buffers)


def _cases(lab: Lab) -> Sequence[Any]:
    return [column for column in lab.published("fa1_table21")["columns"] if isinstance(column, int)]


def _rows(lab: Lab, N: Any) -> Iterable[Row]:
    p, entry = table_problem(N), lab.published("fa1_table21")
    printed = {row[0]: row[entry["columns"].index(N)] for row in entry["rows"]}
    for method in METHODS:
        yield _row(method, p, printed[method], lab.options["memory_gib"])
    tile = Tiling(64, 64)
    cells = {kernel: modelled(allocated(kernel, p, tile) / MIB, "MiB") for kernel in lab.options["kernels"]}
    yield Row({"N": N}, cells, table=OURS)


def _row(method: str, p: Problem, printed: float | None, memory_gib: float) -> Row:
    keys: dict[str, str | int | float] = {"method": method, "N": p.N}
    found = MODELS[method](p) / MIB
    cells = {"fitted": modelled(found, "MiB", digits=6), "paper": published(printed, "MiB", "" if printed else "none printed", 6)}
    if printed is None:
        right = found > memory_gib * 1024
        why = f"does not fit in {memory_gib:g} GiB, and no number is printed" if right else "fits, yet no number is printed"
    else:
        right, why = math.floor(found) == printed, "whole MiB, cut off; coefficients fitted to the table"
    return Row(keys, cells, Verdict.REPRODUCED if right else Verdict.DIFFERS, why, TABLE)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    series = []
    for color, method in enumerate(METHODS[:2]):
        mine = [row for row in rows if row.keys.get("method") == method]
        told = [row for row in mine if row.cells["paper"].value is not None]
        series.append(Series(f"{method}, fitted", *_line(mine, "fitted"), kind="theory", color=color))
        series.append(Series(f"{method}, Table 21", *_line(told, "paper"), kind="points", color=color))
    kernels = [row for row in rows if row.table == OURS]
    for color, kernel in enumerate(lab.options["kernels"], len(series) // 2):
        series.append(Series(f"{kernel}, forward", *_line(kernels, kernel), color=color))
    yield Chart(
        "fa1_tab21",
        "Memory against N: quadratic with the scores, linear without",
        Axis("N (queries = keys)", "2", [int(row.keys["N"]) for row in kernels]),
        Axis("memory (MiB), published and modelled", "10"),
        series,
        "16 x 8 heads, d=64, fp16. Table 21: published, forward and backward. Fitted, and the kernels here: modelled from tensor sizes.",
        legend=True,
    )


def _line(rows: Sequence[Row], title: str) -> tuple[list[int], list[float]]:
    return [int(row.keys["N"]) for row in rows], [row.cells[title].number for row in rows]


EXPERIMENT = Experiment(
    title="Memory against N",
    claim="FlashAttention's memory grows linearly with N, that of attention that keeps its scores quadratically: 20 times less at 4096.",
    source="FlashAttention, Table 21",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "The paper prints MB; its cells are whole numbers of 2^20 bytes.",
        "The fit has one coefficient per tensor shape. It is no claim of the paper: it says which tensors explain the printed cells.",
        "The kernels here are forward kernels, so nothing is kept for a backward pass.",
    ),
)
