"""The 32-byte sectors of one request, and which of their bytes: what a request for global, constant or local memory costs.

Lanes of local memory own frames that the emulator keeps one after the other; a GPU interleaves them word by word, so that lanes which
access the same variable fall into the same sectors. Word ``k`` of lane ``l`` is taken to be at byte ``128 k + 4 l`` of the warp's memory.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Launch, Memo, Worker
from rawflash.emu.lower.slowpath import LOCAL, function_text

MOST = 256  # 32 lanes of 8 words in local memory


def sector_buffers(b: IRWriter) -> tuple[Value, Value]:
    """Room for the sector numbers (i64) and byte masks (i32) of any request."""
    return b.alloca(f"[{MOST} x i64]"), b.alloca(f"[{MOST} x i32]")


def _at(b: IRWriter, base: str, index: Value, size: int) -> Value:
    return b.gep(base, b.bin("mul", b.resize(index, "i64"), b.i64(size)))


def _note(b: IRWriter, count: Value, address: Value, width: Value) -> None:
    """Add ``width`` bytes at ``address``, all in one sector, to the list. The last entries are the likely ones."""
    sector = b.bin("lshr", address, b.i64(5))
    ones = b.bin("sub", b.bin("shl", b.i64(1), width), b.i64(1))
    wanted = b.resize(b.bin("shl", ones, b.bin("and", address, b.i64(31))), "i32")
    have = b.load("i32", count)
    head, look, found, fresh, done = (b.new_label(x) for x in ("seek", "look", "found", "fresh", "noted"))
    at = b.alloca("i32", 4)
    b.store(have, at)
    b.jump(head)
    b.label(head)
    left = b.load("i32", at)
    b.branch(b.cmp("icmp eq", left, b.i32(0)), fresh, look)
    b.label(look)
    candidate = b.bin("sub", left, b.i32(1))
    b.store(candidate, at)
    b.branch(b.cmp("icmp eq", b.load("i64", _at(b, "%sectors", candidate, 8)), sector), found, head)
    b.label(found)
    slot = _at(b, "%bytes", candidate, 4)
    b.store(b.bin("or", b.load("i32", slot), wanted), slot)
    b.jump(done)
    b.label(fresh)
    b.store(sector, _at(b, "%sectors", have, 8))
    b.store(wanted, _at(b, "%bytes", have, 4))
    b.store(b.bin("add", have, b.i32(1)), count)
    b.jump(done)
    b.label(done)


def request_sectors(b: IRWriter) -> None:
    """i32 rf_request_sectors(w, memo, base, sectors, bytes): how many; in the order in which the lanes touch them first."""
    mask, space = b.load("i32", b.gep("%memo", Memo.MASK)), b.load("i32", b.gep("%memo", Memo.SPACE))
    size = b.load("i32", b.gep("%memo", Memo.WIDTH))
    stride = b.load("i64", b.gep(b.load("ptr", b.gep("%w", Worker.LAUNCH)), Launch.LOCAL_STRIDE))
    is_local = b.cmp("icmp eq", space, b.i32(LOCAL))
    words = b.intrinsic("umax", b.bin("lshr", size, b.i32(2)), b.i32(1))
    count = b.alloca("i32", 4)
    b.store(b.i32(0), count)
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            lane64 = b.resize(lane, "i64")
            rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", lane64, b.i64(8)), b.i64(Memo.REL))))
            address = b.bin("add", Value("%base", "i64"), rel)
            yes, no, done = b.new_label("local"), b.new_label("flat"), b.new_label("lane")
            b.branch(is_local, yes, no)
            b.label(yes)
            offset = b.bin("sub", address, b.bin("mul", lane64, stride))
            column = b.bin("add", b.bin("shl", lane64, b.i64(2)), b.bin("and", offset, b.i64(3)))
            first = b.bin("lshr", offset, b.i64(2))
            width = b.intrinsic("umin", b.resize(size, "i64"), b.i64(4))
            with b.loop(words) as k:
                row = b.bin("shl", b.bin("add", first, b.resize(k, "i64")), b.i64(7))
                _note(b, count, b.bin("add", row, column), width)
            b.jump(done)
            b.label(no)
            _note(b, count, address, b.resize(size, "i64"))
            b.jump(done)
            b.label(done)
    b.raw(f"ret i32 {b.load('i32', count).ir}")


def count_request(b: IRWriter) -> None:
    """void rf_sectors(w, memo, base): cost of a pattern, and the ideal: the sectors that its distinct bytes need at least."""
    sectors, wanted = sector_buffers(b)
    count = call_request(b, sectors, wanted)
    b.store(b.resize(count, "i64"), b.gep("%memo", Memo.COST))
    needed = b.bin("add", b.load("i64", b.gep("%memo", Memo.BYTES)), b.i64(31))
    b.store(b.bin("lshr", needed, b.i64(5)), b.gep("%memo", Memo.IDEAL))
    b.raw("ret void")


def call_request(b: IRWriter, sectors: Value, wanted: Value) -> Value:
    """List the sectors of the request ``%memo`` at ``%base``; i32, how many."""
    return b.define(f"call i32 @rf_request_sectors(ptr %w, ptr %memo, i64 %base, {sectors.typed}, {wanted.typed})", "i32")


def sector_functions(declarations: set[str]) -> list[str]:
    """The IR text of rf_request_sectors and rf_sectors."""
    attributes = "noinline nounwind"
    listing = "ptr %w, ptr %memo, i64 %base, ptr %sectors, ptr %bytes"
    return [
        function_text("rf_request_sectors", "i32", listing, request_sectors, declarations, attributes),
        function_text("rf_sectors", "void", "ptr %w, ptr %memo, i64 %base", count_request, declarations, attributes),
    ]
