"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2): add, sub, mul, mad, div, rem, abs, neg, min, max, bit fields, carries, dot products."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value
from rawflash.emu.lower.types import BYTES, is_signed
from rawflash.emu.ptx.tree import Instruction, Reg

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


@op("popc.{t:b32|b64}")
def popc(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.resize(b.intrinsic("ctpop", b.src(i.operands[1], m["t"])), "i32"))


@op("clz.{t:b32|b64}")
def clz(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.resize(b.intrinsic("ctlz", b.src(i.operands[1], m["t"]), plain=(Value("false", "i1"),)), "i32"))


@op("brev.{t:b32|b64}")
def brev(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.intrinsic("bitreverse", b.src(i.operands[1], m["t"])))


@op("bfind[.shiftamt].{t:u32|s32|u64|s64}")
def bfind(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Position of the most significant bit that is not a sign bit; -1 if there is none."""
    v = b.src(i.operands[1], m["t"])
    bits = INT_BITS[v.ty]
    if is_signed(m["t"]):
        v = b.bin("xor", v, b.bin("ashr", v, b.const(v.ty, bits - 1)))
    zeros = b.intrinsic("ctlz", v, plain=(Value("false", "i1"),))
    position = zeros if m["shiftamt"] else b.bin("sub", b.const(v.ty, bits - 1), zeros)
    result = b.select(b.cmp("icmp eq", v, b.const(v.ty, 0)), b.const(v.ty, -1), position)
    b.write(i.operands[0], b.resize(result, "i32"))


@op("fns.b32")
def fns(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Find the n-th set bit of mask from base, upwards for n > 0, downwards for n < 0, at base itself for n = 0."""
    mask, base, n = (b.splat(b.src(o, t)) for o, t in zip(i.operands[1:4], ("b32", "b32", "s32"), strict=True))
    result = b.splat(b.i32(-1))
    zero_case = b.cmp("icmp ne", b.bin("and", b.bin("lshr", mask, b.bin("and", base, b.i32(31))), b.i32(1)), b.i32(0))
    result = b.select(b.bin("and", b.cmp("icmp eq", n, b.i32(0)), zero_case), base, result)
    for sign, order in ((1, range(32)), (-1, range(31, -1, -1))):
        left = n if sign > 0 else b.bin("sub", b.i32(0), n)
        for position in order:
            eligible = b.cmp("icmp ule" if sign > 0 else "icmp uge", base, b.i32(position))
            bit = b.cmp("icmp ne", b.bin("and", mask, b.const("i32", 1 << position)), b.i32(0))
            here = b.bin("and", eligible, bit)
            hit = b.bin("and", here, b.cmp("icmp eq", left, b.i32(1)))
            result = b.select(hit, b.i32(position), result)
            left = b.bin("sub", left, b.resize(here, "i32"))
    b.write(i.operands[0], result if not b.is_uniform_destination(i.operands[0]) else b.extract(result, 0))


def _field(b: WarpBuilder, position: Value, length: Value, bits: int) -> tuple[Value, Value]:
    """The low byte of position and length, clamped to the width."""
    p = b.bin("and", position, b.i32(255))
    n = b.bin("and", length, b.i32(255))
    limit = b.i32(bits)
    return b.intrinsic("umin", p, limit), b.intrinsic("umin", n, limit)


def _low_mask(b: WarpBuilder, n: Value, ty: str) -> Value:
    """(1 << n) - 1 in ``ty``, n up to its width."""
    bits = INT_BITS[ty]
    n = b.resize(n, ty)
    full = b.cmp("icmp uge", n, b.const(ty, bits))
    shift = b.select(full, b.const(ty, 0), n)
    partial = b.bin("sub", b.bin("shl", b.const(ty, 1), shift), b.const(ty, 1))
    return b.select(full, b.const(ty, -1), partial)


def _clamped(b: WarpBuilder, op_: str, v: Value, amount: Value) -> Value:
    """A shift whose amount may reach the width: then 0, or the sign for ashr."""
    bits = INT_BITS[v.ty]
    amount = b.resize(amount, v.ty)
    over = b.cmp("icmp uge", amount, b.const(v.ty, bits))
    if op_ == "ashr":
        return b.bin("ashr", v, b.select(over, b.const(v.ty, bits - 1), amount))
    return b.select(over, b.const(v.ty, 0), b.bin(op_, v, b.select(over, b.const(v.ty, 0), amount)))


@op("bfe.{t:u32|s32|u64|s64}")
def bfe(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Extract a field; for signed types the field's top bit (or the value's, if the field runs over the end) is extended."""
    t = m["t"]
    v = b.src(i.operands[1], t)
    bits = INT_BITS[v.ty]
    p, n = _field(b, b.src(i.operands[2], "u32"), b.src(i.operands[3], "u32"), 255)
    low = _low_mask(b, b.intrinsic("umin", n, b.i32(bits)), v.ty)
    field = b.bin("and", _clamped(b, "lshr", v, p), low)
    if is_signed(t):
        end = b.bin("sub", b.bin("add", p, n), b.i32(1))
        top = b.intrinsic("umin", b.select(b.cmp("icmp eq", n, b.i32(0)), b.i32(0), end), b.i32(bits - 1))
        sign = b.bin("and", b.bin("lshr", v, b.resize(top, v.ty)), b.const(v.ty, 1))
        negative = b.bin("and", b.cmp("icmp ne", sign, b.const(v.ty, 0)), b.cmp("icmp ne", n, b.i32(0)))
        available = b.bin("sub", b.i32(bits), b.intrinsic("umin", p, b.i32(bits)))
        kept = _low_mask(b, b.intrinsic("umin", b.intrinsic("umin", n, b.i32(bits)), available), v.ty)
        field = b.select(negative, b.bin("or", b.bin("and", field, kept), b.bin("xor", kept, b.const(v.ty, -1))), field)
    b.write(i.operands[0], field, is_signed(t))


@op("bfi.{t:b32|b64}")
def bfi(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    source, into = b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"])
    bits = INT_BITS[source.ty]
    p, n = _field(b, b.src(i.operands[3], "u32"), b.src(i.operands[4], "u32"), 255)
    mask = _clamped(b, "shl", _low_mask(b, b.intrinsic("umin", n, b.i32(bits)), source.ty), p)
    placed = b.bin("and", _clamped(b, "shl", source, p), mask)
    b.write(i.operands[0], b.bin("or", placed, b.bin("and", into, b.bin("xor", mask, b.const(source.ty, -1)))))


@op("bmsk.{mode:clamp|wrap}.b32")
def bmsk(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    p, n = b.src(i.operands[1], "u32"), b.src(i.operands[2], "u32")
    if m["mode"] == "wrap":
        p, n = b.bin("and", p, b.i32(31)), b.bin("and", n, b.i32(31))
    low = _low_mask(b, b.intrinsic("umin", n, b.i32(32)), "i32")
    b.write(i.operands[0], _clamped(b, "shl", low, p))


@op("szext.{mode:clamp|wrap}.{t:u32|s32}")
def szext(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Zero- or sign-extend from an n-bit value."""
    v, n = b.src(i.operands[1], m["t"]), b.src(i.operands[2], "u32")
    n = b.bin("and", n, b.i32(31)) if m["mode"] == "wrap" else b.intrinsic("umin", n, b.i32(32))
    low = _low_mask(b, n, "i32")
    field = b.bin("and", v, low)
    if is_signed(m["t"]):
        top = b.bin("and", b.bin("sub", n, b.i32(1)), b.i32(31))
        negative = b.bin("and", b.cmp("icmp ne", n, b.i32(0)), b.cmp("icmp ne", b.bin("and", b.bin("lshr", v, top), b.i32(1)), b.i32(0)))
        field = b.select(negative, b.bin("or", field, b.bin("xor", low, b.i32(-1))), field)
    b.write(i.operands[0], field)


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


def _carry(b: WarpBuilder) -> Value:
    return b.read_register("%cc")


@op("add.cc.{t:u32|s32|u64|s64}", "addc[.cc].{t:u32|s32|u64|s64}", "sub.cc.{t:u32|s32|u64|s64}", "subc[.cc].{t:u32|s32|u64|s64}")
def carry_chain(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Extended precision: CC.CF is a register of one bit per lane."""
    x, y = b.same_shape(b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"]))
    wide = f"i{INT_BITS[x.ty] + 1}"
    carry_in = i.opcode in ("addc", "subc")
    name = "add" if i.opcode.startswith("add") else "sub"
    total = _wide_cast(b, "zext", x, wide)
    total = b.bin(name, total, _wide_cast(b, "zext", y, wide))
    if carry_in:
        total = b.bin(name, total, _wide_cast(b, "zext", _carry(b), wide))
    _finish_carry(b, i, total, x.ty, wide)


def _wide_cast(b: WarpBuilder, kind: str, v: Value, ty: str) -> Value:
    from rawflash.emu.lower.irtext import type_text

    return b.define(f"{kind} {v.typed} to {type_text(ty, v.lanes)}", ty, v.lanes)


def _finish_carry(b: WarpBuilder, i: Instruction, total: Value, ty: str, wide: str) -> None:
    bits = INT_BITS[ty]
    if "cc" in i.mods:
        shifted = b.bin("lshr", total, b.splat(Value(str(bits), wide), total.lanes) if total.lanes else Value(str(bits), wide))
        carry = _wide_cast(b, "trunc", shifted, "i1")
        b.write(Reg("%cc"), carry)
    b.write(i.operands[0], _wide_cast(b, "trunc", total, ty))


@op("mad.{h:lo|hi}.cc.{t:u32|s32|u64|s64}", "madc.{h:lo|hi}[.cc].{t:u32|s32|u64|s64}")
def mad_carry(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    t = m["t"]
    p, c = b.same_shape(product(b, b.src(i.operands[1], t), b.src(i.operands[2], t), m["h"], t), b.src(i.operands[3], t))
    wide = f"i{INT_BITS[p.ty] + 1}"
    total = b.bin("add", _wide_cast(b, "zext", p, wide), _wide_cast(b, "zext", c, wide))
    if i.opcode == "madc":
        total = b.bin("add", total, _wide_cast(b, "zext", _carry(b), wide))
    _finish_carry(b, i, total, p.ty, wide)
