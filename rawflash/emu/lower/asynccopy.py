"""cp.async at run time: copies that have been issued wait in a queue of their warp until the warp waits for their group.

At issue the source is read, and the destination becomes uninitialised again: whoever reads it before the wait is told. An entry
holds the destination, the lanes' offsets and the data; the queue is first in, first out, as groups are.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Memo, Warp, Worker
from rawflash.emu.lower.slowpath import function_text

CAPACITY = 512  # copies in flight per warp; when full, the oldest completes early, as hardware may
DEST, MASK, SIZE, GROUP, REL, DATA = 0, 8, 12, 16, 64, 320
ENTRY_BYTES = 832


def _entry(b: IRWriter, index: Value) -> Value:
    queue = b.load("ptr", b.gep("%warp", Warp.QUEUE))
    slot = b.bin("and", index, b.i32(CAPACITY - 1))
    return b.gep(queue, b.bin("mul", b.resize(slot, "i64"), b.i64(ENTRY_BYTES)))


def _copy(b: IRWriter, target: Value, source: Value, n_bytes: int) -> None:
    b.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    b.raw(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.ir}, ptr {source.ir}, i64 {n_bytes}, i1 false)")


def _shadow_delta(b: IRWriter) -> Value:
    shadow, smem = b.load("i64", b.gep("%w", Worker.SMEM_SHADOW)), b.load("i64", b.gep("%w", Worker.SMEM))
    return b.bin("sub", shadow, smem)


def push(b: IRWriter) -> None:
    """void rf_async_push(w, warp, memo, dest): queue the data in WORKER.DATA (words by component and lane) for the memo's lanes."""
    count = b.load("i32", b.gep("%warp", Warp.QUEUED))
    with b.when(b.cmp("icmp uge", count, b.i32(CAPACITY))):
        oldest = b.load("i32", b.gep(_entry(b, b.load("i32", b.gep("%warp", Warp.QUEUE_HEAD))), GROUP))
        b.raw(f"call void @rf_async_wait(ptr %w, ptr %warp, i32 {b.bin('add', oldest, b.i32(1)).ir})")
    count = b.load("i32", b.gep("%warp", Warp.QUEUED))
    entry = _entry(b, b.bin("add", b.load("i32", b.gep("%warp", Warp.QUEUE_HEAD)), count))
    b.store(b.bin("add", count, b.i32(1)), b.gep("%warp", Warp.QUEUED))
    mask, size = b.load("i32", b.gep("%memo", Memo.MASK)), b.load("i32", b.gep("%memo", Memo.WIDTH))
    b.store(Value("%dest", "ptr"), b.gep(entry, DEST))
    b.store(mask, b.gep(entry, MASK))
    b.store(size, b.gep(entry, SIZE))
    b.store(b.load("i32", b.gep("%warp", Warp.PENDING)), b.gep(entry, GROUP))
    _copy(b, b.gep(entry, REL), b.gep("%memo", Memo.REL), 256)
    _copy(b, b.gep(entry, DATA), b.gep("%w", Worker.DATA), 512)
    delta = _shadow_delta(b)
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            rel = b.load("i64", b.gep(entry, b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(REL))))
            target = b.gep("%dest", rel)
            with b.loop(b.bin("lshr", size, b.i32(2))) as word:
                at = b.gep(target, b.bin("mul", b.resize(word, "i64"), b.i64(4)))
                b.store(b.i32(-1), at, align=4)
                b.store(b.i32(0), b.gep(at, delta), align=4)
    b.raw("ret void")


def wait(b: IRWriter) -> None:
    """void rf_async_wait(w, warp, group): complete every copy of a group before ``group``."""
    delta = _shadow_delta(b)
    again, done, complete = b.new_label("next"), b.new_label("done"), b.new_label("complete")
    b.jump(again)
    b.label(again)
    count, head = b.load("i32", b.gep("%warp", Warp.QUEUED)), b.load("i32", b.gep("%warp", Warp.QUEUE_HEAD))
    entry = _entry(b, head)
    due = b.cmp("icmp slt", b.load("i32", b.gep(entry, GROUP)), Value("%group", "i32"))
    b.branch(b.bin("and", b.cmp("icmp ne", count, b.i32(0)), due), complete, done)
    b.label(complete)
    dest = b.load("ptr", b.gep(entry, DEST))
    mask, size = b.load("i32", b.gep(entry, MASK)), b.load("i32", b.gep(entry, SIZE))
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            wide = b.resize(lane, "i64")
            target = b.gep(dest, b.load("i64", b.gep(entry, b.bin("add", b.bin("mul", wide, b.i64(8)), b.i64(REL)))))
            with b.loop(b.bin("lshr", size, b.i32(2))) as word:
                w64 = b.resize(word, "i64")
                source = b.gep(entry, b.bin("add", b.bin("add", b.bin("mul", w64, b.i64(128)), b.bin("mul", wide, b.i64(4))), b.i64(DATA)))
                at = b.gep(target, b.bin("mul", w64, b.i64(4)))
                b.store(b.load("i32", source), at, align=4)
                b.store(b.i32(-1), b.gep(at, delta), align=4)
    b.store(b.bin("sub", count, b.i32(1)), b.gep("%warp", Warp.QUEUED))
    b.store(b.bin("add", head, b.i32(1)), b.gep("%warp", Warp.QUEUE_HEAD))
    b.jump(again)
    b.label(done)
    b.raw("ret void")


def async_functions(declarations: set[str]) -> list[str]:
    """The IR text of both functions."""
    return [
        function_text("rf_async_push", "void", "ptr %w, ptr %warp, ptr %memo, ptr %dest", push, declarations, "noinline nounwind"),
        function_text("rf_async_wait", "void", "ptr %w, ptr %warp, i32 %group", wait, declarations, "noinline nounwind"),
    ]
