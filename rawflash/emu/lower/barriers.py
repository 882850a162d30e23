"""bar.sync / bar.red / barrier.*: what a warp does when it arrives, and what it reads when it is let through. Fences."""

from __future__ import annotations

from rawflash.emu.lower.barrier_release import BAR_RECORD
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.layout import Warp, Worker
from rawflash.emu.ptx.tree import Imm, Instruction, Operand


def _operands(i: Instruction) -> tuple[Operand | None, Operand, Operand | None, Operand | None]:
    """(destination, barrier, thread count, predicate)"""
    operands = list(i.operands)
    destination = operands.pop(0) if "red" in i.mods else None
    predicate = operands.pop() if "red" in i.mods else None
    barrier = operands.pop(0) if operands else Imm(0)
    return destination, barrier, operands.pop(0) if operands else None, predicate


def _scalar(b: WarpBuilder, operand: Operand) -> Value:
    v = b.src(operand, "u32")
    return b.extract(v, b.first_lane(b.lane_mask())) if v.lanes else v


def _record(b: WarpBuilder, base: int, barrier: Value) -> Value:
    return b.gep(b.gep("%w", base), b.bin("mul", b.resize(barrier, "i64"), b.i64(BAR_RECORD)))


def arrive(b: WarpBuilder, i: Instruction) -> None:
    """Register this warp at the barrier; the caller suspends it unless the instruction only arrives."""
    _, barrier_operand, count_operand, predicate_operand = _operands(i)
    barrier = _scalar(b, barrier_operand)
    b.fail_if(b.cmp("icmp ugt", barrier, b.i32(15)), "bad_barrier", aux=b.i64(-1))
    threads = _scalar(b, count_operand) if count_operand is not None else b.i32(0)
    if count_operand is not None:
        odd = b.cmp("icmp ne", b.bin("and", threads, b.i32(31)), b.i32(0))
        b.fail_if(b.bin("or", odd, b.cmp("icmp sle", threads, b.i32(0))), "bad_barrier", aux=b.resize(threads, "i64", True))
    b.store(b.i32(b.new_site("none", False, 0)), b.gep("%warp", Warp.BAR_SITE))
    record = _record(b, Worker.BAR_ACC, barrier)
    b.store(b.bin("add", b.load("i32", record), b.i32(1)), record)
    if predicate_operand is not None:
        predicate = b.pred(predicate_operand)
        mask = b.lane_mask()
        true = b.bin("and", b.bits_of(predicate), mask)
        fields = (
            b.intrinsic("ctpop", true),
            b.resize(b.cmp("icmp ne", true, mask), "i32"),  # warps in which some lane is false
            b.resize(b.cmp("icmp ne", true, b.i32(0)), "i32"),  # warps in which some lane is true
        )
        for k, value in enumerate(fields, start=1):
            slot = b.gep(record, 4 * k)
            b.store(b.bin("add", b.load("i32", slot), value), slot)
    b.store(barrier, b.gep("%warp", Warp.BAR_ID))
    b.store(threads, b.gep("%warp", Warp.BAR_THREADS))


def fetch_result(b: WarpBuilder, i: Instruction) -> None:
    """The result of bar.red after the barrier opened."""
    destination, _, _, _ = _operands(i)
    if destination is None:
        return
    result = _record(b, Worker.BAR_RESULT, b.load("i32", b.gep("%warp", Warp.BAR_ID)))
    if "popc" in i.mods:
        b.write(destination, b.load("i32", result))
    elif "and" in i.mods:
        b.write(destination, b.cmp("icmp eq", b.load("i32", b.gep(result, 4)), b.i32(0)))
    else:
        b.write(destination, b.cmp("icmp ne", b.load("i32", b.gep(result, 8)), b.i32(0)))


def order(b: WarpBuilder, scope: str | None) -> None:
    """A fence, acquire or release: for the race detector nothing before it races with anything after it, in the CTA or device-wide."""
    if not b.params.racecheck:
        return
    for field in (Worker.EPOCH,) if scope == "cta" else (Worker.EPOCH, Worker.GENERATION):
        at = b.gep("%w", field)
        b.store(b.bin("add", b.load("i32", at), b.i32(1)), at)
