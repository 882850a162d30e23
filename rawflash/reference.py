"""The oracle: attention and its log-sum-exp in float64, by the textbook formula, sharing no code with any kernel.

Decided edge cases, the same for every variant:

    a row that sees no key, or whose visible scores are all -inf      O = 0, LSE = -inf
    NaN in a query, or in a key that a row sees                       NaN in O and LSE of that row, and nowhere else
    a key that a row does not see                                     has no influence, whatever it or its value holds
    a +inf score                                                      inf - inf: NaN in O and LSE of that row

Also here: the lower-precision baseline that sets the tolerance, and the online recurrence one block at a time. All of
them work on float arrays; storage types are decoded with problem.to_f64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.dropout import kept
from rawflash.problem import Problem, round_to, to_f64

__all__ = ["OnlineStep", "attention_f64", "naive_same_dtype", "online_trace"]

# Scores of one chunk of query rows, in elements: bounds the memory at 32 MB of float64 whatever N is.
_CHUNK_ELEMENTS = 1 << 22

Array = NDArray[Any]


def attention_f64(Q: Array, K: Array, V: Array, problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """O [B,H,N,dv] and LSE [B,H,N] in float64, from Q, K, V in the problem's storage type."""
    q, k, v = (to_f64(x, problem.dtype) for x in (Q, K, V))
    return _attention(q, k, v, problem, problem.scale, keep=lambda x: x)


def naive_same_dtype(Q: Array, K: Array, V: Array, problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What plain attention in the problem's dtype returns, as float64: the baseline of the tolerance rule.

    Arithmetic is float32; S, P and O are rounded to the storage type where such an implementation stores them. A score too
    large for the storage type stays float32: a baseline that overflowed would allow anything.
    """
    q, k, v = (to_f64(x, problem.dtype).astype(np.float32) for x in (Q, K, V))

    def keep(x: Array) -> Array:
        stored = to_f64(round_to(x, problem.dtype), problem.dtype).astype(np.float32)
        return np.where(np.isinf(stored), x, stored)

    O, LSE = _attention(q, k, v, problem, np.float32(problem.scale), keep)
    return O.astype(np.float64), LSE.astype(np.float64)


def _attention(
    q: Array, k: Array, v: Array, problem: Problem, scale: float | np.floating, keep: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Three passes over chunks of query rows, in the float type of `q`; `keep` rounds S, P and O as they are stored."""
    O = np.zeros(problem.shape_o, q.dtype)
    LSE = np.full(problem.shape_lse, -np.inf, q.dtype)
    group = problem.H // problem.Hkv if problem.Hkv else 1
    for rows, keys, seen in _chunks(problem):
        for b, h in np.ndindex(problem.B, problem.H):
            g = h // group
            with np.errstate(invalid="ignore", over="ignore"):
                S = keep(_capped((q[b, h, rows] @ k[b, g, keys].T) * scale, problem.softcap))
                S[~seen] = -np.inf
                P, LSE[b, h, rows] = _softmax(S)
                P = keep(P)
                if problem.dropout_p:
                    P = keep(np.where(kept(problem, b, h, rows)[:, keys], P / P.dtype.type(1 - problem.dropout_p), P.dtype.type(0)))
                O[b, h, rows] = keep(_weighted_sum(P, v[b, g, keys], seen))
    return O, LSE


def _chunks(problem: Problem) -> Iterator[tuple[slice, slice, NDArray[np.bool_]]]:
    """(rows, keys, seen [rows, keys]): few enough query rows at a time to bound the memory, and the keys between which they see any."""
    begin, end = problem.visible()
    step = max(1, _CHUNK_ELEMENTS // max(1, problem.Nkv))
    for start in range(0, problem.N, step):
        rows = slice(start, min(start + step, problem.N))
        first, last = int(begin[rows].min()), int(end[rows].max())
        keys = np.arange(first, last)
        if len(keys):
            yield rows, slice(first, last), (keys >= begin[rows, None]) & (keys < end[rows, None])


def _capped(S: Array, softcap: float | None) -> Array:
    """c tanh(S / c), in the float type of S; S itself without a softcap."""
    return S if softcap is None else S.dtype.type(softcap) * np.tanh(S / S.dtype.type(softcap))


def _softmax(S: Array) -> tuple[Array, Array]:
    """P and LSE [rows] of scores S [rows, keys]; a row of -inf gives P = 0 and LSE = -inf."""
    m = S.max(axis=1, keepdims=True)
    shift = np.where(np.isneginf(m), 0, m).astype(S.dtype)
    P = np.exp(S - shift)
    l = P.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        LSE = (shift + np.log(l))[:, 0]
    return P / np.where(l == 0, 1, l).astype(S.dtype), LSE


def _weighted_sum(P: Array, v: Array, seen: NDArray[np.bool_]) -> Array:
    """P [rows, keys] @ v [keys, d], where a value that a row does not see (seen [rows, keys]) cannot reach it even if NaN or inf."""
    wild = np.logical_not(np.isfinite(v).all(axis=1))
    if not wild.any():
        return P @ v
    O = P @ np.where(wild[:, None], 0, v).astype(v.dtype)
    for j in np.flatnonzero(wild):
        rows = seen[:, j]
        O[rows] += P[rows, j, None] * v[j]
    return O


@dataclass(frozen=True)
class OnlineStep:
    """State of the online recurrence after one block: running max m, rescale alpha, denominator l, unnormalised O [d]."""

    m: float
    alpha: float
    l: float
    O: NDArray[np.float64]


def online_trace(scores: Array, values: Array, block: int) -> list[OnlineStep]:
    """The recurrence of one query row, one block of keys at a time (Milakov & Gimelshein, arXiv 1805.02867).

        m' = max(m, max_j s_j)    alpha = exp(m - m')    l' = alpha l + sum_j exp(s_j - m')    O' = alpha O + sum_j exp(s_j - m') v_j

    scores [n], values [n] or [n, d]; the row's output is O / l of the last step and its LSE is m + ln l. A block in which
    nothing is visible (all scores -inf) leaves the state as it was: alpha = 1.
    """
    s = np.asarray(scores, np.float64)
    v = np.asarray(values, np.float64).reshape(len(s), -1)
    m, l, O = -np.inf, 0.0, np.zeros(v.shape[1])
    steps = []
    for start in range(0, len(s), block):
        part = slice(start, start + block)
        m_new = max(m, float(s[part].max()))
        alpha = 1.0 if m_new == m else float(np.exp(m - m_new))
        p = np.zeros(len(s[part])) if m_new == -np.inf else np.exp(s[part] - m_new)
        m, l, O = m_new, alpha * l + float(p.sum()), alpha * O + p @ v[part]
        steps.append(OnlineStep(m, alpha, l, O))
    return steps
