"""Merging attention over disjoint sets of keys: what a split-KV kernel, a ring of devices or a cache in pieces needs at the end.

    m = max_s LSE_s    w_s = exp(LSE_s - m)    O = sum_s w_s O_s / sum_s w_s    LSE = m + ln sum_s w_s

It is the online softmax (arXiv 1805.02867, section 3.1) with a part in the place of a score. splitkv_merge in kernels_cu/splitkv.cu does
the same in float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawflash.errors import UsageError

__all__ = ["merge_partials"]


def merge_partials(O: ArrayLike, LSE: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """O [parts, ..., d_v] and LSE [parts, ...] (natural log) over disjoint keys -> O [..., d_v] and LSE [...] over all of them, float64.

    Usually [parts, B, H, N, d_v] and [parts, B, H, N]. Associative up to rounding: groups of parts may be merged first. A part that saw no
    key (LSE = -inf) has no weight, whatever its O holds; where no part saw one, or there is no part, O = 0 and LSE = -inf. NaN stays NaN.

    Raises UsageError for shapes that do not belong together, and for integers: bf16 bit patterns are decoded by rawflash.problem.to_f64.
    """
    try:
        parts, lse = np.asarray(O), np.asarray(LSE)
    except ValueError as error:
        raise UsageError("the parts differ in shape: give O as [parts, ..., d_v] and LSE as [parts, ...]") from error
    if not lse.ndim or parts.shape[:-1] != lse.shape:
        raise UsageError(
            f"O of shape {parts.shape} and LSE of shape {lse.shape} are no partial results: give [parts, ..., d_v] and [parts, ...]"
        )
    for name, x in (("O", parts), ("LSE", lse)):
        if x.dtype.kind != "f":
            raise UsageError(f"{name} holds {x.dtype}: give floating-point numbers (rawflash.problem.to_f64 decodes bf16)")
    parts, lse = parts.astype(np.float64), lse.astype(np.float64)
    m = lse.max(axis=0, initial=-np.inf)
    shift = np.where(np.isneginf(m), 0.0, m)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = np.exp(lse - shift)
        l = weight.sum(axis=0)
        seen = np.where(np.isneginf(lse)[..., None], 0.0, parts)
        return (weight[..., None] * seen).sum(axis=0) / np.where(l == 0, 1.0, l)[..., None], shift + np.log(l)
