"""Bits and bit fields (PTX ISA 9.7.1): popc, clz, brev, bfind, fns, bfe, bfi, bmsk, szext."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value
from rawflash.emu.lower.types import is_signed
from rawflash.emu.ptx.tree import Instruction


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
