"""The part of the generated code that is the same for every kernel: what happens when a memory access meets a pattern it
does not remember. Compiled once per process (and kept in the cache), called from every kernel.

``rf_learn`` is the only place where sectors, wavefronts and distinct bytes are worked out; ``rf_flush`` the only one that adds
them up. An access that repeats its last pattern only increments MEMO.HITS.
"""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import ERROR_KIND, Alloc, Launch, Memo, Site, Worker

# Spaces as the slow path knows them.
GLOBAL, SHARED, LOCAL, CONST = 0, 1, 2, 3
CLASS_SCATTERED, CLASS_CONTIGUOUS, CLASS_BROADCAST = 0, 1, 2
GLOBAL_KEY = 31  # sectors depend on the base modulo 32
WIDTHS = [(bits, n) for bits in (8, 16, 32, 64) for n in (1, 2, 4, 8) if bits * n <= 256]


def function_text(name: str, ret: str, params: str, body: Callable[[IRWriter], None], declarations: set[str], attributes: str = "") -> str:
    """One LLVM function: allocas first, then what ``body`` wrote."""
    b = IRWriter(declarations)
    body(b)
    return "\n".join([f"define {ret} @{name}({params}) {attributes} {{", "entry:", *b.entry, "  br label %begin", "begin:", *b.lines, "}"])


def fail(b: IRWriter, kind: str, site: Value, lane: Value, address: Value) -> None:
    """Record what went wrong and return from a runtime function."""
    b.store(b.i32(ERROR_KIND[kind]), b.gep("%w", Worker.ERR_KIND))
    b.store(site, b.gep("%w", Worker.ERR_SITE))
    b.store(lane, b.gep("%w", Worker.ERR_LANE))
    b.store(address, b.gep("%w", Worker.ERR_ADDR))
    b.raw(f"ret i32 {ERROR_KIND[kind]}")


def _flush(b: IRWriter) -> None:
    hits = b.load("i64", b.gep("%memo", Memo.HITS))
    with b.when(b.cmp("icmp ne", hits, b.i64(0))):
        counts = b.load("ptr", b.gep("%memo", Memo.COUNTS))
        b.increment(b.gep(counts, Site.REQUESTS), hits)
        for source, target in ((Memo.COST, Site.COST), (Memo.IDEAL, Site.IDEAL), (Memo.BYTES, Site.BYTES), (Memo.LANE_BYTES, Site.LANE_BYTES)):
            b.increment(b.gep(counts, target), b.bin("mul", hits, b.load("i64", b.gep("%memo", source))))
        b.store(b.i64(0), b.gep("%memo", Memo.HITS))
    b.raw("ret void")


def _active(b: IRWriter, lane: Value) -> Value:
    bit = b.bin("and", b.bin("lshr", Value("%mask", "i32"), lane), b.i32(1))
    return b.cmp("icmp ne", bit, b.i32(0))


def _address(b: IRWriter, lane: Value) -> Value:
    offset = b.bin("mul", b.resize(lane, "i64"), b.i64(8))
    return b.load("i64", b.gep(b.gep("%w", Worker.ADDRS), offset))


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


def _learn(b: IRWriter) -> None:
    """i32 rf_learn(w, memo, mask): work out one pattern, remember it. 0 or an error kind. Addresses are in WORKER.ADDRS."""
    fields = {"site": Memo.SITE, "size": Memo.WIDTH, "space": Memo.SPACE, "write": Memo.WRITE, "count": Memo.COUNTED}
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
    base = _address(b, first)
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
        active = _active(b, lane)
        with b.when(active):
            address = _address(b, lane)
            with b.when(b.cmp("icmp ne", b.bin("and", address, b.bin("sub", size64, b.i64(1))), b.i64(0))):
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
                equal = b.bin("and", _active(b, other), b.cmp("icmp eq", _address(b, other), address))
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


def _pairs_match(b: IRWriter, begin: Value, count: Value, distance: int) -> Value:
    """i32 1 when every active lane of [begin, begin+count) has the address of lane ^ distance, or that lane is inactive."""
    ok = b.alloca("i32", 4)
    b.store(b.i32(1), ok)
    with b.loop(count) as k:
        lane = b.bin("add", begin, k)
        partner = b.bin("xor", lane, b.i32(distance))
        both = b.bin("and", _active(b, lane), _active(b, partner))
        differ = b.bin("and", both, b.cmp("icmp ne", _address(b, lane), _address(b, partner)))
        with b.when(differ):
            b.store(b.i32(0), ok)
    return b.load("i32", ok)


def _wavefronts(b: IRWriter) -> None:
    """Shared memory: 4-byte requests are served for the whole warp, 8-byte ones per half, 16-byte ones per quarter; two neighbouring
    groups (the halves, or the quarters of one half) are served together when every lane shares its address with lane^1, or every
    lane with lane^2 (but each matrix of an
    ldmatrix or stmatrix, a quarter of addresses, is served alone). A group costs the largest number of distinct words that fall
    into one of the 32 banks. The ideal is one wavefront per group."""
    size = Value("%size", "i32")
    width = b.alloca("i32", 4)  # lanes per group
    wide = b.cmp("icmp ugt", size, b.i32(4))
    b.store(b.select(wide, b.select(b.cmp("icmp ugt", size, b.i32(8)), b.i32(8), b.i32(16)), b.i32(32)), width)
    begin, cost, ideal = b.alloca("i32", 4), b.alloca("i64", 8), b.alloca("i64", 8)
    words = b.intrinsic("umax", b.bin("lshr", size, b.i32(2)), b.i32(1))
    bank = b.alloca("[32 x i32]")
    seen = b.alloca("[128 x i64]")
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
    step = b.load("i32", width)
    b.store(step, merged)
    double = b.bin("shl", step, b.i32(1))
    even = b.cmp("icmp eq", b.bin("and", start, b.bin("sub", double, b.i32(1))), b.i32(0))
    with b.when(b.bin("and", merges, b.bin("and", even, b.cmp("icmp ult", step, b.i32(32))))):
        match = b.bin("or", _pairs_match(b, start, double, 1), _pairs_match(b, start, double, 2))
        with b.when(b.cmp("icmp ne", match, b.i32(0))):
            b.store(double, merged)
    span = b.load("i32", merged)
    for n in range(32):
        b.store(b.i32(0), b.gep(bank, 4 * n))
    n_seen, worst = b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(0), n_seen)
    b.store(b.i32(0), worst)
    with b.loop(span) as k:
        lane = b.bin("add", start, k)
        with b.when(_active(b, lane)):
            first_word = b.bin("lshr", _address(b, lane), b.i64(2))
            with b.loop(words) as offset:
                word = b.bin("add", first_word, b.resize(offset, "i64"))
                fresh = b.alloca("i32", 4)
                b.store(b.i32(1), fresh)
                with b.loop(b.load("i32", n_seen)) as other:
                    slot = b.gep(seen, b.bin("mul", b.resize(other, "i64"), b.i64(8)))
                    with b.when(b.cmp("icmp eq", b.load("i64", slot), word)):
                        b.store(b.i32(0), fresh)
                with b.when(b.cmp("icmp ne", b.load("i32", fresh), b.i32(0))):
                    count = b.load("i32", n_seen)
                    b.store(word, b.gep(seen, b.bin("mul", b.resize(count, "i64"), b.i64(8))))
                    b.store(b.bin("add", count, b.i32(1)), n_seen)
                    slot = b.gep(bank, b.bin("mul", b.bin("and", word, b.i64(31)), b.i64(4)))
                    used = b.bin("add", b.load("i32", slot), b.i32(1))
                    b.store(used, slot)
                    b.store(b.intrinsic("umax", b.load("i32", worst), used), worst)
    b.increment(cost, b.resize(b.load("i32", worst), "i64"))
    with b.when(b.cmp("icmp ne", b.load("i32", worst), b.i32(0))):
        b.increment(ideal, 1)
    b.store(b.bin("add", start, span), begin)
    b.jump(head)
    b.label(done)
    b.store(b.load("i64", cost), b.gep("%memo", Memo.COST))
    b.store(b.load("i64", ideal), b.gep("%memo", Memo.IDEAL))
    b.raw("ret void")


def _blame(b: IRWriter) -> None:
    """Find the first lane whose bytes lie in no allocation; 0 if each lane is fine by itself, in allocations of its own."""
    site = Value("%site", "i32")
    size64 = b.resize(Value("%size", "i32"), "i64")
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    with b.loop(32) as lane, b.when(_active(b, lane)):
        address = _address(b, lane)
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


def _blame_window(b: IRWriter) -> None:
    size64 = b.resize(Value("%size", "i32"), "i64")
    with b.loop(32) as lane, b.when(_active(b, lane)):
        address = _address(b, lane)
        end = b.bin("add", address, size64)
        outside = b.bin("or", b.cmp("icmp slt", address, b.i64(0)), b.cmp("icmp sgt", end, Value("%limit", "i64")))
        with b.when(outside):
            fail(b, "out_of_bounds", Value("%site", "i32"), lane, address)
            b.label(b.new_label("dead"))
    fail(b, "out_of_bounds", Value("%site", "i32"), b.i32(0), _address(b, b.i32(0)))


def _init_check(b: IRWriter) -> None:
    """i32 rf_init_check(w, memo, shadow of the first active lane, its address): the exact check behind a suspicious value."""
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    site, size = b.load("i32", b.gep("%memo", Memo.SITE)), b.load("i32", b.gep("%memo", Memo.WIDTH))
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


def _when_contiguous(b: IRWriter, body: Callable[[], None]) -> None:
    """Run ``body`` and return if all 32 lanes are active and lie one after the other."""
    whole = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.MASK)), b.i32(-1))
    straight = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.CLASS)), b.i32(CLASS_CONTIGUOUS))
    with b.when(b.bin("and", whole, straight)):
        body()
        b.raw("ret void")
        b.label(b.new_label("dead"))


def _gather(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_gather(base, memo, out): out[component][lane], i<bits> each."""
    ty = f"i{bits}"

    def straight(b: IRWriter) -> None:
        block = b.define(f"load <{32 * n} x {ty}>, ptr %base, align {bits // 8}", ty, 32 * n)
        for c in range(n):
            column = b.shuffle(block, None, [lane * n + c for lane in range(32)])
            b.store(column, b.gep("%out", c * 4 * bits), align=min(64, 4 * bits))

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: straight(b))
        for lane in range(32):
            rel = b.load("i64", b.gep("%memo", Memo.REL + 8 * lane))
            v = b.load(ty, b.gep("%base", rel), lanes=n if n > 1 else 0, align=bits // 8)
            for c in range(n):
                b.store(b.extract(v, c), b.gep("%out", (c * 32 + lane) * bits // 8), align=bits // 8)
        b.raw("ret void")

    return body


def _scatter(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_scatter(base, memo, in): lanes in ascending order, so the highest lane wins a collision."""
    ty = f"i{bits}"

    def straight(b: IRWriter) -> None:
        parts = [b.load(ty, b.gep("%in", c * 4 * bits), 32, align=min(64, 4 * bits)) for c in range(n)]
        while len(parts) > 1:
            parts = [b.shuffle(parts[k], parts[k + 1], list(range(2 * parts[k].lanes))) for k in range(0, len(parts), 2)]
        rows = parts[0] if n == 1 else b.shuffle(parts[0], None, [c * 32 + lane for lane in range(32) for c in range(n)])
        b.store(rows, "%base", align=bits // 8)

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: straight(b))
        mask = b.load("i32", b.gep("%memo", Memo.MASK))
        with b.loop(32) as lane:
            bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
            with b.when(b.cmp("icmp ne", bit, b.i32(0))):
                lane64 = b.resize(lane, "i64")
                rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", lane64, b.i64(8)), b.i64(Memo.REL))))
                target = b.gep("%base", rel)
                for c in range(n):
                    source = b.gep("%in", b.bin("add", b.bin("mul", lane64, b.i64(bits // 8)), b.i64(c * 4 * bits)))
                    b.store(b.load(ty, source), b.gep(target, c * bits // 8), align=bits // 8)
        b.raw("ret void")

    return body


def _mark(b: IRWriter) -> None:
    """void rf_mark(shadow of first active lane, memo, size): the bytes of a store are initialised now."""
    b.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    total = b.bin("shl", b.resize(Value("%size", "i32"), "i64"), b.i64(5))
    _when_contiguous(b, lambda: b.raw(f"call void @llvm.memset.p0.i64(ptr %shadow, i8 -1, i64 {total.ir}, i1 false)"))
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))))
            with b.loop(Value("%size", "i32")) as byte:
                b.store(b.const("i8", -1), b.gep("%shadow", b.bin("add", rel, b.resize(byte, "i64"))))
    b.raw("ret void")


LEARN_PARAMS = "ptr %w, ptr %memo, i32 %mask"
SIGNATURES = {
    "rf_learn": ("i32", "ptr, ptr, i32"),
    "rf_flush": ("void", "ptr"),
    "rf_init_check": ("i32", "ptr, ptr, ptr, i64"),
    "rf_mark": ("void", "ptr, ptr, i32"),
    "rf_async_push": ("void", "ptr, ptr, ptr, ptr"),
    "rf_async_wait": ("void", "ptr, ptr, i32"),
    "rf_race_shared": ("i32", "ptr, ptr, ptr, i64"),
    "rf_race_global": ("i32", "ptr, ptr, ptr, i64"),
    "rf_l2": ("void", "ptr, ptr, ptr, i64, i32"),
} | {f"rf_{kind}_{bits}x{n}": ("void", "ptr, ptr, ptr") for kind in ("gather", "scatter") for bits, n in WIDTHS}


def runtime_module() -> str:
    """The LLVM IR of the runtime."""
    from rawflash.emu.lower.l2 import l2_functions
    from rawflash.emu.lower.asynccopy import async_functions
    from rawflash.emu.lower.races import race_functions
    from rawflash.emu.lower.scheduler import scheduler_functions
    from rawflash.emu.lower.sectors import sector_functions

    declarations: set[str] = set()
    cold = "noinline nounwind"
    parts = [
        function_text("rf_flush", "void", "ptr %memo", _flush, declarations, "nounwind"),
        function_text("rf_wavefronts", "void", "ptr %w, ptr %memo, i32 %mask, i32 %size", _wavefronts, declarations, cold),
        function_text("rf_blame", "i32", "ptr %w, i32 %mask, i32 %size, i32 %site, i32 %write", _blame, declarations, cold),
        function_text("rf_blame_window", "i32", "ptr %w, i32 %mask, i32 %size, i32 %site, i64 %limit", _blame_window, declarations, cold),
        function_text("rf_learn", "i32", LEARN_PARAMS, _learn, declarations, cold),
        function_text("rf_init_check", "i32", "ptr %w, ptr %memo, ptr %shadow, i64 %base", _init_check, declarations, cold),
        function_text("rf_mark", "void", "ptr %shadow, ptr %memo, i32 %size", _mark, declarations, cold),
    ]
    for bits, n in WIDTHS:
        parts.append(function_text(f"rf_gather_{bits}x{n}", "void", "ptr %base, ptr %memo, ptr %out", _gather(bits, n), declarations, cold))
        parts.append(function_text(f"rf_scatter_{bits}x{n}", "void", "ptr %base, ptr %memo, ptr %in", _scatter(bits, n), declarations, cold))
    parts += sector_functions(declarations)
    parts += l2_functions(declarations)
    parts += race_functions(declarations)
    parts += async_functions(declarations)
    parts += scheduler_functions(declarations)
    return "\n".join([*sorted(declarations), *parts, '!0 = !{!"branch_weights", i32 2000, i32 1}', '!1 = !{!"branch_weights", i32 1, i32 2000}'])
