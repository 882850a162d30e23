"""A set-associative L2 cache, as generated code: every distinct sector of a request is looked up, in the order of the lanes.

Lines of 128 bytes hold four sectors of 32; write-back, write-allocate, least recently used line first out. A load fills the sector
from DRAM when some byte it wants is not there. A store needs nothing from DRAM: the cache remembers which bytes of a sector are
there. A dirty sector goes to DRAM when its line is evicted, and one that is still incomplete by then is filled first. An
atomic operation reads and writes. The records are in layout.py, what is made of them in machine/l2.py.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import L2, Alloc, L2Row, Launch, Memo, Warp, Worker
from rawflash.emu.lower.sectors import call_request, sector_buffers
from rawflash.emu.lower.slowpath import LOCAL, each_allocation, function_text

READ, WRITE, READ_WRITE = 0, 1, 2  # what a request does
LOCAL_LINES = 1 << 40  # local memory lies beyond all global addresses


def l2_access(b: IRWriter) -> None:
    """void rf_l2(w, warp, memo, base, kind): look up every sector of a request."""
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    cache = b.load("ptr", b.gep(launch, Launch.L2))
    b.raw(f"%cache = getelementptr i8, ptr {cache.ir}, i64 0")
    sectors, wanted = sector_buffers(b)
    count = call_request(b, sectors, wanted)
    is_local = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.SPACE)), b.i32(LOCAL))
    lane_bytes = b.load("i64", b.gep(launch, Launch.LOCAL_STRIDE))
    frame = b.bin("mul", b.resize(b.load("i32", b.gep("%warp", Warp.INDEX)), "i64"), lane_bytes)  # 32 lanes, 32 bytes in a sector
    origin = b.bin("lshr", b.load("i64", b.gep("%cache", L2.ORIGIN)), b.i64(5))
    shift = b.select(is_local, b.bin("add", frame, b.load("i64", b.gep("%w", Worker.L2_LOCAL))), b.bin("sub", b.i64(0), origin))
    with b.loop(count) as n:
        sector = b.bin("add", b.load("i64", _element(b, sectors, n, 8)), shift)
        some = b.load("i32", _element(b, wanted, n, 4))
        b.raw(f"call void @rf_l2_sector({launch.typed}, ptr %cache, {sector.typed}, {some.typed}, i32 %kind)")
    b.raw("ret void")


def _element(b: IRWriter, base: Value, index: Value, size: int) -> Value:
    return b.gep(base, b.bin("mul", b.resize(index, "i64"), b.i64(size)))


def _array(b: IRWriter, field: int) -> Value:
    return b.load("ptr", b.gep("%cache", field))


def _row(b: IRWriter, owner: Value) -> Value:
    return _element(b, _array(b, L2.COUNTS), owner, L2Row.SIZE)


def l2_sector(b: IRWriter) -> None:
    """void rf_l2_sector(launch, cache, sector, bytes wanted, kind): one lookup."""
    sector, kind = Value("%sector", "i64"), Value("%kind", "i32")
    line, part = b.bin("lshr", sector, b.i64(2)), b.bin("and", sector, b.i64(3))
    here = _line_in_cache(b, line)
    row = _row(b, b.load("i32", _element(b, _array(b, L2.OWNERS), here, 4)))
    valid = _element(b, _element(b, _array(b, L2.VALID), here, 16), part, 4)
    have, want = b.load("i32", valid), Value("%wanted", "i32")
    read, write, done = b.new_label("read"), b.new_label("write"), b.new_label("done")
    b.branch(b.cmp("icmp eq", kind, b.i32(WRITE)), write, read)
    b.label(read)
    lacking = b.cmp("icmp ne", b.bin("and", want, b.bin("xor", have, b.i32(-1))), b.i32(0))
    b.increment(_outcome(b, row, kind, lacking), 1)
    with b.when(lacking):
        b.increment(b.gep(row, L2Row.FILLS), 1)
        b.store(b.i32(-1), valid)
    with b.when(b.cmp("icmp ne", kind, b.i32(READ))):
        _soil(b, here, part)
    b.raw("ret void")
    b.label(write)
    b.increment(_outcome(b, row, kind, b.cmp("icmp eq", have, b.i32(0))), 1)
    b.store(b.bin("or", have, want), valid)
    _soil(b, here, part)
    b.jump(done)
    b.label(done)
    b.raw("ret void")


def _line_in_cache(b: IRWriter, line: Value) -> Value:
    """The place of a line, now the one used last; where it is not in the cache, the one used least recently of its set makes room."""
    tag = b.bin("add", line, b.i64(1))
    ways = b.load("i64", b.gep("%cache", L2.WAYS))
    first = b.bin("mul", b.bin("urem", line, b.load("i64", b.gep("%cache", L2.SETS))), ways)
    tags, stamps = _array(b, L2.TAGS), _array(b, L2.STAMPS)
    clock = b.bin("add", b.load("i64", b.gep("%cache", L2.CLOCK)), b.i64(1))
    b.store(clock, b.gep("%cache", L2.CLOCK))
    place, victim, oldest = b.alloca("i64", 8), b.alloca("i64", 8), b.alloca("i64", 8)
    known, missing = b.new_label("known"), b.new_label("missing")
    b.store(first, victim)
    b.store(b.i64((1 << 63) - 1), oldest)
    with b.loop(ways, "i64") as way:
        index = b.bin("add", first, way)
        b.store(index, place)
        other = b.new_label("other")
        b.branch(b.cmp("icmp eq", b.load("i64", _element(b, tags, index, 8)), tag), known, other)
        b.label(other)
        stamp = b.load("i64", _element(b, stamps, index, 8))
        older = b.cmp("icmp slt", stamp, b.load("i64", oldest))
        b.store(b.select(older, stamp, b.load("i64", oldest)), oldest)
        b.store(b.select(older, index, b.load("i64", victim)), victim)
    b.jump(missing)
    b.label(missing)
    gone = b.load("i64", victim)
    b.store(gone, place)
    _evict(b, gone)
    b.store(tag, _element(b, tags, gone, 8))
    b.store(_owner(b, line), _element(b, _array(b, L2.OWNERS), gone, 4))
    b.jump(known)
    b.label(known)
    here = b.load("i64", place)
    b.store(clock, _element(b, stamps, here, 8))
    return here


def _outcome(b: IRWriter, row: Value, kind: Value, miss: Value) -> Value:
    """The counter of hits or misses of this kind."""
    reads = b.cmp("icmp eq", kind, b.i32(READ))
    hit = b.select(reads, b.i64(L2Row.READ_HITS), b.i64(L2Row.WRITE_HITS))
    return b.gep(row, b.bin("add", hit, b.select(miss, b.i64(L2Row.READ_MISSES - L2Row.READ_HITS), b.i64(0))))


def _soil(b: IRWriter, place: Value, part: Value) -> None:
    slot = _element(b, _array(b, L2.DIRTY), place, 4)
    b.store(b.bin("or", b.load("i32", slot), b.bin("shl", b.i32(1), b.resize(part, "i32"))), slot)


def _evict(b: IRWriter, place: Value) -> None:
    """Write the dirty sectors of a line back, then empty it."""
    dirty = _element(b, _array(b, L2.DIRTY), place, 4)
    row = _row(b, b.load("i32", _element(b, _array(b, L2.OWNERS), place, 4)))
    bits = b.load("i32", dirty)
    for part in range(4):
        valid = b.gep(_element(b, _array(b, L2.VALID), place, 16), 4 * part)
        with b.when(b.cmp("icmp ne", b.bin("and", bits, b.i32(1 << part)), b.i32(0))):
            b.increment(b.gep(row, L2Row.WRITEBACKS), 1)
            incomplete = b.cmp("icmp ne", b.load("i32", valid), b.i32(-1))
            b.increment(b.gep(row, L2Row.FILLS), b.resize(incomplete, "i64"))
        b.store(b.i32(0), valid)
    b.store(b.i32(0), dirty)


def _owner(b: IRWriter, line: Value) -> Value:
    """The row of counters of the allocation that a line lies in; local memory's is the last one."""
    found = b.alloca("i32", 4)
    launch = Value("%launch", "ptr")
    b.store(b.i32(0), found)
    address = b.bin("add", b.load("i64", b.gep("%cache", L2.ORIGIN)), b.bin("shl", line, b.i64(7)))
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    with each_allocation(b, launch, table) as entry:
        inside = b.bin(
            "and",
            b.cmp("icmp uge", address, b.load("i64", b.gep(entry, Alloc.LO))),
            b.cmp("icmp ult", address, b.load("i64", b.gep(entry, Alloc.HI))),
        )
        slot = b.resize(b.load("i64", b.gep(entry, Alloc.SLOT)), "i32")
        b.store(b.select(inside, slot, b.load("i32", found)), found)
    slots = b.resize(b.load("i64", b.gep(launch, Launch.N_SLOTS)), "i32")
    return b.select(b.cmp("icmp uge", line, b.i64(LOCAL_LINES)), slots, b.load("i32", found))


def l2_functions(declarations: set[str]) -> list[str]:
    """The IR text of the cache."""
    attributes = "noinline nounwind"
    return [
        function_text("rf_l2", "void", "ptr %w, ptr %warp, ptr %memo, i64 %base, i32 %kind", l2_access, declarations, attributes),
        function_text(
            "rf_l2_sector", "void", "ptr %launch, ptr %cache, i64 %sector, i32 %wanted, i32 %kind", l2_sector, declarations, attributes
        ),
    ]
