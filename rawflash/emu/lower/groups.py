"""Accesses of one block through one address register: checked and counted together, at the first of them.

    ld.shared.f32 %f1, [%r5];          the leader: compares the lanes' pattern of %r5, its alignment and its range
    ld.shared.f32 %f2, [%r5+256];      followers: nothing left to check
    ld.shared.f32 %f3, [%r5+512];

All of them run whenever the block does, with the same lanes, and their addresses differ by constants. So the leader's memo says,
besides what it says of its own site, for which values of the register the memos of all members hold (Memo.JOINT_*), and counts the
executions of the whole group. When it does not fit, ``rf_learn_group`` brings every member's memo up to date, in program order.

What a load brings into registers is looked at for poison once per block: ``suspect`` collects the largest 16-bit piece of
everything that was loaded, ``settle`` tests it, before anything that could initialise memory and at the end of the block.
"""

from __future__ import annotations

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.calls import call, check, first_of, same_pattern, shadow, unless, window
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Memo, Worker
from rawflash.emu.lower.sites import Group, Place

SPACES = ("global", "shared", "const")
# What ends the time in which loaded values need not have been looked at: whatever may write memory, or be seen from outside.
SETTLING = frozenset("st atom red cp stmatrix wmma mbarrier rf".split())
_WORKER = Value("%w", "ptr")


def can_join(b: WarpBuilder, space: str) -> bool:
    """Only what every lane of the block executes can be checked ahead of its turn."""
    return space in SPACES and b._guard is None


def join(b: WarpBuilder, space: str, place: Place, size: int, write: bool) -> tuple[Group, int]:
    """The group of an access and its site; the first access to come makes the group and the check."""
    group = b.groups.get((space, place.register))
    if group is not None:
        return group, b.new_site(space, write, size, place.offset, group.leader)
    narrow = space == "shared" and place.value.ty == "i32"
    site = b.new_site(space, write, size, place.offset, len(b.code.sites), narrow)
    group = b.groups[space, place.register] = _lead(b, space, place, narrow, site)
    return group, site


def _lead(b: WarpBuilder, space: str, place: Place, narrow: bool, site: int) -> Group:
    """The check of a whole group. A 32-bit register wraps as the hardware's does, so it counts as signed here."""
    memo, mask = b.gep("%memos", site * Memo.SIZE), b.block_mask()
    v = place.value if narrow else b.resize(place.value, "i64")
    first = first_of(b, v, mask)
    base = b.resize(first, "i64", signed=narrow)
    tests = same_pattern(b, memo, v, first, mask)
    low = b.bin("and", base, b.load("i64", b.gep(memo, Memo.JOINT_KEY)))
    tests.append(b.cmp("icmp eq", low, b.load("i64", b.gep(memo, Memo.JOINT_LOW))))
    if b.params.memcheck:
        tests.append(b.cmp("icmp sge", base, b.load("i64", b.gep(memo, Memo.JOINT_MIN))))
        tests.append(b.cmp("icmp sle", base, b.load("i64", b.gep(memo, Memo.JOINT_MAX))))

    def learn() -> Value | None:
        b.store(b.splat(b.resize(v, "i64")), b.gep("%w", Worker.ADDRS), align=64)
        return call(b, "rf_learn_group", _WORKER, memo, mask, base)

    unless(b, tests, learn)
    if b.params.count:
        b.increment(b.gep(memo, Memo.JOINT_HITS), 1)
    return Group(space, site, base, not v.lanes)


def suspect(b: WarpBuilder, group: Group, site: int, loaded: list[Value]) -> None:
    """Remember what a load of a group brought: elements of 16, 32 or 64 bits."""
    if group not in b.pending:
        b.pending.append(group)
    group.last_load = site
    for v in loaded:
        pieces = max(v.lanes, 1) * int(v.ty[1:]) // 16
        v = b.define(f"bitcast {v.typed} to <{pieces} x i16>", "i16", pieces)
        while v.lanes > LANES:
            half = v.lanes // 2
            v = b.intrinsic("umax", b.shuffle(v, None, list(range(half))), b.shuffle(v, None, list(range(half, v.lanes))))
        seen = b.suspects.get(v.lanes)
        b.suspects[v.lanes] = v if seen is None else b.intrinsic("umax", seen, v)


def settle(b: WarpBuilder) -> None:
    """Test what the loads since the last time brought; where some piece is all ones, look every one of them up in the shadow."""
    if not b.suspects:
        return
    found = None
    for v in b.suspects.values():
        one = b.reduce_any(b.cmp("icmp eq", v, b.const("i16", -1)))
        found = one if found is None else b.bin("or", found, one)
    assert found is not None
    with b.when(found, likely=False):
        for g in b.pending:
            memo, last = (b.gep("%memos", site * Memo.SIZE) for site in (g.leader, g.last_load))
            check(b, call(b, "rf_init_check_group", _WORKER, memo, last, shadow(b, g.space, window(b, g.space, g.base)), g.base))
    b.pending, b.suspects = [], {}
