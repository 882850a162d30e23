"""Asynchronous copies (PTX ISA 9.7.9.25): cp.async from global to shared memory, its groups, and arrivals on an mbarrier.

The source is read, checked and counted when the copy is issued; the destination becomes readable when the copy is waited for
(lower/async_queue.py). Bytes beyond the source size are zeros, and a source size of 0 does not look at the source address.
"""

from __future__ import annotations

from rawflash.emu.isa.mbarrier import shared_address
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Memo, Warp, Worker
from rawflash.emu.ptx.tree import Instruction, Operand, Reg

SIZES = {"ca": (4, 8, 16), "cg": (16,)}
W, WARP = Value("%w", "ptr"), Value("%warp", "ptr")


@op("cp.async.{cache:ca|cg}.{space:shared|shared::cta}.global[.L2::cache_hint][.{prefetch:L2::64B|L2::128B|L2::256B}]")
def cp_async(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    size = b.constant_of(i.operands[2])
    if size not in SIZES[m["cache"]]:
        raise b.unsupported(f"cp.async.{m['cache']} copies {' or '.join(map(str, SIZES[m['cache']]))} bytes")
    b.code.copies = True
    rest = i.operands[3 : -1 if m["L2_cache_hint"] else None]
    n_bytes = _source_size(b, rest[0], size) if rest else None
    target, source = b.address(i.operands[0]), b.address(i.operands[1])
    to = access.touch(b, "shared", target, size, write=True)
    if n_bytes is None:
        _whole(b, to, source, size)
        return
    mask = b.lane_mask()
    short = b.bin("and", b.bits_of(b.cmp("icmp ne", n_bytes, b.i32(size))), mask)
    whole, some, done = b.new_label("whole"), b.new_label("short"), b.new_label("issued")
    b.branch(b.cmp("icmp eq", short, b.i32(0)), whole, some, likely=True)
    b.label(whole)
    _whole(b, to, source, size)
    b.jump(done)
    b.label(some)
    _sized(b, to, source, size, b.splat(n_bytes))
    b.jump(done)
    b.label(done)


def _source_size(b: WarpBuilder, operand: Operand, size: int) -> Value | None:
    """Bytes to read per lane (i32); None: all. The operand is a number of bytes, or a predicate to ignore the source."""
    is_predicate = isinstance(operand, Reg) and b.registers.get(operand.name) == "pred"
    if is_predicate:
        return b.select(b.pred(operand), b.i32(0), b.i32(size))
    return None if b.constant_of(operand) == size else b.src(operand, "u32")


def _whole(b: WarpBuilder, to: access.Touched, source: Value, size: int) -> None:
    """Every active lane reads all its bytes."""
    origin = access.touch(b, "global", source, size, write=False)
    unwritten = access.call(b, "rf_copy", W, WARP, to.base, to.memo, origin.pointer, origin.memo)
    assert unwritten is not None
    if b.params.initcheck:
        access._check_initialised(b, "global", origin, b.cmp("icmp ne", unwritten, b.i32(0)))


def _sized(b: WarpBuilder, to: access.Touched, source: Value, size: int, n_bytes: Value) -> None:
    """Some lanes read fewer bytes, or none."""
    mask = b.lane_mask()
    over = b.bin("and", b.bits_of(b.cmp("icmp ugt", n_bytes, b.i32(size))), mask)
    lane = b.bin("and", b.first_lane(over), b.i32(31))
    b.fail_if(b.cmp("icmp ne", over, b.i32(0)), "bad_copy", lane, aux=b.resize(b.extract(n_bytes, lane), "i64"))
    sizes = b.alloca(f"<{LANES} x i32>")
    b.store(n_bytes, sizes)
    b.store(b.splat(b.resize(source, "i64")), b.gep("%w", Worker.ADDRS), align=64)
    memo = b.gep("%memos", b.new_site("global", False, size) * Memo.SIZE)
    reading = b.bin("and", b.bits_of(b.cmp("icmp ne", n_bytes, b.i32(0))), mask)
    access.check(b, access.call(b, "rf_learn_sizes", W, WARP, memo, reading, sizes))
    checked = b.i32(int(b.params.initcheck))
    access.check(b, access.call(b, "rf_copy_sizes", W, WARP, to.base, to.memo, sizes, memo, checked))


@op("cp.async.commit_group")
def commit_group(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Each executing lane closes its group."""
    at = b.gep("%warp", Warp.GROUPS)
    one = b.resize(b.lanes_of(b.lane_mask()), "i32")
    b.store(b.bin("add", b.load("i32", at, LANES, align=64), one), at, align=64)


@op("cp.async.wait_group", "cp.async.wait_all")
def wait_group(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    newest = b.constant_of(i.operands[0]) if i.operands else -1
    if newest is None or newest < -1:
        raise b.unsupported("cp.async.wait_group needs a number of groups that is known when the kernel is compiled")
    access.check(b, access.call(b, "rf_copy_wait", W, WARP, b.lane_mask(), b.i32(newest)))


@op("cp.async.mbarrier.arrive[.noinc][.{space:shared|shared::cta}].b64")
def arrive(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """An arrival when the lane's copies so far are complete; without .noinc the mbarrier first expects one more."""
    b.code.copies = True
    to = access.touch(b, "shared", shared_address(b, i.operands[0], m), 8, write=True, ordered=True)
    if b.params.initcheck:
        access.check_all_initialised(b, "shared", to)
    access.check(b, access.call(b, "rf_copy_arrive", W, WARP, to.base, to.memo, b.i32(0 if m["noinc"] else 1)))
