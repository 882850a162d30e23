"""Warps that split and meet again, CTAs and grids of every shape."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import launch
from tests.emu.programs.loader import program

RNG = np.random.default_rng(29)
SEEDS = [None, 3]


def divergence(seed: int | None = None) -> object:
    return program("divergence", params=emu.EmuParams(order_seed=seed))


def test_collatz() -> None:
    x = RNG.integers(1, 100000, 250).astype(np.uint32)
    out = emu.empty(250, np.int32)
    report = launch(divergence(), "collatz", 4, 64, emu.asarray(x), out, np.int32(250))
    want = []
    for v in x.tolist():
        steps = 0
        while v != 1:
            v = 3 * v + 1 if v & 1 else v >> 1
            steps += 1
        want.append(steps)
    assert out.tolist() == want
    assert 0 < report.lane_efficiency < 1


def test_nested_loops_breaks_and_goto() -> None:
    x = RNG.integers(0, 8, 128).astype(np.int32)
    out = emu.empty(128, np.int32)
    launch(divergence(), "nested", 2, 64, emu.asarray(x), out)
    assert out.tolist() == [nested(i, v) for i, v in enumerate(x.tolist())]


def nested(i: int, x: int) -> int:
    """The kernel of that name for one thread."""
    acc = 0
    for a in range(x & 7):
        if (a ^ i) & 1:
            for b in range(i & 3, 5):
                if b == 3 and i & 4:
                    continue
                acc += a * b + 1
                if acc > 40:
                    break
        else:
            c = a + 2
            while True:
                acc ^= c
                c -= 2
                if not c > (i & 1):
                    break
        if acc == 13:
            return acc
    return acc + 1000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [128, 100, 33, 1])
def test_exited_threads_do_not_hold_up_a_barrier(n: int, seed: int | None) -> None:
    x = RNG.integers(-50, 50, 2 * 128).astype(np.int32)
    out = emu.empty(2 * n, np.int32)
    launch(divergence(seed), "exit_then_barrier", 2, 128, emu.asarray(x), out, np.int32(n))
    kept = x.reshape(2, 128)[:, :n]
    assert np.array_equal(out.reshape(2, n), kept.sum(1, keepdims=True) - kept)


@pytest.mark.parametrize("seed", SEEDS)
def test_barrier_in_a_uniform_loop(seed: int | None) -> None:
    out = emu.empty(64, np.int32)
    launch(divergence(seed), "uniform_barrier_loop", 1, 64, out, np.int32(70))
    assert np.array_equal(out, (np.arange(64) + 70) % 64)


@pytest.mark.parametrize("block", [(32, 1, 1), (5, 3, 2), (1, 8, 8), (7, 7, 7), (2, 1, 64)])
def test_three_dimensional_shapes(block: tuple[int, int, int]) -> None:
    size = (11, 9, 70)
    grid = tuple(-(-s // b) for s, b in zip(size, block, strict=True))
    out = emu.empty(size[::-1], np.int32)
    launch(divergence(), "shapes", grid, block, out, *(np.int32(s) for s in size))
    z, y, x = np.indices(size[::-1])
    assert np.array_equal(out, (z // block[2] * grid[1] + y // block[1]) * grid[0] + x // block[0])


@pytest.mark.parametrize("grid", [65535, 65536, 70001])
def test_grids_beyond_65535_in_x(grid: int) -> None:
    out = emu.empty(grid, np.uint8)
    launch(divergence(), "mark", grid, 1, out)
    assert np.array_equal(out, np.arange(grid) % 251)


@pytest.mark.parametrize("block", [1, 20, 31, 50])
def test_partial_warps(block: int) -> None:
    x = RNG.integers(-3, 4, block).astype(np.int32)
    even = block // 2 * 2  # a lane whose partner does not exist keeps its own value out of the comparison
    out = emu.empty(block, np.int32)
    quiet = program("divergence", params=emu.EmuParams(synccheck=False))
    launch(quiet, "partial_warp", 1, block, emu.asarray(x), out)
    want = np.zeros(block, np.uint64)
    for first in range(0, block, 32):
        warp = x[first : first + 32]
        ballot = sum(1 << i for i, v in enumerate(warp.tolist()) if v > 0)
        partner = np.array([warp[i ^ 1] if i ^ 1 < warp.size else 0 for i in range(warp.size)])
        want[first : first + 32] = [(ballot * 100 + int(p) + warp.size) % 2**32 for p in partner]
    assert np.array_equal(out[:even].view(np.uint32), want[:even])


@pytest.mark.parametrize("seed", SEEDS)
def test_named_barriers(seed: int | None) -> None:
    x = RNG.integers(-9, 9, 128).astype(np.int32)
    out = emu.empty(128, np.int32)
    launch(divergence(seed), "named_barriers", 1, 128, emu.asarray(x), out)
    t = np.arange(128)
    rounds = 3 + t // 64  # every round reads x[partner] + round, so only the last round shows
    assert np.array_equal(out, x[t ^ 1] + rounds - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_producer_and_consumer_warps(seed: int | None) -> None:
    x = RNG.integers(-99, 99, 128).astype(np.int32)
    out = emu.empty(128, np.int32)
    launch(divergence(seed), "producer_consumer", 1, 64, emu.asarray(x), out)
    assert np.array_equal(out.reshape(4, 32), 2 * x.reshape(4, 32)[:, ::-1])
