"""Shared memory: how many passes over the banks one request takes."""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Memo
from rawflash.emu.lower.slowpath import active, address_of


def _pairs_match(b: IRWriter, begin: Value, count: Value, distance: int) -> Value:
    """i32 1 when every active lane of [begin, begin+count) has the address of lane ^ distance, or that lane is inactive."""
    ok = b.alloca("i32", 4)
    b.store(b.i32(1), ok)
    with b.loop(count) as k:
        lane = b.bin("add", begin, k)
        partner = b.bin("xor", lane, b.i32(distance))
        both = b.bin("and", active(b, lane), active(b, partner))
        differ = b.bin("and", both, b.cmp("icmp ne", address_of(b, lane), address_of(b, partner)))
        with b.when(differ):
            b.store(b.i32(0), ok)
    return b.load("i32", ok)


@dataclass(frozen=True)
class _Banks:
    """Memory for one group: words per bank (32 of i32), the distinct words so far (i64), their number, words of the fullest bank."""

    used: Value
    seen: Value
    n_seen: Value
    worst: Value


def wavefronts(b: IRWriter) -> None:
    """Shared memory: 4-byte requests are served for the whole warp, 8-byte ones per half, 16-byte ones per quarter; two neighbouring
    groups (the halves, or the quarters of one half) are served together when every lane shares its address with lane^1, or every
    lane with lane^2 (but each matrix of an ldmatrix or stmatrix, a quarter of addresses, is served alone). A group costs the largest
    number of distinct words that fall into one of the 32 banks. The ideal is one wavefront per group."""
    size = Value("%size", "i32")
    width = b.alloca("i32", 4)  # lanes per group
    wide = b.cmp("icmp ugt", size, b.i32(4))
    b.store(b.select(wide, b.select(b.cmp("icmp ugt", size, b.i32(8)), b.i32(8), b.i32(16)), b.i32(32)), width)
    begin, cost, ideal = b.alloca("i32", 4), b.alloca("i64", 8), b.alloca("i64", 8)
    words = b.intrinsic("umax", b.bin("lshr", size, b.i32(2)), b.i32(1))
    bank, seen = b.alloca("[32 x i32]"), b.alloca("[128 x i64]")
    merged = b.alloca("i32", 4)
    merges = b.cmp("icmp ne", b.load("i32", b.gep("%memo", Memo.COUNTED)), b.i32(2))
    for slot in (cost, ideal):
        b.store(b.i64(0), slot)
    b.store(b.i32(0), begin)
    head, body, done = b.new_label("groups"), b.new_label("group"), b.new_label("done")
    b.jump(head)
    b.label(head)
    start = b.load("i32", begin)
    b.branch(b.cmp("icmp ult", start, b.i32(32)), body, done)
    b.label(body)
    span = _lanes_served(b, start, b.load("i32", width), merges, merged)
    worst = _fullest_bank(b, start, span, words, bank, seen)
    b.increment(cost, b.resize(b.load("i32", worst), "i64"))
    with b.when(b.cmp("icmp ne", b.load("i32", worst), b.i32(0))):
        b.increment(ideal, 1)
    b.store(b.bin("add", start, span), begin)
    b.jump(head)
    b.label(done)
    b.store(b.load("i64", cost), b.gep("%memo", Memo.COST))
    b.store(b.load("i64", ideal), b.gep("%memo", Memo.IDEAL))
    b.raw("ret void")


def _lanes_served(b: IRWriter, start: Value, step: Value, merges: Value, merged: Value) -> Value:
    """i32: the lanes from ``start`` that one group serves, ``step`` or twice as many. ``merged``: an i32 slot to work in."""
    b.store(step, merged)
    double = b.bin("shl", step, b.i32(1))
    even = b.cmp("icmp eq", b.bin("and", start, b.bin("sub", double, b.i32(1))), b.i32(0))
    with b.when(b.bin("and", merges, b.bin("and", even, b.cmp("icmp ult", step, b.i32(32))))):
        match = b.bin("or", _pairs_match(b, start, double, 1), _pairs_match(b, start, double, 2))
        with b.when(b.cmp("icmp ne", match, b.i32(0))):
            b.store(double, merged)
    return b.load("i32", merged)


def _fullest_bank(b: IRWriter, start: Value, span: Value, words: Value, bank: Value, seen: Value) -> Value:
    """An i32 slot with the largest number of distinct words that the lanes [start, start+span) want of one bank."""
    for n in range(32):
        b.store(b.i32(0), b.gep(bank, 4 * n))
    banks = _Banks(bank, seen, b.alloca("i32", 4), b.alloca("i32", 4))
    b.store(b.i32(0), banks.n_seen)
    b.store(b.i32(0), banks.worst)
    with b.loop(span) as k:
        lane = b.bin("add", start, k)
        with b.when(active(b, lane)):
            first_word = b.bin("lshr", address_of(b, lane), b.i64(2))
            with b.loop(words) as offset:
                _add_word(b, banks, b.bin("add", first_word, b.resize(offset, "i64")))
    return banks.worst


def _add_word(b: IRWriter, banks: _Banks, word: Value) -> None:
    """Count a word in its bank, unless the group wants it already."""
    fresh = b.alloca("i32", 4)
    b.store(b.i32(1), fresh)
    with b.loop(b.load("i32", banks.n_seen)) as other:
        slot = b.gep(banks.seen, b.bin("mul", b.resize(other, "i64"), b.i64(8)))
        with b.when(b.cmp("icmp eq", b.load("i64", slot), word)):
            b.store(b.i32(0), fresh)
    with b.when(b.cmp("icmp ne", b.load("i32", fresh), b.i32(0))):
        count = b.load("i32", banks.n_seen)
        b.store(word, b.gep(banks.seen, b.bin("mul", b.resize(count, "i64"), b.i64(8))))
        b.store(b.bin("add", count, b.i32(1)), banks.n_seen)
        slot = b.gep(banks.used, b.bin("mul", b.bin("and", word, b.i64(31)), b.i64(4)))
        used = b.bin("add", b.load("i32", slot), b.i32(1))
        b.store(used, slot)
        b.store(b.intrinsic("umax", b.load("i32", banks.worst), used), banks.worst)
