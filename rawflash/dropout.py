"""Which probabilities dropout keeps: a function of the seed and of the element's place, so that a kernel and NumPy agree exactly.

Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter of 128 bits and a key
of 64 give four numbers of 32 bits, with no state between calls. Element n of the [B, H, N, Nkv] matrix of probabilities takes number
n % 4 of the counter n // 4; the key is the seed. kernels_cu/include/rf_philox.cuh is the same in CUDA.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawflash.problem import Problem

__all__ = ["drop_below", "kept", "philox"]

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """[..., 4] uint32 counters under a key of two 32-bit words -> [..., 4] uint32 random numbers."""
    c0, c1, c2, c3 = (counter[..., word].astype(np.uint64) for word in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def drop_below(dropout_p: float) -> int:
    """A probability is dropped when its random number is below this: floor(dropout_p * 2^32)."""
    return int(dropout_p * 2.0**32)


def kept(problem: Problem, b: int, h: int, rows: slice) -> NDArray[np.bool_]:
    """[rows, Nkv] bool: which probabilities of some rows of query head (b, h) survive."""
    first, last, _ = rows.indices(problem.N)
    head = (b * problem.H + h) * problem.N
    start, stop = (head + first) * problem.Nkv, (head + last) * problem.Nkv  # elements
    call = np.arange(start // 4, -(-stop // 4), dtype=np.uint64)
    counter = np.zeros((len(call), 4), np.uint32)
    counter[:, 0], counter[:, 1] = call & _LOW, call >> _HALF
    number = philox(counter, (problem.seed & 0xFFFFFFFF, problem.seed >> 32 & 0xFFFFFFFF)).ravel()
    skipped = start % 4
    return (number[skipped : skipped + stop - start] >= drop_below(problem.dropout_p)).reshape(last - first, problem.Nkv)
