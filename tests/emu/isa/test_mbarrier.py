"""mbarrier objects: counts, drops, transactions, parities, tokens, and what is wrong use of them (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module, zeros


def run(body: str, words: int = 32, block: int = 1, **params: Any) -> np.ndarray:
    """%r1 tid, %r3 the object's address, %d2 = out + 4 tid; returns ``out``."""
    start = """
  .shared .align 8 .b64 bar;
  .shared .align 16 .b8 tile[1024];
  mov.u32 %r1, %tid.x;
  mov.u32 %r3, bar;
  mad.wide.u32 %d2, %r1, 4, %p_out;
  mad.wide.u32 %d1, %r1, 16, %p_x;"""
    out = zeros(words, np.uint32)
    x = emu.asarray(np.arange(1000, 1512, dtype=np.uint32))
    text = entry("k", ["x", "out"], start + body)
    launch(module(text, params=emu.EmuParams(**params)), "k", 1, block, x, out)
    return np.array(out)


def done(parity: int, target: int, wait: str = "test_wait.parity") -> str:
    """Store whether the phase of a parity is over to word ``target``."""
    return f"""
  mbarrier.{wait}.shared::cta.b64 %p1, [%r3], {parity};
  selp.u32 %r9, 1, 0, %p1;
  st.global.u32 [%p_out+{4 * target}], %r9;"""


def test_counts_of_arrivals() -> None:
    """Five arrivals, two and three at a time; the parity that has not begun counts as over."""
    body = f"""
  mbarrier.init.shared::cta.b64 [%r3], 5;
  {done(0, 0)}{done(1, 1)}
  mbarrier.arrive.release.cta.shared::cta.b64 %d3, [%r3], 2;
  {done(0, 2)}
  mbarrier.arrive.shared.b64 _, [%r3], 3;
  {done(0, 3)}{done(1, 4, "try_wait.parity")}
  mbarrier.arrive.shared::cluster.b64 _, [%r3], 5;
  {done(0, 5, "try_wait.parity.acquire.cta")}{done(1, 6)}
  mbarrier.pending_count.b64 %r8, %d3;
  st.global.u32 [%p_out+28], %r8;"""
    assert run(body, 8).tolist() == [0, 1, 0, 1, 0, 0, 1, 5]


def test_lanes_arrive_one_after_the_other() -> None:
    """Each of 32 lanes gets the state that the lanes before it left; the last one ends the phase."""
    body = """
  setp.eq.u32 %p2, %r1, 0;
  @%p2 mbarrier.init.shared.b64 [%r3], 32;
  bar.warp.sync 0xffffffff;
  mbarrier.arrive.shared.b64 %d3, [%r3];
  mbarrier.pending_count.b64 %r8, %d3;
  mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [%r3], %d3;
  @%p1 add.u32 %r8, %r8, 100;
  st.global.u32 [%d2], %r8;"""
    assert run(body, 32, 32).tolist() == [132 - t for t in range(32)]


def test_drops_lower_what_later_phases_expect() -> None:
    body = f"""
  mbarrier.init.shared.b64 [%r3], 3;
  mbarrier.arrive_drop.shared.b64 %d3, [%r3];
  mbarrier.arrive_drop.noComplete.shared.b64 %d3, [%r3], 1;
  mbarrier.arrive.shared.b64 %d3, [%r3];
  {done(0, 0)}
  mbarrier.arrive.shared.b64 %d3, [%r3];
  {done(1, 1)}"""
    assert run(body, 2).tolist() == [1, 1]


def test_transactions_are_waited_for() -> None:
    body = f"""
  mbarrier.init.shared.b64 [%r3], 2;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %d3, [%r3], 96;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 32;
  mbarrier.arrive.shared.b64 %d3, [%r3];
  {done(0, 0)}
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r3], 100;
  {done(0, 1)}
  mbarrier.complete_tx.shared::cluster.b64 [%r3], 28;
  {done(0, 2)}
  mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [%r3], 64;
  mbarrier.arrive_drop.expect_tx.shared.b64 %d3, [%r3], 64;
  {done(1, 3)}
  mbarrier.arrive.noComplete.release.cta.shared.b64 %d3, [%r3], 0;"""
    assert run(body.rsplit("\n", 1)[0], 4).tolist() == [0, 0, 1, 0]
    assert run(body.rsplit("\n", 1)[0] + f"\n  mbarrier.arrive.shared.b64 %d3, [%r3];{done(1, 4)}", 5).tolist() == [0, 0, 1, 0, 1]


def test_generic_addresses() -> None:
    body = """
  cvt.u64.u32 %d4, %r3;
  cvta.shared.u64 %d4, %d4;
  mbarrier.init.b64 [%d4], 1;
  mbarrier.arrive.b64 %d3, [%d4];
  mbarrier.test_wait.b64 %p1, [%d4], %d3;
  selp.u32 %r9, 1, 0, %p1;
  st.global.u32 [%p_out], %r9;
  mbarrier.inval.b64 [%d4];"""
    assert run(body, 1).tolist() == [1]
    with pytest.raises(emu.OutOfBounds):
        run("\n  mbarrier.init.b64 [%p_out], 1;", 1)


WRONG = {
    "too many arrivals": (
        "mbarrier.init.shared.b64 [%r3], 2;\n  mbarrier.arrive.shared.b64 %d3, [%r3], 3;", emu.SyncError, "more arrivals",
    ),
    "noComplete completes": (
        "mbarrier.init.shared.b64 [%r3], 1;\n  mbarrier.arrive.noComplete.shared.b64 %d3, [%r3], 1;", emu.SyncError, "noComplete",
    ),
    "a count of zero": ("mbarrier.init.shared.b64 [%r3], 0;", emu.SyncError, "1 to 1048575"),
    "a count of 2^20": ("mbarrier.init.shared.b64 [%r3], 1048576;", emu.SyncError, "1 to 1048575"),
    "no init": ("mbarrier.arrive.shared.b64 %d3, [%r3];", emu.UninitializedRead, "uninitialised"),
    "wait without init": ("mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0;", emu.UninitializedRead, "uninitialised"),
    "use after inval": (
        "mbarrier.init.shared.b64 [%r3], 1;\n  mbarrier.inval.shared.b64 [%r3];\n  mbarrier.arrive.shared.b64 %d3, [%r3];",
        emu.UninitializedRead, "uninitialised",
    ),
    "misaligned": ("mbarrier.init.shared.b64 [%r3+4], 1;", emu.Misaligned, "8-byte"),
    "arrive on nothing": ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];", emu.UninitializedRead, "uninitialised"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use(name: str) -> None:
    body, error, text = WRONG[name]
    with pytest.raises(error, match=text) as caught:
        run("\n  " + body)
    assert caught.value.ptx_line > 0 and caught.value.tid == (0, 0, 0)


@pytest.mark.parametrize("noinc", [".noinc", ""])
@pytest.mark.parametrize("block", [32, 96])
def test_copies_arrive(noinc: str, block: int) -> None:
    """Without .noinc the object expects one arrival more for each that is coming, so that another one ends the phase."""
    extra = "" if noinc else "\n  bar.sync 0;\n  @%p2 mbarrier.arrive.shared.b64 _, [%r3];"
    body = f"""
  setp.eq.u32 %p2, %r1, 0;
  @%p2 mbarrier.init.shared.b64 [%r3], {block if noinc else 1};
  bar.sync 0;
  mov.u32 %r4, tile;
  mad.lo.u32 %r4, %r1, 4, %r4;
  cp.async.ca.shared.global [%r4], [%d1], 4;
  cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r3];{extra}
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0, 20;
  @!%p1 bra WAIT;
  mov.u32 %r5, tile;
  xor.b32 %r6, %r1, 31;
  mad.lo.u32 %r5, %r6, 4, %r5;
  ld.shared.u32 %r7, [%r5];
  st.global.u32 [%d2], %r7;"""
    want = 1000 + 4 * (np.arange(block) ^ 31)
    for seed in (None, 3):
        assert np.array_equal(run(body, block, block, order_seed=seed), want)


def test_a_read_before_the_arrival_is_reported() -> None:
    body = """
  mbarrier.init.shared.b64 [%r3], 1;
  mov.u32 %r4, tile;
  cp.async.cg.shared.global [%r4], [%d1], 16;
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];
  ld.shared.u32 %r7, [%r4];"""
    with pytest.raises(emu.UninitializedRead):
        run(body)


def test_a_phase_that_nobody_ends_is_a_deadlock() -> None:
    body = """
  setp.eq.u32 %p2, %r1, 0;
  @%p2 mbarrier.init.shared.b64 [%r3], 65;
  bar.sync 0;
  mbarrier.arrive.shared.b64 %d3, [%r3];
WAIT:
  mbarrier.test_wait.shared.b64 %p1, [%r3], %d3;
  @!%p1 bra WAIT;"""
    with pytest.raises(emu.Deadlock, match="nobody is left") as caught:
        run(body, block=64)
    assert "test_wait" in caught.value.ptx_text


def test_phases_order_accesses_for_the_race_detector() -> None:
    """Warp 1 reads what warp 0 wrote, after waiting for its arrival: no race. Without the wait some order of warps shows one."""
    body = """
  setp.eq.u32 %p2, %r1, 0;
  @%p2 mbarrier.init.shared.b64 [%r3], 32;
  bar.sync 0;
  mov.u32 %r4, tile;
  and.b32 %r5, %r1, 31;
  mad.lo.u32 %r4, %r5, 4, %r4;
  setp.ge.u32 %p3, %r1, 32;
  @%p3 bra WAIT;
  st.shared.u32 [%r4], %r1;
  mbarrier.arrive.shared.b64 %d3, [%r3];
  ret;
WAIT:
  mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0;
  @!%p1 bra WAIT;
  ld.shared.u32 %r6, [%r4];
  st.global.u32 [%d2], %r6;"""
    found = 0
    for seed in range(4):
        assert run(body, 64, 64, racecheck=True, order_seed=seed)[32:].tolist() == list(range(32))
        try:
            run(body.replace("@!%p1 bra WAIT;", ""), 64, 64, racecheck=True, order_seed=seed)
        except (emu.RaceHazard, emu.UninitializedRead):
            found += 1
    assert found
