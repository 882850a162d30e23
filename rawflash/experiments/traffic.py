"""Bytes against N: the lesson in one picture, and what of "16 times against 4 times" holds for real tiles.

One head; what a kernel moves is the same for every head. Leading terms in N of the closed forms (rawflash.io_model), w bytes per element:

    naive   N^2 (8 + 2w + (1/Bc + 2/Br) d w)     S (float) and P written and read, and Q, K, V once per tile
    online  N^2 2dw                              K and V once per row
    fa1     N^2 (3dw + 16) / Bc                  Q, O read, O written, m, l read and written, once per key tile
    fa2     N^2 2dw / Br                         K and V once per query tile
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rawflash.execute import RunResult
from rawflash.experiments._dram import dram_bytes
from rawflash.lab import Axis, Cell, Chart, Experiment, Lab, Picture, Row, Series, counted, judge, modelled
from rawflash.problem import DTYPES, Problem
from rawflash.tiling import Tiling

__all__ = ["EXPERIMENT"]

BYTES, GROWTH, FLOPS = "HBM bytes of one head", "What four times the N does", "The arithmetic of one head"
_TILED = (
    "with a tile of fixed size every query tile reads all of K and V (fa1: every key tile all of Q and O), so the bytes grow with N^2 as "
    "well: Theta(N^2 d^2 / M) against Theta(N^2 + N d) is a smaller factor, not a smaller power. 4 times holds for what must be moved at "
    "least, and behind a cache that holds K and V"
)
_LINEAR = "Q, K, V and O, which grow 4 times, are still a visible part"
_CACHE = "the cache does not hold what is read again"
_Make = Callable[[Lab, str, tuple[int, ...]], Iterable[Row]]
_LEADING: dict[str, Callable[[int, int, int], float]] = {  # (d, w, block) -> bytes per N^2
    "naive": lambda d, w, b: 8 + 2 * w + 3 * d * w / b,
    "online": lambda d, w, b: 2 * d * w,
    "fa1": lambda d, w, b: (3 * d * w + 16) / b,
    "fa2": lambda d, w, b: 2 * d * w / b,
}
_THETA = {"naive": "Θ(N²+Nd)", "online": "Θ(N²d)", "fa1": "Θ(N²d²/M)", "fa2": "Θ(N²d²/M)"}


def _problem(lab: Lab, N: int) -> Problem:
    return Problem(B=1, H=1, N=N, d=lab.options["d"], dtype=lab.options["dtype"])


def _tile(lab: Lab) -> Tiling:
    return Tiling(lab.options["block"], lab.options["block"])


def _run(lab: Lab, kernel: str, N: int) -> RunResult:
    return lab.run(kernel, _problem(lab, N), _tile(lab))


def _cases(lab: Lab) -> Sequence[Any]:
    o = lab.options
    steps = [(N, 4 * N) for N in o["N"] if 4 * N in o["N"]]
    last = steps[-1:]
    grid: list[tuple[_Make, str, tuple[int, ...]]] = [(_bytes, kernel, (N,)) for N in o["N"] for kernel in o["kernels"]]
    grid += [(_growth, kernel, step) for step in last for kernel in o["kernels"]]
    grid += [(_least, "", step) for step in last]
    grid += [(_dram, kernel, tuple(o["l2_N"])) for kernel in o["kernels"] if kernel != "online"]
    return grid + [(_flops, kernel, (o["N"][-1],)) for kernel in o["kernels"]]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    make, kernel, size = case
    return make(lab, kernel, size)


def _bytes(lab: Lab, kernel: str, size: tuple[int, ...]) -> Iterable[Row]:
    (N,) = size
    m = _run(lab, kernel, N).metrics
    total = m["io/hbm_total_bytes"]
    cells = {
        "read": counted(m["io/hbm_read_bytes"], "B"),
        "written": counted(m["io/hbm_write_bytes"], "B"),
        "total": counted(total, "B"),
        "closed form": modelled(m["io/model_bytes"], "B"),
        "x least possible": counted(total / m["io/ideal_bytes"], digits=3),
    }
    verdict, how = judge(total, m["io/model_bytes"], 0, "the kernel and its closed form disagree")
    yield Row({"kernel": kernel, "N": N}, cells, verdict, f"{how} the closed form", BYTES)


def _step(step: tuple[int, ...]) -> str:
    return f"{step[0]} -> {step[1]}"


def _grown(what: str, step: tuple[int, ...], times: Cell, claim: float, tolerance: float, why: str) -> Row:
    keys = {"what": what, "N": _step(step)}
    return Row(keys, {"times": times, "claim": Cell(f"{claim:g}")}, *judge(times.number, claim, tolerance, why), GROWTH)


def _growth(lab: Lab, kernel: str, step: tuple[int, ...]) -> Iterable[Row]:
    """Of the whole, and of S and P alone."""
    before, after = (_run(lab, kernel, N) for N in step)
    if kernel == "naive":
        scores = [sum(t.counted_read + t.counted_write for t in r.tensors if t.name in ("S", "P")) for r in (before, after)]
        yield _grown("naive: S and P", step, counted(scores[1] / scores[0]), 16, 0, "")
    times = after.metrics["io/hbm_total_bytes"] / before.metrics["io/hbm_total_bytes"]
    claim = 16 if kernel in ("naive", "online") else 4
    yield _grown(f"{kernel}: all HBM bytes", step, counted(times), claim, 0.01, _TILED)


def _least(lab: Lab, kernel: str, step: tuple[int, ...]) -> Iterable[Row]:
    before, after = (_problem(lab, N).ideal_bytes() for N in step)
    yield _grown("least possible: Q, K, V read, O written", step, modelled(after / before), 4, 0, "")


def _dram(lab: Lab, kernel: str, step: tuple[int, ...]) -> Iterable[Row]:
    """Behind a cache that holds K and V, but not S."""
    size = lab.options["l2_kib"]
    before, after = (dram_bytes(lab, kernel, _problem(lab, N), _tile(lab), size * 1024) for N in step)
    what = f"{kernel}: DRAM bytes behind an L2 of {size} KiB"
    claim, tolerance, why = (16, 0.1, _LINEAR) if kernel == "naive" else (4, 0.01, _CACHE)
    yield _grown(what, step, modelled(after / before), claim, tolerance, why)


def _flops(lab: Lab, kernel: str, size: tuple[int, ...]) -> Iterable[Row]:
    (N,) = size
    m = _run(lab, kernel, N).metrics
    base = _run(lab, lab.options["kernels"][0], N).metrics["ops/fma"]
    cells = {
        "multiply-adds": counted(m["ops/fma"]),
        "exponentials": counted(m["ops/ex2"]),
        "nominal FLOP": modelled(m["ops/flops"]),
        "FLOP per HBM byte": modelled(m["ops/flops"] / m["io/hbm_total_bytes"], digits=3),
    }
    verdict, how = judge(m["ops/fma"], base, 0, "another number of multiply-adds")
    yield Row({"kernel": kernel, "N": N}, cells, verdict, f"multiply-adds: {how} those of {lab.options['kernels'][0]}", FLOPS)


def _pictures(lab: Lab, rows: Sequence[Row]) -> Iterable[Picture]:
    o = lab.options
    sizes, w, series = list(o["N"]), DTYPES[o["dtype"]].itemsize, []
    for color, kernel in enumerate(o["kernels"]):
        total = {row.keys["N"]: row.cells["total"].number / 2**20 for row in rows if row.table == BYTES and row.keys["kernel"] == kernel}
        if kernel in _LEADING:
            leading = _LEADING[kernel](o["d"], w, o["block"])
            series.append(Series("", sizes, [leading * N * N / 2**20 for N in sizes], "theory", color))
        series.append(Series(f"{kernel} {_THETA.get(kernel, '')}", sizes, [total[N] for N in sizes], color=color))
    least = [_problem(lab, N).ideal_bytes() / 2**20 for N in sizes]
    series.append(Series("least Θ(Nd)", sizes, least, "theory", 6))
    yield Chart(
        "traffic",
        "Bytes that attention asks of HBM, one head",
        Axis("N (queries = keys)", "2", sizes),
        Axis("HBM read + written (MiB), counted", "2", [2.0**e for e in range(-4, 14, 2)]),
        series,
        f"{o['dtype']}, d={o['d']}, Br=Bc=B={o['block']}, no mask. Points: counted by executing the kernels' PTX, without a cache. "
        "Dashed: modelled, the leading term of each closed form, all Theta(N^2); in bytes per N^2, with w bytes per element: naive "
        "8 + 2w + 3dw/B, online 2dw, fa1 (3dw + 16)/B, fa2 2dw/B; and the least possible, 4Ndw, Theta(N d).",
    )


EXPERIMENT = Experiment(
    title="HBM bytes against N",
    claim="When N grows 4 times, what naive attention moves grows 16 times and what tiled attention moves 4 times; the FLOPs are the same.",
    source="the lesson",
    rows=_rows,
    cases=_cases,
    pictures=_pictures,
    notes=(
        "HBM bytes are what the kernels ask for, without a cache: the model of the papers.",
        "DRAM bytes come from a model of an L2 cache, emptied before and after every launch.",
    ),
)
