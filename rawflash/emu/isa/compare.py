"""Comparison and selection (PTX ISA 9.7.5, 9.7.6): setp, set, selp, slct, with PTX's ordered and unordered forms."""

from __future__ import annotations

from rawflash.emu.isa.fpcommon import fconst, flush, flush_always
from rawflash.emu.isa.integer import join16, split16
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.types import is_signed
from rawflash.emu.ptx.tree import Instruction, PredicatePair

COMPARISONS = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
FLOATS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
TYPES = "b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64|f16|bf16"


def comparison(b: WarpBuilder, name: str, t: str, x: Value, y: Value) -> Value:
    """i1 result of a PTX comparison."""
    if x.ty in ("float", "double", "half", "bfloat"):
        if name not in FLOATS:
            raise b.unsupported(f"comparison '{name}' is for integers")
        return b.cmp("fcmp " + FLOATS[name], x, y)
    integer = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}.get(name)
    if integer is None:
        if name not in ("eq", "ne", "lt", "le", "gt", "ge"):
            raise b.unsupported(f"comparison '{name}' is for floating point")
        integer = name if name in ("eq", "ne") else ("s" if is_signed(t) else "u") + name
    return b.cmp("icmp " + integer, x, y)


def _compare(b: WarpBuilder, i: Instruction, m: Mods) -> Value:
    t = m["t"]
    x, y = (as_number(b, b.src(o, t), bool(m["ftz"])) for o in i.operands[1:3])
    return comparison(b, m["cmp"], t, x, y)


def as_number(b: WarpBuilder, v: Value, ftz: bool) -> Value:
    """16-bit floats are compared as fp32, which is exact."""
    if v.ty == "half":
        return b.cast("fpext", flush_always(b, v) if ftz else v, "float")
    if v.ty == "bfloat":
        return b.bitcast(b.bin("shl", b.resize(b.bitcast(v, "i16"), "i32"), b.i32(16)), "float")
    return flush(b, v, ftz) if v.ty == "float" else v


@op(f"setp.{{cmp:{COMPARISONS}}}[.ftz].{{t:{TYPES}}}", f"setp.{{cmp:{COMPARISONS}}}.{{bool:and|or|xor}}[.ftz].{{t:{TYPES}}}")
def setp(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """p = (a cmp b) bool c; q = !(a cmp b) bool c."""
    found = _compare(b, i, m)
    other = b.bin("xor", found, Value("true", "i1"))
    target = i.operands[0]
    if m.get("bool"):
        c = b.pred(i.operands[3])
        found, other = b.bin(m["bool"], found, c), b.bin(m["bool"], other, c)
    if isinstance(target, PredicatePair):
        if target.first is not None:
            b.write(target.first, found)
        if target.second is not None:
            b.write(target.second, other)
        return
    b.write(target, found)


PACKED = "f16x2|bf16x2"


@op(f"setp.{{cmp:{COMPARISONS}}}[.ftz].{{t:{PACKED}}}", f"setp.{{cmp:{COMPARISONS}}}.{{bool:and|or|xor}}[.ftz].{{t:{PACKED}}}")
def setp_packed(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Both halves at once: p for the low one, q for the high one."""
    target = i.operands[0]
    if not isinstance(target, PredicatePair):
        raise b.unsupported("setp of packed halves writes a pair p|q")
    for place, shift in ((target.first, 0), (target.second, 16)):
        halves = []
        for o in i.operands[1:3]:
            bits = b.resize(b.bin("lshr", b.src(o, "b32"), b.i32(shift)), "i16")
            half = b.bitcast(bits, "half" if m["t"] == "f16x2" else "bfloat")
            halves.append(as_number(b, half, bool(m["ftz"])))
        found = comparison(b, m["cmp"], m["t"], *halves)
        if m.get("bool"):
            found = b.bin(m["bool"], found, b.pred(i.operands[3]))
        b.write(place, found)


RESULTS = "u16|s16|u32|s32|f16|bf16|f32"
ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}  # true as a float is 1.0, as an integer all ones


@op(
    f"set.{{cmp:{COMPARISONS}}}[.ftz].{{d:{RESULTS}}}.{{t:{TYPES}}}",
    f"set.{{cmp:{COMPARISONS}}}.{{bool:and|or|xor}}[.ftz].{{d:{RESULTS}}}.{{t:{TYPES}}}",
)
def set_(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    found = _compare(b, i, m)
    if m.get("bool"):
        found = b.bin(m["bool"], found, b.pred(i.operands[3]))
    ty = "i32" if m["d"] in ("u32", "s32", "f32") else "i16"
    b.write(i.operands[0], b.select(found, b.const(ty, ONES.get(m["d"], -1)), b.const(ty, 0)), m["d"].startswith("s"))


@op(f"set.{{cmp:{COMPARISONS}}}[.ftz].{{d:{PACKED}}}.{{t:{PACKED}}}", f"set.{{cmp:{COMPARISONS}}}[.ftz].{{d:u32|s32}}.{{t:{PACKED}}}")
def set_packed(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Each half becomes 1.0 or 0.0, or all ones or zeros."""
    x, y = b.same_shape(b.src(i.operands[1], "b32"), b.src(i.operands[2], "b32"))
    ty = "half" if m["t"] == "f16x2" else "bfloat"
    left, right = (as_number(b, split16(b, v, ty), bool(m["ftz"])) for v in (x, y))
    found = comparison(b, m["cmp"], m["t"], left, right)
    one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(m["d"], -1)
    b.write(i.operands[0], join16(b, b.select(found, b.const("i16", one), b.const("i16", 0)), x.lanes))


@op("selp.{t:b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64}")
def selp(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.select(b.pred(i.operands[3]), b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"])))


@op("slct[.ftz].{t:b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64}.{c:s32|f32}")
def slct(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """a where c >= 0, else b; NaN selects b, -0 selects a."""
    c = b.src(i.operands[3], m["c"])
    if m["c"] == "s32":
        chosen = b.cmp("icmp sge", c, b.i32(0))
    else:
        chosen = b.cmp("fcmp oge", flush(b, c, m["ftz"]), fconst(b, "float", 0.0))
    b.write(i.operands[0], b.select(chosen, b.src(i.operands[1], m["t"]), b.src(i.operands[2], m["t"])))
