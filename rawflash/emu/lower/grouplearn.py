"""The slow path of groups (groups.py), as generated code: part of the runtime that all kernels share."""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Memo, Worker
from rawflash.emu.lower.slowpath import function_text


def _slot(b: IRWriter, lane: Value) -> Value:
    return b.gep(b.gep("%w", Worker.ADDRS), b.bin("mul", b.resize(lane, "i64"), b.i64(8)))


def _pattern_is_known(b: IRWriter, first: Value) -> Value:
    """i1: mask and relative addresses are those that the leader's memo remembers."""
    mask = Value("%mask", "i32")
    same = b.alloca("i1", 1)
    b.store(b.cmp("icmp eq", mask, b.load("i32", b.gep("%memo", Memo.MASK))), same)
    origin = b.load("i64", _slot(b, first))
    with b.loop(32) as lane:
        active = b.cmp("icmp ne", b.bin("and", b.bin("lshr", mask, lane), b.i32(1)), b.i32(0))
        known = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))))
        differs = b.cmp("icmp ne", b.bin("sub", b.load("i64", _slot(b, lane)), origin), known)
        with b.when(b.bin("and", active, differs)):
            b.store(Value("false", "i1"), same)
    return b.load("i1", same)


def learn_group(b: IRWriter) -> None:
    """i32 rf_learn_group(w, memo of the leader, mask, base): 0 or an error kind. The register's lanes are in WORKER.ADDRS."""
    base = Value("%base", "i64")
    first = b.intrinsic("cttz", Value("%mask", "i32"), plain=(Value("false", "i1"),))
    same = _pattern_is_known(b, first)
    hits = b.load("i64", b.gep("%memo", Memo.JOINT_HITS))
    b.store(b.i64(0), b.gep("%memo", Memo.JOINT_HITS))
    b.store(b.i64(-1), b.gep("%memo", Memo.JOINT_LOW))
    width = b.select(b.cmp("icmp ne", b.load("i32", b.gep("%memo", Memo.NARROW)), b.i32(0)), b.i64(0xFFFFFFFF), b.i64(-1))
    shift, low, high = (b.alloca("i64", 8) for _ in range(3))
    cursor = b.alloca("ptr", 8)
    b.store(b.i64(0), shift)
    b.store(b.const("i64", -(1 << 63)), low)
    b.store(b.const("i64", (1 << 63) - 1), high)
    b.store(Value("%memo", "ptr"), cursor)
    again, done = b.new_label("member"), b.new_label("learnt")
    b.jump(again)
    b.label(again)
    memo = b.load("ptr", cursor)
    offset = b.load("i64", b.gep(memo, Memo.OFFSET))
    delta = b.bin("sub", offset, b.load("i64", shift))
    b.store(offset, shift)
    with b.loop(32) as lane:
        moved = b.bin("and", b.bin("add", b.load("i64", _slot(b, lane)), delta), width)
        b.store(moved, _slot(b, lane))
    b.increment(b.gep(memo, Memo.HITS), hits)
    own = b.load("i64", _slot(b, first))
    holds = b.cmp("icmp eq", b.bin("and", own, b.load("i64", b.gep(memo, Memo.KEY))), b.load("i64", b.gep(memo, Memo.LOW)))
    holds = b.bin("and", holds, b.cmp("icmp sge", own, b.load("i64", b.gep(memo, Memo.BASE_MIN))))
    holds = b.bin("and", holds, b.cmp("icmp sle", own, b.load("i64", b.gep(memo, Memo.BASE_MAX))))
    holds = b.bin("and", holds, same)
    with b.when(b.bin("xor", holds, Value("true", "i1"))):
        code = b.define(f"call i32 @rf_learn(ptr %w, {memo.typed}, i32 %mask)", "i32")
        with b.when(b.cmp("icmp ne", code, b.i32(0))):
            b.raw(f"ret i32 {code.ir}")
            b.label(b.new_label("dead"))
    for slot, field, keep in ((low, Memo.BASE_MIN, "smax"), (high, Memo.BASE_MAX, "smin")):
        limit = b.bin("sub", b.load("i64", b.gep(memo, field)), offset)
        b.store(b.intrinsic(keep, b.load("i64", slot), limit), slot)
    b.store(b.gep(memo, b.load("i64", b.gep(memo, Memo.NEXT))), cursor)
    b.branch(b.cmp("icmp eq", b.load("i64", b.gep(memo, Memo.NEXT)), b.i64(0)), done, again)
    b.label(done)
    b.store(b.load("i64", low), b.gep("%memo", Memo.JOINT_MIN))
    b.store(b.load("i64", high), b.gep("%memo", Memo.JOINT_MAX))
    b.store(b.bin("and", base, b.load("i64", b.gep("%memo", Memo.JOINT_KEY))), b.gep("%memo", Memo.JOINT_LOW))
    b.raw("ret i32 0")


def init_check_group(b: IRWriter) -> None:
    """i32 rf_init_check_group(w, memo of the leader, memo of the last load, shadow of base, base): the exact check of the loads so far."""
    cursor = b.alloca("ptr", 8)
    b.store(Value("%memo", "ptr"), cursor)
    again, done = b.new_label("member"), b.new_label("checked")
    b.jump(again)
    b.label(again)
    memo = b.load("ptr", cursor)
    with b.when(b.cmp("icmp eq", b.load("i32", b.gep(memo, Memo.WRITE)), b.i32(0))):
        offset = b.load("i64", b.gep(memo, Memo.OFFSET))
        at = b.bin("add", Value("%base", "i64"), offset)
        shadow = b.gep("%shadow", offset)
        code = b.define(f"call i32 @rf_init_check(ptr %w, {memo.typed}, {shadow.typed}, {at.typed})", "i32")
        with b.when(b.cmp("icmp ne", code, b.i32(0))):
            b.raw(f"ret i32 {code.ir}")
            b.label(b.new_label("dead"))
    b.store(b.gep(memo, b.load("i64", b.gep(memo, Memo.NEXT))), cursor)
    b.branch(b.cmp("icmp eq", memo, Value("%last", "ptr")), done, again)
    b.label(done)
    b.raw("ret i32 0")


def group_functions(declarations: set[str]) -> list[str]:
    """The IR text of both."""
    cold = "noinline nounwind cold"
    checking = "ptr %w, ptr %memo, ptr %last, ptr %shadow, i64 %base"
    return [
        function_text("rf_learn_group", "i32", "ptr %w, ptr %memo, i32 %mask, i64 %base", learn_group, declarations, cold),
        function_text("rf_init_check_group", "i32", checking, init_check_group, declarations, cold),
    ]
