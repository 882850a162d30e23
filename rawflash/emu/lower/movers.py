"""Moving the elements of lanes that do not lie side by side, or of several registers per lane.

Vectors are put together and taken apart in registers: lanes stored one by one and read back as a vector would have to wait for
each other.
"""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import Memo
from rawflash.emu.lower.slowpath import CLASS_CONTIGUOUS

SIZES = (1, 2, 4, 8, 16, 32)  # bytes per lane


def _is_whole(b: IRWriter) -> Value:
    return b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.MASK)), b.i32(-1))


def _returns_when(b: IRWriter, condition: Value, body: Callable[[], None]) -> None:
    """Run ``body`` and return if the condition holds."""
    with b.when(condition):
        body()
        b.raw("ret void")
        b.label(b.new_label("dead"))


def _when_contiguous(b: IRWriter, body: Callable[[], None]) -> None:
    """Run ``body`` and return if all 32 lanes are active and lie one after the other."""
    straight = b.cmp("icmp eq", b.load("i32", b.gep("%memo", Memo.CLASS)), b.i32(CLASS_CONTIGUOUS))
    _returns_when(b, b.bin("and", _is_whole(b), straight), body)


def _of_lane(b: IRWriter, base: str, lane: int | Value) -> Value:
    """The lane's own place: base + REL[lane]."""
    slot: Value | int = (
        Memo.REL + 8 * lane if isinstance(lane, int) else b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(8)), b.i64(Memo.REL))
    )
    return b.gep(base, b.load("i64", b.gep("%memo", slot)))


def _active_lanes(b: IRWriter, body: Callable[[Value], None]) -> None:
    mask = b.load("i32", b.gep("%memo", Memo.MASK))
    with b.loop(LANES) as lane:
        bit = b.bin("and", b.bin("lshr", mask, lane), b.i32(1))
        with b.when(b.cmp("icmp ne", bit, b.i32(0))):
            body(lane)


def _joined(b: IRWriter, parts: list[Value]) -> Value:
    """One vector of all the parts, whose number is a power of two."""
    while len(parts) > 1:
        parts = [b.shuffle(parts[k], parts[k + 1], list(range(2 * parts[k].lanes))) for k in range(0, len(parts), 2)]
    return parts[0]


def gather(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_gather(base, memo, out): out[component][lane], i<bits> each."""
    ty = f"i{bits}"

    def columns(b: IRWriter, block: Value) -> None:
        for c in range(n):
            column = block if n == 1 else b.shuffle(block, None, [lane * n + c for lane in range(LANES)])
            b.store(column, b.gep("%out", c * 4 * bits), align=min(64, 4 * bits))

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: columns(b, b.load(ty, "%base", n * LANES, align=bits // 8)))
        if n > 1:
            columns(b, _joined(b, [b.load(ty, _of_lane(b, "%base", lane), n, align=bits // 8) for lane in range(LANES)]))
        else:
            row = Value("poison", ty, LANES)
            for lane in range(LANES):
                one = b.load(ty, _of_lane(b, "%base", lane), align=bits // 8)
                row = b.define(f"insertelement {row.typed}, {one.typed}, i64 {lane}", ty, LANES)
            columns(b, row)
        b.raw("ret void")

    return body


def scatter(bits: int, n: int) -> Callable[[IRWriter], None]:
    """void rf_scatter(base, memo, in): lanes in ascending order, so the highest lane wins a collision."""
    ty = f"i{bits}"

    def rows(b: IRWriter) -> Value:
        """The elements of lane 0, those of lane 1, ..."""
        block = _joined(b, [b.load(ty, b.gep("%in", c * 4 * bits), LANES, align=min(64, 4 * bits)) for c in range(n)])
        return block if n == 1 else b.shuffle(block, None, [c * LANES + lane for lane in range(LANES) for c in range(n)])

    def whole(b: IRWriter) -> None:
        block = rows(b)
        for lane in range(LANES):
            own = b.extract(block, lane) if n == 1 else b.shuffle(block, None, [lane * n + c for c in range(n)])
            b.store(own, _of_lane(b, "%base", lane), align=bits // 8)

    def one(b: IRWriter, lane: Value) -> None:
        target = _of_lane(b, "%base", lane)
        for c in range(n):
            source = b.gep("%in", b.bin("add", b.bin("mul", b.resize(lane, "i64"), b.i64(bits // 8)), b.i64(c * 4 * bits)))
            b.store(b.load(ty, source), b.gep(target, c * bits // 8), align=bits // 8)

    def body(b: IRWriter) -> None:
        _when_contiguous(b, lambda: b.store(rows(b), "%base", align=bits // 8))
        _returns_when(b, _is_whole(b), lambda: whole(b))
        _active_lanes(b, lambda lane: one(b, lane))
        b.raw("ret void")

    return body


def mark(b: IRWriter) -> None:
    """void rf_mark(shadow of first active lane, memo, size): the bytes of a store are initialised now."""
    b.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    total = b.bin("shl", b.resize(Value("%size", "i32"), "i64"), b.i64(5))
    _when_contiguous(b, lambda: b.raw(f"call void @llvm.memset.p0.i64(ptr %shadow, i8 -1, i64 {total.ir}, i1 false)"))
    whole = _is_whole(b)
    labels = {size: b.new_label(f"size{size}") for size in SIZES}
    cases = " ".join(f"i32 {size}, label %{label}" for size, label in labels.items())
    b.raw(f"switch i32 %size, label %{labels[1]} [ {cases} ]")
    for size, label in labels.items():
        b.label(label)
        ones = Value("splat (i8 -1)", "i8", size)

        def all_lanes(ones: Value = ones) -> None:
            for lane in range(LANES):
                b.store(ones, _of_lane(b, "%shadow", lane), align=1)

        _returns_when(b, whole, all_lanes)
        _active_lanes(b, lambda lane, ones=ones: b.store(ones, _of_lane(b, "%shadow", lane), align=1))  # type: ignore[misc]
        b.raw("ret void")
