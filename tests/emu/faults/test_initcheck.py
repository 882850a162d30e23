"""initcheck: bytes that nobody wrote, in global, shared and local memory (A15); and no blame for what is written in time."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import Row, check, compiled, full
from tests.emu.harness import launch

PARAMS = emu.EmuParams(threads=1)
I32, F32 = np.int32, np.float32


def written_until(count: int, written: int) -> np.ndarray:
    """An emulator array of which only the first ``written`` elements are initialised."""
    x = emu.empty(count, F32)
    if written:
        launch(compiled("initial", PARAMS), "fill_first", 1, written, x)
    return x


FAULTS = [
    Row("global_empty", "UninitializedRead", lambda: (written_until(64, 40), full(64, F32)), 2, 32, (1, 0, 0), (8, 0, 0), "global"),
    Row("shared_tail", "UninitializedRead", lambda: (full(64, F32), full(64, F32), I32(17)), 1, 64, space="shared"),
    Row("local_unset", "UninitializedRead", lambda: (full(8), full(32), I32(5)), tid=(5, 0, 0), space="local"),
    Row("half_a_word", "UninitializedRead", lambda: (full(32, np.uint32),), tid=(0, 0, 0), space="shared"),
    Row("last_ctas_memory", "UninitializedRead", lambda: (full(64), full(1)), 2, 32, (1, 0, 0), (0, 0, 0), "shared"),
    Row("atomic_unset", "UninitializedRead", lambda: (emu.empty(4, np.uint32),), space="global"),
    Row("one_lane_late", "UninitializedRead", lambda: (full(32), full(32)), tid=(6, 0, 0), space="shared", shared_mem=128),
]
CLEAN = [
    Row("written_by_others", "", lambda: (full(64, F32), emu.empty(64, F32)), 1, 64),
    Row("bytes_make_a_word", "", lambda: (emu.empty(32, np.uint32),)),
    Row("padding_unread", "", lambda: (full(1024, F32), emu.empty(1024, F32))),
    Row("local_set", "", lambda: (full(8), emu.empty(32, I32), I32(3))),
    Row("guarded_tail", "", lambda: (full(17, F32), emu.empty(64, F32), I32(17)), 1, 64),
    Row("global_empty", "", lambda: (written_until(64, 64), emu.empty(64, F32)), 2),
]


@pytest.mark.parametrize("row", FAULTS, ids=str)
def test_fault(row: Row) -> None:
    check("initial", row, PARAMS)


@pytest.mark.parametrize("row", CLEAN, ids=str)
def test_clean(row: Row) -> None:
    check("initial", row, PARAMS)


def test_reading_before_wait_group_is_stale_or_reported() -> None:
    """cp.async data is there only after wait_group: an earlier read of shared memory is reported (P19)."""
    row = Row("early_async_read", "UninitializedRead", lambda: (full(128), full(128)), tid=(0, 0, 0), space="shared")
    check("initial", row, PARAMS)


def test_poison_shows_where_the_check_is_off() -> None:
    """Without initcheck, memory nobody wrote holds NaN, so that 0 * stale gives NaN as on an unlucky GPU (A15)."""
    out = emu.empty(64, F32)
    off = emu.EmuParams(initcheck=False, threads=1)
    launch(compiled("initial", off), "shared_tail", 1, 64, full(64, F32), out, I32(17))
    assert np.isnan(out).all()
    launch(compiled("initial", off), "global_empty", 1, 32, emu.empty(32, F32), out)
    assert np.isnan(out[:32]).all()


def test_empty_is_poisoned_with_nan_in_every_float_width() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        assert np.isnan(emu.empty(33, dtype)).all()
