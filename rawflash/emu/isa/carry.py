"""Extended-precision integer arithmetic (PTX ISA 9.7.2): the carry flag CC.CF is a register of one bit per lane."""

from __future__ import annotations

from rawflash.emu.isa.integer import product
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import INT_BITS, Value, type_text
from rawflash.emu.ptx.tree import Instruction, Reg


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
