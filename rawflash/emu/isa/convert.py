"""Conversions (PTX ISA 9.7.9.21): cvt between integers, fp16, bf16, fp32, fp64 and packed pairs, every rounding and saturation mode.

The 8-bit floats are in convert8.py.
"""

from __future__ import annotations

from rawflash.emu.isa.fpcommon import (
    canonical_nan,
    directed,
    fabs,
    fconst,
    float_to_odd,
    flush,
    flush_always,
    int_of,
    is_nan,
    narrow,
    saturate,
)
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value
from rawflash.emu.lower.types import BYTES, is_signed, llvm_type
from rawflash.emu.ptx.tree import Instruction

INTEGERS = "u8|s8|u16|s16|u32|s32|u64|s64"
FLOATS = "f16|bf16|f32|f64"


@op(f"cvt[.sat].{{d:{INTEGERS}}}.{{s:{INTEGERS}}}")
def int_to_int(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], m["s"])
    source_signed, target_signed = is_signed(m["s"]), is_signed(m["d"])
    if m["sat"]:
        v = _clamp_integer(b, v, source_signed, m["d"])
    b.write(i.operands[0], b.resize(v, llvm_type(m["d"]), source_signed), target_signed)


def _clamp_integer(b: WarpBuilder, v: Value, source_signed: bool, d: str) -> Value:
    bits = 8 * BYTES[d]
    wide = b.resize(v, "i128" if v.ty == "i64" or bits == 64 else "i64", source_signed)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed(d) else (0, (1 << bits) - 1)
    wide = b.intrinsic("smax", wide, b.const(wide.ty, low))
    return b.intrinsic("smin", wide, b.const(wide.ty, high))


def widen(b: WarpBuilder, v: Value, t: str) -> Value:
    """fp16 or bf16 (as half / bfloat) -> fp32, exactly."""
    if t == "f16":
        return b.cast("fpext", v, "float")
    return b.bitcast(b.bin("shl", b.resize(b.bitcast(v, "i16"), "i32"), b.i32(16)), "float")


def to_half(b: WarpBuilder, v: Value, mode: str = "rn") -> Value:
    """fp32 -> fp16 bits (i16). NaN becomes 0x7fff."""
    h = b.cast("fptrunc", v, "half")
    if mode != "rn":
        back = b.cast("fpext", h, "float")
        h = directed(b, h, b.cmp("fcmp ogt", back, v), b.cmp("fcmp olt", back, v), mode)
    return b.select(is_nan(b, v), b.const("i16", 0x7FFF), b.bitcast(h, "i16"))


def to_bfloat(b: WarpBuilder, v: Value, mode: str = "rn") -> Value:
    """fp32 -> bf16 bits (i16), by integer arithmetic. NaN becomes 0x7fff."""
    bits = int_of(b, v)
    if mode == "rn":
        odd = b.bin("and", b.bin("lshr", bits, b.i32(16)), b.i32(1))
        rounded = b.bin("lshr", b.bin("add", bits, b.bin("add", odd, b.i32(0x7FFF))), b.i32(16))
    else:
        cut = b.bin("lshr", bits, b.i32(16))
        inexact = b.resize(b.cmp("icmp ne", b.bin("and", bits, b.i32(0xFFFF)), b.i32(0)), "i32")
        negative = b.bin("lshr", bits, b.i32(31))
        if mode == "rp":
            inexact = b.bin("and", inexact, b.bin("xor", negative, b.i32(1)))
        elif mode == "rm":
            inexact = b.bin("and", inexact, negative)
        else:
            inexact = b.i32(0)
        infinite = b.cmp("icmp uge", b.bin("and", bits, b.const("i32", 0x7FFFFFFF)), b.const("i32", 0x7F800000))
        rounded = b.select(infinite, cut, b.bin("add", cut, inexact))
    return b.select(is_nan(b, v), b.const("i16", 0x7FFF), b.resize(rounded, "i16"))


def narrow16(b: WarpBuilder, v: Value, d: str, mode: str) -> Value:
    return to_half(b, v, mode) if d == "f16" else to_bfloat(b, v, mode)


def _read_float(b: WarpBuilder, i: Instruction, s: str, ftz: bool) -> Value:
    v = b.src(i.operands[1], s)
    if s in ("f16", "bf16"):
        return widen(b, v, s)
    return flush(b, v, ftz) if s == "f32" else v


@op(f"cvt[.{{rnd:rn|rz|rm|rp|rna}}][.{{int:rni|rzi|rmi|rpi}}][.ftz][.relu][.sat].{{d:{FLOATS}}}.{{s:{FLOATS}}}")
def float_to_float(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    d, s = m["d"], m["s"]
    mode = m["rnd"] or "rn"
    v = _read_float(b, i, s, m["ftz"])
    if m["int"]:
        v = _to_integral(b, v, m["int"])
    if m["relu"]:
        v = b.select(b.cmp("fcmp olt", v, fconst(b, v.ty, 0.0)), fconst(b, v.ty, 0.0), v)
    if d == "f64":
        r = b.cast("fpext", v, "double") if v.ty == "float" else v
        b.write(i.operands[0], saturate(b, r) if m["sat"] else r)
        return
    if d == "f32":
        r = v if v.ty == "float" else narrow(b, v, fconst(b, "double", 0.0), "float", mode)
        if (s in ("f32", "f64") and m["sat"]) or m["sat"]:
            r = saturate(b, r)
        if s == "f64" and not m["sat"]:
            r = b.select(is_nan(b, v), canonical_nan(b, "float"), r)
        b.write(i.operands[0], flush_always(b, r) if m["ftz"] and d == "f32" else r)
        return
    if s == "f64":
        v = float_to_odd(b, v)
    if m["sat"]:
        v = saturate(b, v)
    b.write(i.operands[0], narrow16(b, v, d, mode))


def _to_integral(b: WarpBuilder, v: Value, mode: str) -> Value:
    return b.intrinsic({"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}[mode], v)


@op(f"cvt.{{int:rni|rzi|rmi|rpi}}[.ftz][.sat].{{d:{INTEGERS}}}.{{s:{FLOATS}}}")
def float_to_int(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Out of range saturates. NaN gives 0, but the sign bit alone in a 64-bit result or from an fp64 source."""
    d, s = m["d"], m["s"]
    v = _read_float(b, i, s, m["ftz"])
    v = _to_integral(b, v, m.get("int") or "rzi")
    bits = 8 * BYTES[d]
    ty = llvm_type(d)
    r = b.intrinsic_to("fptosi.sat" if is_signed(d) else "fptoui.sat", v, ty)
    if bits == 64:
        r = b.select(is_nan(b, v), b.const("i64", 1 << 63), r)
    elif bits == 32 and s == "f64":
        r = b.select(is_nan(b, v), b.const("i32", 1 << 31), r)
    b.write(i.operands[0], r, is_signed(d))


@op(f"cvt.{{rnd:rn|rz|rm|rp}}[.ftz][.sat].{{d:{FLOATS}}}.{{s:{INTEGERS}}}")
def int_to_float(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    d, s, mode = m["d"], m["s"], m["rnd"]
    v = b.src(i.operands[1], s)
    signed = is_signed(s)
    exact = INT_BITS[v.ty] <= 32
    name = "sitofp" if signed else "uitofp"
    if d == "f64":
        r = b.cast(name, v, "double")
        if not exact and mode != "rn":
            r = _directed_int64(b, v, r, signed, mode, "double")
        b.write(i.operands[0], saturate(b, r) if m["sat"] else r)
        return
    if exact:
        wide = b.cast(name, v, "double")
        if d == "f32":
            r = narrow(b, wide, fconst(b, "double", 0.0), "float", mode)
        else:
            b.write(i.operands[0], _half_from_double(b, wide, d, mode, m["sat"]))
            return
    else:
        r = b.cast(name, v, "float")
        if mode != "rn":
            r = _directed_int64(b, v, r, signed, mode, "float")
        if d != "f32":
            wide = _odd_double(b, v, signed)
            b.write(i.operands[0], _half_from_double(b, wide, d, mode, m["sat"]))
            return
    b.write(i.operands[0], saturate(b, r) if m["sat"] else r)


def _half_from_double(b: WarpBuilder, wide: Value, d: str, mode: str, sat: bool) -> Value:
    f = float_to_odd(b, wide)
    return narrow16(b, saturate(b, f) if sat else f, d, mode)


def _odd_double(b: WarpBuilder, v: Value, signed: bool) -> Value:
    """A 64-bit integer as a double rounded to odd: cut to 53 significant bits, keeping a sticky bit."""
    negative = b.cmp("icmp slt", v, b.i64(0)) if signed else None
    magnitude = b.select(negative, b.bin("sub", b.i64(0), v), v) if negative is not None else v
    low = b.bin("and", magnitude, b.i64(0x7FF))
    sticky = b.resize(b.cmp("icmp ne", low, b.i64(0)), "i64")
    large = b.cmp("icmp uge", magnitude, b.i64(1 << 53))
    cut = b.bin("or", b.bin("and", magnitude, b.i64(~0x7FF)), b.bin("shl", sticky, b.i64(11)))
    r = b.cast("uitofp", b.select(large, cut, magnitude), "double")
    return b.select(negative, b.un("fneg", r), r) if negative is not None else r


def _directed_int64(b: WarpBuilder, v: Value, nearest: Value, signed: bool, mode: str, ty: str) -> Value:
    """Compare the rounded value with the integer exactly; one that was rounded up to 2^63 or 2^64 lies above every integer."""
    back = b.intrinsic_to("fptosi.sat" if signed else "fptoui.sat", nearest, "i64")
    beyond = b.cmp("fcmp oge", nearest, fconst(b, ty, float(1 << (63 if signed else 64))))
    order = "s" if signed else "u"
    above = b.bin("or", beyond, b.cmp(f"icmp {order}gt", back, v))
    below = b.bin("and", b.cmp(f"icmp {order}lt", back, v), b.bin("xor", beyond, Value("true", "i1")))
    return directed(b, nearest, above, below, mode)


@op("cvt.{rnd:rn|rz}[.relu][.satfinite].{d:f16x2|bf16x2}.f32")
def pack_halves(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The first source goes to the upper half."""
    parts = []
    for o in i.operands[1:3]:
        v = b.src(o, "f32")
        if m["relu"]:
            v = b.select(b.cmp("fcmp olt", v, fconst(b, "float", 0.0)), fconst(b, "float", 0.0), v)
        if m["satfinite"]:
            v = _finite_limit(b, v, 65504.0 if m["d"] == "f16x2" else 3.3895313892515355e38)
        parts.append(b.resize(narrow16(b, v, m["d"][:-2], m["rnd"]), "i32"))
    b.write(i.operands[0], b.bin("or", b.bin("shl", parts[0], b.i32(16)), parts[1]))


def _finite_limit(b: WarpBuilder, v: Value, limit: float) -> Value:
    large = b.cmp("fcmp ogt", fabs(b, v), fconst(b, "float", limit))
    return b.select(large, b.intrinsic("copysign", *b.same_shape(fconst(b, "float", limit), v)), v)


@op("cvt.{rnd:rn|rz}[.relu].satfinite.{d:f16|bf16}.f32")
def half_satfinite(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], "f32")
    if m["relu"]:
        v = b.select(b.cmp("fcmp olt", v, fconst(b, "float", 0.0)), fconst(b, "float", 0.0), v)
    v = _finite_limit(b, v, 65504.0 if m["d"] == "f16" else 3.3895313892515355e38)
    b.write(i.operands[0], narrow16(b, v, m["d"], m["rnd"]))


@op("cvt.rna[.satfinite].tf32.f32", "cvt.{rnd:rn|rz}[.relu][.satfinite].tf32.f32")
def to_tf32(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Round the mantissa to 10 bits; rna is to nearest, ties away from zero."""
    v = b.src(i.operands[1], "f32")
    if m.get("relu"):
        v = b.select(b.cmp("fcmp olt", v, fconst(b, "float", 0.0)), fconst(b, "float", 0.0), v)
    bits = int_of(b, v)
    mode = m.get("rnd") or "rna"
    if mode == "rna":
        added = b.bin("add", bits, b.i32(0x1000))
    elif mode == "rn":
        odd = b.bin("and", b.bin("lshr", bits, b.i32(13)), b.i32(1))
        added = b.bin("add", bits, b.bin("add", odd, b.i32(0xFFF)))
    else:
        added = bits
    rounded = b.bin("and", added, b.i32(~0x1FFF))
    if m.get("satfinite"):
        infinite = b.cmp("icmp uge", b.bin("and", rounded, b.const("i32", 0x7FFFFFFF)), b.const("i32", 0x7F800000))
        sign = b.bin("and", bits, b.const("i32", 0x80000000))
        rounded = b.select(infinite, b.bin("or", sign, b.const("i32", 0x7F7FE000)), rounded)
    special = b.cmp("icmp uge", b.bin("and", bits, b.const("i32", 0x7FFFFFFF)), b.const("i32", 0x7F800000))
    if m.get("satfinite"):
        special = is_nan(b, v)
    result = b.select(special, b.select(is_nan(b, v), b.const("i32", 0x7FFFFFFF), bits), rounded)
    b.write(i.operands[0], result)


@op("cvt.pack.sat.{d:u16|s16}.s32", "cvt.pack.sat.{d:u8|s8|u4|s4|u2|s2}.s32.b32")
def pack_integers(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Saturate two integers into the low bits; with c, the old packed value moves up behind them."""
    bits = int(m["d"][1:])
    signed = m["d"][0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    parts = []
    for o in i.operands[1:3]:
        v = b.intrinsic("smin", b.intrinsic("smax", b.src(o, "s32"), b.i32(low)), b.i32(high))
        parts.append(b.bin("and", v, b.i32((1 << bits) - 1)))
    both = b.bin("or", b.bin("shl", parts[0], b.i32(bits)), parts[1])
    if bits != 16:
        both = b.bin("or", both, b.bin("shl", b.src(i.operands[3], "b32"), b.i32(2 * bits)))
    b.write(i.operands[0], both)
