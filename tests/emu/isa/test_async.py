"""cp.async with groups and zero-fill, and the mbarrier family that goes with it (case P19)."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module

RNG = np.random.default_rng(37)
LANES = 64


def run(body: str, x: np.ndarray, out_words: int, block: int = LANES, shared: int = 4096) -> np.ndarray:
    """``out_words`` 32-bit words; %r1 is tid, %r2 the shared tile's address, %d1 = x + 16 * tid."""
    start = """
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  mad.wide.u32 %d1, %r1, 16, %p_x;"""
    out = emu.asarray(np.zeros(out_words, np.uint32))
    text = entry("copy", ["x", "out"], start + body, f"  .shared .align 128 .b8 tile[{shared}];")
    launch(module(text), "copy", 1, block, emu.asarray(x), out)
    return np.array(out)


def words(count: int) -> np.ndarray:
    return RNG.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)


COPIES = [
    ("cp.async.ca.shared.global", 4), ("cp.async.ca.shared.global", 8), ("cp.async.ca.shared.global", 16),
    ("cp.async.cg.shared.global", 16), ("cp.async.cg.shared.global.L2::128B", 16), ("cp.async.ca.shared.global.L2::64B", 8),
    ("cp.async.ca.shared::cta.global", 4),
]  # fmt: skip


@pytest.mark.parametrize(("spelling", "size"), COPIES)
def test_copy_sizes(spelling: str, size: int) -> None:
    x = words(4 * LANES)
    body = f"""
  mad.lo.u32 %r3, %r1, 16, %r2;
  {spelling} [%r3], [%d1], {size};
  cp.async.wait_all;
  bar.sync 0;
  ld.shared.b32 %r4, [%r3];
  mad.wide.u32 %d2, %r1, 4, %p_out;
  st.global.b32 [%d2], %r4;
  ld.shared.b32 %r5, [%r3+{size - 4}];
  st.global.b32 [%d2+{4 * LANES}], %r5;"""
    out = run(body, x, 2 * LANES).reshape(2, LANES)
    assert np.array_equal(out[0], x[::4])
    assert np.array_equal(out[1], x[size // 4 - 1 :: 4])


@pytest.mark.parametrize("source", [0, 1, 2, 3, 4, 7, 8, 12, 15, 16])
def test_source_size_fills_with_zeros(source: int) -> None:
    """Any number of source bytes up to the copy size; the rest of the destination becomes zero."""
    x = words(4)
    body = f"""
  mov.u32 %r3, {source};
  cp.async.cg.shared.global [%r2], [%p_x], 16, %r3;
  cp.async.commit_group;
  cp.async.wait_group 0;
  ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2];
  st.global.v4.b32 [%p_out], {{%r4, %r5, %r6, %r7}};"""
    want = np.zeros(16, np.uint8)
    want[:source] = x.view(np.uint8)[:source]
    assert np.array_equal(run(body, x, 4, 1).view(np.uint8), want)


def test_ignored_source() -> None:
    """The predicate form: ignore-src true writes zeros and reads nothing."""
    x = words(4 * 32)
    body = """
  and.b32 %r3, %r1, 1;
  setp.ne.u32 %p1, %r3, 0;
  mad.lo.u32 %r4, %r1, 16, %r2;
  cp.async.ca.shared.global [%r4], [%d1], 4, %p1;
  cp.async.wait_all;
  ld.shared.b32 %r5, [%r4];
  mad.wide.u32 %d2, %r1, 4, %p_out;
  st.global.b32 [%d2], %r5;"""
    out = run(body, x, 32, 32)
    assert np.array_equal(out, np.where(np.arange(32) & 1, 0, x[::4]))


def test_groups_complete_in_order() -> None:
    """Three groups in flight on three tiles: wait_group N leaves the last N pending, and older ones are there."""
    x = words(3 * 4 * 32)
    copies = "\n".join(f"  cp.async.cg.shared.global [%r3+{512 * g}], [%d1+{512 * g}], 16;\n  cp.async.commit_group;" for g in range(3))
    reads = "\n".join(
        f"  cp.async.wait_group {2 - g};\n  bar.warp.sync 0xffffffff;\n  ld.shared.b32 %r5, [%r4+{512 * g}];\n"
        f"  st.global.b32 [%d2+{128 * g}], %r5;" for g in range(3)
    )  # fmt: skip
    body = f"""
  mad.lo.u32 %r3, %r1, 16, %r2;
  xor.b32 %r6, %r1, 1;
  mad.lo.u32 %r4, %r6, 16, %r2;
  mad.wide.u32 %d2, %r1, 4, %p_out;
{copies}
{reads}"""
    out = run(body, x, 3 * 32, 32).reshape(3, 32)
    assert np.array_equal(out, x.reshape(3, 32, 4)[:, np.arange(32) ^ 1, 0])


def test_an_uncommitted_copy_is_not_waited_for_by_wait_group() -> None:
    """wait_all waits for copies of no group as well; reading before any wait is an error."""
    x = words(4 * 32)
    early = """
  mad.lo.u32 %r3, %r1, 16, %r2;
  cp.async.cg.shared.global [%r3], [%d1], 16;
  cp.async.commit_group;
  cp.async.wait_group 1;
  ld.shared.b32 %r4, [%r3];"""
    with pytest.raises(emu.UninitializedRead):
        run(early, x, 32, 32)
    late = (
        early.replace("cp.async.wait_group 1;", "cp.async.wait_all;") + "\n  mad.wide.u32 %d2, %r1, 4, %p_out;\n  st.global.b32 [%d2], %r4;"
    )
    assert np.array_equal(run(late, x, 32, 32), x[::4])


def test_mbarrier_phases() -> None:
    """64 arrivals complete a phase; waiting on the parity of a phase returns once it is over, twice over."""
    x = words(4 * LANES)
    body = """
  mov.u32 %r3, bar;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared.b64 [%r3], 64;
  bar.sync 0;
  mov.u32 %r10, 0;
ROUND:
  xor.b32 %r4, %r1, 33;
  mad.lo.u32 %r5, %r1, 4, %r2;
  ld.global.b32 %r6, [%d1];
  add.u32 %r6, %r6, %r10;
  st.shared.b32 [%r5], %r6;
  mbarrier.arrive.shared.b64 %d3, [%r3];
WAIT:
  mbarrier.test_wait.parity.shared.b64 %p2, [%r3], %r10;
  @!%p2 bra WAIT;
  mad.lo.u32 %r7, %r4, 4, %r2;
  ld.shared.b32 %r8, [%r7];
  mad.lo.u32 %r9, %r10, 64, %r1;
  mad.wide.u32 %d2, %r9, 4, %p_out;
  st.global.b32 [%d2], %r8;
  bar.sync 0;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p3, %r10, 2;
  @%p3 bra ROUND;"""
    body = "  .shared .align 8 .b64 bar;\n" + body
    out = run(body, x, 2 * LANES).reshape(2, LANES)
    want = x[::4][np.arange(LANES) ^ 33]
    assert np.array_equal(out, np.stack([want, want + np.uint32(1)]))


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_mbarrier_state_tokens(wait: str) -> None:
    """A token from arrive is waited for with test_wait or try_wait; a fresh barrier's phase is not over."""
    body = f"""
  .shared .align 8 .b64 bar;
  mov.u32 %r3, bar;
  mbarrier.init.shared.b64 [%r3], 2;
  mbarrier.arrive.shared.b64 %d3, [%r3];
  mbarrier.{wait}.shared.b64 %p1, [%r3], %d3;
  selp.u32 %r4, 1, 0, %p1;
  mbarrier.arrive.shared.b64 %d4, [%r3];
  mbarrier.{wait}.shared.b64 %p2, [%r3], %d3;
  selp.u32 %r5, 1, 0, %p2;
  mbarrier.pending_count.b64 %r6, %d3;
  mbarrier.inval.shared.b64 [%r3];
  st.global.v2.b32 [%p_out], {{%r4, %r5}};
  st.global.b32 [%p_out+8], %r6;"""
    assert run(body, words(4), 3, 1).tolist() == [0, 1, 2]


def test_mbarrier_arrivals_that_count_more_or_drop_out() -> None:
    """noComplete arrives without finishing a phase; arrive_drop lowers what the next phases expect."""
    body = """
  .shared .align 8 .b64 bar;
  mov.u32 %r3, bar;
  mbarrier.init.shared.b64 [%r3], 4;
  mbarrier.arrive.noComplete.shared.b64 %d3, [%r3], 2;
  mbarrier.arrive_drop.shared.b64 %d4, [%r3];
  mbarrier.test_wait.shared.b64 %p1, [%r3], %d3;
  selp.u32 %r4, 1, 0, %p1;
  mbarrier.arrive.shared.b64 %d5, [%r3];
  mbarrier.test_wait.shared.b64 %p2, [%r3], %d3;
  selp.u32 %r5, 1, 0, %p2;
  mbarrier.arrive.noComplete.shared.b64 %d6, [%r3], 2;
  mbarrier.pending_count.b64 %r6, %d6;
  mbarrier.arrive.shared.b64 %d7, [%r3];
  mbarrier.test_wait.shared.b64 %p3, [%r3], %d6;
  selp.u32 %r7, 1, 0, %p3;
  st.global.v4.b32 [%p_out], {%r4, %r5, %r6, %r7};"""
    assert run(body, words(4), 4, 1).tolist() == [0, 1, 3, 1]


def test_cp_async_arrives_on_an_mbarrier() -> None:
    x = words(4 * 32)
    body = """
  .shared .align 8 .b64 bar;
  mov.u32 %r3, bar;
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared.b64 [%r3], 32;
  bar.warp.sync 0xffffffff;
  mad.lo.u32 %r4, %r1, 16, %r2;
  cp.async.cg.shared.global [%r4], [%d1], 16;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];
WAIT:
  mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0;
  @!%p2 bra WAIT;
  ld.shared.b32 %r5, [%r4+12];
  mad.wide.u32 %d2, %r1, 4, %p_out;
  st.global.b32 [%d2], %r5;"""
    assert np.array_equal(run(body, x, 32, 32), x[3::4])


@pytest.mark.parametrize("spelling", [
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p_x], 16, [%r2];",
    "cp.async.bulk.commit_group;",
    "barrier.cluster.arrive.aligned;",
])  # fmt: skip
def test_what_is_outside_says_so(spelling: str) -> None:
    """Bulk copies and clusters are not executed: the error names the instruction and its line, and nothing is skipped silently."""
    with pytest.raises(emu.UnsupportedInstruction, match=r"cp\.async\.bulk|barrier\.cluster") as caught:
        run(f"\n  {spelling}", words(4), 4, 1)
    assert caught.value.ptx_line > 0
