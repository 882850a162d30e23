"""Data movement between registers and names (PTX ISA 9.7.9): mov, cvta, isspacep, mapa-free address conversions."""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.layout import CONST_WINDOW, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SHIFT
from rawflash.emu.ptx.tree import Address, Instruction, Symbol, Vector

WINDOWS = {"shared": SHARED_WINDOW, "shared::cta": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}


@op("mov.{t:pred|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128|f16|bf16|f16x2}")
def mov(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    target, source = i.operands
    if m["t"] == "pred":
        b.write(target, b.pred(source))
        return
    if isinstance(source, Address):  # mov.u64 %rd, [sym+4] is not PTX, but sym+4 parses to a Symbol
        raise b.unsupported("mov takes a register, a literal or a name, not an address in brackets")
    if isinstance(source, Vector) and isinstance(target, Vector):
        for t, s in zip(target.items, source.items, strict=True):
            if t is not None and s is not None:
                b.write(t, b.raw_operand(s, m["t"]))
        return
    if isinstance(target, Vector) and m["t"] in ("b16", "b32", "b64", "b128"):
        b.unpack(target, b.src(source, m["t"]))
        return
    if isinstance(source, Symbol):
        # a name in shared or local memory: its address in that space
        b.write(target, b.as_type(b.symbol(source), "i32") if m["t"].endswith("32") else b.symbol(source))
        return
    b.write(target, b.src(source, m["t"]))


@op("cvta.{space:global|shared|local|const|param|shared::cta}.{t:u32|u64}")
def cvta(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Address in a space -> generic address."""
    source = i.operands[1]
    v = b.symbol(source) if isinstance(source, Symbol) else b.src(source, m["t"])
    window = WINDOWS.get(m["space"], 0)
    wide = b.resize(v, "i64")
    b.write(i.operands[0], b.bin("add", wide, b.i64(window)) if window else wide)


@op("cvta.to.{space:global|shared|local|const|param|shared::cta}.{t:u32|u64}")
def cvta_to(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Generic address -> address in a space."""
    source = i.operands[1]
    v = b.symbol(source) if isinstance(source, Symbol) else b.src(source, m["t"])
    window = WINDOWS.get(m["space"], 0)
    wide = b.resize(v, "i64")
    b.write(i.operands[0], b.bin("sub", wide, b.i64(window)) if window else wide)


@op("isspacep.{space:global|shared|local|const|shared::cta|param}")
def isspacep(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    window = b.bin("lshr", b.src(i.operands[1], "u64"), b.i64(WINDOW_SHIFT))
    number = WINDOWS.get(m["space"], 0) >> WINDOW_SHIFT
    if m["space"] == "param":
        b.write(i.operands[0], Value("false", "i1"))
        return
    b.write(i.operands[0], b.cmp("icmp eq", window, b.i64(number)))
