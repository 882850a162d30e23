"""The patterns that an access site met before its last one, as generated code.

Warps that take turns at a site often have patterns of their own: the rows of a swizzled tile, the lanes of a last, partial warp. So a
pattern that is replaced moves to the first of SPARES records of its site, and a site that meets an unknown pattern looks there
before working it out. The most recent comes first.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import SPARES, Memo, Worker
from rawflash.emu.lower.slowpath import address_of

MEMO = Value("%memo", "ptr")
ROW = 64  # bytes moved at a time


def _copy(b: IRWriter, source: Value, target: Value) -> None:
    for k in range(0, Memo.SIZE, ROW):
        b.store(b.load("i64", b.gep(source, k), ROW // 8, align=ROW), b.gep(target, k), align=ROW)


def _spare(b: IRWriter, number: int) -> Value:
    site = b.resize(b.load("i32", b.gep(MEMO, Memo.SITE)), "i64")
    spares = b.load("ptr", b.gep("%w", Worker.SPARES))
    return b.gep(b.gep(spares, b.bin("mul", site, b.i64(SPARES * Memo.SIZE))), number * Memo.SIZE)


def recall(b: IRWriter) -> None:
    """i32 rf_recall(w, memo, mask): 1 if a spare record fits the addresses in WORKER.ADDRS; it is the site's memo then."""
    mask = Value("%mask", "i32")
    base = address_of(b, b.intrinsic("cttz", mask, plain=(Value("true", "i1"),)))
    addresses = b.load("i64", b.gep("%w", Worker.ADDRS), LANES, align=64)
    active = b.define("bitcast i32 %mask to <32 x i1>", "i1", LANES)
    rel = b.select(active, b.bin("sub", addresses, b.splat(base)), b.splat(b.i64(0)))
    low = b.bin("and", base, b.load("i64", b.gep(MEMO, Memo.KEY)))
    spare = [_spare(b, k) for k in range(SPARES)]
    for k in range(SPARES):
        same = b.cmp("icmp eq", b.load("i64", b.gep(spare[k], Memo.LOW)), low)
        same = b.bin("and", same, b.cmp("icmp eq", b.load("i32", b.gep(spare[k], Memo.MASK)), mask))
        same = b.bin("and", same, b.cmp("icmp sge", base, b.load("i64", b.gep(spare[k], Memo.BASE_MIN))))
        same = b.bin("and", same, b.cmp("icmp sle", base, b.load("i64", b.gep(spare[k], Memo.BASE_MAX))))
        with b.when(same):
            differ = b.reduce_any(b.cmp("icmp ne", rel, b.load("i64", b.gep(spare[k], Memo.REL), LANES, align=64)))
            with b.when(b.bin("xor", differ, Value("true", "i1"))):
                found = b.alloca(f"[{Memo.SIZE} x i8]")
                _copy(b, spare[k], found)
                _keep(b, spare[: k + 1])
                _copy(b, found, MEMO)
                b.raw("ret i32 1")
                b.label(b.new_label("dead"))
    known = b.cmp("icmp ne", b.load("i64", b.gep(MEMO, Memo.LOW)), b.i64(-1))
    with b.when(known):
        b.raw(f"call void @rf_flush({spare[-1].typed})")
        _keep(b, spare)
        b.store(b.i64(0), b.gep(MEMO, Memo.HITS))
    b.raw("ret i32 0")


def _keep(b: IRWriter, spare: list[Value]) -> None:
    """Move the site's memo to the first place, and every spare one on; the last is given up."""
    for k in range(len(spare) - 1, 0, -1):
        _copy(b, spare[k - 1], spare[k])
    _copy(b, MEMO, spare[0])
