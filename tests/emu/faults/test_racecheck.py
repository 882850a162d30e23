"""racecheck: hazards in shared memory between and inside warps (P18), and in global memory between CTAs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import Row, check, compiled, full, run
from tests.emu.harness import launch, zeros

PARAMS = emu.EmuParams(racecheck=True, initcheck=False)  # a missing barrier can also show as a read of what nobody wrote yet
I32, U32 = np.int32, np.uint32


def digits(count: int) -> np.ndarray:
    return emu.asarray((np.arange(count) % 10).astype(np.uint8))


FAULTS = [
    Row("no_barrier", "RaceHazard", lambda: (full(64), full(64)), 1, 64, space="shared", lines=()),
    Row("two_writers", "RaceHazard", lambda: (full(64),), 1, 64, space="shared"),
    Row("reused_tile", "RaceHazard", lambda: (full(192), full(64), I32(3)), 1, 64, space="shared", lines=()),
    Row("lock_step", "RaceHazard", lambda: (full(32), full(32)), space="shared", lines=()),
    Row("warp_tail", "RaceHazard", lambda: (full(64), full(64)), 1, 64, space="shared", lines=()),
    Row("plain_increment", "RaceHazard", lambda: (digits(64), full(16, U32)), 1, 64, space="shared"),
    Row("ctas_share_a_cell", "RaceHazard", lambda: (zeros(1, I32),), 4, 32, space="global"),
    Row("neighbour_cta", "RaceHazard", lambda: (full(128),), 4, 32, space="global"),
]
CLEAN = [
    Row("with_barrier", "", lambda: (full(64), full(64)), 1, 64),
    Row("with_syncwarp", "", lambda: (full(64), full(64)), 1, 64),
    Row("two_barriers", "", lambda: (full(192), full(64), I32(3)), 1, 64),
    Row("double_buffer", "", lambda: (full(256), full(64), I32(4)), 1, 64),
    Row("own_slot", "", lambda: (full(64), full(64)), 1, 64),
    Row("atomics_only", "", lambda: (digits(64), zeros(16, U32)), 5, 64),
    Row("everyone_reads", "", lambda: (full(8), full(8 * 64)), 8, 64),
    Row("half_words_of_neighbours", "", lambda: (full(64, np.uint16),), 1, 64),
]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("row", FAULTS, ids=str)
def test_fault(row: Row, seed: int | None) -> None:
    check("races", row, replace(PARAMS, order_seed=seed))


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("row", CLEAN, ids=str)
def test_clean(row: Row, seed: int | None) -> None:
    check("races", row, replace(PARAMS, order_seed=seed))


def test_the_report_names_both_accesses() -> None:
    """no_barrier writes on one line and reads on the next: both lines and two different threads are in the sentence."""
    row = FAULTS[0]
    with pytest.raises(emu.RaceHazard) as caught:
        run("races", row, PARAMS)
    sentence = str(caught.value)
    read_line = 5
    assert f"{read_line - 1}" in sentence and f"{read_line}" in sentence
    assert sentence.count("thread") >= 2


def test_races_go_unseen_only_with_the_check_off() -> None:
    """The switch is off by default: the same kernel then runs, in whatever order the launch takes."""
    out = zeros(1, I32)
    launch(compiled("races", emu.EmuParams()), "ctas_share_a_cell", 4, 32, out)
    assert out[0] in range(4)


@pytest.mark.parametrize("row", [r for r in CLEAN if r.kernel != "atomics_only"], ids=str)
def test_right_kernels_give_the_same_bits_in_every_order(row: Row) -> None:
    results = []
    for seed in (None, 1, 2, 3):
        args = row.args()
        launch(compiled("races", emu.EmuParams(order_seed=seed)), row.kernel, row.grid, row.block, *args)
        results.append([np.array(a) for a in args if isinstance(a, np.ndarray)])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
