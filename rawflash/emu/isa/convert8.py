"""Conversions to and from the 8-bit floats e4m3 and e5m2 (PTX ISA 9.7.9.21), two at a time; the matrix chapters use them too.

e5m2 is the upper byte of an fp16 number. e4m3 has no infinity and one NaN (0x7f); as an fp16 bit pattern its magnitude
shifted by 7 is the value divided by 256, subnormals included. Results are rounded once, to nearest even; NaN becomes 0x7f.
"""

from __future__ import annotations

from rawflash.emu.isa.convert import narrow16, widen
from rawflash.emu.isa.fpcommon import canonical_nan, fabs, fconst, int_of, is_nan
from rawflash.emu.isa.integer import split16
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.types import llvm_type
from rawflash.emu.ptx.tree import Instruction

# mantissa bits, bias, largest finite code
FORMATS = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B)}
NAN = 0x7F
KINDS = "e4m3|e5m2"


def decode(b: WarpBuilder, upper: Value, kind: str) -> list[Value]:
    """fp32 values of the two 8-bit floats in the upper bytes of each half of an i32; the lower bytes must be zero."""
    if kind == "e5m2":
        halves = upper
    else:
        magnitude = b.bin("lshr", b.bin("and", upper, b.const("i32", 0x7F007F00)), b.i32(1))
        halves = b.bin("or", b.bin("and", upper, b.const("i32", 0x80008000)), magnitude)
    both = b.cast("fpext", split16(b, halves, "half"), "float")
    if kind == "e4m3":
        both = b.bin("fmul", both, b.splat(fconst(b, "float", 256.0), both.lanes))
        limit = b.cmp("fcmp oeq", fabs(b, both), fconst(b, "float", 480.0))  # where a further number would be, there is NaN
        both = b.select(limit, canonical_nan(b, "float"), both)
    if not upper.lanes:
        return [b.extract(both, 0), b.extract(both, 1)]
    return [b.shuffle(both, None, list(range(part, both.lanes, 2))) for part in (0, 1)]


def encode(b: WarpBuilder, v: Value, kind: str) -> Value:
    """fp32 -> the 8-bit code in an i32. What is too large, infinity included, becomes the largest finite number."""
    mantissa, bias, largest = FORMATS[kind]
    shift = 23 - mantissa
    bits = int_of(b, v)
    magnitude = b.bin("and", bits, b.const("i32", 0x7FFFFFFF))
    odd = b.bin("and", b.bin("lshr", magnitude, b.i32(shift)), b.i32(1))
    rounded = b.bin("add", magnitude, b.bin("add", odd, b.i32((1 << (shift - 1)) - 1)))
    normal = b.bin("sub", b.bin("lshr", rounded, b.i32(shift)), b.i32((127 - bias) << mantissa))
    # adding a power of two whose last bit weighs one subnormal step leaves the number of steps in the low bits
    step = 1 - bias - mantissa
    anchor = fconst(b, "float", 2.0 ** (23 + step))
    steps = b.bin("sub", int_of(b, b.bin("fadd", fabs(b, v), anchor)), int_of(b, anchor))
    tiny = b.cmp("icmp ult", magnitude, b.i32((127 + 1 - bias) << 23))
    code = b.intrinsic("umin", b.select(tiny, steps, normal), b.i32(largest))
    code = b.select(is_nan(b, v), b.i32(NAN), code)
    sign = b.bin("and", b.bin("lshr", bits, b.i32(24)), b.i32(0x80))
    return b.select(is_nan(b, v), code, b.bin("or", code, sign))


def _relu(b: WarpBuilder, v: Value) -> Value:
    return b.select(b.cmp("fcmp olt", v, fconst(b, "float", 0.0)), fconst(b, "float", 0.0), v)


def _write_pair(b: WarpBuilder, i: Instruction, m: Mods, low: Value, high: Value) -> None:
    codes = [encode(b, _relu(b, v) if m["relu"] else v, m["d"].removesuffix("x2")) for v in (low, high)]
    b.write(i.operands[0], b.resize(b.bin("or", codes[0], b.bin("shl", codes[1], b.i32(8))), "i16"))


@op("cvt.rn.satfinite[.relu].{d:e4m3x2|e5m2x2}.f32")
def from_floats(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The first source goes to the upper byte."""
    high, low = (b.src(o, "f32") for o in i.operands[1:3])
    _write_pair(b, i, m, low, high)


@op("cvt.rn.satfinite[.relu].{d:e4m3x2|e5m2x2}.{s:f16x2|bf16x2}")
def from_halves(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    pair = b.src(i.operands[1], "b32")
    scalar = m["s"].removesuffix("x2")
    pieces = [b.resize(pair, "i16"), b.resize(b.bin("lshr", pair, b.i32(16)), "i16")]
    low, high = (widen(b, b.bitcast(p, llvm_type(scalar)), scalar) for p in pieces)
    _write_pair(b, i, m, low, high)


@op("cvt.rn[.relu].{d:f16x2|bf16x2}.{s:e4m3x2|e5m2x2}")
def to_halves(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Exact. With .relu negative numbers become +0."""
    pair = b.resize(b.src(i.operands[1], "b16"), "i32")
    spread = b.bin("or", b.bin("and", b.bin("shl", pair, b.i32(8)), b.i32(0xFF00)), b.bin("shl", b.bin("lshr", pair, b.i32(8)), b.i32(24)))
    scalar = m["d"].removesuffix("x2")
    low, high = (narrow16(b, _relu(b, v) if m["relu"] else v, scalar, "rn") for v in decode(b, spread, m["s"].removesuffix("x2")))
    b.write(i.operands[0], b.bin("or", b.resize(low, "i32"), b.bin("shl", b.resize(high, "i32"), b.i32(16))))
