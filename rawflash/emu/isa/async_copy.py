"""Asynchronous copies and the barriers that go with them (PTX ISA 9.7.9.25, 9.7.13.15): cp.async, its groups, mbarrier.

The source is read and counted when the copy is issued, the data arrive when the warp waits (lower/asynccopy.py). The opaque
state of an mbarrier is laid out here as pending count (20 bits), expected count (20 bits), phase (24 bits). What belongs to bulk
copies (transaction counts) is outside.
"""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Memo, Warp, Worker
from rawflash.emu.ptx.tree import Instruction, Operand, Reg

ALL_GROUPS = 0x7FFFFFFF
WARP, WORKER = Value("%warp", "ptr"), Value("%w", "ptr")


@op("cp.async.{c:ca|cg}.{s:shared|shared::cta}.global[.L2::cache_hint][.{l2:L2::64B|L2::128B|L2::256B}]")
def cp_async(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    size = b.constant_of(i.operands[2])
    if size not in (4, 8, 16) or (m["c"] == "cg" and size != 16):
        raise b.unsupported("cp.async copies 4, 8 or 16 bytes (.cg only 16), a constant")
    words = size // 4
    slots = [b.alloca("<32 x i32>") for _ in range(words)]
    for slot in slots:
        b.store(Value("zeroinitializer", "i32", LANES), slot)
    source = b.address(i.operands[1])
    length = i.operands[3] if len(i.operands) > 3 and "cache_hint" not in i.spelling else None
    if length is None or b.constant_of(length) == size:
        _read_whole(b, source, slots)
    else:
        _read_part(b, source, slots, _length(b, length, size), size)
    t = access.touch(b, "shared", b.address(i.operands[0]), size, write=True)
    data = b.gep("%w", Worker.DATA)
    for k, slot in enumerate(slots):
        b.store(b.load("i32", slot, LANES), b.gep(data, 128 * k), align=64)
    b.code.uses_async = True
    access.call(b, "rf_async_push", WORKER, WARP, t.memo, t.pointer)


def _length(b: WarpBuilder, operand: Operand, size: int) -> Value:
    """Bytes to read per lane: the source size, or all or none by the ignore-source predicate."""
    if isinstance(operand, Reg) and b.declared(operand.name) == "i1":
        return b.splat(b.select(b.pred(operand), b.i32(0), b.i32(size)))
    return b.splat(b.src(operand, "u32"))


def _read_whole(b: WarpBuilder, source: Value, slots: list[Value]) -> None:
    for slot, v in zip(slots, access.load(b, "global", source, 32, len(slots)), strict=True):
        b.store(b.splat(v), slot)


def _read_part(b: WarpBuilder, source: Value, slots: list[Value], length: Value, size: int) -> None:
    """Lanes that read everything, lanes that read some bytes, one byte after the other, and lanes that read nothing."""
    source = b.splat(source)
    whole = b.cmp("icmp uge", length, b.i32(size))

    def read_all() -> None:
        lanes = b.lanes_of(b.lane_mask())
        for slot, v in zip(slots, access.load(b, "global", source, 32, len(slots)), strict=True):
            b.store(b.select(lanes, b.splat(v), b.load("i32", slot, LANES)), slot)

    b.only_where(whole, read_all)
    partial = b.bin("and", b.bin("xor", whole, Value("true", "i1")), b.cmp("icmp ne", length, b.i32(0)))
    with b.when(b.reduce_any(partial), likely=False), b.loop(size) as k:

        def read_byte() -> None:
            lanes = b.lanes_of(b.lane_mask())
            byte = b.resize(b.splat(access.load(b, "global", b.bin("add", source, b.resize(k, "i64")), 8, 1)[0]), "i32")
            placed = b.bin("shl", byte, b.bin("shl", b.bin("and", k, b.i32(3)), b.i32(3)))
            for n, slot in enumerate(slots):
                here = b.bin("and", *b.same_shape(lanes, b.cmp("icmp eq", b.bin("lshr", k, b.i32(2)), b.i32(n))))
                old = b.load("i32", slot, LANES)
                b.store(b.select(here, b.bin("or", old, placed), old), slot)

        b.only_where(b.bin("and", partial, b.cmp("icmp ult", b.splat(k), length)), read_byte)


@op("cp.async.commit_group")
def commit(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    group = b.gep("%warp", Warp.PENDING)
    b.store(b.bin("add", b.load("i32", group), b.i32(1)), group)


@op("cp.async.wait_group")
def wait_group(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Complete all but the newest N groups; copies that were not committed stay pending."""
    keep = b.constant_of(i.operands[0])
    if keep is None:
        raise b.unsupported("the number of groups must be a constant")
    b.code.uses_async = True
    oldest_kept = b.bin("sub", b.load("i32", b.gep("%warp", Warp.PENDING)), b.i32(keep))
    access.call(b, "rf_async_wait", WORKER, WARP, oldest_kept)


@op("cp.async.wait_all")
def wait_all(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.code.uses_async = True
    access.call(b, "rf_async_wait", WORKER, WARP, b.i32(ALL_GROUPS))


# ------------------------------------------------------------------------------------------------------------- mbarrier
PENDING_MASK, EXPECTED_SHIFT, PHASE_SHIFT = (1 << 20) - 1, 20, 40
SHARED = "[.{space:shared|shared::cta}]"
ORDER = "[.{sem:release|acquire|relaxed}][.{scope:cta|cluster}]"


def _per_lane(b: WarpBuilder, place: Operand, step: object, ty: str = "i64", write: bool = True) -> Value:
    """Run ``step(pointer, lane as i64)`` for every active lane; what it returns becomes a vector of ``ty``."""
    t = access.touch(b, "shared", b.address(place), 8, write=write, ordered=True)
    out = b.alloca(f"[32 x {ty}]")
    b.store(Value("zeroinitializer", ty, LANES), out)
    mask = b.lane_mask()
    with b.loop(LANES) as lane:
        active = b.cmp("icmp ne", b.bin("and", b.bin("lshr", mask, lane), b.i32(1)), b.i32(0))
        with b.when(active):
            wide = b.resize(lane, "i64")
            rel = b.load("i64", b.gep(t.memo, b.bin("add", b.bin("mul", wide, b.i64(8)), b.i64(Memo.REL))))
            result = step(b.gep(t.pointer, rel), wide)  # type: ignore[operator]
            if result is not None:
                b.store(result, b.gep(out, b.bin("mul", wide, b.i64(8))))
    if write and b.params.initcheck:
        access.mark_initialised(b, "shared", t, 8)
    return b.load(ty, out, LANES)


def _spread(b: WarpBuilder, operand: Operand | None, default: int = 1) -> Value:
    """A count per lane, in memory."""
    slot = b.alloca("[32 x i64]")
    v = b.i64(default) if operand is None else b.resize(b.src(operand, "u32"), "i64")
    b.store(b.splat(v), slot)
    return slot


@op(f"mbarrier.init{SHARED}.b64")
def init(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    counts = _spread(b, i.operands[1])

    def step(pointer: Value, lane: Value) -> None:
        n = b.bin("and", b.load("i64", b.gep(counts, b.bin("mul", lane, b.i64(8)))), b.i64(PENDING_MASK))
        b.store(b.bin("or", n, b.bin("shl", n, b.i64(EXPECTED_SHIFT))), pointer)

    _per_lane(b, i.operands[0], step)


@op(f"mbarrier.inval{SHARED}.b64")
def inval(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The memory may be used for something else."""
    _per_lane(b, i.operands[0], lambda pointer, lane: b.store(b.i64(0), pointer))


def _arrive(b: WarpBuilder, pointer: Value, count: Value, drop: bool) -> Value:
    """Returns the state before; the phase ends when nothing is pending."""
    state = b.load("i64", pointer)
    expected = b.bin("and", b.bin("lshr", state, b.i64(EXPECTED_SHIFT)), b.i64(PENDING_MASK))
    if drop:
        expected = b.bin("sub", expected, count)
    pending = b.bin("sub", b.bin("and", state, b.i64(PENDING_MASK)), count)
    over = b.cmp("icmp sle", pending, b.i64(0))
    phase = b.bin("add", b.bin("lshr", state, b.i64(PHASE_SHIFT)), b.resize(over, "i64"))
    new = b.bin("or", b.select(over, expected, pending), b.bin("shl", expected, b.i64(EXPECTED_SHIFT)))
    b.store(b.bin("or", new, b.bin("shl", phase, b.i64(PHASE_SHIFT))), pointer)
    if b.params.racecheck:  # a finished phase orders what came before it
        epoch = b.gep("%w", Worker.EPOCH)
        b.store(b.bin("add", b.load("i32", epoch), b.resize(over, "i32")), epoch)
    return state


@op(
    f"mbarrier.{{o:arrive|arrive_drop}}{ORDER}{SHARED}.b64",
    f"mbarrier.{{o:arrive|arrive_drop}}.noComplete{ORDER}{SHARED}.b64",
    varying=True,
)
def arrive(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    operands = list(i.operands)
    target = operands.pop(0)
    counts = _spread(b, operands[1] if len(operands) > 1 else None)

    def step(pointer: Value, lane: Value) -> Value:
        return _arrive(b, pointer, b.load("i64", b.gep(counts, b.bin("mul", lane, b.i64(8)))), m["o"] == "arrive_drop")

    b.write(target, _per_lane(b, operands[0], step))


@op(f"mbarrier.{{o:test_wait|try_wait}}[.parity]{ORDER}{SHARED}.b64", varying=True)
def test_wait(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """True when the phase of the token, or the phase with that parity, is over. A loop around this yields to other warps."""
    target, place, key = i.operands[:3]
    wanted = b.splat(b.resize(b.src(key, "b32" if m["parity"] else "b64"), "i64"))
    state = _per_lane(b, place, lambda pointer, lane: b.load("i64", pointer), write=False)
    phase = b.bin("lshr", state, b.i64(PHASE_SHIFT))
    if m["parity"]:
        over = b.cmp("icmp ne", b.bin("and", phase, b.i64(1)), b.bin("and", wanted, b.i64(1)))
    else:
        over = b.cmp("icmp ne", phase, b.bin("lshr", wanted, b.i64(PHASE_SHIFT)))
    b.write(target, over)


@op("mbarrier.pending_count.b64")
def pending_count(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.resize(b.bin("and", b.src(i.operands[1], "b64"), b.i64(PENDING_MASK)), "i32"))


@op(f"cp.async.mbarrier.arrive[.noinc]{SHARED}.b64")
def copy_arrive(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The warp's copies complete here, and with .noinc that counts as an arrival (without, the count was raised by one for it)."""
    b.code.uses_async = True
    access.call(b, "rf_async_wait", WORKER, WARP, b.i32(ALL_GROUPS))
    if m["noinc"]:
        _per_lane(b, i.operands[0], lambda pointer, lane: _arrive(b, pointer, b.i64(1), False))
    else:
        _per_lane(b, i.operands[0], lambda pointer, lane: b.load("i64", pointer), write=False)
