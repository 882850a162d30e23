"""memcheck: bounds, alignment, null and read-only, in every state space; and no blame for what is right (A40, A44, P19)."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import Row, check, compiled, full, run
from tests.emu.harness import launch, zeros

PARAMS = emu.EmuParams()
I32, F32, F64 = np.int32, np.float32, np.float64


def constant_table() -> np.ndarray:
    """One pointer, to element 2 of the __constant__ array."""
    address = zeros(1, np.int64)
    launch(compiled("memory", PARAMS), "address_of_constant", 1, 1, address)
    return address


def read_only(count: int) -> np.ndarray:
    x = full(count)
    x.flags.writeable = False
    return x


FAULTS = [
    Row("past_end", "OutOfBounds", lambda: (full(64, F32), full(32, F32), I32(64)), 3, 32, (2, 0, 0), (0, 0, 0), "global"),
    Row("before_start", "OutOfBounds", lambda: (full(64, F32),), 2, 32, (0, 0, 0), (0, 0, 0), "global"),
    Row("misaligned_vector", "Misaligned", lambda: (full(160, F32), full(128, F32), I32(1)), tid=(0, 0, 0), space="global"),
    Row("misaligned_store", "Misaligned", lambda: (full(64, np.int8), I32(6)), tid=(9, 0, 0), space="global"),
    Row("null_pointer", "NullPointer", lambda: (zeros(32, np.int64), full(32, F32)), tid=(0, 0, 0)),
    Row("write_constant", "ReadOnlyWrite", lambda: (constant_table(),), tid=(2, 0, 0)),
    Row("write_argument", "ReadOnlyWrite", lambda: (read_only(32),), tid=(13, 0, 0)),
    Row("across_end", "OutOfBounds", lambda: (full(7, F32), full(2, F32)), tid=(3, 0, 0), space="global"),
    Row("shared_static", "OutOfBounds", lambda: (full(32), I32(20000)), tid=(0, 0, 0), space="shared"),
    Row("shared_dynamic", "OutOfBounds", lambda: (full(64),), 1, 64, tid=(48, 0, 0), space="shared", shared_mem=192),
    Row("local_far", "OutOfBounds", lambda: (full(32), I32(1 << 20)), tid=(5, 0, 0), space="local"),
    Row("atomic_past_end", "OutOfBounds", lambda: (zeros(30, np.uint32), full(32)), tid=(30, 0, 0), space="global"),
    Row("wrapped_index", "OutOfBounds", lambda: (full(64, F32), I32(2**30)), 3, 1, None, (0, 0, 0), "global"),
    Row("async_source", "OutOfBounds", lambda: (full(128), full(128), I32(9)), tid=(23, 0, 0), space="global"),
]
CLEAN = [
    Row("last_element", "", lambda: (full(63, F32), full(63, F32), I32(63)), 2),
    Row("vectors_to_the_end", "", lambda: (full(44, F32), full(44, F32), I32(11))),
    Row("pointer_past_end_unused", "", lambda: (full(9, F32), full(32, F32), I32(9))),
    Row("predicated_off", "", lambda: (full(1001, F32), full(32, F32), I32(1001))),
    Row("far_base", "", lambda: (full(32, F32), np.int64(3 * 2**31))),
    Row("zero_fill_reads_nothing", "", lambda: (full(128), full(128), np.int64(2**40), I32(0))),
    Row("local_all", "", lambda: (full(32), I32(5))),
    Row("write_argument", "", lambda: (full(32),)),
    Row("misaligned_vector", "", lambda: (full(160, F32)[8:], full(128, F32), I32(4))),
]


@pytest.mark.parametrize("row", FAULTS, ids=str)
def test_fault(row: Row) -> None:
    check("memory", row, PARAMS)


@pytest.mark.parametrize("row", CLEAN, ids=str)
def test_clean(row: Row) -> None:
    check("memory", row, PARAMS)


@pytest.mark.parametrize("name", ["past_end", "async_source", "shared_dynamic"])
def test_the_sentence_names_the_address_and_the_way_out(name: str) -> None:
    row = next(r for r in FAULTS if r.kernel == name)
    with pytest.raises(emu.OutOfBounds) as caught:
        run("memory", row, PARAMS)
    assert caught.value.address is not None and hex(caught.value.address)[2:] in str(caught.value).lower()
    assert caught.value.size in (4, 16)
    assert "(0, 0, 0)" in str(caught.value) or str(row.tid) in str(caught.value)


def test_the_buffer_is_named() -> None:
    """Argument 0 was overrun: the sentence says so and by how much."""
    with pytest.raises(emu.OutOfBounds, match="argument 0"):
        run("memory", FAULTS[0], PARAMS)


def test_far_offsets_reach_the_right_element() -> None:
    x = full(32, F32)
    launch(compiled("memory", PARAMS), "far_base", 1, 32, x, np.int64(-5 * 2**33))
    assert x.tolist() == list(range(32))


@pytest.mark.parametrize(("size", "want"), [(0, [0, 0, 0, 0]), (4, [1, 0, 0, 0]), (8, [1, 2, 0, 0]), (16, [1, 2, 3, 4])])
def test_cp_async_fills_with_zeros(size: int, want: list[int]) -> None:
    """A source size below the copy size reads that many bytes and zeroes the rest; 0 does not look at the address (P19)."""
    x, out = emu.asarray(np.array([1, 2, 3, 4], I32)), emu.empty(4, I32)
    report = launch(compiled("memory", PARAMS), "zero_fill_reads_nothing", 1, 1, x, out, np.int64(2**40), I32(size))
    assert out.tolist() == want
    assert report.arguments[0].read_bytes == size


def test_memcheck_off_still_runs_what_is_right() -> None:
    off = emu.EmuParams(memcheck=False, initcheck=False)
    for row in CLEAN:
        check("memory", row, off)
