"""Is a result right? O and LSE against the float64 reference, NaN-strict.

The rule (tolerances derived from what a plain implementation in the same dtype gets wrong):

    max|O - ref64|    <=  2 * max|naive in the same dtype - ref64| + 1e-5
    |LSE - ref64|     <=  the same with LSE's errors, plus 2^-21 |LSE| (LSE is stored in float32)

A variant that stores O more than once (fa1: after every key tile) rounds it as often. Such errors add up like a random walk that
no single-rounding baseline knows, so row i may be off by another sqrt(o_writes - 1) * eps * max|ref64[i]|, where o_writes is how
often O is written by the variant's own closed form. With one write this is 0 and the rule is as above. A variant that rounds S
to the storage type, as the baseline does, may be off by what that costs, which `_ceilings` otherwise leaves out; if it does so twice, by
three times the baseline's error.

and never more than what rounding can explain (`_ceilings`), so that inputs on which the baseline itself is hopeless (large
logits in fp16) do not let anything pass. NaN, +inf and -inf must stand exactly where the reference has them: an output that
is NaN where the reference is finite fails, and so does a finite one where the reference is NaN. LSE = -inf is compared exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.problem import Problem, make_inputs, to_f64
from rawflash.reference import attention_f64, naive_same_dtype

__all__ = ["CheckResult", "Expected", "compare", "expect", "inputs_and_expected"]

Array = NDArray[Any]
_FLOOR = 1e-5
_EPS32 = 2.0**-24
_EPS = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}


@dataclass(frozen=True)
class Expected:
    """What a right variant returns, in float64, and how far a right one may be from it.

    stored_cap, stored_lse_cap    what rounding can explain at most where S was rounded to the storage type, too
    """

    O: NDArray[np.float64]
    LSE: NDArray[np.float64]
    baseline_err: float
    tol: float
    lse_baseline_err: float
    lse_tol: float
    stored_cap: float
    stored_lse_cap: float


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one comparison. Errors are absolute; `ratio` is the worse of the two error/tolerance ratios (> 1 fails).

    When something is wrong that has no size (shape, dtype, NaN pattern) the errors and the ratio are inf. `sentence` is
    empty when ok.
    """

    ok: bool
    err: float
    baseline_err: float
    tol: float
    ratio: float
    lse_err: float
    lse_tol: float
    sentence: str


def expect(problem: Problem, inputs: dict[str, Array]) -> Expected:
    """Reference and tolerances of `problem` on `inputs` (Q, K, V in storage type)."""
    O, LSE = attention_f64(inputs["Q"], inputs["K"], inputs["V"], problem)
    naive_O, naive_LSE = naive_same_dtype(inputs["Q"], inputs["K"], inputs["V"], problem)
    base, lse_base = _distance(naive_O, O), _distance(naive_LSE, LSE)
    cap, lse_cap = _ceilings(problem, inputs)
    tols = min(2 * base, cap) + _FLOOR, min(2 * lse_base, lse_cap) + _FLOOR
    return Expected(O, LSE, base, tols[0], lse_base, tols[1], *_ceilings(problem, inputs, S_roundings=2))


@lru_cache(maxsize=2)
def inputs_and_expected(problem: Problem) -> tuple[dict[str, Array], Expected]:
    """make_inputs and expect of `problem`, kept for the next variant that runs on the same problem. Read-only arrays."""
    inputs = make_inputs(problem)
    for array in inputs.values():
        array.flags.writeable = False
    return inputs, expect(problem, inputs)


def compare(
    O: Array,
    LSE: Array,
    problem: Problem,
    inputs: dict[str, Array] | None = None,
    expected: Expected | None = None,
    o_writes: float = 1.0,
    S_roundings: int = 0,
) -> CheckResult:
    """Compare O [B,H,N,d] (storage type) and LSE [B,H,N] (float32) with the reference of `problem`.

    `expected` skips the reference's work; otherwise it is computed from `inputs`, or from the problem's own inputs. `o_writes`
    is how many times the variant stored each element of O, `S_roundings` how many times it rounded S to
    the storage type (the baseline does so once).
    """
    if expected is None:
        expected = inputs_and_expected(problem)[1] if inputs is None else expect(problem, inputs)
    fault = _form(O, "O", problem.shape_o, problem.numpy_dtype) or _form(LSE, "LSE", problem.shape_lse, np.dtype(np.float32))
    if not fault:
        got_O, got_LSE = to_f64(O, problem.dtype), LSE.astype(np.float64)
        fault = _pattern(got_O, expected.O, "O") or _pattern(got_LSE, expected.LSE, "LSE")
    tol, lse_tol = expected.tol, expected.lse_tol
    if S_roundings:
        tol = min((1 + S_roundings) * expected.baseline_err, expected.stored_cap) + _FLOOR
        lse_tol = min((1 + S_roundings) * expected.lse_baseline_err, expected.stored_lse_cap) + _FLOOR
    if fault:
        return CheckResult(False, math.inf, expected.baseline_err, tol, math.inf, math.inf, lse_tol, fault)
    err, lse_err = _distance(got_O, expected.O), _distance(got_LSE, expected.LSE)
    again = math.sqrt(max(0.0, o_writes - 1)) * _EPS[problem.dtype]
    allowed = tol + again * np.nan_to_num(np.abs(expected.O), posinf=0).max(axis=-1, keepdims=True, initial=0)
    lse_allowed = lse_tol + 2.0**-21 * np.nan_to_num(np.abs(expected.LSE), posinf=0)
    ratio, lse_ratio = _distance(got_O, expected.O, allowed), _distance(got_LSE, expected.LSE, lse_allowed)
    sentence = ""
    if ratio > 1:
        sentence = _worst("O", got_O, expected.O, allowed)
    elif lse_ratio > 1:
        sentence = _worst("LSE", got_LSE, expected.LSE, lse_allowed)
    return CheckResult(not sentence, err, expected.baseline_err, tol, max(ratio, lse_ratio), lse_err, lse_tol, sentence)


def _form(x: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """A sentence when `x` is not an array of this shape and dtype, else ""."""
    if not isinstance(x, np.ndarray):
        return f"{name} is a {type(x).__name__}, not a NumPy array"
    if x.shape != shape:
        return f"{name} has shape {x.shape}, should have {shape}"
    return "" if x.dtype == dtype else f"{name} has dtype {x.dtype}, should have {dtype}"


def _pattern(got: Array, want: Array, name: str) -> str:
    """A sentence when NaN, +inf or -inf do not stand exactly where the reference has them, else ""."""
    same = (got == want) | (np.isfinite(got) & np.isfinite(want)) | (np.isnan(got) & np.isnan(want))
    if same.all():
        return ""
    where = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{name}{list(where)} is {got[where]:g} where the reference is {want[where]:g} ({int((~same).sum())} of {same.size} elements)"


def _distance(got: Array, want: Array, allowed: Array | float = 1.0) -> float:
    """max |got - want| / allowed over the elements that are finite in both; 0 when there are none."""
    finite = np.isfinite(got) & np.isfinite(want)
    gap = np.abs(np.where(finite, got, 0) - np.where(finite, want, 0)) / allowed
    return float(gap.max(initial=0))


def _worst(name: str, got: Array, want: Array, allowed: Array) -> str:
    finite = np.isfinite(got) & np.isfinite(want)
    gap = np.abs(np.where(finite, got, 0) - np.where(finite, want, 0))
    ratio = gap / allowed
    where = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    limit = gap[where] / ratio[where]
    return (
        f"{name}{list(where)} is {got[where]:.6g} where the reference is {want[where]:.6g}: off by {gap[where]:.3g}, tolerance {limit:.3g}"
    )


def _ceilings(problem: Problem, inputs: dict[str, Array], S_roundings: int = 0) -> tuple[float, float]:
    """Most that rounding can explain of |O - ref| and |LSE - ref|: a priori bounds with float32 scores.

    A score is a float32 sum of d products, so it is off by at most about (d + 8) 2^-24 |q| |k| scale; a weight by that much,
    relative; the sum over keys adds Nkv 2^-24; P and O are each rounded once to the storage type, S `S_roundings` times. Dropout
    enlarges what it keeps.
    """
    q, k, v = (np.nan_to_num(to_f64(inputs[name], problem.dtype), nan=0, posinf=0, neginf=0) for name in "QKV")
    if not (q.size and k.size):
        return 0.0, 0.0
    longest = math.sqrt(float((q * q).sum(-1).max())) * math.sqrt(float((k * k).sum(-1).max())) * abs(problem.scale)
    score = (4 * (problem.d + 8) * _EPS32 + S_roundings * _EPS[problem.dtype]) * longest
    total = problem.Nkv * _EPS32
    return float(np.abs(v).max()) / (1 - problem.dropout_p) * (4 * _EPS[problem.dtype] + 2 * score + total), score + total
