"""cp.async as generated code: a queue of copies per warp, whose bytes reach shared memory when they are waited for.

When a copy is issued (async_issue.py) its source bytes are captured in a COPY record, and its destination becomes uninitialised:
poison with a cleared shadow, so that a read before the wait is reported (and wrong, if that check is off). cp.async.wait_group writes
the groups that must be complete, each lane's copies in the order of issue. Lanes count their groups separately, as PTX says.

An arrival (cp.async.mbarrier.arrive) is queued behind the copies it waits for. Both are completed when the warp tests an mbarrier, or
leaves the machine code: before any other warp could see a difference.
"""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower import mbarriers
from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import COPY_ARRIVAL, COPY_BYTES, Copy, Memo, Warp, Worker
from rawflash.emu.lower.slowpath import function_text

WIDTHS = (4, 8, 16)
SHADOW_SET = -1
WARP = Value("%warp", "ptr")


def field(b: IRWriter, base: Value, offset: int) -> Value:
    """An i32 of a record."""
    return b.load("i32", b.gep(base, offset))


def entry(b: IRWriter, number: Value) -> Value:
    """The COPY record of that number, in the ring of %warp."""
    place = b.bin("and", number, b.bin("sub", field(b, WARP, Warp.CAPACITY), b.i32(1)))
    return b.gep(b.load("ptr", b.gep(WARP, Warp.QUEUE)), b.bin("mul", b.resize(place, "i64"), b.i64(Copy.SIZE)))


def destination(b: IRWriter, lane: Value | int, record: Value) -> Value:
    """i64 offset of a lane's destination from the record's BASE."""
    if isinstance(lane, int):
        at = b.gep(record, Copy.REL32 + 4 * lane)
    else:
        at = b.gep(b.gep(record, Copy.REL32), b.bin("shl", b.resize(lane, "i64"), b.i64(2)))
    return b.cast("sext", b.load("i32", at), "i64")


def shared(b: IRWriter, offset: Value) -> tuple[Value, Value]:
    """Pointers to a byte of shared memory and to its shadow."""
    smem, shadow = (b.load("ptr", b.gep("%w", f)) for f in (Worker.SMEM, Worker.SMEM_SHADOW))
    return b.gep(smem, offset), b.gep(shadow, offset)


def by_width(b: IRWriter, width: Value, body: Callable[[int], None]) -> None:
    """``body`` for the width (i32) that it is at run time."""
    labels = {n: b.new_label(f"width{n}") for n in WIDTHS}
    done = b.new_label("moved")
    b.raw(f"switch i32 {width.ir}, label %{labels[16]} [ " + " ".join(f"i32 {n}, label %{labels[n]}" for n in WIDTHS[:2]) + " ]")
    for n in WIDTHS:
        b.label(labels[n])
        body(n)
        b.jump(done)
    b.label(done)


def move(b: IRWriter, source: Value, target: Value, width: int) -> None:
    """One lane's bytes."""
    b.store(b.load(f"i{8 * width}", source, align=4), target, align=4)


def fill_row(b: IRWriter, target: Value, byte: int, width: int) -> None:
    """32 lanes' bytes of one value."""
    for k in range(0, LANES * width, 64):
        b.raw(f"store <64 x i8> splat (i8 {byte}), ptr {b.gep(target, k).ir}, align 1")


def leave_with(b: IRWriter, code: Value) -> None:
    """Return an error code unless it is 0."""
    with b.when(b.cmp("icmp ne", code, b.i32(0)), likely=False):
        b.raw(f"ret i32 {code.ir}")
        b.label(b.new_label("dead"))


def _settle(b: IRWriter) -> None:
    """i32 rf_copy_settle(w, warp, record, lanes): write the bytes of some lanes. 0, or the race detector's error."""
    record, lanes = Value("%record", "ptr"), Value("%lanes", "i32")
    target, shadow = shared(b, b.load("i64", b.gep(record, Copy.BASE)))
    data = b.gep(record, Copy.DATA)

    def one(lane: Value | int, width: int) -> None:
        at = destination(b, lane, record)
        source = b.gep(data, lane * width) if isinstance(lane, int) else b.gep(data, b.bin("mul", b.resize(lane, "i64"), b.i64(width)))
        move(b, source, b.gep(target, at), width)
        b.store(b.const(f"i{8 * width}", SHADOW_SET), b.gep(shadow, at), align=1)

    def body(width: int) -> None:
        whole, straight, scattered, some, done = (b.new_label(x) for x in ("whole", "straight", "scattered", "some", "written"))
        b.branch(b.cmp("icmp eq", lanes, b.i32(-1)), whole, some)
        b.label(whole)
        b.branch(b.cmp("icmp ne", field(b, record, Copy.STRAIGHT), b.i32(0)), straight, scattered)
        b.label(straight)
        for k in range(0, LANES * width, 64):
            b.store(b.load("i8", b.gep(data, k), 64, align=64), b.gep(target, k), align=4)
        fill_row(b, shadow, SHADOW_SET, width)
        b.jump(done)
        b.label(scattered)
        for lane in range(LANES):
            one(lane, width)
        b.jump(done)
        b.label(some)
        with b.each_bit(lanes) as bit:
            one(bit, width)
        b.jump(done)
        b.label(done)

    by_width(b, field(b, record, Copy.WIDTH), body)
    b.store(b.bin("and", field(b, record, Copy.MASK), b.bin("xor", lanes, b.i32(-1))), b.gep(record, Copy.MASK))
    with b.when(b.cmp("icmp ne", b.load("ptr", b.gep("%w", Worker.RACE)), Value("null", "ptr"))):
        leave_with(b, _race(b, record, lanes))
    b.raw("ret i32 0")


def _race(b: IRWriter, record: Value, lanes: Value) -> Value:
    """Completion is a write by the warp at this moment: tell the race detector, which reads a MEMO."""
    memo = b.alloca(f"[{Memo.SIZE} x i8]")
    b.store(lanes, b.gep(memo, Memo.MASK))
    for source, target in ((Copy.SITE, Memo.SITE), (Copy.WIDTH, Memo.WIDTH)):
        b.store(field(b, record, source), b.gep(memo, target))
    b.store(b.i32(1), b.gep(memo, Memo.WRITE))
    for lane in range(LANES):
        b.store(destination(b, lane, record), b.gep(memo, Memo.REL + 8 * lane))
    base = b.load("i64", b.gep(record, Copy.BASE))
    return b.define(f"call i32 @rf_race_shared(ptr %w, ptr %warp, {memo.typed}, {base.typed})", "i32")


def _complete(b: IRWriter, record: Value, lanes: Value) -> None:
    leave_with(b, b.define(f"call i32 @rf_copy_settle(ptr %w, ptr %warp, {record.typed}, {lanes.typed})", "i32"))


def _retire(b: IRWriter) -> None:
    """Drop completed records from the head; an empty ring starts over, in memory that is warm."""
    head, body, check, done = (b.new_label(x) for x in ("head", "body", "check", "retired"))
    b.jump(head)
    b.label(head)
    first = field(b, WARP, Warp.HEAD)
    empty = b.cmp("icmp eq", first, field(b, WARP, Warp.TAIL))
    b.branch(empty, check, body)
    b.label(body)
    again = b.new_label("again")
    b.branch(b.cmp("icmp eq", field(b, entry(b, first), Copy.MASK), b.i32(0)), again, done)
    b.label(again)
    b.store(b.bin("add", first, b.i32(1)), b.gep(WARP, Warp.HEAD))
    b.jump(head)
    b.label(check)
    b.store(b.i32(0), b.gep(WARP, Warp.HEAD))
    b.store(b.i32(0), b.gep(WARP, Warp.TAIL))
    b.jump(done)
    b.label(done)


def _wait(b: IRWriter) -> None:
    """i32 rf_copy_wait(w, warp, lanes, newest): complete all but the ``newest`` groups of each lane; -1: copies of no group as well."""
    newest = Value("%newest", "i32")
    everything = b.cmp("icmp slt", newest, b.i32(0))
    limit = b.bin("sub", b.load("i32", b.gep(WARP, Warp.GROUPS), LANES, align=64), newest)
    head = field(b, WARP, Warp.HEAD)
    with b.loop(b.bin("sub", field(b, WARP, Warp.TAIL), head)) as k:
        record = entry(b, b.bin("add", head, k))
        with b.when(b.cmp("icmp eq", field(b, record, Copy.KIND), b.i32(COPY_BYTES))):
            group = b.load("i32", b.gep(record, Copy.GROUP), LANES, align=64)
            old = b.define(f"bitcast {b.cmp('icmp slt', group, limit).typed} to i32", "i32")
            ready = b.bin("and", b.select(everything, b.i32(-1), old), b.bin("and", Value("%lanes", "i32"), field(b, record, Copy.MASK)))
            with b.when(b.cmp("icmp ne", ready, b.i32(0))):
                _complete(b, record, ready)
    _retire(b)
    b.raw("ret i32 0")


def _drain(b: IRWriter) -> None:
    """i32 rf_copy_drain(w, warp): complete every queued arrival, and the lanes' copies before it."""
    head = field(b, WARP, Warp.HEAD)
    with b.loop(b.bin("sub", field(b, WARP, Warp.TAIL), head)) as k:
        record = entry(b, b.bin("add", head, k))
        lanes = field(b, record, Copy.MASK)
        is_arrival = b.cmp("icmp eq", field(b, record, Copy.KIND), b.i32(COPY_ARRIVAL))
        with b.when(b.bin("and", is_arrival, b.cmp("icmp ne", lanes, b.i32(0)))):
            with b.loop(k) as earlier:
                other = entry(b, b.bin("add", head, earlier))
                these = b.bin("and", field(b, other, Copy.MASK), lanes)
                is_copy = b.cmp("icmp eq", field(b, other, Copy.KIND), b.i32(COPY_BYTES))
                with b.when(b.bin("and", is_copy, b.cmp("icmp ne", these, b.i32(0)))):
                    _complete(b, other, these)
            arrivals(b, record, lanes, arrive=True)
            b.store(b.i32(0), b.gep(record, Copy.MASK))
    b.store(b.i32(0), b.gep(WARP, Warp.ARRIVALS))
    _retire(b)
    b.raw("ret i32 0")


def arrivals(b: IRWriter, record: Value, lanes: Value, arrive: bool) -> None:
    """The lanes' mbarriers expect one more arrival each, or receive one."""
    base = b.load("i64", b.gep(record, Copy.BASE))
    smem, _ = shared(b, base)
    with b.each_bit(lanes) as lane:
        at = destination(b, lane, record)
        pointer, address, site = b.gep(smem, at), b.bin("add", base, at), field(b, record, Copy.SITE)
        if arrive:
            mbarriers.change(b, pointer, site, lane, address, arrivals=b.i32(1))
        else:
            mbarriers.change(b, pointer, site, lane, address, added=1)


COLD = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


def queue_functions(declarations: set[str]) -> list[str]:
    """The IR text of the queue."""
    from rawflash.emu.lower.async_issue import issue_functions

    table = [
        ("rf_copy_settle", "ptr %w, ptr %warp, ptr %record, i32 %lanes", _settle),
        ("rf_copy_wait", "ptr %w, ptr %warp, i32 %lanes, i32 %newest", _wait),
        ("rf_copy_drain", "ptr %w, ptr %warp", _drain),
    ]
    return [function_text(name, "i32", params, body, declarations, COLD) for name, params, body in table] + issue_functions(declarations)
