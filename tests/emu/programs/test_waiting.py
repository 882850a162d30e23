"""Waiting done right gives the right answer in any order of warps and CTAs; waiting for what cannot come ends as a Deadlock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from rawflash.emu.machine import crew
from tests.emu.faults.table import within
from tests.emu.harness import launch, zeros
from tests.emu.programs.loader import program, text

RNG = np.random.default_rng(29)
SEEDS = [None, 1, 2]


def waiting(seed: int | None = None, **params: Any) -> Any:
    return program("waiting", params=emu.EmuParams(order_seed=seed, **params))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("ctas", "seed"), [(2, None), (40, None), (7, 3)])
def test_a_barrier_of_the_grid(ctas: int, seed: int | None, threads: int) -> None:
    """CTAs that wait for each other are under way together, however few threads the host has."""
    steps = 4
    cells, arrived = zeros(ctas, np.int32), zeros(1, np.uint32)
    within(lambda: launch(waiting(seed, threads=threads), "grid_barrier", ctas, 64, cells, arrived, np.int32(steps)))
    assert arrived[0] == ctas * steps
    assert cells.tolist() == [123] * ctas  # each cell was visited in every step, in order


def test_a_barrier_of_more_ctas_than_are_ever_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid that is too large for the hardware's residency hangs there; here it is a Deadlock. With fewer CTAs at a time, for speed."""
    monkeypatch.setattr(crew, "RESIDENT", 20)
    cells, arrived = zeros(24, np.int32), zeros(1, np.uint32)
    with pytest.raises(emu.Deadlock, match="nobody is left"):
        within(lambda: launch(waiting(), "grid_barrier", 24, 32, cells, arrived, np.int32(1)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_per_block(seed: int | None) -> None:
    out = zeros(5, np.int32)
    within(lambda: launch(waiting(seed), "lock_per_block", 5, 256, out))
    assert out.tolist() == [255] * 5


DEADLOCKS = {
    "lock_within_a_warp": (lambda: (zeros(1, np.int32), zeros(1, np.int32)), 32, "lanes 1, 2, .* spin while lanes 0 of the warp wait"),
    "never_set": (lambda: (zeros(1, np.int32), zeros(64, np.int32)), 64, "nobody is left"),
    "two_locks": (lambda: (zeros(8, np.int32),), 64, "nobody is left"),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_deadlocks_are_found(name: str) -> None:
    """With the default limits: nothing has to run out. The report names the line of the loop."""
    arguments, block, match = DEADLOCKS[name]
    mod = waiting()
    mod.get_function(name).compile(block)
    with pytest.raises(emu.Deadlock, match=match) as caught:
        within(lambda: launch(mod, name, 1, block, *arguments()))
    lines = text("waiting").splitlines()
    assert caught.value.cu_line is not None and "while" in lines[caught.value.cu_line - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_that_only_memory_can_end(seed: int | None) -> None:
    """The load is an ordinary one, but the loop computes nothing else: it can only be waiting."""
    flag, out = zeros(1, np.int32), zeros(64, np.int32)
    within(lambda: launch(waiting(seed), "plain_flag", 1, 64, flag, out))
    assert out.tolist() == [1] * 64


def test_deadlock_of_one_cta_among_many() -> None:
    """The other CTAs are done; the one whose flag is never set is the one that is named."""
    with pytest.raises(emu.Deadlock) as caught:
        within(lambda: launch(waiting(), "never_set", 3, 64, zeros(1, np.int32), zeros(64, np.int32)))
    assert caught.value.ctaid == (0, 0, 0)


def test_a_loop_that_changes_what_it_reads_is_no_deadlock() -> None:
    cell, out = emu.asarray(np.array([200_000], np.int32)), zeros(64, np.int32)
    launch(waiting(), "counts_down_slowly", 1, 64, cell, out)
    assert out.tolist() == [7] * 64 and cell[0] == -64


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tiles", [1, 2, 9])
def test_producers_and_consumers_with_named_barriers(tiles: int, seed: int | None) -> None:
    x = RNG.integers(-99, 99, (tiles, 64)).astype(np.int32)
    out = zeros(64, np.int32)
    within(lambda: launch(waiting(seed), "named_barriers", 2, 128, emu.asarray(x), out, np.int32(tiles)))
    assert np.array_equal(out, x.sum(0)[::-1])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tiles", [1, 3, 10])
def test_producers_and_consumers_with_mbarriers(tiles: int, seed: int | None) -> None:
    x = RNG.integers(-99, 99, (tiles, 96, 4)).astype(np.int32)
    out = zeros((96, 4), np.int32)
    report = within(lambda: launch(waiting(seed), "mbarriers", 1, 128, emu.asarray(x), out, np.int32(tiles)))
    assert np.array_equal(out, x.sum(0)[::-1])
    assert report.arguments[0].read_bytes == x.nbytes


@pytest.mark.parametrize("n", [640, 600, 577, 1])
def test_staged_copies(n: int) -> None:
    x = RNG.integers(-9, 9, (n, 4)).astype(np.float32)
    out = emu.empty((64, 4), np.float32)
    report = launch(waiting(), "staged_copies", 1, 64, emu.asarray(x), out, np.int32(n), np.int32(10))
    padded = np.zeros((640, 4), np.float32)
    padded[:n] = x
    assert np.array_equal(out, padded.reshape(10, 64, 4).sum(0)[::-1])
    assert report.arguments[0].read_bytes == x.nbytes


@pytest.mark.parametrize("name", ["named_barriers", "mbarriers"])
def test_ring_buffers_are_no_races(name: str) -> None:
    width = 64 if name == "named_barriers" else 96 * 4
    x, out = emu.asarray(RNG.integers(-99, 99, (7, width)).astype(np.int32)), zeros(width, np.int32)
    launch(waiting(racecheck=True), name, 1, 128, x, out, np.int32(7))
    assert np.array_equal(
        out.reshape(-1, width // (64 if width == 64 else 96)), x.sum(0).reshape(-1, width // (64 if width == 64 else 96))[::-1]
    )
