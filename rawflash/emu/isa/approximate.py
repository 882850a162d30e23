"""Approximate functions (PTX ISA 9.7.3): ex2, lg2, sin, cos, tanh, within PTX's documented error and exact at special values.

Everything is computed here from polynomials with fused multiply-adds, so results depend neither on the host's libm nor on its
compiler. Bounds: ex2 2^-22 relative, exact at integers; lg2 2^-22 relative; sin and cos 2^-20.9 absolute for |x| <= pi; tanh 2^-11.
"""

from __future__ import annotations

from rawflash.emu.isa.fpcommon import canonical_nan, fabs, fconst, flush, horner, int_of, is_nan
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.ptx.tree import Instruction

# 2^f = 1 + f * p(f) on [-1/2, 1/2], relative error 5e-9
EX2 = [0.00015461447459429924, 0.0013390867350900318, 0.009618056669898468, 0.05550357104254483, 0.24022650922342648, 0.6931471880293417]
# log2((1+s)/(1-s)) = s * q(s*s) for m in [sqrt(1/2), sqrt(2)), s = (m-1)/(m+1), relative error 2e-11
LG2 = [0.3396400364935844, 0.4117305750002, 0.5770826422779888, 0.961796678136316, 2.885390081786422]


def exp2(b: WarpBuilder, x: Value) -> Value:
    """2^x in fp32. Scaled in two steps, so that subnormal results are rounded once and overflow gives infinity."""
    limited = b.intrinsic("minnum", b.intrinsic("maxnum", *b.same_shape(x, fconst(b, "float", -200.0))), *_like(b, x, 200.0))
    n = b.intrinsic("rint", limited)
    f = b.bin("fsub", limited, n)
    p = b.intrinsic("fma", *b.same_shape(f, horner(b, f, EX2), fconst(b, "float", 1.0)))
    k = b.cast("fptosi", n, "i32")
    first = b.bin("ashr", k, b.i32(1))
    second = b.bin("sub", k, first)
    for part in (first, second):
        scale = b.bitcast(b.bin("shl", b.bin("add", part, b.i32(127)), b.i32(23)), "float")
        p = b.bin("fmul", p, scale)
    return b.select(is_nan(b, x), canonical_nan(b, "float"), p)


def _like(b: WarpBuilder, x: Value, constant: float) -> tuple[Value]:
    c = fconst(b, x.ty, constant)
    return (b.splat(c, x.lanes) if x.lanes else c,)


def log2(b: WarpBuilder, x: Value) -> Value:
    """log2(x) in fp32, subnormals included."""
    tiny = b.cmp("fcmp olt", x, b.const("float", 0x00800000))
    scaled = b.select(tiny, b.bin("fmul", x, fconst(b, "float", float(1 << 24))), x)
    bits = int_of(b, scaled)
    shifted = b.bin("sub", bits, b.const("i32", 0x3F3504F3))  # sqrt(1/2)
    exponent = b.bin("ashr", shifted, b.i32(23))
    m = b.bitcast(b.bin("sub", bits, b.bin("shl", exponent, b.i32(23))), "float")
    one = fconst(b, "float", 1.0)
    s = b.bin("fdiv", b.bin("fsub", m, one), b.bin("fadd", m, one))
    fraction = b.bin("fmul", s, horner(b, b.bin("fmul", s, s), LG2))
    e = b.cast("sitofp", b.bin("sub", exponent, b.select(tiny, b.i32(24), b.i32(0))), "float")
    r = b.bin("fadd", e, fraction)
    zero = fconst(b, "float", 0.0)
    infinity = b.const("float", 0x7F800000)
    r = b.select(b.cmp("fcmp oeq", x, infinity), infinity, r)
    r = b.select(b.cmp("fcmp oeq", x, zero), b.const("float", 0xFF800000), r)
    return b.select(b.cmp("fcmp ult", x, zero), canonical_nan(b, "float"), r)


@op("ex2.approx[.ftz].f32")
def ex2(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], flush(b, exp2(b, flush(b, b.src(i.operands[1], "f32"), m["ftz"])), m["ftz"]))


@op("lg2.approx[.ftz].f32")
def lg2(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], flush(b, log2(b, flush(b, b.src(i.operands[1], "f32"), m["ftz"])), m["ftz"]))


# Taylor terms of sin and cos on [-pi/4, pi/4] in double; truncation below 1e-13
SIN = [1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0]
COS = [1 / 479001600, -1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0]
TWO_OVER_PI = 0.6366197723675814
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11


def sine(b: WarpBuilder, x: Value, quarter: int) -> Value:
    """sin(x + quarter * pi/2) by reduction to [-pi/4, pi/4] in double."""
    wide = b.cast("fpext", x, "double")
    n = b.intrinsic("rint", b.bin("fmul", wide, fconst(b, "double", TWO_OVER_PI)))
    r = b.intrinsic("fma", *b.same_shape(n, fconst(b, "double", -HALF_PI_HIGH), wide))
    r = b.intrinsic("fma", *b.same_shape(n, fconst(b, "double", -HALF_PI_LOW), r))
    square = b.bin("fmul", r, r)
    s = b.bin("fmul", r, horner(b, square, SIN))
    c = horner(b, square, COS)
    k = b.bin("add", b.intrinsic_to("fptosi.sat", n, "i32"), b.i32(quarter))
    value = b.select(b.cmp("icmp ne", b.bin("and", k, b.i32(1)), b.i32(0)), c, s)
    negative = b.cmp("icmp ne", b.bin("and", k, b.i32(2)), b.i32(0))
    value = b.select(negative, b.un("fneg", value), value)
    # beyond 2^20 or so the reduction has no correct digits left, but the result stays a sine
    value = b.intrinsic(
        "minnum", *b.same_shape(b.intrinsic("maxnum", *b.same_shape(value, fconst(b, "double", -1.0))), fconst(b, "double", 1.0))
    )
    result = b.cast("fptrunc", value, "float")
    if quarter == 0:  # sin(-0) = -0
        result = b.select(b.cmp("fcmp oeq", x, fconst(b, "float", 0.0)), x, result)
    infinite = b.cmp("fcmp ueq", fabs(b, x), b.const("float", 0x7F800000))
    return b.select(infinite, canonical_nan(b, "float"), result)


@op("sin.approx[.ftz].f32")
def sin(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], flush(b, sine(b, flush(b, b.src(i.operands[1], "f32"), m["ftz"]), 0), m["ftz"]))


@op("cos.approx[.ftz].f32")
def cos(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], flush(b, sine(b, flush(b, b.src(i.operands[1], "f32"), m["ftz"]), 1), m["ftz"]))


def hyperbolic_tangent(b: WarpBuilder, x: Value) -> Value:
    """1 - 2/(1 + e^2|x|), and x - x^3/3 near zero where that would cancel."""
    size = fabs(b, x)
    e = exp2(b, b.bin("fmul", size, fconst(b, "float", 2.8853900817779268)))
    one = fconst(b, "float", 1.0)
    large = b.bin("fsub", one, b.bin("fdiv", fconst(b, "float", 2.0), b.bin("fadd", e, one)))
    square = b.bin("fmul", x, x)
    small = b.bin("fmul", size, horner(b, square, [2 / 15, -1 / 3, 1.0]))
    value = b.select(b.cmp("fcmp olt", size, fconst(b, "float", 0.125)), small, large)
    return b.select(is_nan(b, x), canonical_nan(b, "float"), b.intrinsic("copysign", value, x))


@op("tanh.approx.f32")
def tanh(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], hyperbolic_tangent(b, b.src(i.operands[1], "f32")))
