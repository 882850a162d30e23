"""How splitkv cuts attention into CTAs: packed query tiles, and the runs of key tiles that the splits of each take.

The G = H / Hkv query heads of a kv head are packed into one matrix of G*N rows, row p = i*G + h being query i of the h-th of them, so that
keys are read once for all of them and what a row sees still grows with p. Query tile t of it meets n key tiles, which min(splits, n)
CTAs share; the others of its `splits` CTAs are empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawflash.problem import Problem
from rawflash.tiling import Tiling, ceil_div

__all__ = ["MOST_SPLITS", "Splits", "choose_splits", "cut_keys"]

MOST_SPLITS = 128
# An automatic choice is content with this part of the SMs, or of the best efficiency.
_FILLED, _GOOD = 0.8, 0.85


def choose_splits(ctas: int, key_tiles: int, sms: int) -> int:
    """Splits for `ctas` query tiles of `key_tiles` key tiles each on a GPU of `sms` SMs: enough to fill it, and no more.

    After num_splits_heuristic of github.com/Dao-AILab/flash-attention: 1 when the tiles alone fill the SMs; otherwise the smallest number
    whose last wave of CTAs is nearly as full as that of the best one. A number that shortens no CTA's work is not considered.
    """
    if ctas >= _FILLED * sms or key_tiles <= 1:
        return 1
    efficiency = {}
    for splits in range(1, min(MOST_SPLITS, sms, key_tiles) + 1):
        if splits == 1 or ceil_div(key_tiles, splits) < ceil_div(key_tiles, splits - 1):
            efficiency[splits] = ctas * splits / sms / ceil_div(ctas * splits, sms)
    best = max(efficiency.values())
    return min(splits for splits, reached in efficiency.items() if reached >= _GOOD * best)


@dataclass(frozen=True)
class Splits:
    """The cut of one kv head.

    rows     [Tg] packed rows of each query tile
    parts    [Tg] splits of it that are not empty
    keys     [Tg] keys in the key tiles that it meets
    splits   CTAs per query tile
    live     pairs of a packed row and a split in which the row sees a key
    """

    rows: NDArray[np.int64]
    parts: NDArray[np.int64]
    keys: NDArray[np.int64]
    splits: int
    live: int


def cut_keys(p: Problem, t: Tiling) -> Splits:
    """The cut for a problem that has queries and keys. No more splits than the query tile that meets most key tiles can use."""
    begin, end = (np.repeat(x, p.H // p.Hkv) for x in p.visible())
    first = np.arange(0, len(end), t.Br)
    past = np.minimum(first + t.Br, len(end))
    meets = begin[first] < end[past - 1]
    low, high = np.where(meets, begin[first] // t.Bc, 0), np.where(meets, -(-end[past - 1] // t.Bc), 0)  # key tiles
    most = max(1, int((high - low).max()))
    splits = min(most, choose_splits(p.B * p.Hkv * len(first), most, t.sms) if t.num_splits is None else t.num_splits)
    parts = np.minimum(splits, high - low)
    live = 0
    for a, b, start, stop, share in zip(first, past, low, high, parts, strict=True):
        cuts = (start + (stop - start) * np.arange(share + 1) // max(1, share)) * t.Bc
        live += int((np.maximum(begin[a:b, None], cuts[:-1]) < np.minimum(end[a:b, None], cuts[1:])).sum())
    return Splits(past - first, parts, np.minimum(high * t.Bc, p.Nkv) - low * t.Bc, splits, live)
