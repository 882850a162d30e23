"""Waiting through memory: a waiting warp lets the others run, in every order. What cannot advance ends in Deadlock, soon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import within
from tests.emu.harness import launch, zeros
from tests.emu.programs.loader import program

SEEDS = [None, 1, 2]


def progress(seed: int | None, threads: int = 2) -> Any:
    return program("progress", params=emu.EmuParams(order_seed=seed, threads=threads, max_loop_iterations=1_000_000))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_between_warps_and_ctas(seed: int | None) -> None:
    lock, counter = zeros(1, np.int32), zeros(1, np.int32)
    within(lambda: launch(progress(seed), "lock_between_warps", 6, 128, lock, counter))
    assert (counter[0], lock[0]) == (24, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_inside_a_warp(seed: int | None) -> None:
    """Each lane leaves the branch with the lock released, so this works even where a warp advances as one."""
    lock, counter = zeros(1, np.int32), zeros(1, np.int32)
    within(lambda: launch(progress(seed), "lock_inside_a_warp", 2, 64, lock, counter))
    assert counter[0] == 128


@pytest.mark.parametrize("threads", [1, 2])
def test_every_cta_waits_for_the_one_before(threads: int) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (20, 32)).astype(np.int32)
    prefix, ready, out = zeros(20, np.int32), zeros(20, np.int32), zeros((20, 32), np.int32)
    within(lambda: launch(progress(None, threads), "chained_scan", 20, 32, emu.asarray(x), prefix, ready, out))
    sums = x.sum(1)
    assert np.array_equal(out, x + (np.cumsum(sums) - sums)[:, None])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_chain_in_another_order_ends(seed: int) -> None:
    """With CTAs in another order the chain needs CTAs that run side by side: finished or Deadlock, never a hang."""
    x = emu.asarray(np.ones((6, 32), np.int32))
    prefix, ready, out = zeros(6, np.int32), zeros(6, np.int32), zeros((6, 32), np.int32)
    try:
        within(lambda: launch(progress(seed), "chained_scan", 6, 32, x, prefix, ready, out))
    except emu.Deadlock:
        return
    assert np.array_equal(out, 1 + 32 * np.arange(6)[:, None] + np.zeros((6, 32)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_cta_adds_up(seed: int | None) -> None:
    x = np.random.default_rng(2).integers(-99, 99, (30, 64)).astype(np.int32)
    partial, finished, out = zeros(30, np.int32), zeros(1, np.uint32), zeros(1, np.int32)
    launch(progress(seed), "last_cta_sums", 30, 32, emu.asarray(x), partial, finished, out)
    assert (out[0], finished[0]) == (x.sum(), 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_warps_pass_values_through_a_flag(seed: int | None) -> None:
    x = np.arange(10, 50, dtype=np.int32)
    out = zeros(40, np.int32)
    within(lambda: launch(progress(seed), "mailbox", 1, 64, emu.asarray(x), out, np.int32(40)))
    assert np.array_equal(out, x)
