"""synccheck: divergent barriers (P16), wrong masks (P14), deadlocks; every launch ends."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import FOLDER, Row, check, compiled, full, run, within
from tests.emu.harness import launch, line_of, zeros

PARAMS = emu.EmuParams(max_loop_iterations=100_000)
I32 = np.int32


def uneven() -> np.ndarray:
    return emu.asarray((np.arange(32) % 3).astype(I32))


FAULTS = [
    Row("barrier_in_half_a_warp", "DivergentBarrier", lambda: (full(32),), 2),
    Row("trip_counts_differ", "DivergentBarrier", lambda: (uneven(), full(32))),
    Row("butterfly_of_48", "BadMask", lambda: (full(48), full(48)), 1, 48),
    Row("source_outside_mask", "BadMask", lambda: (full(32), full(32)), tid=(0, 0, 0)),
    Row("lanes_outside_mask", "BadMask", lambda: (full(32), full(32))),
    Row("syncwarp_of_half_a_warp", "BadMask", lambda: (full(32),)),
    Row("too_few_arrive", "Deadlock", lambda: (full(96),), 1, 96),
    Row("not_a_multiple_of_a_warp", "SyncError", lambda: (full(64), I32(33)), 1, 64),
    Row("ballot_names_absent_lanes", "BadMask", lambda: (full(32),)),
    Row("never_ends", "Deadlock", lambda: (zeros(1, I32), full(32)), lines=()),
]
CLEAN = [
    Row("exit_before_barrier", "", lambda: (full(64), I32(40)), 1, 64),
    Row("syncwarp_with_the_exited", "", lambda: (full(32),)),
    Row("half_warp_reduction", "", lambda: (full(32), full(1))),
    Row("uniform_condition", "", lambda: (full(64), full(64), I32(5)), 2, 64),
    Row("half_the_cta", "", lambda: (full(128), full(128)), 1, 128),
    Row("masks_of_both_branches", "", lambda: (full(32), full(32))),
    Row("partial_last_warp", "", lambda: (full(48), full(48)), 1, 48),
    Row("whoever_is_here", "", lambda: (uneven(), full(32))),
]


@pytest.mark.parametrize("row", FAULTS, ids=str)
def test_fault(row: Row) -> None:
    check("sync", row, PARAMS)


@pytest.mark.parametrize("row", CLEAN, ids=str)
def test_clean(row: Row) -> None:
    check("sync", row, PARAMS)


def test_right_answers() -> None:
    mod = compiled("sync", PARAMS)
    out = zeros(64, I32)
    launch(mod, "exit_before_barrier", 1, 64, out, I32(40))
    assert out.tolist() == [39 - t if t < 40 else 0 for t in range(64)]
    launch(mod, "half_warp_reduction", 1, 32, full(32), out)
    assert out[0] == sum(range(16))
    launch(mod, "masks_of_both_branches", 1, 32, full(32), out)
    assert out[:32].tolist() == [t + (t ^ 2) if t & 1 else t - (t ^ 4) for t in range(32)]
    launch(mod, "partial_last_warp", 1, 48, full(48), out)
    groups = [sum(range(16)), sum(range(16, 32)), sum(range(32, 48))]
    assert out[:48].tolist() == [groups[t // 16] for t in range(48)]


def test_warps_that_meet_at_one_barrier_from_two_places_are_warned_of() -> None:
    """Hardware pairs the two barriers, so the launch goes on; the report names both lines (P16b)."""
    out = zeros(64, I32)
    report = launch(compiled("sync", PARAMS), "two_barriers_for_one", 1, 64, out)
    assert out.tolist() == [1] * 32 + [3] * 32
    source = (FOLDER / "sync.cu").read_text()
    assert len(report.warnings) == 1
    assert all(str(line_of(source, tag)) in report.warnings[0] for tag in ("first of two", "second of two"))
    assert launch(compiled("sync", PARAMS), "exit_before_barrier", 1, 64, out, I32(40)).warnings == []


def test_the_sentence_says_who_is_missing() -> None:
    row = next(r for r in FAULTS if r.kernel == "butterfly_of_48")
    with pytest.raises(emu.BadMask, match="0xffff"):
        run("sync", row, PARAMS)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_warp_that_spins_for_another_ends(seed: int | None) -> None:
    """Right on a GPU: warps advance independently. The emulator must finish it, or say Deadlock; it must not hang."""
    flag, out = zeros(1, I32), zeros(64, I32)
    params = emu.EmuParams(max_loop_iterations=100_000, order_seed=seed)
    mod = compiled("sync", params)
    try:
        within(lambda: launch(mod, "waits_for_a_later_warp", 1, 64, flag, out))
    except emu.Deadlock:
        return
    assert out.tolist() == [1] * 64


def test_wrong_masks_pass_only_with_the_check_off() -> None:
    off = emu.EmuParams(synccheck=False)
    out = full(32)
    launch(compiled("sync", off), "lanes_outside_mask", 1, 32, full(32), out)
    assert out[:16].tolist() == [t ^ 1 for t in range(16)]
