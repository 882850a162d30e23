"""Where an access may go: the allocation or window that holds its bytes, and the lane to blame when none does."""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Alloc, Launch, Site, Worker
from rawflash.emu.lower.slowpath import CONST, GLOBAL, active, address_of, each_allocation, fail


@dataclass(frozen=True)
class _Found:
    """Stack slots for the answer: first byte and end of what holds the access, and the record that counts it."""

    low: Value
    high: Value
    record: Value


def bounds(b: IRWriter, lo: Value, span_end: Value, site: Value, first: Value) -> tuple[Value, Value, Value]:
    """The allocation that holds [lo, span_end): its bounds and counter record. Fails when there is none."""
    found = _Found(b.alloca("i64", 8), b.alloca("i64", 8), b.alloca("ptr", 8))
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    slots = b.load("i64", b.gep(launch, Launch.N_SLOTS))
    row = b.bin("mul", b.resize(site, "i64"), b.bin("mul", slots, b.i64(Site.SIZE)))
    counts = b.gep(b.load("ptr", b.gep("%w", Worker.COUNTS)), row)
    b.store(counts, found.record)
    space = Value("%space", "i32")
    is_global = b.bin("or", b.cmp("icmp eq", space, b.i32(GLOBAL)), b.cmp("icmp eq", space, b.i32(CONST)))
    yes, no, done = b.new_label("glob"), b.new_label("window"), b.new_label("bounded")
    b.branch(is_global, yes, no)
    b.label(yes)
    missing = _search_allocations(b, launch, counts, found, (lo, span_end), site, first)
    with b.when(missing):  # no single allocation: a fault, unless every lane is fine by itself
        blamed = b.define("call i32 @rf_blame(ptr %w, i32 %mask, i32 %size, i32 %site, i32 %write)", "i32")
        with b.when(b.cmp("icmp ne", blamed, b.i32(0))):
            b.raw(f"ret i32 {blamed.ir}")
            b.label(b.new_label("dead"))
        b.store(lo, found.low)  # only this very pattern at this very base is known to be good; it counts for no argument
        b.store(span_end, found.high)
    b.jump(done)
    b.label(no)
    _check_window(b, found, lo, span_end)
    b.jump(done)
    b.label(done)
    return b.load("i64", found.low), b.load("i64", found.high), b.load("ptr", found.record)


def _search_allocations(
    b: IRWriter, launch: Value, counts: Value, found: _Found, span: tuple[Value, Value], site: Value, first: Value
) -> Value:
    """Fill ``found`` with the allocation around ``span``; i1: there is none. Fails where a read-only one is written."""
    lo, span_end = span
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    any_found = b.alloca("i32", 4)
    b.store(b.i32(0), any_found)
    with each_allocation(b, launch, table) as entry:
        a_lo, a_hi = b.load("i64", b.gep(entry, Alloc.LO)), b.load("i64", b.gep(entry, Alloc.HI))
        inside = b.bin("and", b.cmp("icmp uge", lo, a_lo), b.cmp("icmp ule", span_end, a_hi))
        with b.when(inside):
            b.store(a_lo, found.low)
            b.store(a_hi, found.high)
            slot = b.load("i64", b.gep(entry, Alloc.SLOT))
            b.store(b.gep(counts, b.bin("mul", slot, b.i64(Site.SIZE))), found.record)
            b.store(b.i32(1), any_found)
            with b.when(_forbidden(b, entry)):
                fail(b, "read_only", site, first, lo)
                b.label(b.new_label("dead"))
    return b.cmp("icmp eq", b.load("i32", any_found), b.i32(0))


def _forbidden(b: IRWriter, entry: Value) -> Value:
    """i1: the access writes, and the allocation is read-only."""
    read_only = b.cmp("icmp ne", b.bin("and", b.load("i64", b.gep(entry, Alloc.FLAGS)), b.i64(Alloc.READ_ONLY)), b.i64(0))
    return b.bin("and", read_only, b.cmp("icmp ne", Value("%write", "i32"), b.i32(0)))


def _check_window(b: IRWriter, found: _Found, lo: Value, span_end: Value) -> None:
    """Shared and local memory: [0, %limit)."""
    limit = Value("%limit", "i64")
    with b.when(b.bin("or", b.cmp("icmp slt", lo, b.i64(0)), b.cmp("icmp sgt", span_end, limit))):
        b.raw("%blamed2 = call i32 @rf_blame_window(ptr %w, i32 %mask, i32 %size, i32 %site, i64 %limit)")
        b.raw("ret i32 %blamed2")
        b.label(b.new_label("dead"))
    b.store(b.i64(0), found.low)
    b.store(limit, found.high)


def blame(b: IRWriter) -> None:
    """Find the first lane whose bytes lie in no allocation; 0 if each lane is fine by itself, in allocations of its own."""
    site = Value("%site", "i32")
    size64 = b.resize(Value("%size", "i32"), "i64")
    launch = b.load("ptr", b.gep("%w", Worker.LAUNCH))
    table = b.load("ptr", b.gep(launch, Launch.ALLOCS))
    with b.loop(32) as lane, b.when(active(b, lane)):
        address = address_of(b, lane)
        end = b.bin("add", address, size64)
        found = b.alloca("i32", 4)
        b.store(b.i32(0), found)
        with each_allocation(b, launch, table) as entry:
            inside = b.bin(
                "and",
                b.cmp("icmp uge", address, b.load("i64", b.gep(entry, Alloc.LO))),
                b.cmp("icmp ule", end, b.load("i64", b.gep(entry, Alloc.HI))),
            )
            with b.when(inside):
                b.store(b.i32(1), found)
                with b.when(_forbidden(b, entry)):
                    fail(b, "read_only", site, lane, address)
                    b.label(b.new_label("dead"))
        with b.when(b.cmp("icmp eq", b.load("i32", found), b.i32(0))):
            fail(b, "out_of_bounds", site, lane, address)
            b.label(b.new_label("dead"))
    b.raw("ret i32 0")


def blame_window(b: IRWriter) -> None:
    size64 = b.resize(Value("%size", "i32"), "i64")
    with b.loop(32) as lane, b.when(active(b, lane)):
        address = address_of(b, lane)
        end = b.bin("add", address, size64)
        outside = b.bin("or", b.cmp("icmp slt", address, b.i64(0)), b.cmp("icmp sgt", end, Value("%limit", "i64")))
        with b.when(outside):
            fail(b, "out_of_bounds", Value("%site", "i32"), lane, address)
            b.label(b.new_label("dead"))
    fail(b, "out_of_bounds", Value("%site", "i32"), b.i32(0), address_of(b, b.i32(0)))
