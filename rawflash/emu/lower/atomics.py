"""Atomic updates of memory, lane after lane in ascending order, checked and counted by ``access.touch``.

CTAs run on several threads, so global memory is updated with atomicrmw and cmpxchg (sequentially consistent, which every .sem
allows). A CTA has one thread, so shared memory needs neither.

Counting: one warp instruction is one write request with its distinct bytes, sectors or wavefronts; ``atom``, which returns the old
values, has its bytes (and sectors) counted as read too, without a second request (traffic/collect.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, LANES, IRWriter, Value
from rawflash.emu.lower.layout import SHARED_WINDOW, WINDOW_SHIFT, Memo, Worker
from rawflash.emu.lower.slowpath import function_text

ATTRIBUTES = 'noinline nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "no-trapping-math"="true"'
NATIVE = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg"}
Combine = Callable[[IRWriter, Value, Value, bool], Value]


@dataclass(frozen=True)
class Update:
    """What one element becomes. ``name`` says operation and type, as ``add_f32``; an element is an integer of ``bits`` bits, and a
    lane has ``count`` of them one after the other, each updated atomically by itself.

    ``native``: the atomicrmw that does it, if one does; ``combine``: old value, operand and whether the memory is global -> new
    value (unused by cas). ``reads``: the old value matters, so it must have been written.
    """

    name: str
    bits: int
    count: int
    native: str | None
    combine: Combine | None
    reads: bool


def update(b: WarpBuilder, space: str, address: Value, u: Update, operands: list[Value], compare: list[Value]) -> list[Value]:
    """Update memory and return the old values, one vector per element. ``compare`` (cas only): what the old values must equal."""
    if space != "generic":
        return _update(b, space, address, u, operands, compare)
    ty = f"i{u.bits}"
    slots = [b.alloca(f"<{LANES} x {ty}>") for _ in range(u.count)]
    for s in slots:
        b.store(Value("zeroinitializer", ty, LANES), s)
    outer = b._guard
    address = b.splat(address)
    window = b.bin("lshr", address, b.i64(WINDOW_SHIFT))
    strange = b.bin("and", b.bits_of(b.cmp("icmp ugt", window, b.i64(1))), b.lane_mask())
    lane = b.bin("and", b.first_lane(strange), b.i32(31))
    b.fail_if(b.cmp("icmp ne", strange, b.i32(0)), "window", lane, b.extract(address, lane))
    for name, number, origin in (("global", 0, 0), ("shared", 1, SHARED_WINDOW)):
        here = b.cmp("icmp eq", window, b.i64(number))
        b.set_guard(here if outer is None else b.bin("and", *b.same_shape(here, outer)))
        with b.when(b.cmp("icmp ne", b.lane_mask(), b.i32(0))):
            lanes = b.lanes_of(b.lane_mask())
            old = _update(b, name, b.bin("sub", address, b.i64(origin)), u, operands, compare)
            for s, v in zip(slots, old, strict=True):
                b.store(b.select(lanes, v, b.load(ty, s, LANES)), s)
    b.set_guard(outer)
    return [b.load(ty, s, LANES) for s in slots]


def _update(b: WarpBuilder, space: str, address: Value, u: Update, operands: list[Value], compare: list[Value]) -> list[Value]:
    t = access.touch(b, space, address, u.bits // 8 * u.count, write=True, update=True)
    name = f"rf_atomic_{u.name}_{space}"
    vector = f"<{LANES} x i{u.bits}>"
    result = "{ " + ", ".join([vector] * u.count) + " }"
    names = [*(f"%x{k}" for k in range(u.count)), *(f"%c{k}" for k in range(len(compare)))]
    params = ["ptr %w", "ptr %base", "ptr %memo", "i32 %mask", *(f"{vector} {n}" for n in names)]

    def body(w: IRWriter) -> None:
        _body(w, u, space, bool(compare), result)

    b.declarations.add(function_text(name, f"internal {result}", ", ".join(params), body, b.declarations, ATTRIBUTES))
    values = [b.splat(v) for v in (*operands, *compare)]
    arguments = ", ".join(v.typed for v in (Value("%w", "ptr"), t.pointer, t.memo, t.mask, *values))
    packed = b.define(f"call {result} @{name}({arguments})", f"i{u.bits}")
    old = [b.define(f"extractvalue {result} {packed.ir}, {k}", f"i{u.bits}", LANES) for k in range(u.count)]
    if b.params.initcheck:
        if u.reads:
            access._check_initialised(b, space, t, access._suspicious(b, old))
        else:
            access.mark_initialised(b, space, t, u.bits // 8 * u.count)
    return old


def _body(w: IRWriter, u: Update, space: str, compares: bool, result: str) -> None:
    """{old values} rf_atomic_...(w, base, memo, mask, operands, values to compare with)."""
    ty, size = f"i{u.bits}", u.bits // 8
    x, c, out = ([w.alloca(f"<{LANES} x {ty}>") for _ in range(u.count)] for _ in range(3))
    for k in range(u.count):
        w.store(Value(f"%x{k}", ty, LANES), x[k])
        w.store(Value("zeroinitializer", ty, LANES), out[k])
        if compares:
            w.store(Value(f"%c{k}", ty, LANES), c[k])
    changed = w.alloca(ty)
    w.store(w.const(ty, 0), changed)
    with w.each_bit(Value("%mask", "i32")) as lane:
        wide = w.resize(lane, "i64")
        row = w.bin("mul", wide, w.i64(size))
        pointer = w.gep("%base", w.load("i64", w.gep(w.gep("%memo", Memo.REL), w.bin("shl", wide, w.i64(3)))))
        for k in range(u.count):
            expected = w.load(ty, w.gep(c[k], row)) if compares else None
            old, new = _one(w, u, space == "global", w.gep(pointer, k * size), w.load(ty, w.gep(x[k], row)), expected)
            w.store(old, w.gep(out[k], row))
            w.store(w.bin("or", w.load(ty, changed), w.bin("xor", old, new)), changed)
    with w.when(w.cmp("icmp ne", w.load(ty, changed), w.const(ty, 0))):
        w.store(w.i32(1), w.gep("%w", Worker.CHANGED))
    packed = "poison"
    for k in range(u.count):
        packed = w.define(f"insertvalue {result} {packed}, {w.load(ty, out[k], LANES).typed}, {k}", ty).ir
    w.raw(f"ret {result} {packed}")


def _one(w: IRWriter, u: Update, is_global: bool, pointer: Value, x: Value, expected: Value | None) -> tuple[Value, Value]:
    """One lane's element: (old value, new value)."""
    if expected is not None:
        if is_global:
            old = _exchange(w, pointer, expected, x)
        else:
            old = w.load(x.ty, pointer)
        new = w.select(w.cmp("icmp eq", old, expected), x, old)
        if not is_global:
            w.store(new, pointer)
        return old, new
    assert u.combine is not None
    if not is_global:
        old = w.load(x.ty, pointer)
        new = u.combine(w, old, x, False)
        w.store(new, pointer)
        return old, new
    if u.native is not None:
        old = w.define(f"atomicrmw {u.native} ptr {pointer.ir}, {x.typed} seq_cst", x.ty)
        return old, u.combine(w, old, x, True)
    seen = w.alloca(x.ty)
    w.store(w.define(f"load atomic {x.ty}, ptr {pointer.ir} monotonic, align {BITS[x.ty] // 8}", x.ty), seen)
    again, done = w.new_label("again"), w.new_label("done")
    w.jump(again)
    w.label(again)
    guess = w.load(x.ty, seen)
    new = u.combine(w, guess, x, True)
    old = _exchange(w, pointer, guess, new)
    w.store(old, seen)
    w.branch(w.cmp("icmp eq", old, guess), done, again)
    w.label(done)
    return old, new


def _exchange(w: IRWriter, pointer: Value, expected: Value, new: Value) -> Value:
    pair = w.name()
    w.raw(f"{pair} = cmpxchg ptr {pointer.ir}, {expected.typed}, {new.typed} seq_cst seq_cst")
    return w.define(f"extractvalue {{ {new.ty}, i1 }} {pair}, 0", new.ty)
