"""cp.async beyond test_async.py: groups lane by lane, many copies in flight, what is counted, checked and refused (case P19)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module, zeros

RNG = np.random.default_rng(57)
COPY = "cp.async.cg.shared.global"


def run(body: str, x: Any, out: Any, block: int = 32, **params: Any) -> Any:
    """%r1 tid, %r2 the tile, %r3 = tile + 16 tid, %d1 = x + 16 tid, %d2 = out + 4 tid."""
    start = """
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  mad.lo.u32 %r3, %r1, 16, %r2;
  mad.wide.u32 %d1, %r1, 16, %p_x;
  mad.wide.u32 %d2, %r1, 4, %p_out;"""
    text = entry("copy", ["x", "out"], start + body, "  .shared .align 128 .b8 tile[32768];")
    return launch(module(text, params=emu.EmuParams(**params)), "copy", 1, block, x, out)


def words(count: int) -> np.ndarray:
    return emu.asarray(RNG.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32))


def test_lanes_count_their_groups_separately() -> None:
    """Odd lanes commit twice: for them ``wait_group 1`` completes the first copy, for even lanes nothing."""
    body = f"""
  and.b32 %r4, %r1, 1;
  setp.ne.u32 %p1, %r4, 0;
  {COPY} [%r3], [%d1], 16;
  cp.async.commit_group;
  @%p1 {COPY} [%r3+512], [%d1], 16;
  @%p1 cp.async.commit_group;
  cp.async.wait_group 1;
  @%READ ld.shared.u32 %r5, [%r3];
  @%p1 st.global.u32 [%d2], %r5;"""
    x, out = words(128), zeros(32, np.uint32)
    run(body.replace("%READ", "%p1"), x, out)
    assert np.array_equal(out, np.where(np.arange(32) & 1, x[::4], 0))
    with pytest.raises(emu.UninitializedRead) as caught:
        run(body.replace("%READ", "!%p1"), x, out)
    assert caught.value.tid == (0, 0, 0) and caught.value.space == "shared"


def test_only_the_lanes_that_wait_see_their_data() -> None:
    body = f"""
  setp.lt.u32 %p1, %r1, 16;
  {COPY} [%r3], [%d1], 16;
  cp.async.commit_group;
  @%p1 cp.async.wait_group 0;
  @%p1 ld.shared.u32 %r5, [%r3+8];
  @%p1 st.global.u32 [%d2], %r5;
  @!%p1 cp.async.wait_group 0;
  @!%p1 ld.shared.u32 %r5, [%r3+8];
  @!%p1 st.global.u32 [%d2], %r5;"""
    x, out = words(128), zeros(32, np.uint32)
    run(body, x, out)
    assert np.array_equal(out, x[2::4])
    with pytest.raises(emu.UninitializedRead) as caught:
        run(body.replace("@!%p1 cp.async.wait_group 0;", ""), x, out)
    assert caught.value.tid == (16, 0, 0)


@pytest.mark.parametrize("copies", [17, 60])
def test_more_copies_in_flight_than_the_queue_starts_with(copies: int) -> None:
    """The ring grows while a group is pending; the newest groups stay pending in order."""
    issue = "\n".join(f"  {COPY} [%r3+{512 * k}], [%d1+{512 * k}], 16;\n  cp.async.commit_group;" for k in range(copies))
    body = f"""
  {COPY} [%r3+32256], [%d1], 16;
  cp.async.commit_group;
  cp.async.wait_group 0;
{issue}
  cp.async.wait_group 1;
  ld.shared.u32 %r5, [%r3+{512 * (copies - 2)}];
  st.global.u32 [%d2], %r5;
  @%p9 ld.shared.u32 %r6, [%r3+{512 * (copies - 1)}];"""
    x, out = words(128 * copies), zeros(32, np.uint32)
    run(body, x, out)
    assert np.array_equal(out, x[128 * (copies - 2) :: 4][:32])
    with pytest.raises(emu.UninitializedRead):
        run(body.replace("@%p9 ", ""), x, out)


def test_endlessly_many_copies_complete_early() -> None:
    """A warp that never waits does not run out of anything: the oldest copies arrive, as they may at any time."""
    body = f"""
  mov.u32 %r4, 0;
LOOP:
  {COPY} [%r3], [%d1], 16;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 1000;
  @%p1 bra LOOP;
  cp.async.wait_all;
  ld.shared.u32 %r5, [%r3+4];
  st.global.u32 [%d2], %r5;"""
    x, out = words(128), zeros(32, np.uint32)
    run(body, x, out)
    assert np.array_equal(out, x[1::4])


def test_a_new_copy_makes_the_tile_unreadable_again() -> None:
    body = f"""
  {COPY} [%r3], [%d1], 16;
  cp.async.wait_all;
  {COPY} [%r3], [%d1+512], 16;
  ld.shared.u32 %r5, [%r3];"""
    with pytest.raises(emu.UninitializedRead):
        run(body, words(256), zeros(32, np.uint32))


def test_an_early_read_is_wrong_where_it_is_not_checked() -> None:
    """Never silently right: without initcheck the bytes are poison until the wait."""
    body = f"\n  {COPY} [%r3], [%d1], 16;\n  ld.shared.u32 %r5, [%r3];\n  st.global.u32 [%d2], %r5;\n  cp.async.wait_all;"
    out = zeros(32, np.uint32)
    run(body, words(128), out, initcheck=False)
    assert np.all(out == 0xFFFFFFFF)


@pytest.mark.parametrize("block", [32, 48, 7])
def test_counts(block: int) -> None:
    """Counted at issue: 16 bytes a lane read from the argument, as much written to shared memory, 4 wavefronts a warp."""
    body = f"\n  {COPY} [%r3], [%d1], 16;\n  cp.async.wait_all;"
    report = run(body, words(1024), zeros(32, np.uint32), block=block)
    warps = -(-block // 32)
    a = report.arguments[0]
    assert (a.read_bytes, a.read_sectors, a.read_requests) == (16 * block, -(-block // 2), warps)
    assert report.shared.write_bytes == 16 * block and report.shared.write_requests == warps
    assert report.shared.wavefronts == sum(-(-min(32, block - 32 * w) // 8) for w in range(warps))


def test_counts_of_partial_sources() -> None:
    """Lane t reads t % 17 bytes: exactly those are read; 16 are written."""
    body = f"""
  rem.u32 %r4, %r1, 17;
  {COPY} [%r3], [%d1], 16, %r4;
  cp.async.wait_all;
  ld.shared.u32 %r5, [%r3];
  st.global.u32 [%d2], %r5;"""
    x, out = words(128), zeros(32, np.uint32)
    report = run(body, x, out)
    sizes = np.arange(32) % 17
    assert report.arguments[0].read_bytes == sizes.sum()
    assert report.shared.write_bytes == 512
    masks = (1 << (8 * np.minimum(sizes, 4)).astype(np.uint64)) - 1
    assert np.array_equal(out, x[::4] & masks)


@pytest.mark.parametrize("size", [4, 8])
def test_short_copies_of_scattered_lanes(size: int) -> None:
    """Rows in reverse order, so that nothing is contiguous; what lies between stays uninitialised."""
    body = f"""
  sub.u32 %r4, 31, %r1;
  mad.lo.u32 %r5, %r4, 16, %r2;
  cp.async.ca.shared.global [%r5], [%d1], {size};
  cp.async.wait_all;
  ld.shared.u32 %r6, [%r5+{size - 4}];
  st.global.u32 [%d2], %r6;
  @%p9 ld.shared.u32 %r6, [%r5+{size}];"""
    x, out = words(128), zeros(32, np.uint32)
    run(body, x, out)
    assert np.array_equal(out, x[size // 4 - 1 :: 4])
    with pytest.raises(emu.UninitializedRead):
        run(body.replace("@%p9 ", ""), x, out)


def test_source_size_beyond_the_copy_is_refused() -> None:
    body = f"\n  mov.u32 %r4, 20;\n  sub.u32 %r4, %r4, %r1;\n  {COPY} [%r3], [%d1], 16, %r4;"
    with pytest.raises(emu.MemoryFault, match="source size 20 is larger than the copy") as caught:
        run(body, words(128), zeros(32, np.uint32))
    assert caught.value.tid == (0, 0, 0)


@pytest.mark.parametrize(("extra", "error", "tid"), [
    ("", emu.OutOfBounds, 24), (", 16", emu.OutOfBounds, 24), (", %r5", emu.OutOfBounds, 24), (", 0", None, 0), (", %p8", None, 0),
])  # fmt: skip
def test_sources_outside_the_array(extra: str, error: type[emu.MemoryFault] | None, tid: int) -> None:
    """x has 24 rows. A source that is not read may lie anywhere, also at null."""
    body = f"""
  mov.u32 %r5, 16;
  sub.u32 %r5, %r5, %r1;
  max.s32 %r5, %r5, 1;
  setp.eq.u32 %p8, %r1, %r1;
  {COPY} [%r3], [%d1], 16{extra};
  cp.async.wait_all;
  ld.shared.u32 %r6, [%r3];
  st.global.u32 [%d2], %r6;"""
    x, out = words(96), emu.asarray(np.ones(32, np.uint32))
    if error is not None:
        with pytest.raises(error) as caught:
            run(body, x, out)
        assert caught.value.tid == (tid, 0, 0) and caught.value.space == "global"
        return
    run(body.replace("[%d1]", "[0]"), x, out)
    assert not out.any()


def test_partial_sources_end_where_the_array_ends() -> None:
    """Six bytes of an array of six bytes are fine, seven are not."""
    body = f"""
  mov.u32 %r4, COUNT;
  {COPY} [%r2], [%p_x], 16, %r4;
  cp.async.wait_all;
  ld.shared.u32 %r5, [%r2+4];
  st.global.u32 [%p_out], %r5;"""
    x, out = emu.asarray(np.arange(1, 7, dtype=np.uint8)), zeros(1, np.uint32)
    run(body.replace("COUNT", "6"), x, out, block=1)
    assert out[0] == 0x0605
    with pytest.raises(emu.OutOfBounds):
        run(body.replace("COUNT", "7"), x, out, block=1)


@pytest.mark.parametrize("extra", ["", ", %r4"])
def test_sources_must_have_been_written(extra: str) -> None:
    x = emu.empty(128, np.uint32)
    body = f"\n  mov.u32 %r4, 12;\n  {COPY} [%r3], [%d1], 16{extra};"
    with pytest.raises(emu.UninitializedRead) as caught:
        run(body, x, zeros(32, np.uint32))
    assert caught.value.tid == (0, 0, 0) and caught.value.space == "global"


@pytest.mark.parametrize(("what", "error"), [("[%r3+8], [%d1]", "shared"), ("[%r3], [%d1+8]", "global")])
def test_both_addresses_are_aligned_to_the_copy(what: str, error: str) -> None:
    with pytest.raises(emu.Misaligned) as caught:
        run(f"\n  {COPY} {what}, 16;", words(256), zeros(32, np.uint32))
    assert caught.value.space == error


@pytest.mark.parametrize("spelling", ["cp.async.cg.shared.global [%r3], [%d1], 8;", "cp.async.ca.shared.global [%r3], [%d1], 2;"])
def test_sizes_that_do_not_exist(spelling: str) -> None:
    with pytest.raises(emu.UnsupportedInstruction, match="bytes"):
        run("\n  " + spelling, words(128), zeros(32, np.uint32))


def test_cache_hints_change_nothing() -> None:
    body = f"\n  mov.b64 %d9, 0;\n  {COPY}.L2::cache_hint.L2::256B [%r3], [%d1], 16, 8, %d9;\n  cp.async.wait_all;\n"
    x, out = words(128), zeros(32, np.uint32)
    run(body + "  ld.shared.u32 %r6, [%r3+4];\n  st.global.u32 [%d2], %r6;", x, out)
    assert np.array_equal(out, x[1::4])


RACES = {
    "tile reused while others read": ("", True),
    "tile reused behind a barrier": ("  bar.sync 0;", False),
}


@pytest.mark.parametrize("name", RACES)
def test_a_copy_into_a_tile_that_others_still_read_is_a_race(name: str) -> None:
    barrier, races = RACES[name]
    body = f"""
  {COPY} [%r3], [%d1], 16;
  cp.async.wait_all;
  bar.sync 0;
  xor.b32 %r4, %r3, 512;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%d2], %r5;
{barrier}
  {COPY} [%r3], [%d1], 16;
  cp.async.wait_all;"""
    x, out = words(256), zeros(64, np.uint32)
    if races:
        with pytest.raises(emu.RaceHazard):
            run(body, x, out, block=64, racecheck=True)
    else:
        run(body, x, out, block=64, racecheck=True)
        assert np.array_equal(out, x[::4][np.arange(64) ^ 32])


def test_a_wait_is_no_barrier() -> None:
    """wait_group makes the data visible to the thread that copied; another warp needs a barrier behind it, not before it."""
    body = f"""
  {COPY} [%r3], [%d1], 16;
  bar.sync 0;
  cp.async.wait_all;
  xor.b32 %r4, %r3, 512;
  ld.shared.u32 %r5, [%r4];"""
    with pytest.raises((emu.RaceHazard, emu.UninitializedRead)):
        run(body, words(256), zeros(64, np.uint32), block=64, racecheck=True)
