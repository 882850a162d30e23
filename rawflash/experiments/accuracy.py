"""Errors of every rung against float64, over those of plain attention in the same type, on inputs that strain the recurrence.

N, Nkv and d are multiples of nothing that a kernel would like, and with a causal mask every row sees another number of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.check import expect
from rawflash.execute import run_variant
from rawflash.lab import Experiment, Lab, Row, Verdict, checked
from rawflash.problem import Problem, make_inputs, round_to, to_f64
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["EXPERIMENT", "KINDS"]

Numbers = dict[str, NDArray[Any]]  # Q, K, V as float64
BAR = 2.0  # times the error of plain attention
_FLOOR = 2.0**-20  # relative to the largest |O| or |LSE|: what fp32 arithmetic may lose without being called inaccurate


def _maximum_last(x: Numbers) -> Numbers:
    """Keys in the order of their largest score: almost every tile brings a new maximum."""
    q = x["Q"] * 8
    order = np.argsort((q @ x["K"].swapaxes(-1, -2)).max(axis=(0, 1, 2)))
    return {"Q": q, "K": x["K"][:, :, order], "V": x["V"][:, :, order]}


def _growing_maxima(x: Numbers) -> Numbers:
    """All scores grow by the same amount from key to key, 2^7 within 32 keys: a lazy kernel is kept at its threshold."""
    d = x["Q"].shape[-1]
    rise = 7 / 32 * np.log(2) * np.sqrt(d)
    q, k = x["Q"].copy(), x["K"].copy()
    q[..., 0], k[..., 0] = 1, rise * np.arange(k.shape[2])
    return {**x, "Q": q, "K": k}


def _common_offset(x: Numbers) -> Numbers:
    """The same large number in every score, which the softmax must not feel: 64 * 64 / sqrt(d)."""
    q, k = x["Q"].copy(), x["K"].copy()
    q[..., 0], k[..., 0] = 64, 64
    return {**x, "Q": q, "K": k}


# Name of a kind -> what it does to N(0, 1) numbers.
KINDS: dict[str, Callable[[Numbers], Numbers]] = {
    "odd sizes": lambda x: x,
    "maximum last": _maximum_last,
    "growing maxima": _growing_maxima,
    "common offset": _common_offset,
    "large logits": lambda x: {**x, "Q": x["Q"] * 30},
    "tiny logits": lambda x: {**x, "Q": x["Q"] * 2.0**-10},
    "window, softcap": lambda x: {**x, "Q": x["Q"] * 8},
    "[B,N,H,d], dv": lambda x: x,
}
# What else is asked of the kernels with a kind; the mask is causal otherwise.
_ASKED: dict[str, dict[str, Any]] = {
    "window, softcap": {"causal": "none", "window_left": 37, "window_right": 11, "softcap": 20.0},
    "[B,N,H,d], dv": {"layout": "bnhd", "dv": 24},
}


def inputs_of(kind: str, problem: Problem) -> dict[str, NDArray[Any]]:
    """Q, K, V of a kind in the problem's storage type, a function of both alone."""
    drawn = {name: to_f64(x, problem.dtype) for name, x in make_inputs(problem).items()}
    made = KINDS[kind](drawn)
    return {name: np.ascontiguousarray(round_to(x.astype(np.float32), problem.dtype)) for name, x in made.items()}


def _cases(lab: Lab) -> Sequence[Any]:
    o = lab.options
    return [(dtype, kind, name) for dtype in o["dtypes"] for kind in o["inputs"] for name in LADDER if dtype in LADDER[name].dtypes]


def _rows(lab: Lab, case: Any) -> Iterable[Row]:
    dtype, kind, name = case
    o = lab.options
    problem = Problem(B=1, H=2, Hkv=1, N=o["N"], Nkv=o["Nkv"], d=o["d"], dtype=dtype, **{"causal": "bottom_right", **_ASKED.get(kind, {})})
    tiling = Tiling(o["block"], o["block"])
    told = lab.remember(
        ("accuracy", name, kind, repr(problem), repr(tiling)), lambda: _errors(lab, name, kind, problem, tiling), [LADDER[name].file]
    )
    cells, over = {}, []
    for tensor in ("O", "LSE"):
        error, plain, size = (told[f"{tensor} {what}"] for what in ("error", "plain", "size"))
        cells[f"{tensor} error"] = checked(error, digits=3)
        cells[f"{tensor} plain"] = checked(plain, digits=3)
        cells[f"{tensor} ratio"] = checked(error / plain if plain else 0.0, digits=3)
        if error > BAR * plain + _FLOOR * size:
            over.append(f"{tensor} {error / plain:.3g} times")
    verdict = (Verdict.DIFFERS, " and ".join(over)) if over else (Verdict.REPRODUCED, "within twice")
    yield Row({"dtype": dtype, "inputs": kind, "kernel": name}, cells, *verdict)


def _errors(lab: Lab, name: str, kind: str, problem: Problem, tiling: Tiling) -> dict[str, float]:
    """Largest errors of the kernel's and of plain attention's O and LSE, and the largest |O| and |LSE|. Raises for a kernel that fails."""
    inputs = inputs_of(kind, problem)
    want = expect(problem, inputs)
    result = run_variant(LADDER[name], problem, tiling, lab.gpu, lab.emulator, inputs=inputs, raise_errors=True)
    return {
        "O error": result.metrics["err/max_abs"],
        "O plain": want.baseline_err,
        "O size": float(np.abs(want.O).max()),
        "LSE error": result.metrics["err/lse_max_abs"],
        "LSE plain": want.lse_baseline_err,
        "LSE size": float(np.abs(want.LSE).max()),
    }


EXPERIMENT = Experiment(
    title="Accuracy of every rung",
    claim="The largest error of O and of LSE is at most twice that of plain attention in the same storage type.",
    source="kernels_cu/README.md",
    rows=_rows,
    cases=_cases,
    notes=(
        "plain: fp32 arithmetic that rounds S, P and O to the storage type, as a naive implementation does. Errors are max |x - float64|.",
        "An error below 2^-20 of the largest |O| or |LSE| is within the bar whatever the plain one is: fp32 itself has no more to give.",
    ),
)
