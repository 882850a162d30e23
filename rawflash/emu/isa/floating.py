"""Floating-point arithmetic, fp32 and fp64 (PTX ISA 9.7.3): add, sub, mul, fma, div, rcp, sqrt, min, max, abs, neg, copysign, testp.

Results are rounded exactly once. fp32 in rz, rm and rp comes from the nearest result in double and its exact error. fp64 uses the
processor's rounding control on x86 with FMA; elsewhere the error of the nearest result decides, which is exact except next to
underflow, where that error itself is rounded.
"""

from __future__ import annotations

from rawflash.emu.isa.fpcommon import (
    canonical_nan,
    directed,
    fabs,
    fconst,
    flush,
    flush_always,
    has_rounding_control,
    int_of,
    is_nan,
    narrow,
    rounded_f64,
    saturate,
    two_sum,
)
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, Value
from rawflash.emu.ptx.tree import Instruction

ROUND = "[.{rnd:rn|rz|rm|rp}]"


def _finish(b: WarpBuilder, i: Instruction, v: Value, m: Mods) -> None:
    if m.get("sat"):
        v = saturate(b, v)
    b.write(i.operands[0], flush(b, v, bool(m.get("ftz"))))


def _sources(b: WarpBuilder, i: Instruction, m: Mods, count: int) -> list[Value]:
    t = m.get("t", "f32")
    return [flush(b, b.src(o, t), bool(m.get("ftz"))) for o in i.operands[1 : 1 + count]]


@op(f"add{ROUND}[.ftz][.sat].f32", f"sub{ROUND}[.ftz][.sat].f32", f"add{ROUND}.{{t:f64}}", f"sub{ROUND}.{{t:f64}}")
def add(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y = _sources(b, i, m, 2)
    if i.opcode == "sub":
        y = b.un("fneg", y)
    mode = m["rnd"] or "rn"
    _finish(b, i, b.bin("fadd", x, y) if mode == "rn" else add_directed(b, x, y, mode), m)


def add_directed(b: WarpBuilder, x: Value, y: Value, mode: str) -> Value:
    x, y = b.same_shape(x, y)
    if x.ty == "float":
        nearest, error = two_sum(b, b.cast("fpext", x, "double"), b.cast("fpext", y, "double"))
        result = narrow(b, nearest, error, "float", mode)
        nearest = b.cast("fptrunc", nearest, "float")
    elif has_rounding_control():
        return rounded_f64(b, "fadd", [x, y], mode)
    else:
        nearest, error = two_sum(b, x, y)
        result = _overflow_aware(b, nearest, error, _finite(b, x, y), mode)
    if mode == "rm":  # an exact zero from unlike signs is -0 when rounding down
        unlike = b.cmp("icmp slt", b.bin("xor", int_of(b, x), int_of(b, y)), b.const(f"i{BITS[x.ty]}", 0))
        cancelled = b.bin("and", b.cmp("fcmp oeq", nearest, fconst(b, x.ty, 0.0)), unlike)
        result = b.select(cancelled, fconst(b, x.ty, -0.0), result)
    return result


def _round_error(b: WarpBuilder, nearest: Value, error: Value, mode: str) -> Value:
    """``error`` = exact - nearest, of which only the sign matters. An overflowed nearest has no finite error: it lies outside."""
    zero = fconst(b, nearest.ty, 0.0)
    above, below = b.cmp("fcmp olt", error, zero), b.cmp("fcmp ogt", error, zero)
    return directed(b, nearest, above, below, mode)


def _overflow_aware(b: WarpBuilder, nearest: Value, error: Value, finite_inputs: Value, mode: str) -> Value:
    """Infinity from finite operands is an overflow: rz, and the direction away from it, give the largest finite number."""
    rounded = _round_error(b, nearest, error, mode)
    infinite = b.bin("and", b.cmp("fcmp oeq", fabs(b, nearest), b.const(nearest.ty, INF[nearest.ty])), finite_inputs)
    bits = int_of(b, nearest)
    largest = b.bitcast(b.bin("sub", bits, b.const(bits.ty, 1)), nearest.ty)
    positive = b.cmp("icmp sge", bits, b.const(bits.ty, 0))
    if mode == "rz":
        pulled = infinite
    elif mode == "rm":
        pulled = b.bin("and", infinite, positive)
    else:
        pulled = b.bin("and", infinite, b.bin("xor", positive, Value("true", "i1")))
    return b.select(pulled, largest, rounded)


INF = {"float": 0x7F800000, "double": 0x7FF0000000000000}


def _finite(b: WarpBuilder, *values: Value) -> Value:
    out: Value | None = None
    for v in values:
        one = b.cmp("fcmp one", fabs(b, v), b.const(v.ty, INF[v.ty]))
        out = one if out is None else b.bin("and", out, one)
    assert out is not None
    return out


@op(f"mul{ROUND}[.ftz][.sat].f32", f"mul{ROUND}.{{t:f64}}")
def mul(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y = _sources(b, i, m, 2)
    mode = m["rnd"] or "rn"
    if mode == "rn":
        r = b.bin("fmul", x, y)
    elif x.ty == "float":
        wide = b.bin("fmul", b.cast("fpext", x, "double"), b.cast("fpext", y, "double"))
        r = narrow(b, wide, fconst(b, "double", 0.0), "float", mode)
    elif has_rounding_control():
        r = rounded_f64(b, "fmul", [x, y], mode)
    else:
        nearest = b.bin("fmul", x, y)
        error = b.intrinsic("fma", x, y, b.un("fneg", nearest))
        r = _overflow_aware(b, nearest, error, _finite(b, x, y), mode)
    _finish(b, i, r, m)


@op(
    "fma.{rnd:rn|rz|rm|rp}[.ftz][.sat].f32",
    "fma.{rnd:rn|rz|rm|rp}.{t:f64}",
    "mad.{rnd:rn|rz|rm|rp}[.ftz][.sat].f32",
    "mad.{rnd:rn|rz|rm|rp}.{t:f64}",
)
def fma(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    x, y, z = _sources(b, i, m, 3)
    _finish(b, i, fused(b, x, y, z, m["rnd"]), m)


def fused(b: WarpBuilder, x: Value, y: Value, z: Value, mode: str) -> Value:
    """x*y+z rounded once."""
    x, y, z = b.same_shape(x, y, z)
    if mode == "rn":
        return b.intrinsic("fma", x, y, z)
    if x.ty == "float":
        wide = [b.cast("fpext", v, "double") for v in (x, y, z)]
        p = b.bin("fmul", wide[0], wide[1])
        total, error = two_sum(b, p, wide[2])
        result = narrow(b, total, error, "float", mode)
        cancelled = b.bin("and", b.cmp("fcmp oeq", total, fconst(b, "double", 0.0)), _unlike(b, p, wide[2]))
        return b.select(cancelled, fconst(b, "float", -0.0), result) if mode == "rm" else result
    if has_rounding_control():
        return rounded_f64(b, "fma", [x, y, z], mode)
    nearest = b.intrinsic("fma", x, y, z)
    u1 = b.bin("fmul", x, y)
    u2 = b.intrinsic("fma", x, y, b.un("fneg", u1))
    a1, a2 = two_sum(b, z, u2)
    b1, b2 = two_sum(b, u1, a1)
    error = b.bin("fadd", b.bin("fadd", b.bin("fsub", b1, nearest), b2), a2)
    result = _overflow_aware(b, nearest, error, _finite(b, x, y, z), mode)
    cancelled = b.bin("and", b.cmp("fcmp oeq", nearest, fconst(b, "double", 0.0)), _unlike(b, u1, z))
    return b.select(cancelled, fconst(b, "double", -0.0), result) if mode == "rm" else result


def _unlike(b: WarpBuilder, x: Value, y: Value) -> Value:
    return b.cmp("icmp slt", b.bin("xor", int_of(b, x), int_of(b, y)), b.const(f"i{BITS[x.ty]}", 0))


@op("div.{rnd:rn|rz|rm|rp}[.ftz].f32", "div.full[.ftz].f32", "div.approx[.ftz].f32", "div.{rnd:rn|rz|rm|rp}.{t:f64}")
def div(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """div.full and div.approx are rounded correctly here, inside PTX's bound of 2 ulp."""
    x, y = _sources(b, i, m, 2)
    _finish(b, i, quotient(b, x, y, m.get("rnd") or "rn"), m)


def quotient(b: WarpBuilder, x: Value, y: Value, mode: str) -> Value:
    x, y = b.same_shape(x, y)
    if mode == "rn":
        return b.bin("fdiv", x, y)
    if x.ty == "float":
        wx, wy = b.cast("fpext", x, "double"), b.cast("fpext", y, "double")
        q = b.bin("fdiv", wx, wy)
        return narrow(b, q, _quotient_error(b, wx, wy, q), "float", mode)
    if has_rounding_control():
        return rounded_f64(b, "fdiv", [x, y], mode)
    q = b.bin("fdiv", x, y)
    return _overflow_aware(b, q, _quotient_error(b, x, y, q), _finite(b, x, y), mode)


def _quotient_error(b: WarpBuilder, x: Value, y: Value, q: Value) -> Value:
    """A number with the sign of x/y - q; 0 when q is not finite."""
    remainder = b.intrinsic("fma", b.un("fneg", q), y, x)
    signed = b.bin("fmul", remainder, b.intrinsic("copysign", *b.same_shape(fconst(b, x.ty, 1.0), y)))
    return b.select(_finite(b, q), signed, fconst(b, x.ty, 0.0))


@op("rcp.{rnd:rn|rz|rm|rp}[.ftz].f32", "rcp.approx[.ftz].f32", "rcp.{rnd:rn|rz|rm|rp}.{t:f64}")
def rcp(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    (x,) = _sources(b, i, m, 1)
    one = fconst(b, x.ty, 1.0)
    _finish(b, i, quotient(b, b.splat(one, x.lanes) if x.lanes else one, x, m.get("rnd") or "rn"), m)


@op("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")
def rcp_f64(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Only the upper 32 bits of operand and result are used."""
    high = b.i64(~0xFFFFFFFF)
    x = flush_always(b, b.bitcast(b.bin("and", b.src(i.operands[1], "b64"), high), "double"))
    if i.opcode == "rsqrt":
        x = b.intrinsic("sqrt", x)
    r = b.bin("fdiv", fconst(b, "double", 1.0), x)
    b.write(i.operands[0], flush_always(b, b.bitcast(b.bin("and", int_of(b, r), high), "double")))


@op("sqrt.{rnd:rn|rz|rm|rp}[.ftz].f32", "sqrt.approx[.ftz].f32", "sqrt.{rnd:rn|rz|rm|rp}.{t:f64}")
def sqrt(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    (x,) = _sources(b, i, m, 1)
    mode = m.get("rnd") or "rn"
    if mode == "rn":
        r = b.intrinsic("sqrt", x)
    elif x.ty == "float":
        w = b.cast("fpext", x, "double")
        s = b.intrinsic("sqrt", w)
        r = narrow(b, s, _root_error(b, w, s), "float", mode)
    elif has_rounding_control():
        r = rounded_f64(b, "sqrt", [x], mode)
    else:
        s = b.intrinsic("sqrt", x)
        r = _round_error(b, s, _root_error(b, x, s), mode)
    _finish(b, i, r, m)


def _root_error(b: WarpBuilder, x: Value, s: Value) -> Value:
    return b.select(_finite(b, s), b.intrinsic("fma", b.un("fneg", s), s, x), fconst(b, x.ty, 0.0))


@op("rsqrt.approx[.ftz].f32", "rsqrt.approx.{t:f64}")
def rsqrt(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    (x,) = _sources(b, i, m, 1)
    if x.ty == "float":
        r = b.cast("fptrunc", b.bin("fdiv", fconst(b, "double", 1.0), b.intrinsic("sqrt", b.cast("fpext", x, "double"))), "float")
    else:
        r = b.bin("fdiv", fconst(b, "double", 1.0), b.intrinsic("sqrt", x))
    _finish(b, i, r, m)


def pick_min_max(b: WarpBuilder, which: str, x: Value, y: Value, propagate_nan: bool) -> Value:
    """PTX min/max: the operand that is a number wins, or NaN does; -0 < +0."""
    x, y = b.same_shape(x, y)
    r = b.intrinsic("minimumnum" if which == "min" else "maximumnum", x, y)
    if propagate_nan:
        either = b.cmp("fcmp uno", x, y)
    else:
        either = b.bin("and", is_nan(b, x), is_nan(b, y))
    return b.select(either, canonical_nan(b, x.ty), r)


@op(
    "min[.ftz][.NaN].f32", "max[.ftz][.NaN].f32", "min[.ftz][.NaN].xorsign.abs.f32", "max[.ftz][.NaN].xorsign.abs.f32",
    "min.{t:f64}", "max.{t:f64}",
)  # fmt: skip
def min_max(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    values = _sources(b, i, m, len(i.operands) - 1)
    sign = None
    if "xorsign" in i.mods:
        bits = b.bin("xor", int_of(b, values[0]), int_of(b, values[1]))
        sign = b.bin("and", bits, b.const(bits.ty, 1 << (BITS[values[0].ty] - 1)))
        values = [fabs(b, v) for v in values]
    r = values[0]
    for v in values[1:]:
        r = pick_min_max(b, i.opcode, r, v, bool(m.get("NaN")))
    if sign is not None:
        r = b.bitcast(b.bin("or", int_of(b, r), sign), r.ty)
    b.write(i.operands[0], flush_always(b, r) if m.get("ftz") else r)


@op("abs[.ftz].f32", "abs.{t:f64}", "neg[.ftz].f32", "neg.{t:f64}")
def abs_neg(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], m.get("t") or "f32")
    v = fabs(b, v) if i.opcode == "abs" else b.un("fneg", v)
    b.write(i.operands[0], flush_always(b, v) if m.get("ftz") else v)


@op("copysign.{t:f32|f64}")
def copysign(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The first source gives the sign, the second the magnitude."""
    b.write(i.operands[0], b.intrinsic("copysign", b.src(i.operands[2], m["t"]), b.src(i.operands[1], m["t"])))


@op("testp.{p:finite|infinite|number|notanumber|normal|subnormal}.{t:f32|f64}")
def testp(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    v = b.src(i.operands[1], m["t"])
    bits = int_of(b, v)
    exponent = b.bin("and", bits, b.const(bits.ty, INF[v.ty]))
    magnitude = b.bin("and", bits, b.const(bits.ty, (1 << (BITS[v.ty] - 1)) - 1))
    inf, zero = b.const(bits.ty, INF[v.ty]), b.const(bits.ty, 0)
    tests = {
        "finite": lambda: b.cmp("icmp ne", exponent, inf),
        "infinite": lambda: b.cmp("icmp eq", magnitude, inf),
        "number": lambda: b.cmp("icmp ule", magnitude, inf),
        "notanumber": lambda: b.cmp("icmp ugt", magnitude, inf),
        "normal": lambda: b.bin("and", b.cmp("icmp ne", exponent, inf), b.cmp("icmp ne", exponent, zero)),
        "subnormal": lambda: b.bin("and", b.cmp("icmp eq", exponent, zero), b.cmp("icmp ne", magnitude, zero)),
    }
    b.write(i.operands[0], tests[m["p"]]())


@op("add[.{rnd:rn}][.ftz].f32x2", "sub[.{rnd:rn}][.ftz].f32x2", "mul[.{rnd:rn}][.ftz].f32x2", "fma.{rnd:rn}[.ftz].f32x2")
def packed_f32(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Two fp32 in a 64-bit register."""
    sources = b.same_shape(*(b.src(o, "b64") for o in i.operands[1:]))
    lanes = sources[0].lanes
    pieces = [b.define(f"bitcast {v.typed} to <{2 * max(lanes, 1)} x float>", "float", 2 * max(lanes, 1)) for v in sources]
    pieces = [flush(b, v, m["ftz"]) for v in pieces]
    r = b.intrinsic("fma", *pieces) if i.opcode == "fma" else b.bin("f" + i.opcode, *pieces)
    r = flush(b, r, m["ftz"])
    target = f"<{lanes} x i64>" if lanes else "i64"
    b.write(i.operands[0], b.define(f"bitcast {r.typed} to {target}", "i64", lanes))
