"""Loads and stores (PTX ISA 9.7.9): ld, ldu, ld.param, st, st.param, prefetch, discard. The work is done in lower/access.py."""

from __future__ import annotations

from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower import access
from rawflash.emu.lower.barriers import order
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, Value
from rawflash.emu.lower.types import BYTES, is_signed
from rawflash.emu.ptx.tree import Address, Instruction, Operand, Symbol, Vector

TYPES = "b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128"
SPACE = "[.{space:global|shared|shared::cta|local|const|param|param::entry|param::func}]"
ORDER = "[.{order:volatile|relaxed|acquire|weak|mmio}][.{scope:cta|cluster|gpu|sys}]"
CACHE = "[.{cache:ca|cg|cs|lu|cv|wb|wt}][.{evict:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate}]"
HINT = "[.{l2evict:L2::evict_last|L2::evict_normal|L2::evict_first}][.L2::cache_hint][.{prefetch:L2::64B|L2::128B|L2::256B}]"
VECTOR = "[.{vec:v2|v4|v8}]"


def _space(b: WarpBuilder, m: Mods, address: Operand) -> str:
    space = (m["space"] or "generic").split("::")[0]
    base = address.base if isinstance(address, Address) else address
    known = b.symbol_space(base) if isinstance(base, Symbol) else None
    if space == "generic" and known in ("shared", "local", "global", "const"):
        return known
    if space == "param" and known == "local":
        return "call_param"
    if space == "param":
        return "param"
    return space


def _check_param(b: WarpBuilder, operand: Operand, size: int) -> None:
    """A load by name stays inside the parameter block."""
    base = operand.base if isinstance(operand, Address) else operand
    if isinstance(base, Symbol):
        _, offset = b.symbols.resolve(base.name, b.instruction.line)
        end = offset + base.offset + (operand.offset if isinstance(operand, Address) else 0) + size
        if end > b.symbols.param_bytes:
            raise PtxSyntaxError(
                f"a load from '{base.name}' ends {end - b.symbols.param_bytes} bytes behind the parameters", b.instruction.line
            )


def _pieces(m: Mods) -> tuple[int, int, int]:
    """(bits of a memory element, elements, elements per register): b128 travels as two b64."""
    n = int(m["vec"][1:]) if m["vec"] else 1
    bits = 8 * BYTES[m["t"]]
    return (64, 2 * n, 2) if bits == 128 else (bits, n, 1)


@op(
    f"ld{ORDER}{SPACE}{CACHE}{HINT}{VECTOR}.{{t:{TYPES}}}",
    f"ld.global{CACHE}.nc{HINT}{VECTOR}.{{t:{TYPES}}}",
    f"ld.global.nc{CACHE}{HINT}{VECTOR}.{{t:{TYPES}}}",
    f"ldu[.{{space:global}}]{VECTOR}.{{t:{TYPES}}}",
)
def ld(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    m = {"space": "global", "order": None, "scope": None, **m}
    bits, n, per = _pieces(m)
    space = _space(b, m, i.operands[1])
    if space == "param":
        _check_param(b, i.operands[1], bits // 8 * n)
        address = b.address(i.operands[1])
        values = access.load(b, "const", address, bits, n) if address.lanes else access.param_load(b, address, bits, n)
    elif space == "call_param":
        values = access.load(b, "local", b.address(i.operands[1]), bits, n)
    else:
        strong = m["order"] in ("relaxed", "acquire", "mmio")
        values = access.load(b, space, b.place(i.operands[1]), bits, n, volatile=strong or m["order"] == "volatile", ordered=strong)
        if m["order"] == "acquire":
            order(b, m["scope"])
    target = i.operands[0]
    signed = is_signed(str(m["t"]))
    if per == 2:
        values = [_join(b, values[k], values[k + 1]) for k in range(0, len(values), 2)]
    targets = target.items if isinstance(target, Vector) else (target,)
    if len(targets) != len(values):
        raise b.unsupported(f"{len(values)} elements are loaded into {len(targets)} registers")
    for t, v in zip(targets, values, strict=True):
        if t is not None:
            b.write(t, v, signed)


def _join(b: WarpBuilder, low: Value, high: Value) -> Value:
    return b.bin("or", b.resize(low, "i128"), b.bin("shl", b.resize(high, "i128"), b.const("i128", 64)))


@op(f"st[.{{order:volatile|relaxed|release|weak|mmio}}][.{{scope:cta|cluster|gpu|sys}}]{SPACE}{CACHE}{HINT}{VECTOR}.{{t:{TYPES}}}")
def st(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    bits, _, per = _pieces(m)
    space = _space(b, m, i.operands[0])
    if space == "const":
        raise b.unsupported("constant memory cannot be written")
    address = b.place(i.operands[0])
    source = i.operands[1]
    items = source.items if isinstance(source, Vector) else (source,)
    values: list[Value] = []
    for item in items:
        assert item is not None
        v = _bits(b, b.src(item, m["t"]), bits * per)
        values += [v] if per == 1 else [b.resize(v, "i64"), b.resize(b.bin("lshr", v, b.const("i128", 64)), "i64")]
    if space in ("param", "call_param"):
        space = "local"
    strong = m["order"] in ("relaxed", "release", "mmio")
    if m["order"] == "release":
        order(b, m["scope"])
    access.store(b, space, address, values, bits, volatile=strong or m["order"] == "volatile", ordered=strong)


def _bits(b: WarpBuilder, v: Value, bits: int) -> Value:
    return v if v.ty == f"i{bits}" else b.bitcast(v, f"i{BITS[v.ty]}")


@op(
    "prefetch[.{space:global|local}].{level:L1|L2}", "prefetch.global.{level:L2::evict_last|L2::evict_normal}", "prefetchu.L1",
    "prefetch[.{space:const|param}].tensormap", "discard[.{space:global}].L2", "applypriority[.{space:global}].L2::evict_normal",
)  # fmt: skip
def prefetch(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """A hint about caches, which moves no data between registers and memory: nothing to execute, nothing to count."""
