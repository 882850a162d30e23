"""Exercise 2 of the lesson: the online recurrence of one row, step by step.

The formula's trace is rawflash.reference.online_trace in float64. A kernel shows its state by being run on the first j tiles of keys only:
it takes the tiles in order, so what such a run leaves is the state after tile j. fa1 writes m and l to HBM, fa2 only O and LSE = m + ln l.
Kernels have tiles of 16, 32, ... keys; a shorter tile is filled up with keys whose score is -inf, which weigh nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.errors import UsageError
from rawflash.lab import Cell, Experiment, Lab, Row, Verdict, checked, counted, judge, modelled
from rawflash.problem import Problem, make_inputs
from rawflash.reference import OnlineStep, online_trace
from rawflash.tiling import Tiling, ceil_div
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT"]

FORMULA, END = "The recurrence, float64", "The end: O / l against softmax(s) V, float64"
_TOLERANCE = 1e-5  # float32 sums and ex2.approx, relative
_STEP = 16  # keys: a kernel's tile is a multiple
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Row:
    """One query row: q [d], K [n, d], V [n, d] in float32, the scale, and the scores s [n] in float64."""

    q: NDArray[np.float32]
    K: NDArray[np.float32]
    V: NDArray[np.float32]
    scale: float
    s: Floats


def _row(options: Mapping[str, Any]) -> _Row:
    """A row of a random problem, or one whose scores are given. Raises UsageError for sizes that do not fit."""
    if not 1 <= options["block"] <= 128:
        raise UsageError(f"experiment.options.block={options['block']} is no tile: give 1 to 128 keys")
    if options["scores"] is not None:
        return _given(options["scores"], options["values"])
    p = Problem(B=1, H=1, N=options["N"], d=options["d"], dtype="fp32", seed=options["seed"])
    if not 0 <= options["row"] < p.N:
        raise UsageError(f"experiment.options.row={options['row']} is not a row of a problem with N={p.N}: give 0 to {p.N - 1}")
    inputs = {name: x[0, 0] for name, x in make_inputs(p).items()}
    q, K = inputs["Q"][options["row"]], inputs["K"]
    return _Row(q, K, inputs["V"], p.scale, p.scale * (K.astype(np.float64) @ q.astype(np.float64)))


def _given(scores: Sequence[float], values: Sequence[float] | None) -> _Row:
    """q = (1, 0, ...) and K = (s, 0, ...), so that q.k = s; V has one column that is not 0."""
    s = np.array(scores, np.float64)
    v = np.array(scores if values is None else values, np.float64)
    if not len(s) or s.shape != v.shape or not np.isfinite([s, v]).all():
        raise UsageError("experiment.options.scores and values are two lists of finite numbers of the same length, at least one")
    K, V = np.zeros((2, len(s), 8), np.float32)
    K[:, 0], V[:, 0] = s, v
    return _Row(np.eye(1, 8, dtype=np.float32)[0], K, V, 1.0, s)


def _cases(lab: Lab) -> Sequence[Any]:
    _row(lab.options)  # refuses sizes that do not fit before anything runs
    return [None, *lab.options["kernels"]]


def _rows(lab: Lab, kernel: str | None) -> Iterable[Row]:
    row, block = _row(lab.options), lab.options["block"]
    shown = min(lab.options["shown"], 1 if lab.options["scores"] is not None else lab.options["d"])
    steps = online_trace(row.s, row.V, block)
    if kernel is None:
        yield from (_formula(row, steps, j, block, shown) for j in range(len(steps)))
        yield _end(row, steps[-1], shown)
        return
    before = -math.inf
    for j, step in enumerate(steps):
        state = _state(lab, kernel, row, block, j + 1)
        yield _executed(kernel, state, before, step, _keys(j, block, len(row.s)), shown)
        before = state.get("m", before)


def _keys(j: int, block: int, n: int) -> dict[str, str | int | float]:
    return {"tile": j, "keys": f"{j * block}..{min(n, (j + 1) * block) - 1}"}


def _columns(name: str, values: Iterable[float], shown: int, make: Any) -> dict[str, Cell]:
    return {f"{name}[{c}]": make(float(x), digits=6) for c, x in enumerate(values) if c < shown}


def _formula(row: _Row, steps: Sequence[OnlineStep], j: int, block: int, shown: int) -> Row:
    step, part = steps[j], row.s[j * block : (j + 1) * block]
    cells = {
        "max s": modelled(float(part.max()), digits=6),
        "m": modelled(step.m, digits=6),
        "alpha": modelled(step.alpha, digits=6),
        "l": modelled(step.l, digits=6),
        **_columns("O", step.O, shown, modelled),
    }
    return Row(_keys(j, block, len(row.s)), cells, table=FORMULA)


def _end(row: _Row, last: OnlineStep, shown: int) -> Row:
    """The whole row at once, by the definition."""
    P = np.exp(row.s - row.s.max())
    whole = P / P.sum() @ row.V.astype(np.float64)
    online = last.O / last.l
    cells = {**_columns("O / l", online, shown, modelled), **_columns("softmax(s) V", whole, shown, modelled)}
    distance = float(np.abs(online - whole).max())
    cells["difference"] = modelled(distance, digits=2)
    return Row({"row": "all columns"}, cells, *judge(distance, 0.0, 0) if not distance else _close(distance, 1e-12), table=END)


def _close(distance: float, tolerance: float) -> tuple[Verdict, str]:
    if distance <= tolerance:
        return Verdict.REPRODUCED, f"within {tolerance:g}"
    return Verdict.DIFFERS, f"the largest difference is {distance:.2g}, more than {tolerance:g}"


# ------------------------------------------------------------------------------------------------------------- execution
def _state(lab: Lab, kernel: str, row: _Row, block: int, tiles: int) -> dict[str, Any]:
    """What `kernel` leaves after its first `tiles` tiles: O [d], LSE, and m and l where it writes them."""
    Bc = ceil_div(block, _STEP) * _STEP
    K, V = (np.zeros((1, 1, tiles * Bc, len(row.q)), np.float32) for _ in range(2))
    largest = int(np.abs(row.q).argmax())
    K[..., largest] = -np.inf * np.sign(row.q[largest])  # times q: -inf
    for j in range(tiles):
        part = slice(j * block, min(len(row.s), (j + 1) * block))
        place = slice(j * Bc, j * Bc + part.stop - part.start)
        K[0, 0, place], V[0, 0, place] = row.K[part], row.V[part]
    p = Problem(B=1, H=1, N=1, Nkv=tiles * Bc, d=len(row.q), dtype="fp32", softmax_scale=row.scale)
    variant = LADDER[kernel]
    reason = variant.invalid_reason(p, Tiling(_STEP, Bc), lab.gpu)
    if reason:
        raise UsageError(f"{kernel}: {reason}")
    left, _ = lab.launch(variant.file, variant.plan(p, Tiling(_STEP, Bc)), {"Q": row.q[None, None, None].copy(), "K": K, "V": V})
    state: dict[str, Any] = {name: float(left[name][0, 0, 0]) for name in ("LSE", "m", "l") if name in left}
    return {**state, "O": left["O"][0, 0, 0].astype(np.float64)}


def _executed(kernel: str, state: Mapping[str, Any], before: float, step: OnlineStep, keys: Mapping[str, Any], shown: int) -> Row:
    """A kernel's state beside the formula's: m, alpha, l and O l where it shows them, else O / l and LSE."""
    wanted = step.O / step.l
    parts = [abs(state["LSE"] - step.m - math.log(step.l)), float(np.abs(state["O"] - wanted).max() / max(np.abs(wanted).max(), 1e-300))]
    cells: dict[str, Cell] = {}
    if "m" in state:
        parts += [abs(state["m"] - step.m) / max(1.0, abs(step.m)), abs(state["l"] / step.l - 1)]
        alpha = math.exp(before - state["m"])
        cells = {"m": counted(state["m"], digits=6), "alpha": counted(alpha, digits=6), "l": counted(state["l"], digits=6)}
        cells |= _columns("O", state["O"] * state["l"], shown, counted)
    else:
        cells = {"LSE": counted(state["LSE"], digits=6), "m + ln l": modelled(step.m + math.log(step.l), digits=6)}
        cells |= _columns("O / l", state["O"], shown, counted)
    cells["largest difference"] = checked(max(parts), digits=2)
    return Row(keys, cells, *_close(max(parts), _TOLERANCE), f"{kernel}, executed")


EXPERIMENT = Experiment(
    title="The recurrence, step by step",
    claim="With m' = max(m, max s), alpha = exp(m - m'), l' = alpha l + sum exp(s - m') and O' = alpha O + sum exp(s - m') v, "
    "tile by tile, O / l is softmax(s) V at the end, and kernels go through these states.",
    source="the lesson, exercise 2; arXiv 1805.02867",
    rows=_rows,
    cases=_cases,
    notes=(
        "O is not normalised; alpha of the first tile is exp(-inf) = 0",
        "executed: m, l and LSE as the kernel wrote them to HBM when it was run on the first tiles only; alpha is exp of the difference of "
        "two such m; fa1 keeps O divided by l, so O is what it wrote times l",
        "largest difference: of LSE (absolute), m, l and O (relative) from the formula, over all columns",
    ),
)
