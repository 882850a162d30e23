"""Atomics (PTX ISA 9.7.13.6, 9.7.13.7): atom and red in global, shared and generic space.

The active lanes go one after the other, lowest first; among CTAs on several worker threads the processor's own atomics decide.
An atomic is counted as one write request; what it reads back is not counted again. fp32 adds flush subnormals in global memory
and keep them in shared memory, as PTX says.
"""

from __future__ import annotations

from rawflash.emu.isa.convert import narrow16, widen
from rawflash.emu.isa.floating import pick_min_max
from rawflash.emu.isa.fpcommon import flush_always
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, LANES, IRWriter, Value
from rawflash.emu.lower.layout import Memo
from rawflash.emu.lower.types import BYTES
from rawflash.emu.ptx.tree import Address, Instruction, Symbol, Vector

SEMANTICS = "[.{sem:relaxed|acquire|release|acq_rel}][.{scope:cta|cluster|gpu|sys}][.{space:global|shared|shared::cta}]"
HINT = "[.L2::cache_hint]"
INTEGER_OPS = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap", "add": "add"}
FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")

_BOTH = [
    f"{SEMANTICS}.{{o:add}}{HINT}.{{t:u32|s32|u64|s64|f32|f64}}",
    f"{SEMANTICS}.{{o:add}}.noftz{HINT}.{{t:f16|bf16|f16x2|bf16x2}}",
    f"{SEMANTICS}.{{o:min|max}}{HINT}.{{t:u32|s32|u64|s64}}",
    f"{SEMANTICS}.{{o:min|max}}.noftz{HINT}.{{t:f16|bf16|f16x2|bf16x2}}",
    f"{SEMANTICS}.{{o:and|or|xor}}{HINT}.{{t:b32|b64}}",
    f"{SEMANTICS}.{{o:inc|dec}}{HINT}.{{t:u32}}",
    f"{SEMANTICS}.{{o:add}}{HINT}.{{vec:v2|v4}}.{{t:f32}}",
    f"{SEMANTICS}.{{o:add|min|max}}.noftz{HINT}.{{vec:v2|v4|v8}}.{{t:f16|bf16}}",
    f"{SEMANTICS}.{{o:add|min|max}}.noftz{HINT}.{{vec:v2|v4}}.{{t:f16x2|bf16x2}}",
    f"{SEMANTICS}.{{vec:v2|v4}}.{{t:f32}}.{{o:add}}",  # the order of the manual's examples
    f"{SEMANTICS}.{{vec:v2|v4|v8}}.{{t:f16|bf16|f16x2|bf16x2}}.{{o:add|min|max}}.noftz",
]


@op(
    *(f"{opcode}{form}" for opcode in ("atom", "red") for form in _BOTH),
    f"atom{SEMANTICS}.{{o:exch}}{HINT}.{{t:b32|b64|u32|s32|f32|u64}}",
    f"atom{SEMANTICS}.{{o:cas}}{HINT}.{{t:b16|b32|b64|u32|s32|u64}}",
    varying=True,
)
def atomic(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    operands = list(i.operands)
    target = operands.pop(0) if i.opcode == "atom" else None
    place, sources = operands[0], operands[1:3] if m["o"] == "cas" else operands[1:2]
    n = int(m["vec"][1:]) if m.get("vec") else 1
    bits = 8 * BYTES[m["t"]]
    values: list[list[Value]] = []
    for source in sources:
        items = source.items if isinstance(source, Vector) else (source,)
        row = []
        for item in items:
            assert item is not None
            v = b.src(item, m["t"])
            row.append(b.splat(b.as_type(v, f"i{bits}")))
        values.append(row)
    old = [b.alloca(f"[32 x i{bits}]") for _ in range(n)]
    for slot in old:
        b.store(Value("zeroinitializer", f"i{bits}", LANES), slot)

    def at(space: str, address: Value) -> None:
        _lanes(b, m, space, address, bits, n, values, old)

    base = place.base if isinstance(place, Address) else place
    space = (m["space"] or "generic").split("::")[0]
    if space == "generic" and isinstance(base, Symbol):
        space = b.symbol_space(base) or "generic"
    if space == "generic":
        access._generic(b, b.address(place), at)
    else:
        at(space, b.address(place))
    if target is None:
        return
    targets = target.items if isinstance(target, Vector) else (target,)
    for register, slot in zip(targets, old, strict=True):
        b.write(register, b.load(f"i{bits}", slot, LANES), m["t"][0] == "s")


def _lanes(b: WarpBuilder, m: Mods, space: str, address: Value, bits: int, n: int, values: list[list[Value]], old: list[Value]) -> None:
    """One read-modify-write per active lane and element."""
    size = bits // 8
    t = access.touch(b, space, address, size * n, write=True, ordered=True)
    if b.params.initcheck:
        if m["o"] != "exch":
            access.check_all_initialised(b, space, t)
        access.mark_initialised(b, space, t, size * n)
    stored = [[b.alloca(f"[32 x i{bits}]") for _ in row] for row in values]
    for slots, row in zip(stored, values, strict=True):
        for slot, v in zip(slots, row, strict=True):
            b.store(v, slot)
    mask = b.lane_mask()
    with b.loop(LANES) as lane:
        active = b.cmp("icmp ne", b.bin("and", b.bin("lshr", mask, lane), b.i32(1)), b.i32(0))
        with b.when(active):
            wide = b.resize(lane, "i64")
            rel = b.load("i64", b.gep(t.memo, b.bin("add", b.bin("mul", wide, b.i64(8)), b.i64(Memo.REL))))
            at = b.bin("mul", wide, b.i64(size))
            for k in range(n):
                pointer = b.gep(b.gep(t.pointer, rel), k * size)
                arguments = [b.load(f"i{bits}", b.gep(row[k], at)) for row in stored]
                b.store(_one(b, m, space, pointer, arguments), b.gep(old[k], at))


def _one(b: IRWriter, m: Mods, space: str, pointer: Value, v: list[Value]) -> Value:
    """The old value."""
    ty, o, t = v[0].ty, m["o"], m["t"]
    align = BITS[ty] // 8
    if o == "cas":
        pair = b.name()
        b.raw(f"{pair} = cmpxchg ptr {pointer.ir}, {v[0].typed}, {v[1].typed} seq_cst seq_cst, align {align}")
        return b.define(f"extractvalue {{ {ty}, i1 }} {pair}, 0", ty)
    if t in FLOATS and o != "exch":
        return _compare_and_swap(b, m, space, pointer, v[0])
    name = INTEGER_OPS.get(o) or ("" if t[0] == "s" else "u") + o
    return b.define(f"atomicrmw {name} ptr {pointer.ir}, {v[0].typed} seq_cst, align {align}", ty)


def _compare_and_swap(b: IRWriter, m: Mods, space: str, pointer: Value, v: Value) -> Value:
    """Floating point: compute the new bits and swap them in, again if another thread was faster."""
    ty = v.ty
    slot = b.alloca(ty, 8)
    again, done = b.new_label("again"), b.new_label("swapped")
    b.jump(again)
    b.label(again)
    seen = b.define(f"load atomic {ty}, ptr {pointer.ir} seq_cst, align {BITS[ty] // 8}", ty)
    new = _combine(b, m, space, seen, v)  # type: ignore[arg-type]
    b.store(seen, slot)
    pair = b.name()
    b.raw(f"{pair} = cmpxchg ptr {pointer.ir}, {seen.typed}, {new.typed} seq_cst seq_cst, align {BITS[ty] // 8}")
    ok = b.define(f"extractvalue {{ {ty}, i1 }} {pair}, 1", "i1")
    b.branch(ok, done, again)
    b.label(done)
    return b.load(ty, slot)


def _combine(b: WarpBuilder, m: Mods, space: str, x: Value, y: Value) -> Value:
    """x op y as bits."""
    t = m["t"]
    if t.endswith("x2"):
        low, high = (_half(b, m, b.resize(p, "i16"), b.resize(q, "i16"), t[:-2]) for p, q in ((x, y), (_high(b, x), _high(b, y))))
        return b.bin("or", b.resize(low, "i32"), b.bin("shl", b.resize(high, "i32"), b.i32(16)))
    if t in ("f16", "bf16"):
        return _half(b, m, x, y, t)
    ty = "float" if t == "f32" else "double"
    p, q = b.bitcast(x, ty), b.bitcast(y, ty)
    if t == "f32" and space == "global":
        p, q = flush_always(b, p), flush_always(b, q)
        return b.bitcast(flush_always(b, b.bin("fadd", p, q)), "i32")
    return b.bitcast(b.bin("fadd", p, q), x.ty)


def _high(b: IRWriter, v: Value) -> Value:
    return b.bin("lshr", v, b.i32(16))


def _half(b: WarpBuilder, m: Mods, x: Value, y: Value, t: str) -> Value:
    ty = "half" if t == "f16" else "bfloat"
    p, q = widen(b, b.bitcast(x, ty), t), widen(b, b.bitcast(y, ty), t)
    r = b.bin("fadd", p, q) if m["o"] == "add" else pick_min_max(b, m["o"], p, q, False)
    return narrow16(b, r, t, "rn")
