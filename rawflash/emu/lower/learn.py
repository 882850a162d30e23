"""Learning an access pattern: bounds, alignment, distinct bytes and cost of one request, remembered in its MEMO.

``rf_learn`` is the only place where a pattern's cost is worked out; ``rf_flush`` the only one that adds costs up. An access
that repeats its last pattern only increments MEMO.HITS.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Alloc, Launch, Memo, Site, Worker
from rawflash.emu.lower.slowpath import CLASS_BROADCAST, CLASS_CONTIGUOUS, CLASS_SCATTERED, CONST, GLOBAL, SHARED, active, address_of, fail


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


def _bounds(b: IRWriter, lo: Value, span_end: Value, site: Value, first: Value) -> tuple[Value, Value, Value]:
    """The allocation that holds [lo, span_end): its bounds and counter record. Fails when there is none."""
    low, high = b.alloca("i64", 8), b.alloca("i64", 8)
    record = b.alloca("ptr", 8)
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    slots = b.load("i64", b.gep(launch, Launch.N_SLOTS))
    row = b.bin("mul", b.resize(site, "i64"), b.bin("mul", slots, b.i64(Site.SIZE)))
    counts = b.gep(b.load("ptr", b.gep("%w", Worker.COUNTS)), row)
    b.store(counts, record)
    space = Value("%space", "i32")
    is_global = b.bin("or", b.cmp("icmp eq", space, b.i32(GLOBAL)), b.cmp("icmp eq", space, b.i32(CONST)))
    yes, no, done = b.new_label("glob"), b.new_label("window"), b.new_label("bounded")
    b.branch(is_global, yes, no)
    b.label(yes)
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    found = b.alloca("i32", 4)
    b.store(b.i32(0), found)
    with b.loop(b.load("i64", b.gep(launch, Launch.N_ALLOCS)), "i64") as n:
        entry = b.gep(table, b.bin("mul", n, b.i64(Alloc.SIZE)))
        a_lo, a_hi = b.load("i64", b.gep(entry, Alloc.LO)), b.load("i64", b.gep(entry, Alloc.HI))
        inside = b.bin("and", b.cmp("icmp uge", lo, a_lo), b.cmp("icmp ule", span_end, a_hi))
        with b.when(inside):
            b.store(a_lo, low)
            b.store(a_hi, high)
            slot = b.load("i64", b.gep(entry, Alloc.SLOT))
            b.store(b.gep(counts, b.bin("mul", slot, b.i64(Site.SIZE))), record)
            b.store(b.i32(1), found)
            flags = b.load("i64", b.gep(entry, Alloc.FLAGS))
            read_only = b.cmp("icmp ne", b.bin("and", flags, b.i64(Alloc.READ_ONLY)), b.i64(0))
            bad = b.bin("and", read_only, b.cmp("icmp ne", Value("%write", "i32"), b.i32(0)))
            with b.when(bad):
                fail(b, "read_only", site, first, lo)
                b.label(b.new_label("dead"))
    missing = b.cmp("icmp eq", b.load("i32", found), b.i32(0))
    with b.when(missing):  # no single allocation: a fault, unless every lane is fine by itself
        blamed = b.define("call i32 @rf_blame(ptr %w, i32 %mask, i32 %size, i32 %site, i32 %write)", "i32")
        with b.when(b.cmp("icmp ne", blamed, b.i32(0))):
            b.raw(f"ret i32 {blamed.ir}")
            b.label(b.new_label("dead"))
        b.store(lo, low)  # only this very pattern at this very base is known to be good; it counts for no argument
        b.store(span_end, high)
    b.jump(done)
    b.label(no)
    limit = Value("%limit", "i64")
    with b.when(b.bin("or", b.cmp("icmp slt", lo, b.i64(0)), b.cmp("icmp sgt", span_end, limit))):
        b.raw("%blamed2 = call i32 @rf_blame_window(ptr %w, i32 %mask, i32 %size, i32 %site, i64 %limit)")
        b.raw("ret i32 %blamed2")
        b.label(b.new_label("dead"))
    b.store(b.i64(0), low)
    b.store(limit, high)
    b.jump(done)
    b.label(done)
    return b.load("i64", low), b.load("i64", high), b.load("ptr", record)


def learn(b: IRWriter) -> None:
    """i32 rf_learn(w, memo, mask): work out one pattern, remember it. 0 or an error kind. Addresses are in WORKER.ADDRS."""
    fields = {"site": Memo.SITE, "size": Memo.WIDTH, "space": Memo.SPACE, "write": Memo.WRITE, "count": Memo.COUNTED, "align": Memo.ALIGN}
    recalled = b.define("call i32 @rf_recall(ptr %w, ptr %memo, i32 %mask)", "i32")
    with b.when(b.cmp("icmp ne", recalled, b.i32(0))):
        b.raw("ret i32 0")
        b.label(b.new_label("dead"))
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
    mask, site, size = Value("%mask", "i32"), Value("%site", "i32"), Value("%size", "i32")
    size64 = b.resize(size, "i64")
    b.raw("call void @rf_flush(ptr %memo)")
    b.store(b.i64(-1), b.gep("%memo", Memo.LOW))
    first = b.intrinsic("cttz", mask, plain=(Value("false", "i1"),))
    base = address_of(b, first)
    lo, hi = b.alloca("i64", 8), b.alloca("i64", 8)
    distinct, lanes = b.alloca("i64", 8), b.alloca("i64", 8)
    contiguous, same = b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(base, lo)
    b.store(base, hi)
    for slot in (distinct, lanes):
        b.store(b.i64(0), slot)
    b.store(b.i32(1), contiguous)
    b.store(b.i32(1), same)
    with b.loop(32) as lane:
        rel_slot = b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL)))
        rel32_slot = b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(4)), b.i64(Memo.REL32)))
        b.store(b.i64(0), rel_slot)
        b.store(b.i32(0), rel32_slot)
        with b.when(active(b, lane)):
            address = address_of(b, lane)
            low_bits = b.resize(b.bin("sub", Value("%align", "i32"), b.i32(1)), "i64")
            with b.when(b.cmp("icmp ne", b.bin("and", address, low_bits), b.i64(0))):
                fail(b, "misaligned", site, lane, address)
                b.label(b.new_label("dead"))
            rel = b.bin("sub", address, base)
            b.store(rel, rel_slot)
            b.store(b.resize(rel, "i32"), rel32_slot)
            b.increment(lanes, size64)
            b.store(b.intrinsic("umin", b.load("i64", lo), address), lo)
            b.store(b.intrinsic("umax", b.load("i64", hi), address), hi)
            expected = b.bin("mul", b.resize(lane, "i64"), size64)
            off = b.cmp("icmp ne", rel, expected)
            with b.when(off):
                b.store(b.i32(0), contiguous)
            with b.when(b.cmp("icmp ne", rel, b.i64(0))):
                b.store(b.i32(0), same)
            fresh = b.alloca("i32", 4)
            b.store(b.i32(1), fresh)
            with b.loop(lane) as other:
                equal = b.bin("and", active(b, other), b.cmp("icmp eq", address_of(b, other), address))
                with b.when(equal):
                    b.store(b.i32(0), fresh)
            with b.when(b.cmp("icmp ne", b.load("i32", fresh), b.i32(0))):
                b.increment(distinct, size64)
    low_address = b.load("i64", lo)
    end = b.bin("add", b.load("i64", hi), size64)
    a_lo, a_hi, record = _bounds(b, low_address, end, site, first)
    # base may move so that [lo, end) stays inside [a_lo, a_hi)
    b.store(b.bin("add", a_lo, b.bin("sub", base, low_address)), b.gep("%memo", Memo.BASE_MIN))
    b.store(b.bin("sub", a_hi, b.bin("sub", end, base)), b.gep("%memo", Memo.BASE_MAX))
    b.store(record, b.gep("%memo", Memo.COUNTS))
    b.store(b.load("i64", distinct), b.gep("%memo", Memo.BYTES))
    b.store(b.load("i64", lanes), b.gep("%memo", Memo.LANE_BYTES))
    b.store(mask, b.gep("%memo", Memo.MASK))
    is_same = b.cmp("icmp ne", b.load("i32", same), b.i32(0))
    is_contiguous = b.cmp("icmp ne", b.load("i32", contiguous), b.i32(0))
    kind = b.select(is_same, b.i32(CLASS_BROADCAST), b.select(is_contiguous, b.i32(CLASS_CONTIGUOUS), b.i32(CLASS_SCATTERED)))
    b.store(kind, b.gep("%memo", Memo.CLASS))
    with b.when(b.cmp("icmp ne", Value("%count", "i32"), b.i32(0))):
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
    b.store(b.bin("and", base, Value("%key", "i64")), b.gep("%memo", Memo.LOW))
    b.raw("ret i32 0")


def blame(b: IRWriter) -> None:
    """Find the first lane whose bytes lie in no allocation; 0 if each lane is fine by itself, in allocations of its own."""
    site = Value("%site", "i32")
    size64 = b.resize(Value("%size", "i32"), "i64")
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    with b.loop(32) as lane, b.when(active(b, lane)):
        address = address_of(b, lane)
        end = b.bin("add", address, size64)
        found = b.alloca("i32", 4)
        b.store(b.i32(0), found)
        with b.loop(b.load("i64", b.gep(launch, Launch.N_ALLOCS)), "i64") as n:
            entry = b.gep(table, b.bin("mul", n, b.i64(Alloc.SIZE)))
            inside = b.bin(
                "and",
                b.cmp("icmp uge", address, b.load("i64", b.gep(entry, Alloc.LO))),
                b.cmp("icmp ule", end, b.load("i64", b.gep(entry, Alloc.HI))),
            )
            with b.when(inside):
                b.store(b.i32(1), found)
                read_only = b.cmp("icmp ne", b.bin("and", b.load("i64", b.gep(entry, Alloc.FLAGS)), b.i64(Alloc.READ_ONLY)), b.i64(0))
                with b.when(b.bin("and", read_only, b.cmp("icmp ne", Value("%write", "i32"), b.i32(0)))):
                    fail(b, "read_only", site, lane, address)
                    b.label(b.new_label("dead"))
        with b.when(b.cmp("icmp eq", b.load("i32", found), b.i32(0))):
            fail(b, "out_of_bounds", site, lane, address)
            b.label(b.new_label("dead"))
    b.raw("ret i32 0")


def blame_window(b: IRWriter) -> None:
    size64 = b.resize(Value("%size", "i32"), "i64")
    with b.loop(32) as lane, b.when(active(b, lane)):
        address = address_of(b, lane)
        end = b.bin("add", address, size64)
        outside = b.bin("or", b.cmp("icmp slt", address, b.i64(0)), b.cmp("icmp sgt", end, Value("%limit", "i64")))
        with b.when(outside):
            fail(b, "out_of_bounds", Value("%site", "i32"), lane, address)
            b.label(b.new_label("dead"))
    fail(b, "out_of_bounds", Value("%site", "i32"), b.i32(0), address_of(b, b.i32(0)))


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
