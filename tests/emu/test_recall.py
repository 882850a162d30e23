"""One access site that meets several patterns of addresses in turn: counted, checked and executed as if it met each alone."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import cuda, launch

SOURCE = """
extern "C" __global__ void turns(const int* where, const int* x, int* out, int rounds) {
    int sum = 0;
    for (int k = 0; k < rounds; ++k) {
        int at = where[k * 32 + threadIdx.x];
        if (at >= 0) sum += x[at];
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void two_arrays(const int* a, const int* b, int* out, int rounds) {
    int sum = 0;
    for (int k = 0; k < rounds; ++k) sum += (k & 1 ? a : b)[threadIdx.x ^ k];
    out[threadIdx.x] = sum;
}
"""
LANES = np.arange(32)
PATTERNS = [LANES, LANES ^ 5, 31 - LANES, 8 * LANES, LANES // 4, np.where(LANES % 3, LANES, -1), 64 + LANES, 2 * LANES + 3]


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8])
def test_patterns_in_turn(count: int) -> None:
    """More or fewer patterns than a site remembers: sectors, bytes and sums are those of the accesses one by one."""
    rounds = 4 * count + 3
    order = [PATTERNS[k % count] for k in range(rounds)]
    where = np.concatenate(order).astype(np.int32)
    x = np.random.default_rng(3).integers(-99, 99, 300).astype(np.int32)
    out = emu.empty(32, np.int32)
    report = launch(cuda(SOURCE), "turns", 1, 32, emu.asarray(where), emu.asarray(x), out, np.int32(rounds))
    assert np.array_equal(out, sum(np.where(p >= 0, x[p], 0) for p in order))
    active = [p[p >= 0] for p in order]
    a = report.arguments[1]
    assert a.read_requests == rounds
    assert a.read_bytes == sum(4 * len(np.unique(p)) for p in active)
    assert a.read_sectors == sum(len(np.unique(p // 8)) for p in active)


def test_arrays_in_turn() -> None:
    """The same pattern in another array counts for that array."""
    a, b = (emu.asarray(np.arange(n, n + 64, dtype=np.int32)) for n in (100, 500))
    out = emu.empty(32, np.int32)
    report = launch(cuda(SOURCE), "two_arrays", 1, 32, a, b, out, np.int32(9))
    assert np.array_equal(out, sum((100 if k & 1 else 500) + (LANES ^ k) for k in range(9)))
    assert [r.read_requests for r in report.arguments] == [4, 5, 0]
    assert [r.read_bytes for r in report.arguments] == [4 * 128, 5 * 128, 0]


def test_a_pattern_recalled_is_still_in_bounds() -> None:
    """A remembered pattern at a base for which it would leave the array is a fault, as on its first day."""
    order = [LANES, 31 - LANES, LANES + 8, 31 - LANES, LANES + 9]
    where = emu.asarray(np.concatenate(order).astype(np.int32))
    with pytest.raises(emu.OutOfBounds) as caught:
        launch(cuda(SOURCE), "turns", 1, 32, where, emu.asarray(np.zeros(40, np.int32)), emu.empty(32, np.int32), np.int32(5))
    assert caught.value.tid == (31, 0, 0)


def test_wavefronts_of_swizzled_rows() -> None:
    """Four warps with two patterns of 16-byte stores, none with a conflict."""
    source = """
extern "C" __global__ void tile(const int4* x, int4* out) {
    __shared__ int4 s[512];
    for (int k = 0; k < 4; ++k) s[128 * k + (threadIdx.x ^ (threadIdx.x >> 3 & 7))] = x[128 * k + threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}"""
    x, out = emu.asarray(np.arange(2048, dtype=np.int32)), emu.empty(512, np.int32)
    report = launch(cuda(source), "tile", 1, 128, x, out)
    assert report.shared.write_cost == 16 * 4 and report.shared.bank_conflicts == 0
    t = np.arange(128)
    assert np.array_equal(out.reshape(128, 4), np.array(x).reshape(-1, 4)[np.argsort(t ^ (t >> 3 & 7))])
