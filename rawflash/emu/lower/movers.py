"""Moving the elements of lanes that do not lie side by side, or of several registers per lane."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Memo
from rawflash.emu.lower.slowpath import CLASS_CONTIGUOUS


def _when_contiguous(b: IRWriter, body: Callable[[], None]) -> None:
    """Run ``body`` and return if all 32 lanes are active and lie one after the other."""
    whole = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.MASK)), b.i32(-1))
    straight = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.CLASS)), b.i32(CLASS_CONTIGUOUS))
    with b.when(b.bin("and", whole, straight)):
        body()
        b.raw("ret void")
        b.label(b.new_label("dead"))


def gather(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_gather(base, memo, out): out[component][lane], i<bits> each."""
    ty = f"i{bits}"

    def straight(b: IRWriter) -> None:
        block = b.define(f"load <{32 * n} x {ty}>, ptr %base, align {bits // 8}", ty, 32 * n)
        for c in range(n):
            column = b.shuffle(block, None, [lane * n + c for lane in range(32)])
            b.store(column, b.gep("%out", c * 4 * bits), align=min(64, 4 * bits))

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: straight(b))
        for lane in range(32):
            rel = b.load("i64", b.gep("%memo", Memo.REL + 8 * lane))
            v = b.load(ty, b.gep("%base", rel), lanes=n if n > 1 else 0, align=bits // 8)
            for c in range(n):
                b.store(b.extract(v, c), b.gep("%out", (c * 32 + lane) * bits // 8), align=bits // 8)
        b.raw("ret void")

    return body


def scatter(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_scatter(base, memo, in): lanes in ascending order, so the highest lane wins a collision."""
    ty = f"i{bits}"

    def straight(b: IRWriter) -> None:
        parts = [b.load(ty, b.gep("%in", c * 4 * bits), 32, align=min(64, 4 * bits)) for c in range(n)]
        while len(parts) > 1:
            parts = [b.shuffle(parts[k], parts[k + 1], list(range(2 * parts[k].lanes))) for k in range(0, len(parts), 2)]
        rows = parts[0] if n == 1 else b.shuffle(parts[0], None, [c * 32 + lane for lane in range(32) for c in range(n)])
        b.store(rows, "%base", align=bits // 8)

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: straight(b))
        mask = b.load("i32", b.gep("%memo", Memo.MASK))
        with b.loop(32) as lane:
            bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
            with b.when(b.cmp("icmp ne", bit, b.i32(0))):
                lane64 = b.resize(lane, "i64")
                rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", lane64, b.i64(8)), b.i64(Memo.REL))))
                target = b.gep("%base", rel)
                for c in range(n):
                    source = b.gep("%in", b.bin("add", b.bin("mul", lane64, b.i64(bits // 8)), b.i64(c * 4 * bits)))
                    b.store(b.load(ty, source), b.gep(target, c * bits // 8), align=bits // 8)
        b.raw("ret void")

    return body


def mark(b: IRWriter) -> None:
    """void rf_mark(shadow of first active lane, memo, size): the bytes of a store are initialised now."""
    b.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    total = b.bin("shl", b.resize(Value("%size", "i32"), "i64"), b.i64(5))
    _when_contiguous(b, lambda: b.raw(f"call void @llvm.memset.p0.i64(ptr %shadow, i8 -1, i64 {total.ir}, i1 false)"))
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    with b.loop(32) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            rel = b.load("i64", b.gep("%memo", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))))
            with b.loop(Value("%size", "i32")) as byte:
                b.store(b.const("i8", -1), b.gep("%shadow", b.bin("add", rel, b.resize(byte, "i64"))))
    b.raw("ret void")
