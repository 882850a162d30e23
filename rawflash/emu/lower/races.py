"""The race detector, as generated code: for every byte the last write and the reads since, each with its place in the order.

Shared memory, one record of two 64-bit words (write, read) per byte, cleared for every CTA:

    bits 0-13 access site | 14-18 lane | 19-23 warp | 24-39 warp-level synchronisations | 40-61 barrier interval
    62 lanes differ | 63 warps differ

Two accesses by different threads, one a write, are ordered by a barrier of the CTA (another interval) or, inside a warp, by a
__syncwarp between them; being in lock step orders nothing. Lanes that store to one byte in the same instruction are left alone.

Global memory, one record of two words per byte, never cleared:

    bits 0-13 access site | 14-23 thread | 24-51 CTA | 52-63 generation

A generation is one launch, or ends when some CTA executes a device-wide fence: from then on accesses are taken to be ordered. A
detector that cannot see an order errs on the side of silence. Atomics are not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Memo, Warp, Worker
from rawflash.emu.lower.slowpath import CLASS_BROADCAST, fail, function_text

SITE_BITS, LANE_SHIFT, WARP_SHIFT, SYNC_SHIFT, EPOCH_SHIFT = 14, 14, 19, 24, 40
MANY_LANES, MANY_WARPS = 1 << 62, 1 << 63
CTA_SHIFT, GENERATION_SHIFT = 24, 52
READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE = 1, 2, 3


def _field(b: IRWriter, word: Value, shift: int, bits: int) -> Value:
    return b.bin("and", b.bin("lshr", word, b.i64(shift)), b.i64((1 << bits) - 1))


def _equal(b: IRWriter, x: Value, y: Value, shift: int, bits: int) -> Value:
    return b.cmp("icmp eq", _field(b, x, shift, bits), _field(b, y, shift, bits))


def _report(b: IRWriter, other: Value, kind: int, site: Value, lane: Value, address: Value) -> None:
    b.store(other, b.gep("%w", Worker.ERR_AUX))
    b.store(b.i64(kind), b.gep("%w", Worker.ERR_AUX2))
    fail(b, "race", site, lane, address)
    b.label(b.new_label("dead"))


def _place(b: IRWriter, value: Value, shift: int, bits: int) -> Value:
    wide = value if value.ty == "i64" else b.resize(value, "i64")
    return b.bin("shl", b.bin("and", wide, b.i64((1 << bits) - 1)), b.i64(shift))


def _join(b: IRWriter, *parts: Value) -> Value:
    out = parts[0]
    for p in parts[1:]:
        out = b.bin("or", out, p)
    return out


@contextmanager
def _lanes(b: IRWriter, write: Value) -> Iterator[Value]:
    """Loop over the active lanes, lowest first. When all of them read one address, three tell it all: the first two, of which one is
    not the lane that wrote, and the last, which stays in the record."""
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    first = _lowest(b, mask)
    second = _lowest(b, b.bin("xor", mask, first))
    last = b.bin("lshr", b.const("i32", 1 << 31), b.intrinsic("ctlz", mask, plain=(Value("false", "i1"),)))
    same = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.CLASS)), b.i32(CLASS_BROADCAST))
    few = b.bin("and", same, b.cmp("icmp eq", write, b.i32(0)))
    todo = b.alloca("i32", 4)
    b.store(b.select(few, _join(b, first, second, last), mask), todo)
    head, body, done = b.new_label("lanes"), b.new_label("lane"), b.new_label("raced")
    b.jump(head)
    b.label(head)
    left = b.load("i32", todo)
    b.branch(b.cmp("icmp ne", left, b.i32(0)), body, done)
    b.label(body)
    b.store(b.bin("xor", left, _lowest(b, left)), todo)
    yield b.intrinsic("cttz", left, plain=(Value("false", "i1"),))
    b.jump(head)
    b.label(done)


def _lowest(b: IRWriter, bits: Value) -> Value:
    return b.bin("and", bits, b.bin("sub", b.i32(0), bits))


def _start(b: IRWriter, lane: Value) -> Value:
    """The lane's address."""
    rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))))
    return b.bin("add", Value("%base", "i64"), rel)


@contextmanager
def _bytes(b: IRWriter, size: Value, quick: Callable[[Value], Value]) -> Iterator[Value]:
    """Loop over the bytes of a lane. ``quick(first)`` handles four of them at once and says so, i1, or leaves them as they are."""
    at, until = b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(0), at)
    b.store(b.i32(0), until)
    head, four, try_four, skip, one, done = (b.new_label(x) for x in ("bytes", "four", "quick", "skip", "byte", "bytes_done"))
    b.jump(head)
    b.label(head)
    n = b.load("i32", at)
    b.branch(b.cmp("icmp ult", n, size), four, done)
    b.label(four)
    whole = b.cmp("icmp ule", b.bin("add", n, b.i32(4)), size)
    b.branch(b.bin("and", whole, b.cmp("icmp uge", n, b.load("i32", until))), try_four, one)
    b.label(try_four)
    b.store(b.bin("add", n, b.i32(4)), until)
    b.branch(quick(n), skip, one)
    b.label(skip)
    b.store(b.bin("add", n, b.i32(4)), at)
    b.jump(head)
    b.label(one)
    yield n
    b.store(b.bin("add", n, b.i32(1)), at)
    b.jump(head)
    b.label(done)


def _four(b: IRWriter, record: Value) -> tuple[Value, Value]:
    """The write words and the read words of four neighbouring bytes."""
    words = b.load("i64", record, 8, align=16)
    return b.shuffle(words, None, [0, 2, 4, 6]), b.shuffle(words, None, [1, 3, 5, 7])


def _put_four(b: IRWriter, record: Value, wrote: Value, read: Value) -> None:
    b.store(b.shuffle(b.splat(wrote, 4), b.splat(read, 4), [0, 4, 1, 5, 2, 6, 3, 7]), record, align=16)


def race_shared(b: IRWriter) -> None:
    """i32 rf_race_shared(w, warp, memo, base): 0, or an error kind with the two accesses in the WORKER record."""
    site = b.load("i32", b.gep("%memo", Memo.SITE))
    size, write = b.load("i32", b.gep("%memo", Memo.WIDTH)), b.load("i32", b.gep("%memo", Memo.WRITE))
    writes, table = b.cmp("icmp ne", write, b.i32(0)), b.load("ptr", b.gep("%w", Worker.RACE))
    common = _join(
        b,
        _place(b, site, 0, SITE_BITS),
        _place(b, b.load("i32", b.gep("%warp", Warp.INDEX)), WARP_SHIFT, 5),
        _place(b, b.load("i32", b.gep("%warp", Warp.SYNC)), SYNC_SHIFT, 16),
        _place(b, b.load("i32", b.gep("%w", Worker.EPOCH)), EPOCH_SHIFT, 22),
    )
    with _lanes(b, write) as lane:
        start = _start(b, lane)
        mine = b.bin("or", common, _place(b, lane, LANE_SHIFT, 5))

        def record_of(byte: Value, start: Value = start) -> Value:
            return b.gep(table, b.bin("shl", b.bin("add", start, b.resize(byte, "i64")), b.i64(4)))

        def quick(byte: Value, mine: Value = mine) -> Value:
            record = record_of(byte)
            wrote, read = _four(b, record)
            bad = b.bin("or", _conflict(b, wrote, mine, writes), b.bin("and", writes_four, _conflict(b, read, mine, Value("false", "i1"))))
            good = b.bin("xor", b.reduce_any(bad), Value("true", "i1"))
            with b.when(good):
                merged = _merge_readers(b, read, mine)
                _put_four(b, record, b.select(writes_four, mine, wrote), b.select(writes_four, b.i64(0), merged))
            return good

        writes_four = b.splat(writes, 4)
        with _bytes(b, size, quick) as byte:
            record = record_of(byte)
            wrote, read = b.load("i64", record), b.load("i64", b.gep(record, 8))
            with b.when(_conflict(b, wrote, mine, writes)):
                b.store(b.select(writes, b.i64(WRITE_AFTER_WRITE), b.i64(READ_AFTER_WRITE)), b.gep("%w", Worker.ERR_AUX2))
                _report_kind(b, wrote, site, lane, start)
            with b.when(b.bin("and", writes, _conflict(b, read, mine, Value("false", "i1")))):
                _report(b, read, WRITE_AFTER_READ, site, lane, start)
            b.store(b.select(writes, mine, wrote), record)
            b.store(b.select(writes, b.i64(0), _merge_readers(b, read, mine)), b.gep(record, 8))
    b.raw("ret i32 0")


def _report_kind(b: IRWriter, other: Value, site: Value, lane: Value, address: Value) -> None:
    b.store(other, b.gep("%w", Worker.ERR_AUX))
    fail(b, "race", site, lane, address)
    b.label(b.new_label("dead"))


def _conflict(b: IRWriter, other: Value, mine: Value, same_instruction_is_fine: Value) -> Value:
    """Whether the recorded access is by another thread and nothing orders it before mine."""
    now = b.bin("and", b.cmp("icmp ne", other, b.i64(0)), _equal(b, other, mine, EPOCH_SHIFT, 22))
    same_warp = _equal(b, other, mine, WARP_SHIFT, 5)
    many_warps = b.cmp("icmp ne", b.bin("and", other, b.i64(MANY_WARPS)), b.i64(0))
    many_lanes = b.cmp("icmp ne", b.bin("and", other, b.i64(MANY_LANES)), b.i64(0))
    other_lane = b.bin("or", many_lanes, b.bin("xor", _equal(b, other, mine, LANE_SHIFT, 5), Value("true", "i1")))
    unsynced = _equal(b, other, mine, SYNC_SHIFT, 16)
    in_warp = b.bin("and", b.bin("and", same_warp, unsynced), other_lane)
    together = b.bin("and", same_instruction_is_fine, b.bin("and", _equal(b, other, mine, 0, SITE_BITS), same_warp))
    in_warp = b.bin("and", in_warp, b.bin("xor", together, Value("true", "i1")))
    across = b.bin("or", many_warps, b.bin("xor", same_warp, Value("true", "i1")))
    return b.bin("and", now, b.bin("or", across, in_warp))


def _merge_readers(b: IRWriter, read: Value, mine: Value) -> Value:
    """The read word after one more reader in this interval."""
    current = b.bin("and", b.cmp("icmp ne", read, b.i64(0)), _equal(b, read, mine, EPOCH_SHIFT, 22))
    same_warp = _equal(b, read, mine, WARP_SHIFT, 5)
    same_lane = _equal(b, read, mine, LANE_SHIFT, 5)
    same_sync = _equal(b, read, mine, SYNC_SHIFT, 16)
    old = b.bin("and", read, b.i64(MANY_LANES | MANY_WARPS))
    flags = b.bin("or", b.select(same_warp, b.i64(0), b.i64(MANY_WARPS)), b.select(same_lane, b.i64(0), b.i64(MANY_LANES)))
    # after a __syncwarp the warp's earlier lanes no longer matter to the warp itself, but other warps still count
    kept = b.select(
        b.bin("and", same_warp, b.bin("xor", same_sync, Value("true", "i1"))), b.bin("and", old, b.i64(MANY_WARPS)), b.bin("or", old, flags)
    )
    return b.bin("or", mine, b.select(current, kept, b.i64(0)))


def race_global(b: IRWriter) -> None:
    """i32 rf_race_global(w, warp, memo, base)."""
    site = b.load("i32", b.gep("%memo", Memo.SITE))
    size, write = b.load("i32", b.gep("%memo", Memo.WIDTH)), b.load("i32", b.gep("%memo", Memo.WRITE))
    writes = b.cmp("icmp ne", write, b.i32(0))
    delta = b.load("i64", b.gep("%w", Worker.GLOBAL_RACE))
    origin = b.load("i64", b.gep("%w", Worker.GLOBAL_ORIGIN))
    warp = b.bin("shl", b.load("i32", b.gep("%warp", Warp.INDEX)), b.i32(5))
    common = _join(
        b,
        _place(b, site, 0, SITE_BITS),
        _place(b, b.load("i64", b.gep("%w", Worker.LINEAR)), CTA_SHIFT, 28),
        _place(b, b.load("i32", b.gep("%w", Worker.GENERATION)), GENERATION_SHIFT, 12),
    )
    with _lanes(b, write) as lane:
        start = _start(b, lane)
        mine = b.bin("or", common, _place(b, b.bin("add", warp, lane), 14, 10))

        def record_of(byte: Value, start: Value = start) -> Value:
            offset = b.bin("sub", b.bin("add", start, b.resize(byte, "i64")), origin)
            return b.define(f"inttoptr i64 {b.bin('add', delta, b.bin('shl', offset, b.i64(4))).ir} to ptr", "ptr")

        def after(wrote: Value, read: Value, mine: Value = mine) -> tuple[Value, Value]:
            """The record afterwards. CTAs run one by one here, so an older reader of the same generation is another CTA: keep it."""
            keep = b.bin("or", *b.same_shape(writes, _other_cta(b, read, mine)))
            return b.select(b.splat(writes, wrote.lanes) if wrote.lanes else writes, mine, wrote), b.select(keep, read, mine)

        def quick(byte: Value, mine: Value = mine) -> Value:
            record = record_of(byte)
            wrote, read = _four(b, record)
            bad = b.bin("or", _other_cta(b, wrote, mine), b.bin("and", b.splat(writes, 4), _other_cta(b, read, mine)))
            good = b.bin("xor", b.reduce_any(bad), Value("true", "i1"))
            with b.when(good):
                _put_four(b, record, *after(wrote, read))
            return good

        with _bytes(b, size, quick) as byte:
            record = record_of(byte)
            wrote, read = b.load("i64", record), b.load("i64", b.gep(record, 8))
            with b.when(_other_cta(b, wrote, mine)):
                b.store(b.select(writes, b.i64(WRITE_AFTER_WRITE), b.i64(READ_AFTER_WRITE)), b.gep("%w", Worker.ERR_AUX2))
                _report_kind(b, wrote, site, lane, start)
            with b.when(b.bin("and", writes, _other_cta(b, read, mine))):
                _report(b, read, WRITE_AFTER_READ, site, lane, start)
            for n, word in enumerate(after(wrote, read)):
                b.store(word, b.gep(record, 8 * n))
    b.raw("ret i32 0")


def _other_cta(b: IRWriter, other: Value, mine: Value) -> Value:
    now = b.bin("and", b.cmp("icmp ne", other, b.i64(0)), _equal(b, other, mine, GENERATION_SHIFT, 12))
    return b.bin("and", now, b.bin("xor", _equal(b, other, mine, CTA_SHIFT, 28), Value("true", "i1")))


PARAMS = "ptr %w, ptr %warp, ptr %memo, i64 %base"


def race_functions(declarations: set[str]) -> list[str]:
    """The IR text of both detectors."""
    return [
        function_text("rf_race_shared", "i32", PARAMS, race_shared, declarations, "noinline nounwind"),
        function_text("rf_race_global", "i32", PARAMS, race_global, declarations, "noinline nounwind"),
    ]
