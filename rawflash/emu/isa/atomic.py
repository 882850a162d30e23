"""Atomics (PTX ISA 9.7.13): atom and red in global, shared and generic memory.

Every .sem is executed as the strongest order. Lanes take their turns in ascending order. Floating-point additions round to
nearest; those of f32 flush subnormals in global memory and keep them in shared memory, as PTX says; f16 and bf16 keep them.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from rawflash.emu.isa.convert import narrow16, widen
from rawflash.emu.isa.floating import pick_min_max
from rawflash.emu.isa.fpcommon import flush_always
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.atomics import NATIVE, Update, update
from rawflash.emu.lower.barriers import order
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, IRWriter, Value
from rawflash.emu.lower.types import BYTES, is_signed, llvm_type
from rawflash.emu.ptx.tree import Instruction, Operand, Reg, Symbol, Vector

PLACE = "[.{sem:relaxed|acquire|release|acq_rel}][.{scope:cta|cluster|gpu|sys}][.{space:global|shared|shared::cta|shared::cluster}]"
HINT = "[.L2::cache_hint]"

# What atom and red have in common. Modifiers may come in any order (registry.py).
SHAPES = (
    f"{{o:add}}{HINT}.{{t:u32|s32|u64|s64|f32|f64}}",
    f"{{o:min|max}}{HINT}.{{t:u32|s32|u64|s64}}",
    f"{{o:and|or|xor}}{HINT}.{{t:b32|b64}}",
    f"{{o:inc|dec}}{HINT}.{{t:u32}}",
    f"{{o:add}}.noftz{HINT}.{{t:f16|bf16|f16x2|bf16x2}}",
    f"{{o:add}}{HINT}.{{v:v2|v4}}.{{t:f32}}",
    f"{{o:add|min|max}}.noftz{HINT}.{{v:v2|v4|v8}}.{{t:f16|bf16}}",
    f"{{o:add|min|max}}.noftz{HINT}.{{v:v2|v4}}.{{t:f16x2|bf16x2}}",
)


def _combine(o: str, t: str, w: IRWriter, old: Value, x: Value, is_global: bool) -> Value:
    """The new bits of an element."""
    b = cast(WarpBuilder, w)  # the helpers of the other chapters only write IR
    if o == "exch":
        return x
    if t in ("f16x2", "bf16x2"):
        halves = [[w.resize(w.bin("lshr", v, w.i32(shift)), "i16") for v in (old, x)] for shift in (0, 16)]
        low, high = (w.resize(_combine(o, t[:-2], w, a, c, is_global), "i32") for a, c in halves)
        return w.bin("or", low, w.bin("shl", high, w.i32(16)))
    if t in ("f16", "bf16"):
        a, c = (widen(b, w.bitcast(v, llvm_type(t)), t) for v in (old, x))
        return narrow16(b, w.bin("fadd", a, c) if o == "add" else pick_min_max(b, o, a, c, False), t, "rn")
    if t == "f32":
        a, c = w.bitcast(old, "float"), w.bitcast(x, "float")
        if not is_global:
            return w.bitcast(w.bin("fadd", a, c), "i32")
        return w.bitcast(flush_always(b, w.bin("fadd", flush_always(b, a), flush_always(b, c))), "i32")
    if t == "f64":
        return w.bitcast(w.bin("fadd", w.bitcast(old, "double"), w.bitcast(x, "double")), "i64")
    if o in ("min", "max"):
        return w.intrinsic(("s" if is_signed(t) else "u") + o, old, x)
    if o == "inc":
        return w.select(w.cmp("icmp uge", old, x), w.i32(0), w.bin("add", old, w.i32(1)))
    if o == "dec":
        wraps = w.bin("or", w.cmp("icmp eq", old, w.i32(0)), w.cmp("icmp ugt", old, x))
        return w.select(wraps, x, w.bin("sub", old, w.i32(1)))
    return w.bin(o, old, x)


def _native(o: str, t: str) -> str | None:
    if t.startswith(("f", "bf")):
        return None
    if o in ("min", "max"):
        return o if is_signed(t) else "u" + o
    return NATIVE.get(o)


@op(
    *(f"{opcode}{PLACE}.{shape}" for opcode in ("atom", "red") for shape in SHAPES),
    f"atom{PLACE}.{{o:exch}}{HINT}.{{t:b32|b64|b128|u32|s32|f32|u64}}",
    f"atom{PLACE}.{{o:cas}}{HINT}.{{t:b16|b32|b64|b128|u32|s32|u64}}",
    varying=True,
)
def atomic(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    o, t, count = m["o"], m["t"], int((m.get("v") or "v1")[1:])
    operands = list(i.operands)
    target = operands.pop(0) if i.opcode == "atom" else None
    address = b.address(operands[0])
    bits = 8 * BYTES[t]
    values = [_elements(b, operand, t, count) for operand in operands[1 : 3 if o == "cas" else 2]]
    compare, new = (values[0], values[1]) if o == "cas" else ([], values[0])
    combine = None if o == "cas" else partial(_combine, o, t)
    name = f"{o}_{t}" + (f"_v{count}" if count > 1 else "")
    kind = Update(name, bits, count, _native(o, t), combine, o != "exch" or _is_wanted(b, target))
    _order(b, m)
    old = update(b, _space(b, m, operands[0]), address if address.ty == "i64" else b.resize(address, "i64"), kind, new, compare)
    _order(b, m)
    if target is not None:
        parts = target.items if isinstance(target, Vector) and count > 1 else (target,)
        if len(parts) != count:
            raise b.unsupported(f"{count} elements are returned into {len(parts)} registers")
        for part, v in zip(parts, old, strict=True):
            b.write(part, v)


def _elements(b: WarpBuilder, operand: Operand, t: str, count: int) -> list[Value]:
    """The operand's elements as integers, one value each."""
    items = operand.items if isinstance(operand, Vector) and count > 1 else (operand,)
    if len(items) != count or any(item is None for item in items):
        raise b.unsupported(f"the instruction needs {count} elements, the operand has {len(items)}")
    values = [b.src(item, t) for item in items if item is not None]
    return [b.bitcast(v, f"i{BITS[v.ty]}") for v in values]


def _space(b: WarpBuilder, m: Mods, operand: Operand) -> str:
    if m["space"]:
        return str(m["space"]).split("::")[0]
    base = getattr(operand, "base", operand)
    known = b.symbol_space(base) if isinstance(base, Symbol) else None
    return known if known in ("shared", "global") else "generic"


def _is_wanted(b: WarpBuilder, target: Operand | None) -> bool:
    """Whether the old value of an exchange is looked at: if not, it is a store, and may meet memory that nothing has written."""
    return not isinstance(target, Reg) or target.name in b.wanted


def _order(b: WarpBuilder, m: Mods) -> None:
    """An acquire or release orders other accesses: the race detector must not look across it."""
    if m["sem"] in ("acquire", "release", "acq_rel"):
        order(b, m["scope"])
