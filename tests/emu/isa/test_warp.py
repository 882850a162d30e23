"""shfl, vote, match, redux, activemask, elect: in full warps and in the lanes of a divergent branch (case P14)."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module
from tests.emu.oracles import warp as o

WARPS = 48
RNG = np.random.default_rng(17)
MASKS = [0xFFFFFFFF, 0x0000FFFF, 0xAAAAAAAA, 0x80000001, 0x00000010, 0x7FFFFFFF]


def text(action: str, results: int) -> str:
    """Lanes of mask %r9 (a parameter array's first element) take the branch and execute ``action`` on %r1, %r2, %r3 and %d9."""
    stores = "\n".join(f"  st.global.b32 [%d2+{4 * 32 * WARPS * i}], %r{20 + i};" for i in range(results))
    body = f"""
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r4, 32, %r5;
  mad.wide.u32 %d1, %r6, 4, %p_x;
  mad.wide.u32 %d2, %r6, 4, %p_out;
  ld.global.b32 %r1, [%d1];
  ld.global.b32 %r2, [%d1+{4 * 32 * WARPS}];
  ld.global.b32 %r3, [%d1+{8 * 32 * WARPS}];
  ld.global.b32 %r9, [%p_mask];
  mov.b64 %d9, {{%r1, %r2}};
  and.b32 %r7, %r1, 1;
  setp.ne.b32 %p1, %r7, 0;
  shr.u32 %r8, %r9, %r5;
  and.b32 %r8, %r8, 1;
  setp.eq.u32 %p2, %r8, 0;
  @%p2 bra DONE;
{action}
{stores}
DONE:"""
    return entry("warps", ["x", "mask", "out"], body)


def execute(action: str, x: np.ndarray, mask: int = 0xFFFFFFFF, results: int = 1) -> np.ndarray:
    """(results, WARPS, 32) of 32-bit results; lanes outside the mask stay 0. ``x`` is (3, WARPS, 32)."""
    out = emu.asarray(np.zeros((results, WARPS, 32), np.uint32))
    launch(module(text(action, results)), "warps", WARPS, 32, emu.asarray(x), emu.asarray(np.array([mask], np.uint32)), out)
    return np.array(out)


def values(kinds: int = 0) -> np.ndarray:
    """(3, WARPS, 32): random, or few distinct so that lanes agree; the first warps hold one value each."""
    x = RNG.integers(0, 2**32, (3, WARPS, 32), dtype=np.uint64).astype(np.uint32)
    if kinds:
        x = x % np.uint32(kinds) * np.uint32(0x40000001)
        x[:, :6] = x[:, :6, :1]
    return x


def controls(x: np.ndarray) -> np.ndarray:
    """Operand c: the forms CUDA emits for widths 1 to 32 in half of the warps, anything in the others."""
    widths = 1 << RNG.integers(0, 6, (WARPS, 32))
    usual = (32 - widths) << 8 | np.where(np.arange(WARPS)[:, None] % 4 < 2, 31, 0)
    x[2] = np.where(np.arange(WARPS)[:, None] % 2 == 0, usual, RNG.integers(0, 2**13, (WARPS, 32)))
    return x


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode: str) -> None:
    x = controls(values())
    action = f"  shfl.sync.{mode}.b32 %r20|%p3, %r1, %r2, %r3, 0xffffffff;\n  selp.u32 %r21, 1, 0, %p3;"
    got = execute(action, x, results=2)
    for w in range(WARPS):
        want = o.shfl(mode, *(row[w].tolist() for row in x))
        assert (got[0, w].tolist(), got[1, w].tolist()) == want, f"{mode}, warp {w}"


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl_with_immediates_and_without_predicate(mode: str) -> None:
    x = values()
    clamp = 0 if mode == "up" else 31
    got = execute(f"  shfl.sync.{mode}.b32 %r20, %r1, 3, {clamp}, 0xffffffff;", x)
    for w in range(WARPS):
        assert got[0, w].tolist() == o.shfl(mode, x[0, w].tolist(), [3] * 32, [clamp] * 32)[0]


def test_the_forms_without_sync_work_on_the_active_lanes() -> None:
    """shfl and vote as they were before sm_70."""
    x = values()
    action = """  shfl.down.b32 %r20|%p3, %r1, 2, 31;
  selp.u32 %r21, 1, 0, %p3;
  vote.ballot.b32 %r22, %p1;
  vote.any.pred %p4, %p1;
  selp.u32 %r23, 1, 0, %p4;"""
    got = execute(action, x, results=4)
    for w in range(WARPS):
        assert (got[0, w].tolist(), got[1, w].tolist()) == o.shfl("down", x[0, w].tolist(), [2] * 32, [31] * 32)
        bits = (x[0, w] & 1).tolist()
        assert set(got[2, w].tolist()) == {o.vote("ballot", bits, 0xFFFFFFFF)}
        assert set(got[3, w].tolist()) == {o.vote("any", bits, 0xFFFFFFFF)}


@pytest.mark.parametrize("segment", [0, 0x1800 | 0x400])
def test_shfl_in_half_a_warp(segment: int) -> None:
    """The upper lanes took another branch; the lower 16 exchange among themselves."""
    x = values()
    got = execute(f"  shfl.sync.bfly.b32 %r20, %r1, 3, {segment | 15 if not segment else segment | 3}, 0xffff;", x, 0xFFFF)
    lanes = np.arange(16)
    assert np.array_equal(got[0][:, :16], x[0][:, lanes ^ 3])
    assert not got[0][:, 16:].any()


@pytest.mark.parametrize("mask", MASKS, ids=hex)
@pytest.mark.parametrize("mode", ["all", "any", "uni", "ballot"])
def test_vote(mode: str, mask: int) -> None:
    x = values()
    x[0, :6] |= 1
    x[0, 6:12] &= 0xFFFFFFFE
    if mode == "ballot":
        action = "  vote.sync.ballot.b32 %r20, %p1, %r9;"
    else:
        action = f"  vote.sync.{mode}.pred %p3, %p1, %r9;\n  selp.u32 %r20, 1, 0, %p3;"
    got = execute(action, x, mask)[0]
    members = o.members(mask)
    for w in range(WARPS):
        assert set(got[w, members].tolist()) == {o.vote(mode, (x[0, w] & 1).tolist(), mask)}, f"warp {w}"


@pytest.mark.parametrize("mask", MASKS, ids=hex)
def test_vote_with_negated_predicate(mask: int) -> None:
    x = values()
    got = execute("  vote.sync.ballot.b32 %r20, !%p1, %r9;", x, mask)[0]
    for w in range(WARPS):
        assert set(got[w, o.members(mask)].tolist()) == {o.vote("ballot", (1 - (x[0, w] & 1)).tolist(), mask)}


@pytest.mark.parametrize("mask", MASKS, ids=hex)
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_match(kind: str, mask: int) -> None:
    x = values(3)
    operand = "%r1" if kind == "b32" else "%d9"
    action = (
        f"  match.any.sync.{kind} %r20, {operand}, %r9;\n  match.all.sync.{kind} %r21|%p3, {operand}, %r9;\n  selp.u32 %r22, 1, 0, %p3;"
    )
    got = execute(action, x, mask, 3)
    members = o.members(mask)
    for w in range(WARPS):
        held = x[0, w].tolist() if kind == "b32" else [int(a) | int(b) << 32 for a, b in zip(x[0, w], x[1, w], strict=True)]
        any_of = o.match_any(held, mask)
        assert got[0, w, members].tolist() == [any_of[lane] for lane in members]
        assert set(zip(got[1, w, members].tolist(), got[2, w, members].tolist(), strict=True)) == {o.match_all(held, mask)}


@pytest.mark.parametrize("mask", MASKS, ids=hex)
@pytest.mark.parametrize(
    ("op", "kind"), [(op, k) for op in ("add", "min", "max") for k in ("u32", "s32")] + [(op, "b32") for op in ("and", "or", "xor")]
)
def test_redux(op: str, kind: str, mask: int) -> None:
    x = values()
    if op in ("and", "or"):
        x[0] |= RNG.integers(0, 2**32, (WARPS, 32), dtype=np.uint64).astype(np.uint32)
    got = execute(f"  redux.sync.{op}.{kind} %r20, %r1, %r9;", x, mask)[0]
    for w in range(WARPS):
        assert set(got[w, o.members(mask)].tolist()) == {o.redux(op, kind, x[0, w].tolist(), mask)}


@pytest.mark.parametrize("mask", MASKS, ids=hex)
def test_activemask_and_elect(mask: int) -> None:
    """activemask shows the lanes of the branch; elect picks one of them, the same for all."""
    action = "  activemask.b32 %r20;\n  elect.sync %r21|%p3, %r9;\n  selp.u32 %r22, 1, 0, %p3;\n  bar.warp.sync %r9;"
    got = execute(action, values(), mask, 3)
    members = o.members(mask)
    assert (got[0][:, members] == mask).all()
    leader = got[1][:, members]
    assert (leader == leader[:, :1]).all() and set(leader.ravel().tolist()) <= set(members)
    lanes = np.array(members)[None, :]
    assert np.array_equal(got[2][:, members], (lanes == leader).astype(np.uint32))
