"""fp16 and bf16 arithmetic (PTX ISA 9.7.4), scalar and packed. Every result is rounded once.

add, sub and mul are done in fp32 and rounded, which is exact rounding because fp32 has more than twice the bits; fma goes
through double with rounding to odd.
"""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.isa.approximate import exp2, hyperbolic_tangent
from rawflash.emu.isa.convert import narrow16, widen
from rawflash.emu.isa.floating import pick_min_max
from rawflash.emu.isa.fpcommon import fabs, fconst, float_to_odd, flush_always, odd, saturate, two_sum
from rawflash.emu.isa.integer import join16, split16
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.types import llvm_type
from rawflash.emu.ptx.tree import Instruction

SCALAR, PACKED = "f16|bf16", "f16x2|bf16x2"
Body = Callable[..., Value]


def _apply(b: WarpBuilder, i: Instruction, t: str, count: int, body: Body) -> None:
    """Run ``body`` on fp32 values of the sources; it returns 16-bit results (i16) of the same number of lanes."""
    scalar = t.removesuffix("x2")
    if not t.endswith("x2"):
        b.write(i.operands[0], body(*(widen(b, b.src(o, t), t) for o in i.operands[1 : 1 + count])))
        return
    sources = b.same_shape(*(b.src(o, "b32") for o in i.operands[1 : 1 + count]))
    lanes = sources[0].lanes
    wide = [widen(b, split16(b, v, llvm_type(scalar)), scalar) for v in sources]
    b.write(i.operands[0], join16(b, body(*wide), lanes))


def _flush16(b: WarpBuilder, bits: Value, t: str) -> Value:
    ty = "half" if t.startswith("f16") else "bfloat"
    return b.bitcast(flush_always(b, b.bitcast(bits, ty)), "i16")


def _flush_wide(b: WarpBuilder, v: Value) -> Value:
    """Flush an fp16 subnormal that has been widened: |v| < 2^-14."""
    tiny = b.cmp("fcmp olt", fabs(b, v), fconst(b, "float", 2.0**-14))
    return b.select(tiny, b.intrinsic("copysign", *b.same_shape(fconst(b, "float", 0.0), v)), v)


def _finish(b: WarpBuilder, v: Value, t: str, m: Mods, mode: str = "rn") -> Value:
    """Saturate, clamp below zero, round to 16 bits, flush."""
    scalar = t.removesuffix("x2")
    if m.get("sat"):
        v = saturate(b, v)
    if m.get("relu"):
        v = b.select(b.cmp("fcmp olt", v, fconst(b, "float", 0.0)), fconst(b, "float", 0.0), v)
    bits = narrow16(b, v, scalar, mode)
    return _flush16(b, bits, scalar) if m.get("ftz") else bits


@op(
    *(f"{o}[.{{rnd:rn}}][.ftz][.sat].{{t:{SCALAR}}}" for o in ("add", "sub", "mul")),
    *(f"{o}[.{{rnd:rn}}][.ftz][.sat].{{t:{PACKED}}}" for o in ("add", "sub", "mul")),
)
def arithmetic(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    def body(x: Value, y: Value) -> Value:
        if m["ftz"]:
            x, y = _flush_wide(b, x), _flush_wide(b, y)
        return _finish(b, b.bin("f" + i.opcode, x, y), m["t"], m)

    _apply(b, i, m["t"], 2, body)


@op(f"fma.rn[.ftz][.sat][.relu].{{t:{SCALAR}}}", f"fma.rn[.ftz][.sat][.relu].{{t:{PACKED}}}")
def fma(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    def body(x: Value, y: Value, z: Value) -> Value:
        if m["ftz"]:
            x, y, z = (_flush_wide(b, v) for v in (x, y, z))
        x, y, z = (b.cast("fpext", v, "double") for v in (x, y, z))
        total, error = two_sum(b, b.bin("fmul", x, y), z)
        return _finish(b, float_to_odd(b, odd(b, total, error)), m["t"], m)

    _apply(b, i, m["t"], 3, body)


@op(
    *(f"{o}[.ftz][.NaN].{{t:{SCALAR}}}" for o in ("min", "max")),
    *(f"{o}[.ftz][.NaN].{{t:{PACKED}}}" for o in ("min", "max")),
    *(f"{o}[.ftz][.NaN].xorsign.abs.{{t:{SCALAR}}}" for o in ("min", "max")),
    *(f"{o}[.ftz][.NaN].xorsign.abs.{{t:{PACKED}}}" for o in ("min", "max")),
)
def min_max(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    def body(x: Value, y: Value) -> Value:
        x, y = b.same_shape(x, y)
        if m["ftz"]:
            x, y = _flush_wide(b, x), _flush_wide(b, y)
        sign = None
        if "xorsign" in i.mods:
            sign = b.bin("and", b.bin("xor", b.bitcast(x, "i32"), b.bitcast(y, "i32")), b.const("i32", 1 << 31))
            x, y = fabs(b, x), fabs(b, y)
        r = pick_min_max(b, i.opcode, x, y, m["NaN"])
        if sign is not None:
            r = b.bitcast(b.bin("or", b.bitcast(r, "i32"), sign), "float")
        return _finish(b, r, m["t"], {})

    _apply(b, i, m["t"], 2, body)


@op(f"abs[.ftz].{{t:{SCALAR}}}", f"abs[.ftz].{{t:{PACKED}}}", f"neg[.ftz].{{t:{SCALAR}}}", f"neg[.ftz].{{t:{PACKED}}}")
def abs_neg(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    packed = m["t"].endswith("x2")
    bits = b.src(i.operands[1], "b32" if packed else "b16")
    sign = b.const(bits.ty, 0x80008000 if packed else 0x8000)
    if i.opcode == "abs":
        r = b.bin("and", bits, b.bin("xor", sign, b.const(bits.ty, -1)))
    else:
        r = b.bin("xor", bits, sign)
    if m["ftz"]:
        r = join16(b, _flush16(b, split16(b, r), m["t"]), r.lanes) if packed else _flush16(b, r, m["t"])
    b.write(i.operands[0], r)


@op("ex2.approx[.ftz].{t:f16|bf16}", "ex2.approx[.ftz].{t:f16x2|bf16x2}")
def ex2(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    _apply(b, i, m["t"], 1, lambda x: _finish(b, exp2(b, x), m["t"], m))


@op("tanh.approx.{t:f16|bf16}", "tanh.approx.{t:f16x2|bf16x2}")
def tanh(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    _apply(b, i, m["t"], 1, lambda x: _finish(b, hyperbolic_tangent(b, x), m["t"], m))
