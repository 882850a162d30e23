"""Learning an access pattern: bounds, alignment, distinct bytes and cost of one request, remembered in its MEMO.

``rf_learn`` is the only place where a pattern's cost is worked out; ``rf_flush`` the only one that adds costs up. An access
that repeats its last pattern only increments MEMO.HITS.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.lower.bounds import bounds
from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Launch, Memo, Site, Worker
from rawflash.emu.lower.slowpath import CLASS_BROADCAST, CLASS_CONTIGUOUS, CLASS_SCATTERED, SHARED, active, address_of, fail


def flush(b: IRWriter) -> None:
    hits = b.load("i64", b.gep("%memo", Memo.HITS))
    with b.when(b.cmp("icmp ne", hits, b.i64(0))):
        counts = b.load("ptr", b.gep("%memo", Memo.COUNTS))
        b.increment(b.gep(counts, Site.REQUESTS), hits)
        for source, target in (
            (Memo.COST, Site.COST),
            (Memo.IDEAL, Site.IDEAL),
            (Memo.BYTES, Site.BYTES),
            (Memo.LANE_BYTES, Site.LANE_BYTES),
        ):
            b.increment(b.gep(counts, target), b.bin("mul", hits, b.load("i64", b.gep("%memo", source))))
        b.store(b.i64(0), b.gep("%memo", Memo.HITS))
    b.raw("ret void")


@dataclass(frozen=True)
class _Pattern:
    """Stack slots for what the lanes have in common.

    ``lo``, ``hi``: lowest and highest address; ``distinct``, ``lanes``: bytes of distinct addresses and of all lanes (i64);
    ``contiguous``, ``same``: whether the lanes lie side by side, or all at one place (i32).
    """

    lo: Value
    hi: Value
    distinct: Value
    lanes: Value
    contiguous: Value
    same: Value


def learn(b: IRWriter) -> None:
    """i32 rf_learn(w, memo, mask): work out one pattern, remember it. 0 or an error kind. Addresses are in WORKER.ADDRS."""
    recalled = b.define("call i32 @rf_recall(ptr %w, ptr %memo, i32 %mask)", "i32")
    with b.when(b.cmp("icmp ne", recalled, b.i32(0))):
        b.raw("ret i32 0")
        b.label(b.new_label("dead"))
    _name_fields(b)
    site, size64 = Value("%site", "i32"), b.resize(Value("%size", "i32"), "i64")
    b.raw("call void @rf_flush(ptr %memo)")
    b.store(b.i64(-1), b.gep("%memo", Memo.LOW))
    first = b.intrinsic("cttz", Value("%mask", "i32"), plain=(Value("false", "i1"),))
    base = address_of(b, first)
    pattern = _compare_lanes(b, base, size64)
    low_address = b.load("i64", pattern.lo)
    end = b.bin("add", b.load("i64", pattern.hi), size64)
    a_lo, a_hi, record = bounds(b, low_address, end, site, first)
    # base may move so that [lo, end) stays inside [a_lo, a_hi)
    b.store(b.bin("add", a_lo, b.bin("sub", base, low_address)), b.gep("%memo", Memo.BASE_MIN))
    b.store(b.bin("sub", a_hi, b.bin("sub", end, base)), b.gep("%memo", Memo.BASE_MAX))
    b.store(record, b.gep("%memo", Memo.COUNTS))
    _remember(b, pattern)
    with b.when(b.cmp("icmp ne", Value("%count", "i32"), b.i32(0))):
        _work_out_cost(b, base)
    b.store(b.bin("and", base, Value("%key", "i64")), b.gep("%memo", Memo.LOW))
    b.raw("ret i32 0")


def _name_fields(b: IRWriter) -> None:
    """The access as the memo describes it, under names: %site, %size, %space, %write, %count, %align, %key; %limit, the window's end."""
    fields = {"site": Memo.SITE, "size": Memo.WIDTH, "space": Memo.SPACE, "write": Memo.WRITE, "count": Memo.COUNTED, "align": Memo.ALIGN}
    for name, offset in fields.items():
        b.raw(f"%{name}.at = getelementptr i8, ptr %memo, i64 {offset}")
        b.raw(f"%{name} = load i32, ptr %{name}.at")
    b.raw(f"%key.at = getelementptr i8, ptr %memo, i64 {Memo.KEY}")
    b.raw("%key = load i64, ptr %key.at")
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    shared_bytes = b.resize(b.load("i32", b.gep(launch, Launch.SMEM_BYTES)), "i64")
    local_bytes = b.bin("mul", b.load("i64", b.gep(launch, Launch.LOCAL_STRIDE)), b.i64(32))
    window = b.select(b.cmp("icmp eq", Value("%space", "i32"), b.i32(SHARED)), shared_bytes, local_bytes)
    b.raw(f"%limit = add i64 {window.ir}, 0")


def _compare_lanes(b: IRWriter, base: Value, size64: Value) -> _Pattern:
    """Remember every lane's offset from ``base`` and gather the pattern. Fails at a misaligned lane."""
    wide, flag = ("i64", 8), ("i32", 4)
    p = _Pattern(*(b.alloca(*kind) for kind in (wide, wide, wide, wide, flag, flag)))
    b.store(base, p.lo)
    b.store(base, p.hi)
    for slot in (p.distinct, p.lanes):
        b.store(b.i64(0), slot)
    b.store(b.i32(1), p.contiguous)
    b.store(b.i32(1), p.same)
    with b.loop(32) as lane:
        rel_slot = b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL)))
        rel32_slot = b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(4)), b.i64(Memo.REL32)))
        b.store(b.i64(0), rel_slot)
        b.store(b.i32(0), rel32_slot)
        with b.when(active(b, lane)):
            address = address_of(b, lane)
            low_bits = b.resize(b.bin("sub", Value("%align", "i32"), b.i32(1)), "i64")
            with b.when(b.cmp("icmp ne", b.bin("and", address, low_bits), b.i64(0))):
                fail(b, "misaligned", Value("%site", "i32"), lane, address)
                b.label(b.new_label("dead"))
            rel = b.bin("sub", address, base)
            b.store(rel, rel_slot)
            b.store(b.resize(rel, "i32"), rel32_slot)
            _add_lane(b, p, lane, address, rel, size64)
    return p


def _add_lane(b: IRWriter, p: _Pattern, lane: Value, address: Value, rel: Value, size64: Value) -> None:
    """One active lane into the pattern; ``rel``: its offset from the first one's address."""
    b.increment(p.lanes, size64)
    b.store(b.intrinsic("umin", b.load("i64", p.lo), address), p.lo)
    b.store(b.intrinsic("umax", b.load("i64", p.hi), address), p.hi)
    expected = b.bin("mul", b.resize(lane, "i64"), size64)
    off = b.cmp("icmp ne", rel, expected)
    with b.when(off):
        b.store(b.i32(0), p.contiguous)
    with b.when(b.cmp("icmp ne", rel, b.i64(0))):
        b.store(b.i32(0), p.same)
    fresh = b.alloca("i32", 4)
    b.store(b.i32(1), fresh)
    with b.loop(lane) as other:
        equal = b.bin("and", active(b, other), b.cmp("icmp eq", address_of(b, other), address))
        with b.when(equal):
            b.store(b.i32(0), fresh)
    with b.when(b.cmp("icmp ne", b.load("i32", fresh), b.i32(0))):
        b.increment(p.distinct, size64)


def _remember(b: IRWriter, p: _Pattern) -> None:
    """Bytes, mask and class of the pattern into the memo."""
    b.store(b.load("i64", p.distinct), b.gep("%memo", Memo.BYTES))
    b.store(b.load("i64", p.lanes), b.gep("%memo", Memo.LANE_BYTES))
    b.store(Value("%mask", "i32"), b.gep("%memo", Memo.MASK))
    is_same = b.cmp("icmp ne", b.load("i32", p.same), b.i32(0))
    is_contiguous = b.cmp("icmp ne", b.load("i32", p.contiguous), b.i32(0))
    kind = b.select(is_same, b.i32(CLASS_BROADCAST), b.select(is_contiguous, b.i32(CLASS_CONTIGUOUS), b.i32(CLASS_SCATTERED)))
    b.store(kind, b.gep("%memo", Memo.CLASS))


def _work_out_cost(b: IRWriter, base: Value) -> None:
    """Wavefronts of a shared access, sectors of any other, into the memo."""
    shared = b.cmp("icmp eq", Value("%space", "i32"), b.i32(SHARED))
    yes, no, done = b.new_label("banks"), b.new_label("sectors"), b.new_label("costed")
    b.branch(shared, yes, no)
    b.label(yes)
    b.raw("call void @rf_wavefronts(ptr %w, ptr %memo, i32 %mask, i32 %size)")
    b.jump(done)
    b.label(no)
    b.raw(f"call void @rf_sectors(ptr %w, ptr %memo, {base.typed})")
    b.jump(done)
    b.label(done)


def _return_if_written(b: IRWriter, size: Value) -> None:
    """Return 0 from a runtime function if all bytes of 32 neighbouring lanes were written; ``size``: bytes of one lane."""
    missing = b.alloca("<32 x i1>", 4)
    b.store(Value("zeroinitializer", "i1", 32), missing)
    with b.loop(size) as n:
        row = b.load("i8", b.gep("%shadow", b.bin("shl", b.resize(n, "i64"), b.i64(5))), 32, align=1)
        zero = b.cmp("icmp eq", row, b.const("i8", 0))
        b.store(b.bin("or", b.load("i1", missing, 32), zero), missing)
    with b.when(b.bin("xor", b.reduce_any(b.load("i1", missing, 32)), Value("true", "i1"))):
        b.raw("ret i32 0")
        b.label(b.new_label("dead"))


def init_check(b: IRWriter) -> None:
    """i32 rf_init_check(w, memo, shadow of the first active lane, its address): the exact check behind a suspicious value."""
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    site, size = b.load("i32", b.gep("%memo", Memo.SITE)), b.load("i32", b.gep("%memo", Memo.WIDTH))
    kind = b.load("i32", b.gep("%memo", Memo.CLASS))
    whole_row = b.bin("and", b.cmp("icmp eq", kind, b.i32(CLASS_CONTIGUOUS)), b.cmp("icmp eq", mask, b.i32(-1)))
    with b.when(whole_row):
        _return_if_written(b, size)
    first = b.bin("and", mask, b.bin("sub", b.i32(0), mask))
    mask = b.select(b.cmp("icmp eq", kind, b.i32(CLASS_BROADCAST)), first, mask)  # one lane speaks for all
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))))
            with b.loop(size) as byte:
                shadow = b.load("i8", b.gep("%shadow", b.bin("add", rel, b.resize(byte, "i64"))))
                with b.when(b.cmp("icmp eq", shadow, b.const("i8", 0))):
                    fail(b, "uninitialized", site, lane, b.bin("add", Value("%base", "i64"), rel))
                    b.label(b.new_label("dead"))
    b.raw("ret i32 0")
