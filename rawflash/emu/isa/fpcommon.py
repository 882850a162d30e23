"""Pieces of floating-point arithmetic shared by the chapters: flushing, NaN, saturation, directed rounding."""

from __future__ import annotations

import platform

import llvmlite.binding as llvm

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, Value

MIN_NORMAL_EXPONENT = {"float": 0x7F800000, "double": 0x7FF0000000000000, "half": 0x7C00, "bfloat": 0x7F80}
NAN_BITS = {"float": 0x7FFFFFFF, "double": 0x7FF8000000000000, "half": 0x7FFF, "bfloat": 0x7FFF}


def int_of(b: WarpBuilder, v: Value) -> Value:
    """The bits of a float."""
    return b.bitcast(v, f"i{BITS[v.ty]}")


def fconst(b: WarpBuilder, ty: str, x: float) -> Value:
    return b.const(ty, float(x))


def canonical_nan(b: WarpBuilder, ty: str) -> Value:
    return b.const(ty, NAN_BITS[ty])


def flush_always(b: WarpBuilder, v: Value) -> Value:
    """Subnormals to zero of the same sign, by integer operations."""
    bits = int_of(b, v)
    exponent = b.bin("and", bits, b.const(bits.ty, MIN_NORMAL_EXPONENT[v.ty]))
    sign = b.bin("and", bits, b.const(bits.ty, 1 << (BITS[v.ty] - 1)))
    return b.bitcast(b.select(b.cmp("icmp eq", exponent, b.const(bits.ty, 0)), sign, bits), v.ty)


def flush(b: WarpBuilder, v: Value, ftz: bool) -> Value:
    """Flush if the instruction says .ftz and the processor does not do it by itself in this kernel."""
    return flush_always(b, v) if ftz and b.explicit_ftz else v


def is_nan(b: WarpBuilder, v: Value) -> Value:
    return b.cmp("fcmp uno", v, v)


def fabs(b: WarpBuilder, v: Value) -> Value:
    return b.intrinsic("fabs", v)


def saturate(b: WarpBuilder, v: Value) -> Value:
    """Clamp to [0, 1]; NaN becomes +0."""
    zero, one = fconst(b, v.ty, 0.0), fconst(b, v.ty, 1.0)
    v = b.select(b.cmp("fcmp ogt", v, zero), v, zero)
    return b.select(b.cmp("fcmp olt", v, one), v, one)


def two_sum(b: WarpBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """x + y rounded, and its exact error (Knuth)."""
    s = b.bin("fadd", x, y)
    t = b.bin("fsub", s, x)
    return s, b.bin("fadd", b.bin("fsub", x, b.bin("fsub", s, t)), b.bin("fsub", y, t))


def step(b: WarpBuilder, v: Value, up: bool) -> Value:
    """The next float above or below, signed zeros included."""
    bits = int_of(b, v)
    ty = bits.ty
    sign = b.const(ty, 1 << (BITS[v.ty] - 1))
    magnitude = b.bin("and", bits, b.bin("xor", sign, b.const(ty, -1)))
    zero = b.cmp("icmp eq", magnitude, b.const(ty, 0))
    negative = b.cmp("icmp slt", bits, b.const(ty, 0))
    if up:
        moved = b.select(negative, b.bin("sub", bits, b.const(ty, 1)), b.bin("add", bits, b.const(ty, 1)))
        at_zero = b.const(ty, 1)
    else:
        moved = b.select(negative, b.bin("add", bits, b.const(ty, 1)), b.bin("sub", bits, b.const(ty, 1)))
        at_zero = b.const(ty, (1 << (BITS[v.ty] - 1)) | 1)
    return b.bitcast(b.select(zero, at_zero, moved), v.ty)


def directed(b: WarpBuilder, nearest: Value, is_above: Value, is_below: Value, mode: str) -> Value:
    """Turn a nearest-rounded value into rz/rm/rp, knowing on which side of the exact result it lies."""
    if mode == "rm":
        return b.select(is_above, step(b, nearest, up=False), nearest)
    if mode == "rp":
        return b.select(is_below, step(b, nearest, up=True), nearest)
    bits = int_of(b, nearest)
    negative = b.cmp("icmp slt", bits, b.const(bits.ty, 0))
    too_big = b.select(negative, is_below, is_above)  # farther from zero than the exact value
    return b.select(too_big, b.bitcast(b.bin("sub", bits, b.const(bits.ty, 1)), nearest.ty), nearest)


def narrow(b: WarpBuilder, value: Value, error: Value, ty: str, mode: str) -> Value:
    """The exact real ``value + error`` (doubles, |error| below half an ulp of value) rounded once to float."""
    nearest = b.cast("fptrunc", value, ty)
    if mode == "rn":
        return _nearest_exact(b, value, error, nearest)
    back = b.cast("fpext", nearest, "double")
    same = b.cmp("fcmp oeq", back, value)
    zero = fconst(b, "double", 0.0)
    above = b.bin("or", b.cmp("fcmp ogt", back, value), b.bin("and", same, b.cmp("fcmp olt", error, zero)))
    below = b.bin("or", b.cmp("fcmp olt", back, value), b.bin("and", same, b.cmp("fcmp ogt", error, zero)))
    return directed(b, nearest, above, below, mode)


def _nearest_exact(b: WarpBuilder, value: Value, error: Value, nearest: Value) -> Value:
    return b.cast("fptrunc", odd(b, value, error), nearest.ty)


def odd(b: WarpBuilder, value: Value, error: Value) -> Value:
    """``value + error`` rounded to odd in double, so that a second rounding is exact."""
    bits = int_of(b, value)
    zero = fconst(b, "double", 0.0)
    inexact = b.cmp("fcmp one", error, zero)
    even = b.cmp("icmp eq", b.bin("and", bits, b.i64(1)), b.i64(0))
    same_sign = b.cmp("icmp sge", b.bin("xor", bits, int_of(b, error)), b.i64(0))
    moved = b.select(same_sign, b.bin("add", bits, b.i64(1)), b.bin("sub", bits, b.i64(1)))
    return b.bitcast(b.select(b.bin("and", inexact, even), moved, bits), "double")


def float_to_odd(b: WarpBuilder, value: Value) -> Value:
    """double -> float rounded to odd, for a later exact rounding to a 16-bit type."""
    f = b.cast("fptrunc", value, "float")
    back = b.cast("fpext", f, "double")
    bits = int_of(b, f)
    larger = b.cmp("fcmp ogt", fabs(b, back), fabs(b, value))
    inexact = b.cmp("fcmp one", back, value)
    toward_zero = b.select(larger, b.bin("sub", bits, b.i32(1)), bits)
    return b.bitcast(b.select(inexact, b.bin("or", toward_zero, b.i32(1)), bits), "float")


ROUNDING_CONTROL = {"rn": 0x0000, "rm": 0x2000, "rp": 0x4000, "rz": 0x6000}
_PACKED = {
    "fadd": "vaddpd $2, $1, $0",
    "fmul": "vmulpd $2, $1, $0",
    "fdiv": "vdivpd $2, $1, $0",
    "sqrt": "vsqrtpd $1, $0",
    "fma": "vfmadd213pd $3, $2, $0",
}


def has_rounding_control() -> bool:
    """Whether fp64 can be rounded in any direction by the processor itself: x86 with AVX and FMA."""
    return platform.machine().lower() in ("x86_64", "amd64") and bool(llvm.get_host_cpu_features().get("fma", False))


def rounded_f64(b: WarpBuilder, op: str, args: list[Value], mode: str) -> Value:
    """One fp64 operation in a rounding mode of the processor, switched and restored within one piece of assembly."""
    b.declarations.add("declare void @llvm.x86.sse.stmxcsr(ptr)")
    saved, switched = b.alloca("i32", 4), b.alloca("i32", 4)
    b.raw(f"call void @llvm.x86.sse.stmxcsr(ptr {saved.ir})")
    control = b.bin("or", b.bin("and", b.load("i32", saved), b.i32(~0x6000)), b.i32(ROUNDING_CONTROL[mode]))
    b.store(control, switched)
    values = b.same_shape(*args)
    lanes = values[0].lanes
    inputs = "0,x,x" if op == "fma" else ",".join("x" for _ in values)
    n = len(values)
    template = f"ldmxcsr ${n + 1}\\0A\\09{_PACKED[op]}\\0A\\09ldmxcsr ${n + 2}"
    constraints = f"=&x,{inputs},*m,*m,~{{dirflag}},~{{fpsr}},~{{flags}}"

    def four(parts: list[Value]) -> Value:
        operands = ", ".join(p.typed for p in parts)
        memory = f"ptr elementtype(i32) {switched.ir}, ptr elementtype(i32) {saved.ir}"
        return b.define(f'call <4 x double> asm sideeffect "{template}", "{constraints}"({operands}, {memory})', "double", 4)

    if not lanes:
        return b.extract(four([b.splat(v, 4) for v in values]), 0)
    pieces = [four([b.shuffle(v, None, list(range(k, k + 4))) for v in values]) for k in range(0, lanes, 4)]
    while len(pieces) > 1:
        pieces = [b.shuffle(pieces[k], pieces[k + 1], list(range(2 * pieces[k].lanes))) for k in range(0, len(pieces), 2)]
    return pieces[0]


def horner(b: WarpBuilder, x: Value, coefficients: list[float]) -> Value:
    """Polynomial with the highest power first, by fused multiply-adds."""
    out = fconst(b, x.ty, coefficients[0])
    for c in coefficients[1:]:
        out = b.intrinsic("fma", *b.same_shape(out, x, fconst(b, x.ty, c)))
    return out
