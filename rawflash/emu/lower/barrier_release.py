"""Opening barriers at the end of a round, and leaving with an error: parts of the generated CTA loop (lower/scheduler.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import ERROR_KIND, FAILED, Launch, Warp, Worker

BARRIERS = 16
BAR_RECORD = 16


def stop(b: IRWriter, kind: str | None) -> None:
    """Leave the loop with an error. Other workers go on with earlier CTAs only, so that the first fault is what is reported."""
    if kind is not None:
        b.store(b.i32(ERROR_KIND[kind]), b.gep("%w", Worker.ERR_KIND))
        if kind not in ("deadlock", "spin", "bad_barrier"):  # those say where
            b.store(b.i32(-1), b.gep("%w", Worker.ERR_SITE))
    stop = b.gep(b.load("ptr", b.gep("%w", Worker.LAUNCH)), Launch.STOP)
    position = b.load("i64", b.gep("%w", Worker.POSITION))
    b.define(f"atomicrmw umin ptr {stop.ir}, i64 {position.ir} seq_cst", "i64")
    b.raw(f"ret i32 {FAILED}")
    b.label(b.new_label("dead"))


@dataclass(frozen=True)
class _Warps:
    """The WARP records of a CTA: the first, the bytes from one to the next, how many."""

    first: Value
    stride: Value
    count: Value

    def record(self, b: IRWriter, n: Value) -> Value:
        return b.gep(self.first, b.bin("mul", b.resize(n, "i64"), self.stride))

    @contextmanager
    def waiting_at(self, b: IRWriter, bar: Value) -> Iterator[tuple[Value, Value]]:
        """Code for every warp that waits at barrier ``bar``; yields its number and record."""
        with b.loop(self.count) as n:
            warp = self.record(b, n)
            at_it = b.bin(
                "and",
                b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.STATUS)), b.i32(1)),
                b.cmp("icmp eq", b.load("i32", b.gep(warp, Warp.BAR_ID)), bar),
            )
            with b.when(at_it):
                yield n, warp


def release_barriers(b: IRWriter, launch: Value, released: Value) -> None:
    """Open every barrier at which enough warps have arrived."""
    first = b.load("ptr", b.gep("%w", Worker.WARPS))
    stride = b.load("i64", b.gep(launch, Launch.WARP_STRIDE))
    warps = _Warps(first, stride, b.load("i32", b.gep(launch, Launch.NWARPS)))
    live, waiting_on, need = b.alloca("i32", 4), b.alloca("i32", 4), b.alloca("i32", 4)
    b.store(b.i32(0), live)
    with b.loop(warps.count) as n:
        status = b.load("i32", b.gep(warps.record(b, n), Warp.STATUS))
        with b.when(b.cmp("icmp ne", status, b.i32(2))):
            b.store(b.bin("add", b.load("i32", live), b.i32(1)), live)
    with b.loop(BARRIERS) as bar:
        b.store(b.i32(0), waiting_on)
        b.store(b.i32(0), need)
        with warps.waiting_at(b, bar) as (n, warp):
            threads = b.load("i32", b.gep(warp, Warp.BAR_THREADS))
            _refuse_other_count(b, n, warp, threads, b.load("i32", need))
            b.store(b.i32(1), waiting_on)
            b.store(threads, need)
        with b.when(b.cmp("icmp ne", b.load("i32", waiting_on), b.i32(0))):
            offset = b.bin("mul", b.resize(bar, "i64"), b.i64(BAR_RECORD))
            acc = b.gep(b.gep("%w", Worker.BAR_ACC), offset)
            threads = b.load("i32", need)
            wanted = b.select(
                b.cmp("icmp eq", threads, b.i32(0)), b.load("i32", live), b.bin("lshr", b.bin("add", threads, b.i32(31)), b.i32(5))
            )
            with b.when(b.cmp("icmp uge", b.load("i32", acc), wanted)):
                _open(b, warps, bar, acc, b.gep(b.gep("%w", Worker.BAR_RESULT), offset), released)


def _refuse_other_count(b: IRWriter, n: Value, warp: Value, threads: Value, seen: Value) -> None:
    """Stop when warp ``n`` waits for another number of threads than an earlier one did, ``seen``; 0: all, or no earlier one."""
    given = b.bin("and", b.cmp("icmp ne", threads, b.i32(0)), b.cmp("icmp ne", seen, b.i32(0)))
    with b.when(b.bin("and", given, b.cmp("icmp ne", threads, seen))):
        b.store(b.load("i32", b.gep(warp, Warp.BAR_SITE)), b.gep("%w", Worker.ERR_SITE))
        b.store(n, b.gep("%w", Worker.ERR_WARP))
        b.store(b.i32(0), b.gep("%w", Worker.ERR_LANE))
        b.store(b.i64(-2), b.gep("%w", Worker.ERR_AUX))
        stop(b, "bad_barrier")


def _open(b: IRWriter, warps: _Warps, bar: Value, acc: Value, result: Value, released: Value) -> None:
    """Hand out what was accumulated, begin the next interval, and let the waiting warps run."""
    for k in range(3):  # popc, number of true warps, any
        b.store(b.load("i32", b.gep(acc, 4 + 4 * k)), b.gep(result, 4 * k))
    for k in range(4):
        b.store(b.i32(0), b.gep(acc, 4 * k))
    _note_pairs(b, warps, bar)
    epoch = b.load("i32", b.gep("%w", Worker.EPOCH))
    b.store(b.bin("add", epoch, b.i32(1)), b.gep("%w", Worker.EPOCH))
    b.store(b.i32(1), released)
    with warps.waiting_at(b, bar) as (_, warp):
        b.store(b.i32(0), b.gep(warp, Warp.STATUS))


def _note_pairs(b: IRWriter, warps: _Warps, bar: Value) -> None:
    """Remember when warps meet at one barrier from different places in the code: legal on the hardware, often a mistake."""
    first = b.alloca("i32", 4)
    b.store(b.i32(-1), first)
    with b.loop(warps.count) as n:
        warp = warps.record(b, n)
        status, number = b.load("i32", b.gep(warp, Warp.STATUS)), b.load("i32", b.gep(warp, Warp.BAR_ID))
        with b.when(b.bin("and", b.cmp("icmp eq", status, b.i32(1)), b.cmp("icmp eq", number, bar))):
            site, seen = b.load("i32", b.gep(warp, Warp.BAR_SITE)), b.load("i32", first)
            with b.when(b.cmp("icmp eq", seen, b.i32(-1))):
                b.store(site, first)
            count = b.load("i32", b.gep("%w", Worker.PAIRED))
            other = b.bin("and", b.cmp("icmp ne", seen, b.i32(-1)), b.cmp("icmp ne", seen, site))
            with b.when(b.bin("and", other, b.cmp("icmp ult", count, b.i32(7)))):
                known = b.alloca("i32", 4)
                b.store(b.i32(0), known)
                with b.loop(count) as k:
                    entry = b.gep("%w", b.bin("add", b.bin("mul", b.resize(k, "i64"), b.i64(8)), b.i64(Worker.PAIRED + 4)))
                    first_half, second_half = b.load("i32", entry), b.load("i32", b.gep(entry, 4))
                    same = b.bin("and", b.cmp("icmp eq", first_half, seen), b.cmp("icmp eq", second_half, site))
                    with b.when(same):
                        b.store(b.i32(1), known)
                with b.when(b.cmp("icmp eq", b.load("i32", known), b.i32(0))):
                    entry = b.gep("%w", b.bin("add", b.bin("mul", b.resize(count, "i64"), b.i64(8)), b.i64(Worker.PAIRED + 4)))
                    b.store(seen, entry)
                    b.store(site, b.gep(entry, 4))
                    b.store(b.bin("add", count, b.i32(1)), b.gep("%w", Worker.PAIRED))
