"""Reductions, scans, histograms, atomics, sorting and stencils against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import launch, zeros
from tests.emu.programs.loader import program

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("block", [32, 96, 256, 1024])
def test_sum_by_shuffles(block: int) -> None:
    x = RNG.integers(-100, 100, 5000).astype(np.float32)  # sums of small integers are exact in float32
    out = emu.empty(3, np.float32)
    launch(program("reduce"), "sum_shuffle", 3, block, emu.asarray(x), out, np.int32(x.size))
    i = np.arange(x.size)
    assert out.tolist() == [x[i // block % 3 == cta].sum() for cta in range(3)]


@pytest.mark.parametrize("block", [64, 512])
def test_sum_by_tree_in_dynamic_shared_memory(block: int) -> None:
    x = RNG.integers(-1000, 1000, 3000).astype(np.int32)
    total = zeros(1, np.int32)
    report = launch(
        program("reduce"), "sum_tree", -(-x.size // block), block, emu.asarray(x), total, np.int32(x.size), shared_mem=4 * block
    )
    assert total[0] == x.sum()
    assert report.arguments[0].read_bytes == x.nbytes
    assert report.arguments[0].read_sectors == x.nbytes // 32


def test_maximum_by_redux() -> None:
    x = RNG.integers(0, 2**32, 1000, dtype=np.uint64).astype(np.uint32)
    out = zeros(1, np.uint32)
    launch(program("reduce"), "max_redux", 8, 128, emu.asarray(x), out, np.int32(x.size))
    assert out[0] == x.max()


def test_votes() -> None:
    x = RNG.integers(-1, 100, 256).astype(np.int32)
    x[:32] = 1
    out = emu.empty((8, 4), np.int32)
    launch(program("reduce"), "vote_counts", 2, 128, emu.asarray(x), out, np.int32(256))
    warps = x.reshape(8, 32)
    want = np.stack([(warps & 1).sum(1), (warps > 0).all(1), (warps > 90).any(1), np.repeat((x.reshape(2, 128) & 1).sum(1), 4)], 1)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("n", [1024, 1000, 33])
def test_scan_by_shuffles(n: int) -> None:
    x = RNG.integers(-50, 50, n).astype(np.int32)
    out = emu.empty(n, np.int32)
    launch(program("scan"), "scan_shuffle", 1, 1024, emu.asarray(x), out, np.int32(n))
    assert np.array_equal(out, np.cumsum(x))


def test_scan_by_doubling() -> None:
    x = RNG.integers(-8, 8, (3, 256)).astype(np.float32)
    out = emu.empty(x.shape, np.float32)
    launch(program("scan"), "scan_doubling", 3, 256, emu.asarray(x), out, shared_mem=2 * 256 * 4)
    assert np.array_equal(out, np.cumsum(x, axis=1))


def test_histogram_with_shared_atomics() -> None:
    x = (RNG.integers(0, 256, 6000) & RNG.integers(0, 256, 6000)).astype(np.uint8)
    bins = zeros(256, np.uint32)
    launch(program("histogram"), "histogram_shared", 4, 192, emu.asarray(x), bins, np.int32(x.size))
    assert np.array_equal(bins, np.bincount(x, minlength=256))


def test_histogram_with_64_bit_global_atomics() -> None:
    x = RNG.integers(0, 256, 3000).astype(np.uint8)
    bins = zeros(16, np.uint64)
    bins[:] = 2**33
    launch(program("histogram"), "histogram_global", 12, 256, emu.asarray(x), bins, np.int32(x.size))
    assert np.array_equal(bins - 2**33, np.bincount(x & 15, minlength=16))


def test_compaction_with_warp_aggregated_atomics() -> None:
    x = RNG.integers(0, 1000, 2000).astype(np.int32)
    out, count = emu.empty(2000, np.int32), zeros(1, np.uint32)
    launch(program("histogram"), "compact", 8, 256, emu.asarray(x), out, count, np.int32(x.size))
    kept = x[x % 3 == 0]
    assert count[0] == kept.size
    assert np.array_equal(np.sort(out[: kept.size]), np.sort(kept))


def test_counting_by_match_any() -> None:
    keys = RNG.integers(0, 10, 1000).astype(np.int32)
    count = zeros(10, np.uint32)
    launch(program("histogram"), "count_keys", 4, 256, emu.asarray(keys), count, np.int32(keys.size))
    assert np.array_equal(count, np.bincount(keys, minlength=10))


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_every_atomic(seed: int | None) -> None:
    """160 threads; the order-dependent cells hold values that every order gives."""
    i32, u32, u64 = zeros(3, np.int32), zeros(6, np.uint32), zeros(4, np.uint64)
    f32, f64 = zeros(1, np.float32), zeros(1, np.float64)
    u32[0] = 0xFFFFFFFF
    u64[2] = 5
    launch(program("histogram", params=emu.EmuParams(order_seed=seed)), "atomic_zoo", 5, 32, i32, u32, u64, f32, f64)
    t = np.arange(160)
    assert i32.tolist() == [-100, 59, -t.sum()]
    inc = dec = 0
    for _ in t:
        inc = 0 if inc >= 6 else inc + 1
        dec = 9 if dec == 0 or dec > 9 else dec - 1
    assert u32.tolist() == [0, 0xFFFF, 0xFFFFFFFF, inc, dec, 320]  # 5 flips of every bit are one flip
    assert u64.tolist() == [159 << 33, 77, 9, 160 << 40]
    assert f32[0] == 80.0 and f64[0] == 40.0


@pytest.mark.parametrize("n", [64, 512])
def test_bitonic_sort(n: int) -> None:
    keys = RNG.integers(0, 2**32, (3, n), dtype=np.uint64).astype(np.uint32)
    device = emu.asarray(keys)
    launch(program("sort"), "bitonic", 3, n, device, np.int32(n), shared_mem=4 * n)
    assert np.array_equal(device, np.sort(keys, axis=1))


@pytest.mark.parametrize("n", [1000, 1024])
def test_stencil_with_halo(n: int) -> None:
    x = RNG.integers(-100, 100, n).astype(np.int32)
    out = emu.empty(n, np.int32)
    launch(program("sort"), "stencil", -(-n // 128), 128, emu.asarray(x), out, np.int32(n), shared_mem=4 * (128 + 6))
    padded = np.pad(x, 3)
    assert np.array_equal(out, sum((k + 1) * padded[k : k + n] for k in range(7)))


def test_laplace_in_three_dimensions() -> None:
    x = RNG.integers(-9, 9, (5, 7, 13)).astype(np.float32)
    out = emu.empty(x.shape, np.float32)
    launch(program("sort"), "laplace3d", (4, 3, 3), (4, 3, 2), emu.asarray(x), out, np.int32(13), np.int32(7), np.int32(5))
    p = np.pad(x, 1)
    want = p[1:-1, 1:-1, :-2] + p[1:-1, 1:-1, 2:] + p[1:-1, :-2, 1:-1] + p[1:-1, 2:, 1:-1] + p[:-2, 1:-1, 1:-1] + p[2:, 1:-1, 1:-1] - 6 * x
    assert np.array_equal(out, want)
