"""Logic and shifts (PTX ISA 9.7.8): and, or, xor, not, cnot, lop3, shf, shl, shr, prmt."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value
from rawflash.emu.lower.types import is_signed
from rawflash.emu.ptx.tree import Instruction, PredicatePair


@op("and.{t:pred|b16|b32|b64}", "or.{t:pred|b16|b32|b64}", "xor.{t:pred|b16|b32|b64}")
def bitwise(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    if m["t"] == "pred":
        x, y = b.pred(i.operands[1]), b.pred(i.operands[2])
    else:
        x, y = b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"])
    b.write(i.operands[0], b.bin(i.opcode, x, y))


@op("not.{t:pred|b16|b32|b64}")
def not_(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.pred(i.operands[1]) if m["t"] == "pred" else b.src(i.operands[1], m["t"])
    b.write(i.operands[0], b.bin("xor", v, b.const(v.ty, -1)))


@op("cnot.{t:b16|b32|b64}")
def cnot(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], m["t"])
    b.write(i.operands[0], b.resize(b.cmp("icmp eq", v, b.const(v.ty, 0)), v.ty))


def truth_table(b: WarpBuilder, x: Value, y: Value, z: Value, table: int) -> Value:
    """Any function of three bits: bit 4x+2y+z of ``table``."""
    x, y, z = b.same_shape(x, y, z)
    ones = b.const(x.ty, -1)
    out: Value | None = None
    for n in range(8):
        if table >> n & 1:
            term = x if n & 4 else b.bin("xor", x, ones)
            term = b.bin("and", term, y if n & 2 else b.bin("xor", y, ones))
            term = b.bin("and", term, z if n & 1 else b.bin("xor", z, ones))
            out = term if out is None else b.bin("or", out, term)
    if out is not None:
        return out
    return b.splat(b.const(x.ty, 0), x.lanes) if x.lanes else b.const(x.ty, 0)


@op("lop3.b32", "lop3.{bool:or|and}.b32")
def lop3(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y, z = (b.src(o, "b32") for o in i.operands[1:4])
    table = b.constant_of(i.operands[4])
    if table is None:
        raise b.unsupported("the truth table of lop3 must be a constant")
    value = truth_table(b, x, y, z, table & 255)
    if m.get("bool"):
        pair = i.operands[0]
        assert isinstance(pair, PredicatePair)
        found = b.cmp("icmp ne", value, b.i32(0))
        b.write(pair.second, b.bin(m["bool"], found, b.pred(i.operands[5])))
        b.write(pair.first, value)
        return
    b.write(i.operands[0], value)


@op("shl.{t:b16|b32|b64}", "shr.{t:b16|b32|b64|u16|u32|u64|s16|s32|s64}")
def shift(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Amounts beyond the width give 0, or copies of the sign."""
    v, amount = b.src(i.operands[1], m["t"]), b.src(i.operands[2], "u32")
    bits = INT_BITS[v.ty]
    signed = is_signed(m["t"])
    name = "shl" if i.opcode == "shl" else "ashr" if signed else "lshr"
    known = b.constant_of(i.operands[2])
    if known is not None:
        known &= 0xFFFFFFFF
        if known >= bits:
            result = b.bin("ashr", v, b.const(v.ty, bits - 1)) if signed and name == "ashr" else b.bin("and", v, b.const(v.ty, 0))
        else:
            result = b.bin(name, v, b.const(v.ty, known))
    else:
        over = b.cmp("icmp uge", amount, b.i32(bits))
        safe = b.resize(b.select(over, b.i32(bits - 1 if name == "ashr" else 0), amount), v.ty)
        result = b.bin(name, v, safe)
        if name != "ashr":
            result = b.select(over, b.const(v.ty, 0), result)
    b.write(i.operands[0], result, signed)


@op("shf.{d:l|r}.{mode:clamp|wrap}.b32")
def funnel(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Shift the 64-bit value hi:lo and keep the high word (l) or the low word (r)."""
    low, high, amount = (b.src(o, "b32") for o in i.operands[1:4])
    if m["mode"] == "wrap":
        amount = b.bin("and", amount, b.i32(31))
    else:
        amount = b.intrinsic("umin", amount, b.i32(32))
    both = b.bin("or", b.bin("shl", b.resize(high, "i64"), b.i64(32)), b.resize(low, "i64"))
    wide = b.resize(amount, "i64")
    if m["d"] == "l":
        result = b.bin("lshr", b.bin("shl", both, wide), b.i64(32))
    else:
        result = b.bin("lshr", both, wide)
    b.write(i.operands[0], b.resize(result, "i32"))


@op("prmt.b32[.{mode:f4e|b4e|rc8|ecl|ecr|rc16}]")
def prmt(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Pick four of the eight bytes of b:a; bit 3 of a selector replicates the byte's sign."""
    low, high, selector = (b.src(o, "b32") for o in i.operands[1:4])
    both = b.bin("or", b.bin("shl", b.resize(high, "i64"), b.i64(32)), b.resize(low, "i64"))
    out: Value | None = None
    for n in range(4):
        if m["mode"] is None:
            nibble = b.bin("and", b.bin("lshr", selector, b.i32(4 * n)), b.i32(15))
            index = b.bin("and", nibble, b.i32(7))
        else:
            nibble = None
            index = _mode_index(b, m["mode"], b.bin("and", selector, b.i32(3)), n)
        byte = b.resize(b.bin("and", b.bin("lshr", both, b.resize(b.bin("shl", index, b.i32(3)), "i64")), b.i64(255)), "i32")
        if nibble is not None:
            negative = b.cmp("icmp ne", b.bin("and", byte, b.i32(128)), b.i32(0))
            sign = b.select(negative, b.i32(255), b.i32(0))
            byte = b.select(b.cmp("icmp ne", b.bin("and", nibble, b.i32(8)), b.i32(0)), sign, byte)
        placed = b.bin("shl", byte, b.i32(8 * n)) if n else byte
        out = placed if out is None else b.bin("or", out, placed)
    assert out is not None
    b.write(i.operands[0], out)


def _mode_index(b: WarpBuilder, mode: str, selector: Value, n: int) -> Value:
    if mode == "f4e":  # forward 4 extract
        return b.bin("add", selector, b.i32(n))
    if mode == "b4e":  # backward 4 extract
        return b.bin("and", b.bin("sub", selector, b.i32(n)), b.i32(7))
    if mode == "rc8":  # replicate 8
        return selector
    if mode == "ecl":  # edge clamp left
        return b.intrinsic("umax", selector, b.i32(n))
    if mode == "ecr":  # edge clamp right
        return b.intrinsic("umin", selector, b.i32(n))
    return b.bin("add", b.bin("shl", b.bin("and", selector, b.i32(1)), b.i32(1)), b.i32(n & 1))  # rc16
