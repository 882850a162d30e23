"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2): add, sub, mul, mad, div, rem, abs, neg, min, max, bit fields, carries, dot products."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value
from rawflash.emu.lower.types import BYTES, is_signed
from rawflash.emu.ptx.tree import Instruction

INTS = "u16|s16|u32|s32|u64|s64"


def split16(b: WarpBuilder, v: Value, ty: str = "i16") -> Value:
    """i32 lanes as pairs of 16-bit pieces, low half first."""
    count = 2 * max(v.lanes, 1)
    return b.define(f"bitcast {v.typed} to <{count} x {ty}>", ty, count)


def join16(b: WarpBuilder, v: Value, lanes: int) -> Value:
    """The inverse of split16: back to i32 with the given number of lanes (0 for a scalar)."""
    target = f"<{lanes} x i32>" if lanes else "i32"
    return b.define(f"bitcast {v.typed} to {target}", "i32", lanes)


@op(f"add.{{t:{INTS}}}", f"sub.{{t:{INTS}}}")
def add_sub(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.bin(i.opcode, b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"])), is_signed(m["t"]))


@op("add.sat.s32", "sub.sat.s32")
def add_sub_sat(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    name = "sadd.sat" if i.opcode == "add" else "ssub.sat"
    b.write(i.operands[0], b.intrinsic(name, b.src(i.operands[1], "s32"), b.src(i.operands[2], "s32")))


@op("add.{t:u16x2|s16x2}")
def add16x2(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y = b.same_shape(b.src(i.operands[1], "b32"), b.src(i.operands[2], "b32"))
    b.write(i.operands[0], join16(b, b.bin("add", split16(b, x), split16(b, y)), x.lanes))


@op("mul.{h:lo|hi|wide}.{t:u16|s16|u32|s32|u64|s64}")
def mul(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], product(b, b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"]), m["h"], m["t"]), is_signed(m["t"]))


def product(b: WarpBuilder, x: Value, y: Value, half: str, t: str) -> Value:
    """x*y: the low half, the high half, or the full double-width product."""
    if half == "lo":
        return b.bin("mul", x, y)
    bits = 8 * BYTES[t]
    wide = f"i{2 * bits}"
    signed = is_signed(t)
    full = b.bin("mul", b.resize(x, wide, signed), b.resize(y, wide, signed))
    if half == "wide":
        return full
    return b.resize(b.bin("lshr", full, b.const(wide, bits) if wide in INT_BITS else Value(str(bits), wide)), f"i{bits}")


@op("mad.{h:lo|hi|wide}.{t:u16|s16|u32|s32|u64|s64}")
def mad(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    t = m["t"]
    p = product(b, b.src(i.operands[1], t), b.src(i.operands[2], t), m["h"], t)
    wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[t] if m["h"] == "wide" else t
    b.write(i.operands[0], b.bin("add", p, b.src(i.operands[3], wide)), is_signed(t))


@op("mad.hi.sat.s32")
def mad_sat(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    p = product(b, b.src(i.operands[1], "s32"), b.src(i.operands[2], "s32"), "hi", "s32")
    b.write(i.operands[0], b.intrinsic("sadd.sat", p, b.src(i.operands[3], "s32")))


def _product24(b: WarpBuilder, i: Instruction, m: Mods) -> Value:
    """48-bit product of the low 24 bits; .lo its low 32 bits, .hi bits 47..16."""
    signed = is_signed(m["t"])
    parts = []
    for o in i.operands[1:3]:
        v = b.src(o, m["t"])
        v = b.bin("shl", v, b.i32(8))
        v = b.bin("ashr" if signed else "lshr", v, b.i32(8))
        parts.append(b.resize(v, "i64", signed))
    full = b.bin("mul", *parts)
    return b.resize(full if m["h"] == "lo" else b.bin("lshr", full, b.i64(16)), "i32")


@op("mul24.{h:lo|hi}.{t:u32|s32}")
def mul24(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], _product24(b, i, m))


@op("mad24.{h:lo|hi}.{t:u32|s32}")
def mad24(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.bin("add", _product24(b, i, m), b.src(i.operands[3], m["t"])))


@op("mad24.hi.sat.s32")
def mad24_sat(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.intrinsic("sadd.sat", _product24(b, i, {"h": "hi", "t": "s32"}), b.src(i.operands[3], "s32")))


@op(f"div.{{t:{INTS}}}", f"rem.{{t:{INTS}}}")
def div_rem(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Division by zero is undefined in PTX; like hardware, x/0 gives all ones here and x%0 gives x. MIN/-1 gives MIN, MIN%-1 gives 0."""
    t, signed = m["t"], is_signed(m["t"])
    x, y = b.same_shape(b.src(i.operands[1], t), b.src(i.operands[2], t))
    ty = x.ty
    zero = b.cmp("icmp eq", y, b.const(ty, 0))
    unsafe = zero
    if signed:
        overflow = b.bin("and", b.cmp("icmp eq", y, b.const(ty, -1)), b.cmp("icmp eq", x, b.const(ty, 1 << (INT_BITS[ty] - 1))))
        unsafe = b.bin("or", zero, overflow)
    safe = b.select(unsafe, b.const(ty, 1), y)
    name = ("s" if signed else "u") + ("div" if i.opcode == "div" else "rem")
    result = b.bin(name, x, safe)
    b.write(i.operands[0], b.select(zero, b.const(ty, -1) if i.opcode == "div" else x, result), signed)


@op("abs.{t:s16|s32|s64}")
def abs_(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.intrinsic("abs", b.src(i.operands[1], m["t"]), plain=(Value("false", "i1"),)), True)


@op("neg.{t:s16|s32|s64}")
def neg(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], m["t"])
    b.write(i.operands[0], b.bin("sub", b.const(v.ty, 0), v), True)


@op(f"min.{{t:{INTS}}}", f"max.{{t:{INTS}}}", "min.relu.{t:s32}", "max.relu.{t:s32}")
def min_max(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    signed = is_signed(m["t"])
    r = b.intrinsic(("s" if signed else "u") + i.opcode, b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"]))
    if "relu" in i.mods:
        r = b.intrinsic("smax", r, b.const(r.ty, 0))
    b.write(i.operands[0], r, signed)


@op("min.{t:u16x2|s16x2}", "max.{t:u16x2|s16x2}", "min.relu.{t:s16x2}", "max.relu.{t:s16x2}")
def min_max16x2(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y = b.same_shape(b.src(i.operands[1], "b32"), b.src(i.operands[2], "b32"))
    r = b.intrinsic(("s" if m["t"][0] == "s" else "u") + i.opcode, split16(b, x), split16(b, y))
    if "relu" in i.mods:
        r = b.intrinsic("smax", r, b.const("i16", 0))
    b.write(i.operands[0], join16(b, r, x.lanes))


@op("sad.{t:u16|s16|u32|s32|u64|s64}")
def sad(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    t = m["t"]
    x, y = b.src(i.operands[1], t), b.src(i.operands[2], t)
    less = b.cmp("icmp slt" if is_signed(t) else "icmp ult", x, y)
    distance = b.select(less, b.bin("sub", y, x), b.bin("sub", x, y))
    b.write(i.operands[0], b.bin("add", b.src(i.operands[3], t), distance), is_signed(t))


@op("dp4a.{a:u32|s32}.{c:u32|s32}", "dp2a.{h:lo|hi}.{a:u32|s32}.{c:u32|s32}")
def dot(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """d = c + sum of 4 byte products, or of 2 products of 16-bit and byte pieces."""
    x, y = b.src(i.operands[1], m["a"]), b.src(i.operands[2], m["c"])
    total = b.src(i.operands[3], "s32")
    four = i.opcode == "dp4a"
    for n in range(4 if four else 2):
        bits = 8 if four else 16
        left = _piece(b, x, n * bits, bits, is_signed(m["a"]))
        start = n * 8 + (16 if not four and m["h"] == "hi" else 0)
        total = b.bin("add", total, b.bin("mul", left, _piece(b, y, start, 8, is_signed(m["c"]))))
    b.write(i.operands[0], total)


def _piece(b: WarpBuilder, v: Value, start: int, bits: int, signed: bool) -> Value:
    up = b.bin("shl", v, b.i32(32 - start - bits))
    return b.bin("ashr" if signed else "lshr", up, b.i32(32 - bits))
