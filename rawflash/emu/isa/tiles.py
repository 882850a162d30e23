"""D = A B + C of one ``mma`` tile, as an LLVM function that every mma and wmma of that shape and type calls.

Registers come in as PTX hands them out (fragments.py): a vector of 32 lanes, lane ``4 g + t``. The function turns A and C
into columns of ``m`` rows (two rounds of two-source permutes, see ``_columns``), leaves B widened in memory, and then every
step is a fused multiply-add of one column of A with one element of B, which the processor broadcasts as it loads it. With
AVX-512 an m16n8k16 of halves is 128 such steps among about 240 instructions.

Numerics, where silicon may differ:

* f16, bf16, tf32 and fp8 products are exact in fp32 and are added to C one after the other, k ascending, each sum rounded to
  nearest fp32. Tensor cores add several products at once with a few more bits and cut the rest.
* an f16 accumulator is widened to fp32 and the result rounded to f16 once, at the end.
* of a tf32 operand the lower 13 bits are ignored. A NaN result has any payload, except 0x7fff in f16.
* in a kernel that runs with the processor's flush-to-zero switch on (lower/flush.py) fp32 subnormals are zero here too.
* integer products are summed exactly (in fp32, whose 24 bits hold any sum of a tile), then added to C modulo 2**32, or
  clamped once with .satfinite. f64 is IEEE fused multiply-add, k ascending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from rawflash.emu.isa import convert8
from rawflash.emu.isa.convert import to_half
from rawflash.emu.isa.integer import split16
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, LANES, IRWriter, Value
from rawflash.emu.lower.slowpath import function_text

ELEMENT_BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
INTEGERS = ("s8", "u8", "s4", "u4")
ATTRIBUTES = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "no-trapping-math"="true"'
HALF = LANES // 2


@dataclass(frozen=True)
class Tile:
    """One shape ``m x 8 x k`` (m 8 or 16) and its element types; ``logic`` is "and" or "xor" for single bits."""

    m: int
    k: int
    a: str
    b: str
    c: str
    d: str
    satfinite: bool = False
    logic: str = ""

    @property
    def blocks(self) -> int:
        """Blocks of 8 rows."""
        return self.m // 8

    @property
    def per_register(self) -> int:
        """Factors in a register of A or B: elements, except that 32 single bits are one factor."""
        return 1 if self.a == "b1" else elements_per_register(self.a)

    @property
    def depth(self) -> int:
        """Products in a sum."""
        return self.k // 32 if self.a == "b1" else self.k

    @property
    def steps(self) -> int:
        """Registers along k."""
        return self.depth // (4 * self.per_register)

    def registers(self, operand: str) -> int:
        """Registers per lane of operand "a", "b", "c" or "d"."""
        if operand == "a":
            return self.blocks * self.steps
        if operand == "b":
            return self.steps
        return 2 * self.blocks // elements_per_register(getattr(self, operand))

    @property
    def accumulator(self) -> str:
        """LLVM type in which products are summed."""
        return {"f64": "double", "b1": "i32"}.get(self.a, "float")

    @property
    def name(self) -> str:
        tail = ("_" + self.logic if self.logic else "") + ("_satfinite" if self.satfinite else "")
        return f"rf_tile_m{self.m}n8k{self.k}_{self.d}_{self.a}_{self.b}_{self.c}{tail}"


def elements_per_register(ty: str) -> int:
    return max(1, 32 // ELEMENT_BITS[ty])


def word(ty: str) -> str:
    """LLVM type of a register that holds elements of this type."""
    return {"f64": "double", "f32": "float"}.get(ty, "i32")


def multiply(b: WarpBuilder, tile: Tile, a: list[Value], bb: list[Value], c: list[Value]) -> list[Value]:
    """Call the function of the tile; the first call brings its definition along. Registers are vectors of 32 lanes."""
    n = tile.registers("d")
    result = "{ " + ", ".join([f"<{LANES} x {word(tile.d)}>"] * n) + " }"
    params = [Value(f"%{o}{r}", word(getattr(tile, o)), LANES) for o in "abc" for r in range(tile.registers(o))]
    body = _Product(tile, params, result)
    text = function_text(tile.name, f"internal {result}", ", ".join(p.typed for p in params), body.emit, b.declarations, ATTRIBUTES)
    b.declarations.add(text)
    packed = b.define(f"call {result} @{tile.name}({', '.join(v.typed for v in (*a, *bb, *c))})", word(tile.d))
    return [b.define(f"extractvalue {result} {packed.ir}, {r}", word(tile.d), LANES) for r in range(n)]


# ------------------------------------------------------------------------------------------------------------ transposes
def _columns(b: IRWriter, blocks: list[Value]) -> list[Value]:
    """Registers of 32 lanes (g, t), one per block of 8 rows -> four columns t of 8 or 16 rows.

    Round one sorts each register by t into two pairs of columns, round two joins the blocks.
    """
    pairs = []
    for v in blocks:
        halves = [b.shuffle(v, None, list(range(first, first + HALF))) for first in (0, HALF)]
        pairs.append([b.shuffle(halves[0], halves[1], [4 * g + t for t in (q, q + 1) for g in range(8)]) for q in (0, 2)])
    out = []
    for t in range(4):
        rows = [8 * (t % 2) + g for g in range(8)]
        others = pairs[1][t // 2] if len(pairs) == 2 else None
        out.append(b.shuffle(pairs[0][t // 2], others, rows + ([HALF + r for r in rows] if others else [])))
    return out


def _registers(b: IRWriter, columns: list[Value]) -> list[Value]:
    """The inverse: four columns of 8 or 16 rows -> one register per block of 8 rows."""
    m = columns[0].lanes
    out = []
    for first in range(0, m, 8):
        rows = list(range(first, first + 8))
        pairs = [b.shuffle(columns[q], columns[q + 1], rows + [m + r for r in rows]) for q in (0, 2)]
        halves = [
            b.shuffle(pairs[0], pairs[1], [t // 2 * HALF + 8 * (t % 2) + g for g in range(h, h + 4) for t in range(4)]) for h in (0, 4)
        ]
        out.append(b.shuffle(halves[0], halves[1], list(range(LANES))))
    return out


# ------------------------------------------------------------------------------------------------------------ elements
def _widen(b: WarpBuilder, v: Value, ty: str) -> list[Value]:
    """The elements of each lane's register, lowest bits first, in the type in which they are multiplied."""
    if ty in ("f64", "f32", "b1"):
        return [v]
    if ty == "tf32":
        return [b.bitcast(b.bin("and", v, b.i32(~0x1FFF)), "float")]
    if ty == "f16":
        both = b.cast("fpext", split16(b, v, "half"), "float")
        return [b.shuffle(both, None, list(range(part, both.lanes, 2))) for part in (0, 1)]
    if ty == "bf16":
        return [b.bitcast(b.bin("shl", v, b.i32(16)), "float"), b.bitcast(b.bin("and", v, b.i32(~0xFFFF)), "float")]
    if ty in convert8.FORMATS:
        even = convert8.decode(b, b.bin("shl", b.bin("and", v, b.const("i32", 0x00FF00FF)), b.i32(8)), ty)
        odd = convert8.decode(b, b.bin("and", v, b.const("i32", 0xFF00FF00)), ty)
        return [even[0], odd[0], even[1], odd[1]]
    bits = ELEMENT_BITS[ty]
    out = []
    for up in range(32 - bits, -1, -bits):
        shifted = b.bin("ashr" if ty[0] == "s" else "lshr", b.bin("shl", v, b.i32(up)), b.i32(32 - bits))
        out.append(b.cast("sitofp", shifted, "float"))
    return out


class _Product:
    """Writes the body of one tile's function."""

    def __init__(self, tile: Tile, params: list[Value], result: str):
        self.tile, self.result = tile, result
        n = [tile.registers(o) for o in "abc"]
        self.a, self.bb, self.c = params[: n[0]], params[n[0] : n[0] + n[1]], params[n[0] + n[1] :]

    def emit(self, writer: IRWriter) -> None:
        b = cast(WarpBuilder, writer)  # the chapters' arithmetic is written for it and needs no more than a writer
        element = self._store_b(b)
        sums = self._start(b)
        for k, column in enumerate(self._columns_of_a(b)):
            for n in range(8):
                one = b.splat(b.load(self.tile.accumulator, element(k, n)), self.tile.m)
                sums[n] = self._step(b, column, one, sums[n])
        packed = "poison"
        for r, v in enumerate(self._finish(b, sums)):
            packed = b.define(f"insertvalue {self.result} {packed}, {v.typed}, {r}", v.ty).ir
        b.raw(f"ret {self.result} {packed}")

    def _store_b(self, b: WarpBuilder) -> Callable[[int, int], Value]:
        """Widen B into memory; the result finds the element of row k and column n there."""
        tile, e = self.tile, self.tile.per_register
        size = BITS[tile.accumulator] // 8
        scratch = b.alloca(f"[{8 * tile.depth} x {tile.accumulator}]")
        for r, register in enumerate(self.bb):
            for j, v in enumerate(_widen(b, register, tile.b)):
                b.store(v, b.gep(scratch, (r * e + j) * LANES * size), align=64)
        # the elements must come back through memory, where a broadcast is free, and not as shuffles of what was stored
        b.raw(f'call void asm sideeffect "", "r,~{{memory}}"(ptr {scratch.ir})')

        def where(k: int, n: int) -> Value:
            r, t, j = k // (4 * e), k // e % 4, k % e
            return b.gep(scratch, ((r * e + j) * LANES + 4 * n + t) * size)

        return where

    def _columns_of_a(self, b: WarpBuilder) -> Iterator[Value]:
        blocks = self.tile.blocks
        for step in range(self.tile.steps):
            for column in _columns(b, self.a[blocks * step : blocks * (step + 1)]):
                yield from _widen(b, column, self.tile.a)

    def _start(self, b: WarpBuilder) -> list[Value]:
        """Eight columns of C, or zeros where C is added at the end."""
        tile = self.tile
        if tile.a == "b1" or tile.a in INTEGERS:
            return [b.splat(b.const(tile.accumulator, 0), tile.m)] * 8
        if tile.c == "f16":
            return [v for column in _columns(b, self.c) for v in _widen(b, column, "f16")]
        even, odd = (_columns(b, self.c[s::2]) for s in (0, 1))
        return [column for pair in zip(even, odd, strict=True) for column in pair]

    def _step(self, b: WarpBuilder, a: Value, one: Value, total: Value) -> Value:
        if self.tile.logic:
            return b.bin("add", total, b.intrinsic("ctpop", b.bin(self.tile.logic, a, one)))
        return b.intrinsic("fma", a, one, total)

    def _finish(self, b: WarpBuilder, sums: list[Value]) -> list[Value]:
        tile = self.tile
        if tile.d == "f16":
            bits = [b.resize(to_half(b, v), "i32") for v in sums]
            return _registers(b, [b.bin("or", bits[n], b.bin("shl", bits[n + 1], b.i32(16))) for n in range(0, 8, 2)])
        if tile.d == "s32" and not tile.logic:
            sums = [b.cast("fptosi", v, "i32") for v in sums]
        even, odd = (_registers(b, sums[s::2]) for s in (0, 1))
        out = [register for pair in zip(even, odd, strict=True) for register in pair]
        if tile.d != "s32":
            return out
        if tile.satfinite:
            return [b.intrinsic("sadd.sat", c, v) for c, v in zip(self.c, out, strict=True)]
        return [b.bin("add", c, v) for c, v in zip(self.c, out, strict=True)]
