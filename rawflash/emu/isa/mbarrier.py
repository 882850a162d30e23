"""mbarrier objects (PTX ISA 9.7.13.15) in the CTA's own shared memory: init, arrive, expect_tx, waits. The object: lower/mbarriers.py.

A wait never blocks the instruction: it says "not yet", and the loop around it lets the other warps run (cfg/spins.py). Lanes arrive
one after the other, so each gets the state that the lanes before it left. .relaxed is executed as .acquire or .release.
"""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower import access, mbarriers
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, IRWriter, Value
from rawflash.emu.lower.layout import SHARED_WINDOW, Memo, Warp
from rawflash.emu.lower.slowpath import fail, function_text
from rawflash.emu.ptx.tree import Instruction, Operand, Symbol

SPACE = "[.{space:shared|shared::cta}]"
ANY_SPACE = "[.{space:shared|shared::cta|shared::cluster}]"
ARRIVE = "{what:arrive|arrive_drop}"
RELEASE = "[.{sem:release|relaxed}][.{scope:cta|cluster}]"
ACQUIRE = "[.{sem:acquire|relaxed}][.{scope:cta|cluster}]"
COLD = "noinline nounwind"
W, WARP = Value("%w", "ptr"), Value("%warp", "ptr")


def shared_address(b: WarpBuilder, operand: Operand, m: Mods) -> Value:
    """The offset of an object in shared memory; a generic address must lie in the shared window, or it is out of bounds."""
    address = b.address(operand)
    base = getattr(operand, "base", operand)
    if m["space"] or (isinstance(base, Symbol) and b.symbol_space(base) == "shared"):
        return address
    return b.bin("sub", b.resize(address, "i64"), b.i64(SHARED_WINDOW))


@op(f"mbarrier.init{SPACE}.b64")
def init(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    count = b.src(i.operands[1], "u32")
    wrong = b.bin("or", b.cmp("icmp eq", count, b.i32(0)), b.cmp("icmp ugt", count, b.i32(mbarriers.MOST)))
    wrong = b.bin("and", b.bits_of(wrong), b.lane_mask())
    lane = b.bin("and", b.first_lane(wrong), b.i32(31))
    b.fail_if(b.cmp("icmp ne", wrong, b.i32(0)), "bad_mbarrier", lane, aux=b.i64(mbarriers.BAD_COUNT))
    access.store(b, "shared", shared_address(b, i.operands[0], m), [mbarriers.initial(b, count)], 64)


@op(f"mbarrier.inval{SPACE}.b64")
def inval(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The memory may be used for something else; as an mbarrier it is uninitialised."""
    _each(b, "inval", shared_address(b, i.operands[0], m), [], lambda w, at: None)


@op(f"mbarrier.{ARRIVE}{RELEASE}{ANY_SPACE}.b64", varying=True)
def arrive(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    drop = m["what"] == "arrive_drop"
    count = b.src(i.operands[2], "u32") if len(i.operands) > 2 else b.i32(1)
    b.write(i.operands[0], _change(b, m["what"], i.operands[1], m, arrivals=count, drop=drop))


@op(f"mbarrier.{ARRIVE}.noComplete{RELEASE}{SPACE}.b64", varying=True)
def arrive_no_complete(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    drop, count = m["what"] == "arrive_drop", b.src(i.operands[2], "u32")
    b.write(i.operands[0], _change(b, m["what"] + "_no_complete", i.operands[1], m, arrivals=count, drop=drop, may_complete=False))


@op(f"mbarrier.{ARRIVE}.expect_tx{RELEASE}{ANY_SPACE}.b64", varying=True)
def arrive_expect_tx(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    drop, n_bytes = m["what"] == "arrive_drop", b.src(i.operands[2], "u32")
    b.write(i.operands[0], _change(b, m["what"] + "_expect_tx", i.operands[1], m, arrivals=b.i32(1), n_bytes=n_bytes, drop=drop))


@op(f"mbarrier.{{what:expect_tx|complete_tx}}[.relaxed][.{{scope:cta|cluster}}]{ANY_SPACE}.b64")
def transaction(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    n_bytes = b.src(i.operands[1], "u32")
    if m["what"] == "complete_tx":
        n_bytes = b.bin("sub", b.i32(0), n_bytes)
    _change(b, "tx", i.operands[0], m, n_bytes=n_bytes)


@op("mbarrier.pending_count.b64")
def pending_count(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.resize(mbarriers.pending(b, b.src(i.operands[1], "b64")), "i32"))


@op(f"mbarrier.{{what:test_wait|try_wait}}[.parity]{ACQUIRE}{SPACE}.b64")
def wait(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Whether the phase is over. If not for some lane, the loop around it gives up the warp's turn. A time limit is not needed."""
    with b.when(b.cmp("icmp ne", b.load("i32", b.gep("%warp", Warp.ARRIVALS)), b.i32(0)), likely=False):
        access.check(b, access.call(b, "rf_copy_drain", W, WARP))
    (word,) = access.load(b, "shared", shared_address(b, i.operands[1], m), 64, 1, volatile=True, ordered=True)
    if m["parity"]:
        asked = b.cmp("icmp ne", b.bin("and", b.src(i.operands[2], "b32"), b.i32(1)), b.i32(0))
    else:
        asked = mbarriers.parity(b, b.src(i.operands[2], "b64"))
    over = b.bin("xor", *b.same_shape(mbarriers.parity(b, word), asked))
    waiting = b.bin("and", b.lane_mask(), b.bin("xor", b.bits_of(over), b.i32(-1)))
    with b.when(b.cmp("icmp ne", waiting, b.i32(0))):
        b.store(b.i32(0), b.gep("%warp", Warp.SPINS))
    b.write(i.operands[0], over)


def _change(
    b: WarpBuilder,
    name: str,
    operand: Operand,
    m: Mods,
    *,
    arrivals: Value | None = None,
    n_bytes: Value | None = None,
    drop: bool = False,
    may_complete: bool = True,
) -> Value:
    """The lanes' operations one after the other; returns the words they found."""
    inputs = [b.splat(v) for v in (arrivals, n_bytes) if v is not None]

    def one(w: IRWriter, at: _Lane) -> Value:
        values = iter(at.inputs)
        counts = next(values) if arrivals is not None else None
        return mbarriers.change(
            w, at.pointer, at.site, at.lane, at.address, arrivals=counts, n_bytes=next(values, None), drop=drop, may_complete=may_complete
        )

    return _each(b, name, shared_address(b, operand, m), inputs, one)


class _Lane:
    """What the code for one lane can use: i32 lane and site, pointer to its object, its shared address, its operands."""

    def __init__(self, w: IRWriter, lane: Value, inputs: list[Value]):
        self.lane, self.site = lane, w.load("i32", w.gep("%memo", Memo.SITE))
        wide = w.resize(lane, "i64")
        rel = w.load("i64", w.gep(w.gep("%memo", Memo.REL), w.bin("shl", wide, w.i64(3))))
        self.pointer, self.shadow, self.address = w.gep("%base", rel), w.gep("%shadow", rel), w.bin("add", Value("%start", "i64"), rel)
        self.inputs = [w.load("i32", w.gep(table, w.bin("shl", wide, w.i64(2)))) for table in inputs]


def _each(b: WarpBuilder, name: str, address: Value, inputs: list[Value], one) -> Value:  # type: ignore[no-untyped-def]
    """Run ``one(w, lane)`` for the active lanes in ascending order, inside a function of its own; returns its results (64 bits)."""
    t = access.touch(b, "shared", address, 8, write=True, ordered=True)
    tables = [Value(f"%in{k}", "ptr") for k in range(len(inputs))]

    def body(w: IRWriter) -> None:
        with w.each_bit(Value("%mask", "i32")) as lane:
            at = _Lane(w, lane, tables)
            if b.params.initcheck:
                with w.when(w.cmp("icmp ne", w.load("i64", at.shadow, align=1), w.i64(-1)), likely=False):
                    fail(w, "uninitialized", at.site, lane, at.address)
                    w.label(w.new_label("dead"))
            found = one(w, at)
            if found is None:
                w.store(w.i64(-1), at.pointer, align=1)
                w.store(w.i64(0), at.shadow, align=1)
            else:
                w.store(found, w.gep("%out", w.bin("shl", w.resize(lane, "i64"), w.i64(3))))
        w.raw("ret i32 0")

    params = "ptr %w, ptr %base, ptr %shadow, ptr %memo, i32 %mask, i64 %start, ptr %out" + "".join(f", {v.typed}" for v in tables)
    b.declarations.add(function_text(f"rf_mbarrier_{name}", "internal i32", params, body, b.declarations, COLD))
    out = b.alloca(f"<{LANES} x i64>")
    slots = [b.alloca(f"<{LANES} x i32>") for _ in inputs]
    for slot, v in zip(slots, inputs, strict=True):
        b.store(v, slot)
    arguments = (W, t.pointer, access._shadow(b, "shared", t), t.memo, t.mask, t.base, out, *slots)
    code = b.define(f"call i32 @rf_mbarrier_{name}({', '.join(v.typed for v in arguments)})", "i32")
    access.check(b, code)
    return b.load("i64", out, LANES)
