"""Memory against N: what S and P take, and the longest row that fits each GPU with them and without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.calculator import memory_bytes, score_bytes
from rawflash.experiments._light import all_gpus, sheet
from rawflash.lab import Axis, Chart, Experiment, Lab, Picture, Row, Series, judge, modelled, published
from rawflash.problem import Problem

__all__ = ["EXPERIMENT", "largest_N"]

HEAD, FITS = "One head", "Largest N that fits"
_TWO = 2  # S and P
_MOST = 2**40


def _problem(lab: Lab, N: int, heads: int) -> Problem:
    return Problem(B=1, H=heads, N=N, d=lab.options["d"], dtype=lab.options["dtype"])


def largest_N(lab: Lab, memory: int, heads: int, matrices: int) -> int:
    """The longest N = Nkv whose Q, K, V, O, LSE and `matrices` score matrices fit in `memory` bytes; 0 when none does."""
    low, high = 0, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if memory_bytes(_problem(lab, middle, heads), matrices) <= memory else (low, middle)
    return low


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    yield from (_head(lab, N) for N in lab.options["N"])
    for name in all_gpus():
        yield from (_fits(lab, name, heads) for heads in lab.options["heads"])


def _head(lab: Lab, N: int) -> Row:
    p = _problem(lab, N, 1)
    naive, tiled, scores = memory_bytes(p, _TWO), memory_bytes(p, 0), score_bytes(p)
    cells = {
        "S, or P": modelled(scores / 2**20, "MiB"),
        "naive: Q, K, V, O, LSE, S, P": modelled(naive / 2**20, "MiB"),
        "tiled: Q, K, V, O, LSE": modelled(tiled / 2**20, "MiB"),
        "naive / tiled": modelled(naive / tiled, "x", digits=3),
    }
    claimed = lab.options["claims_mib"].get(N)
    if claimed is None:
        return Row({"N": N}, cells, table=HEAD)
    verdict, why = judge(scores / 2**20, claimed, 0)
    return Row({"N": N}, {**cells, "S as said": published(claimed, "MiB")}, verdict, why, HEAD)


def _fits(lab: Lab, name: str, heads: int) -> Row:
    gpu = sheet(name)
    naive, tiled = (largest_N(lab, gpu.memory_bytes, heads, matrices) for matrices in (_TWO, 0))
    cells = {
        "memory": modelled(gpu.memory_bytes / 2**30, "GiB"),
        "naive": modelled(naive),
        "tiled": modelled(tiled),
        "tiled / naive": modelled(tiled / naive, "x", digits=3),
    }
    return Row({"GPU": gpu.name, "heads": heads}, cells, table=FITS)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    table = [row for row in rows if row.table == HEAD]
    N = [int(row.keys["N"]) for row in table]
    names = {"naive": "naive: Q, K, V, O, LSE, S, P", "tiled": "tiled: Q, K, V, O, LSE"}
    series = [
        Series(label, N, [row.cells[column].number / 1024 for row in table], color=color)
        for color, (label, column) in enumerate(names.items())
    ]
    sizes: dict[int, list[str]] = {}
    for name in all_gpus():
        sizes.setdefault(sheet(name).memory_bytes, []).append(sheet(name).name.split(" ")[0])
    for size, gpus in sorted(sizes.items()):
        label = f"{size / 2**30:g} GiB: {', '.join(dict.fromkeys(gpus))}"
        series.append(Series(label, (N[0], N[-1]), (size / 2**30,) * 2, "theory", 6))
    yield Chart(
        "capacity",
        "Memory that attention takes, one head",
        Axis("N (queries = keys)", "2", ticks=N[::2]),
        Axis("memory, modelled (GiB)", "10"),
        series,
        f"{lab.options['dtype']}, d={lab.options['d']}, one head, B=1; modelled. S and P in the storage type; naive.cu keeps S in fp32, so "
        "takes half as much again. Dashed: memory of GPUs (published).",
    )


EXPERIMENT = Experiment(
    title="Memory against N",
    claim="In 16 bits the score matrix of one head takes 128 MiB at N = 8k and 32 GiB at N = 128k; without it memory grows as N.",
    source="the lesson",
    rows=_rows,
    pictures=_pictures,
    notes=("Memory by the GPU's name, all of it: nothing is kept for weights or for the driver.",),
)
