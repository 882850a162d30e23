"""Issuing cp.async: capture the source bytes, make the destination unreadable (see async_queue.py for what happens then)."""

from __future__ import annotations

from rawflash.emu.lower.async_queue import COLD, WARP, arrivals, by_width, destination, entry, field, fill_row, leave_with, move, shared
from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.l2 import READ
from rawflash.emu.lower.layout import COPY_ARRIVAL, COPY_BYTES, QUEUE_LIMIT, Copy, Launch, Memo, Warp, Worker
from rawflash.emu.lower.slowpath import CLASS_CONTIGUOUS, fail, function_text

SHADOW_CLEAR, POISON = 0, -1
SMEMO, GMEMO = Value("%smemo", "ptr"), Value("%gmemo", "ptr")


def _slot(b: IRWriter) -> None:
    """ptr rf_copy_slot(w, warp): a record at the tail. A full ring grows; at its limit everything completes early, as it may."""
    head, tail, capacity = (field(b, WARP, f) for f in (Warp.HEAD, Warp.TAIL, Warp.CAPACITY))
    with b.when(b.cmp("icmp eq", b.bin("sub", tail, head), capacity), likely=False):
        grow, settle, done = b.new_label("grow"), b.new_label("settle"), b.new_label("room")
        b.branch(b.cmp("icmp ult", capacity, b.i32(QUEUE_LIMIT)), grow, settle)
        b.label(grow)
        b.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        queue = b.load("ptr", b.gep(WARP, Warp.QUEUE))
        wrapped = b.bin("and", head, b.bin("sub", capacity, b.i32(1)))
        beyond = b.gep(queue, b.bin("mul", b.resize(capacity, "i64"), b.i64(Copy.SIZE)))
        n_bytes = b.bin("mul", b.resize(wrapped, "i64"), b.i64(Copy.SIZE))
        b.raw(f"call void @llvm.memcpy.p0.p0.i64(ptr {beyond.ir}, ptr {queue.ir}, i64 {n_bytes.ir}, i1 false)")
        b.store(b.bin("shl", capacity, b.i32(1)), b.gep(WARP, Warp.CAPACITY))
        b.store(wrapped, b.gep(WARP, Warp.HEAD))
        b.store(b.bin("add", wrapped, capacity), b.gep(WARP, Warp.TAIL))
        b.jump(done)
        b.label(settle)
        b.define("call i32 @rf_copy_drain(ptr %w, ptr %warp)", "i32")
        b.define("call i32 @rf_copy_wait(ptr %w, ptr %warp, i32 -1, i32 -1)", "i32")
        b.jump(done)
        b.label(done)
    number = field(b, WARP, Warp.TAIL)
    record = entry(b, number)
    b.store(b.bin("add", number, b.i32(1)), b.gep(WARP, Warp.TAIL))
    b.raw(f"ret ptr {record.ir}")


def _issue(b: IRWriter, kind: int) -> Value:
    """A record that describes the access of ``%smemo`` with its first active lane at ``%base``; returns its pointer."""
    record = b.define("call ptr @rf_copy_slot(ptr %w, ptr %warp)", "ptr")
    for source, target in ((Memo.MASK, Copy.MASK), (Memo.WIDTH, Copy.WIDTH), (Memo.SITE, Copy.SITE)):
        b.store(field(b, SMEMO, source), b.gep(record, target))
    b.store(b.i32(kind), b.gep(record, Copy.KIND))
    b.store(Value("%base", "i64"), b.gep(record, Copy.BASE))
    full = b.cmp("icmp eq", field(b, SMEMO, Memo.MASK), b.i32(-1))
    straight = b.cmp("icmp eq", field(b, SMEMO, Memo.CLASS), b.i32(CLASS_CONTIGUOUS))
    b.store(b.resize(b.bin("and", full, straight), "i32"), b.gep(record, Copy.STRAIGHT))
    b.store(b.load("i32", b.gep(SMEMO, Memo.REL32), LANES, align=64), b.gep(record, Copy.REL32), align=64)
    b.store(b.load("i32", b.gep(WARP, Warp.GROUPS), LANES, align=64), b.gep(record, Copy.GROUP), align=64)
    return record


def _poison(b: IRWriter, record: Value) -> None:
    """The destination holds nothing that may be read."""
    target, shadow = shared(b, b.load("i64", b.gep(record, Copy.BASE)))

    def body(width: int) -> None:
        straight, scattered, done = b.new_label("straight"), b.new_label("scattered"), b.new_label("poisoned")
        b.branch(b.cmp("icmp ne", field(b, record, Copy.STRAIGHT), b.i32(0)), straight, scattered)
        b.label(straight)
        fill_row(b, target, POISON, width)
        fill_row(b, shadow, SHADOW_CLEAR, width)
        b.jump(done)
        b.label(scattered)
        for lane in range(LANES):  # lanes that take no part have the place of one that does
            at = destination(b, lane, record)
            b.store(b.const(f"i{8 * width}", POISON), b.gep(target, at), align=4)
            b.store(b.const(f"i{8 * width}", SHADOW_CLEAR), b.gep(shadow, at), align=1)
        b.jump(done)
        b.label(done)

    by_width(b, field(b, record, Copy.WIDTH), body)


def _copy(b: IRWriter) -> None:
    """i32 rf_copy(w, warp, base, smemo, source, gmemo): every active lane copies all its bytes; source: of the first active lane.

    Returns whether the bytes look as if they had never been written.
    """
    record = _issue(b, COPY_BYTES)
    data, source = b.gep(record, Copy.DATA), Value("%source", "ptr")
    suspicious = b.alloca("i32", 4)
    b.store(b.i32(0), suspicious)

    def body(width: int) -> None:
        straight, scattered, done = b.new_label("straight"), b.new_label("scattered"), b.new_label("captured")
        whole = b.cmp("icmp eq", field(b, GMEMO, Memo.MASK), b.i32(-1))
        b.branch(b.bin("and", whole, b.cmp("icmp eq", field(b, GMEMO, Memo.CLASS), b.i32(CLASS_CONTIGUOUS))), straight, scattered)
        b.label(straight)
        for k in range(0, LANES * width, 64):
            b.store(b.load("i16", b.gep(source, k), 32, align=4), b.gep(data, k), align=64)
        b.jump(done)
        b.label(scattered)
        for lane in range(LANES):
            move(b, b.gep(source, b.load("i64", b.gep(GMEMO, Memo.REL + 8 * lane))), b.gep(data, lane * width), width)
        b.jump(done)
        b.label(done)
        found = b.cmp("icmp eq", b.load("i16", data, 32, align=64), b.const("i16", POISON))
        for k in range(64, LANES * width, 64):
            found = b.bin("or", found, b.cmp("icmp eq", b.load("i16", b.gep(data, k), 32, align=64), b.const("i16", POISON)))
        b.store(b.resize(b.reduce_any(found), "i32"), suspicious)

    by_width(b, field(b, record, Copy.WIDTH), body)
    _poison(b, record)
    b.raw(f"ret i32 {b.load('i32', suspicious).ir}")


def _copy_sizes(b: IRWriter) -> None:
    """i32 rf_copy_sizes(w, warp, base, smemo, sizes, gmemo, checked): ``sizes`` (32 x i32) source bytes per lane, zeros after them.
    The source addresses are in WORKER.ADDRS; where nothing is to be read they are not looked at. 0, or the error of an unwritten byte.
    """
    record = _issue(b, COPY_BYTES)
    width = field(b, record, Copy.WIDTH)
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    delta = b.load("i64", b.gep(launch, Launch.SHADOW_DELTA))
    checked = b.cmp("icmp ne", Value("%checked", "i32"), b.i32(0))
    with b.each_bit(field(b, record, Copy.MASK)) as lane:
        wide = b.resize(lane, "i64")
        target = b.gep(b.gep(record, Copy.DATA), b.bin("mul", wide, b.resize(width, "i64")))
        by_width(b, width, lambda n: b.store(b.const(f"i{8 * n}", 0), target, align=4))
        address = b.load("i64", b.gep(b.gep("%w", Worker.ADDRS), b.bin("shl", wide, b.i64(3))))
        source = b.define(f"inttoptr {address.typed} to ptr", "ptr")
        with b.loop(b.resize(b.load("i32", b.gep("%sizes", b.bin("shl", wide, b.i64(2)))), "i64"), "i64") as k:
            byte = b.load("i8", b.gep(source, k))
            b.store(byte, b.gep(target, k))
            with b.when(b.bin("and", checked, b.cmp("icmp eq", byte, b.const("i8", POISON)))):
                shadow = b.load("i8", b.gep(b.gep(source, delta), k))
                with b.when(b.cmp("icmp eq", shadow, b.const("i8", SHADOW_CLEAR))):
                    fail(b, "uninitialized", field(b, GMEMO, Memo.SITE), lane, b.bin("add", address, k))
                    b.label(b.new_label("dead"))
    _poison(b, record)
    b.raw("ret i32 0")


def _learn_sizes(b: IRWriter) -> None:
    """i32 rf_learn_sizes(w, warp, memo, mask, sizes): check and count lanes that read fewer bytes than the copy has, size by size."""
    memo = Value("%memo", "ptr")
    left = b.alloca("i32", 4)
    width = field(b, memo, Memo.WIDTH)
    b.store(Value("%mask", "i32"), left)
    sizes = b.load("i32", "%sizes", LANES, align=64)
    head, body, done = b.new_label("sizes"), b.new_label("size"), b.new_label("sized")
    b.jump(head)
    b.label(head)
    now = b.load("i32", left)
    b.branch(b.cmp("icmp ne", now, b.i32(0)), body, done)
    b.label(body)
    first = b.intrinsic("cttz", now, plain=(Value("true", "i1"),))
    size = b.load("i32", b.gep("%sizes", b.bin("shl", b.resize(first, "i64"), b.i64(2))))
    alike = b.define(f"bitcast {b.cmp('icmp eq', sizes, size).typed} to i32", "i32")
    group = b.bin("and", now, alike)
    b.store(size, b.gep(memo, Memo.WIDTH))
    code = b.define(f"call i32 @rf_learn(ptr %w, {memo.typed}, {group.typed})", "i32")
    b.increment(b.gep(memo, Memo.HITS), 1)
    l2 = b.load("ptr", b.gep(b.load("ptr", b.gep("%w", Worker.LAUNCH)), Launch.L2))
    with b.when(b.bin("and", b.cmp("icmp ne", l2, Value("null", "ptr")), b.cmp("icmp eq", code, b.i32(0)))):
        base = b.load("i64", b.gep(b.gep("%w", Worker.ADDRS), b.bin("shl", b.resize(first, "i64"), b.i64(3))))
        b.raw(f"call void @rf_l2(ptr %w, ptr %warp, {memo.typed}, {base.typed}, i32 {READ})")
    b.store(width, b.gep(memo, Memo.WIDTH))
    b.store(b.i64(-1), b.gep(memo, Memo.LOW))  # of another width: not to be recalled
    b.store(b.bin("and", now, b.bin("xor", group, b.i32(-1))), left)
    leave_with(b, code)
    b.jump(head)
    b.label(done)
    b.raw("ret i32 0")


def _arrive(b: IRWriter) -> None:
    """i32 rf_copy_arrive(w, warp, base, smemo, added): queue the lanes' arrivals; ``added`` 1: the mbarrier expects one more each."""
    record = _issue(b, COPY_ARRIVAL)
    b.store(b.bin("add", field(b, WARP, Warp.ARRIVALS), b.i32(1)), b.gep(WARP, Warp.ARRIVALS))
    with b.when(b.cmp("icmp ne", Value("%added", "i32"), b.i32(0))):
        arrivals(b, record, field(b, record, Copy.MASK), arrive=False)
    b.raw("ret i32 0")


def issue_functions(declarations: set[str]) -> list[str]:
    """The IR text of what the kernels call to start copies."""
    start = "ptr %w, ptr %warp, i64 %base, ptr %smemo"
    table = [
        ("rf_copy_slot", "ptr", "ptr %w, ptr %warp", _slot),
        ("rf_copy", "i32", start + ", ptr %source, ptr %gmemo", _copy),
        ("rf_copy_sizes", "i32", start + ", ptr %sizes, ptr %gmemo, i32 %checked", _copy_sizes),
        ("rf_copy_arrive", "i32", start + ", i32 %added", _arrive),
        ("rf_learn_sizes", "i32", "ptr %w, ptr %warp, ptr %memo, i32 %mask, ptr %sizes", _learn_sizes),
    ]
    return [function_text(name, ret, params, body, declarations, COLD) for name, ret, params, body in table]
