"""What one warp-wide access costs, modelled slowly and independently of the emulator.

Global memory: a request touches the 32-byte aligned sectors that its active lanes' bytes fall in.

Shared memory: 32 banks of 4-byte words; a wavefront serves one word per bank to any number of lanes. Requests of 8 and 16
bytes a lane are served in phases, and wavefronts add up over the phases:

* up to 4 bytes a lane: one phase of 32 lanes;
* 8 bytes: two phases, the half-warps. They merge into one if, over the active lanes, every lane i and lane i ^ 1 have the
  same address, or every lane i and lane i ^ 2 have (a lane whose partner is inactive satisfies this);
* 16 bytes: four phases, the quarter-warps. The two quarters of a half-warp merge under the same condition, taken over that
  half-warp. The half-warps do not merge further: one address in all 32 lanes costs 2 wavefronts;
* ldmatrix: one phase per 8x8 matrix, eight rows of 16 bytes.

Wavefronts of a phase = the largest number of distinct words that one bank has to serve. Bank conflicts = wavefronts beyond
one per phase.

Sources for the phases: NVIDIA's forum answers on LDS.128 ("requests per instruction should reduce from 4 to 2" for equal
addresses in lane pairs, thread 77228) and Nsight Compute figures from an A10 and an H100 (thread 373160: two addresses, one
per half-warp, take 2 wavefronts; stride 32 bytes takes 8); maxas issue 8 ("at a minimum 2 transactions").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SECTOR_BYTES = 32
BANKS = 32
INACTIVE = -1


def distinct_bytes(offsets: Sequence[int], size: int) -> int:
    """Bytes a request moves: lanes that read one address move it once."""
    return len({offset + i for offset in offsets if offset != INACTIVE for i in range(size)})


def sectors(offsets: Sequence[int], size: int) -> int:
    """Distinct sectors of a request: byte address per lane (INACTIVE for none), ``size`` bytes each."""
    touched: set[int] = set()
    for offset in offsets:
        if offset != INACTIVE:
            touched.update(range(offset // SECTOR_BYTES, (offset + size - 1) // SECTOR_BYTES + 1))
    return len(touched)


def phases(offsets: Sequence[int], size: int) -> list[list[int]]:
    """The lanes' addresses grouped as the request is served; groups without an active lane are left out."""
    lanes = list(offsets) + [INACTIVE] * (32 - len(offsets))
    width = {8: 16, 16: 8}.get(size, 32)
    groups = []
    for first in range(0, 32, 2 * width):
        pair = lanes[first : first + 2 * width]
        if width == 32 or _lanes_pair_up(pair):
            groups.append(pair)
        else:
            groups += [pair[:width], pair[width:]]
    return [active for group in groups if (active := [a for a in group if a != INACTIVE])]


def _lanes_pair_up(group: Sequence[int]) -> bool:
    def equal(distance: int) -> bool:
        pairs = ((group[i], group[i ^ distance]) for i in range(len(group)))
        return all(a == b for a, b in pairs if a != INACTIVE and b != INACTIVE)

    return equal(1) or equal(2)


def _phase_wavefronts(addresses: Sequence[int], size: int) -> int:
    words: dict[int, set[int]] = {}
    for address in addresses:
        for word in range(address // 4, (address + size - 1) // 4 + 1):
            words.setdefault(word % BANKS, set()).add(word)
    return max(len(distinct) for distinct in words.values())


def wavefronts(offsets: Sequence[int], size: int) -> int:
    """Shared-memory passes of a request."""
    return sum(_phase_wavefronts(phase, size) for phase in phases(offsets, size))


def bank_conflicts(offsets: Sequence[int], size: int) -> int:
    """Wavefronts beyond one per phase."""
    return wavefronts(offsets, size) - len(phases(offsets, size))


def ldmatrix_wavefronts(rows: Sequence[int], count: int) -> int:
    """Passes of ``ldmatrix.x<count>``: ``rows`` holds the 32 lanes' row addresses; lanes past 8 * count are not used."""
    return sum(_phase_wavefronts(rows[8 * i : 8 * i + 8], 16) for i in range(count))


def random_offsets(rng: np.random.Generator, size: int, extent: int) -> NDArray[np.int32]:
    """32 aligned offsets below ``extent`` bytes in one of the shapes that kernels show: strided, permuted, few distinct, masked."""
    slots = extent // size
    lane = np.arange(32)
    kind = rng.integers(6)
    if kind == 0:
        index = rng.integers(slots) + lane * rng.integers(1, 40)
    elif kind == 1:
        index = rng.permutation(32) + rng.integers(slots)
    elif kind == 2:
        index = rng.choice(rng.integers(0, slots, rng.integers(1, 6)), 32)
    elif kind == 3:
        index = rng.integers(0, slots, 32)
    elif kind == 4:
        index = np.repeat(rng.integers(0, slots, 16), 2)
    else:
        index = (lane // 4 * 2 + lane % 2) * rng.integers(1, 9)
    offsets = index % slots * size
    if rng.integers(2):
        offsets = np.where(rng.integers(0, 3, 32) == 0, INACTIVE, offsets)
    return offsets.astype(np.int32)
