"""Exercise 1 of the lesson: the price of writing S and P down, by hand and as the kernels really pay it.

By hand, one head, w bytes per element: S is written and read, P is written and read, 4 N^2 w bytes; Q, K and V are read and O is written,
4 N d w bytes. The ratio is N / d, whatever w is. Real kernels keep S in float and meet tiles again; the counts say by how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rawflash.experiments._dram import dram_bytes
from rawflash.io_model import hbm_bytes, total_bytes
from rawflash.lab import Axis, Cell, Chart, Experiment, Lab, Picture, Row, Series, counted, judge, modelled
from rawflash.problem import Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT"]

MIB = 2**20
ASKED = "asked of HBM"
HAND, MOVED, TENSORS, GROWTH = "By hand", "What the kernels move, one head", "Where the bytes go", "Growth with N"
_WHY = {
    "naive": "S is kept in float (8 bytes per pair instead of 4), and each tile reads its rows of Q, K and V again: 3 N^2 d w / B more",
    "naive, DRAM": "S is kept in float: 8 bytes per pair instead of 4",
    "fa1": "Q is read, O read and written once per key tile, m and l as well: (3 d w + 16) N^2 / Bc bytes",
    "fa2": "K and V are read once per query tile: 2 N^2 d w / Br bytes, that is d / (2 Br) times the 4 N^2 w of S and P. Only a tile of "
    "all N rows would reach the least possible; but what is read again comes from the cache, see the rows of DRAM",
}


def _problem(lab: Lab, N: int) -> Problem:
    return Problem(B=1, H=1, N=N, d=lab.options["d"], dtype=lab.options["dtype"])


def _scores(problem: Problem) -> int:
    """4 N^2 w: S written and read, P written and read, in the storage type."""
    return 4 * problem.N * problem.N * problem.itemsize


def _cases(lab: Lab) -> Sequence[Any]:
    tiles = [tuple(tile) for tile in lab.options["tiles"]]
    return ["by hand", *tiles, *lab.options["lengths"]]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    if case == "by hand":
        yield from _by_hand(_problem(lab, lab.options["N"]))
    elif isinstance(case, tuple):
        yield from _moved(lab, *case)
    else:
        yield _length(lab, case)


def _by_hand(p: Problem) -> Iterable[Row]:
    """The lesson's three numbers, for its sizes; other sizes are shown without a verdict."""
    told = {"S and P written and read: 4 N^2 w": 512, "Q, K, V read, O written: 4 N d w": 8, "ratio: N / d": 64}
    found = (_scores(p) / MIB, p.ideal_bytes() / MIB, _scores(p) / p.ideal_bytes())
    for (what, claim), value, unit in zip(told.items(), found, ("MiB", "MiB", ""), strict=True):
        keys, cells = {"what": what}, {"value": modelled(value, unit)}
        if (p.N, p.d, p.itemsize) == (8192, 128, 2):
            yield Row(keys, {**cells, "lesson": Cell(f"{claim} {unit}".strip())}, *judge(value, claim, 0), HAND)
        else:
            yield Row(keys, cells, table=HAND)


def _moved(lab: Lab, kernel: str, block: int) -> Iterable[Row]:
    """Bytes of one kernel, executed at full length: against the lesson's number for its kind, and by tensor."""
    p, tile = _problem(lab, lab.options["N"]), Tiling(block, block)
    result = lab.run(kernel, p, tile)
    naive = kernel == "naive"
    claim = _scores(p) + p.ideal_bytes() if naive else p.ideal_bytes()
    mib = lab.options["l2_mib"]
    asked = counted(result.metrics["io/hbm_total_bytes"] / MIB, "MiB")
    dram = modelled(dram_bytes(lab, kernel, p, tile, mib * MIB) / MIB, "MiB")
    why = _WHY["naive" if naive else "fa1" if kernel == "fa1" else "fa2"]
    for where, found, reason in ((ASKED, asked, why), (f"DRAM behind an L2 of {mib} MiB", dram, _WHY["naive, DRAM"])):
        cells = {"lesson": modelled(claim / MIB, "MiB"), "found": found, "times": modelled(found.number * MIB / claim, digits=3)}
        keys: dict[str, str | int] = {"kernel": kernel, "Br = Bc": block, "bytes": where}
        yield Row(keys, cells, *judge(found.number * MIB, claim, 0.02, reason), MOVED)
    moved = {t.name: counted((t.counted_read + t.counted_write) / MIB, "MiB") for t in result.tensors}
    yield Row({"kernel": kernel, "Br = Bc": block}, moved, table=TENSORS)


def _length(lab: Lab, N: int) -> Row:
    """Closed forms, which the rows above and the ladder's tests show to be what is counted."""
    p = _problem(lab, N)
    cells = {"S and P": modelled(_scores(p) / MIB, "MiB"), "Q, K, V, O": modelled(p.ideal_bytes() / MIB, "MiB")}
    cells["ratio"] = modelled(_scores(p) / p.ideal_bytes())
    for kernel, block in lab.options["tiles"]:
        cells[f"{kernel} {block}"] = modelled(total_bytes(hbm_bytes(kernel, p, Tiling(block, block))) / MIB, "MiB")
    return Row({"N": N}, cells, table=GROWTH)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    o = lab.options
    table = [row for row in rows if row.table == GROWTH]
    N = [int(row.keys["N"]) for row in table]

    def line(title: str) -> list[float]:
        return [row.cells[title].number for row in table]

    series = [Series("S and P, by hand", N, line("S and P"), "theory", 5), Series("Q, K, V, O", N, line("Q, K, V, O"), "theory", 6)]
    same: dict[tuple[float, ...], list[str]] = {}
    for kernel, block in o["tiles"]:
        same.setdefault(tuple(line(f"{kernel} {block}")), []).append(f"{kernel} {block}")
    asked = {f"{row.keys['kernel']} {row.keys['Br = Bc']}": row for row in rows if row.table == MOVED and row.keys["bytes"] == ASKED}
    for color, (values, names) in enumerate(same.items()):
        series.append(Series(", ".join(names), N, values, "theory", color))
        series += [Series("", [o["N"]], [asked[names[0]].cells["found"].number], "points", color)]
    yield Chart(
        "problem1",
        "What S and P cost, and what tiles cost, one head",
        Axis("N (queries = keys)", "2", N),
        Axis("HBM read + written (MiB)", "2", [4.0**e for e in range(0, 9)]),
        series,
        f"{o['dtype']}, d={o['d']}, no mask; the number behind a kernel is the side of its tiles. Points at N={o['N']}: counted by "
        "executing the kernels' PTX, without a cache. Dashed lines: modelled, the closed forms, and the two amounts of the exercise, "
        "4 N^2 w and 4 N d w bytes. naive reads S three times once a row of it no longer fits in shared memory (N > 12288).",
    )


EXPERIMENT = Experiment(
    title="The price of S and P",
    claim="For N=8192, d=128 and 2 bytes, naive attention moves 512 MiB for S and P, tiled attention 8 MiB (Q, K, V, O): 64 times less.",
    source="the lesson, exercise 1",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "lesson: 4 N^2 w + 4 N d w bytes for naive, 4 N d w for the tiled kernels",
        "DRAM: by a model of an L2 cache, emptied before and after every launch",
        "Growth with N: closed forms; the rows above and the tests of the ladder show that they are what is counted",
    ),
)
