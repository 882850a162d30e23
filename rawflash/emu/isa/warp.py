"""Warp-wide instructions (PTX ISA 9.7.9.6, 9.7.13): shfl, vote, match, redux, activemask, elect, bar.warp.sync.

With synccheck, an executing lane outside its own member mask, a member that is neither executing nor gone, and a shuffle that
reads a lane outside the mask are errors that name the lane.
"""

from __future__ import annotations

from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Warp
from rawflash.emu.ptx.tree import Instruction, Operand, PredicatePair

LANE_IDS = Value("<" + ", ".join(f"i32 {k}" for k in range(32)) + ">", "i32", LANES)


def check_members(b: WarpBuilder, members: Value) -> None:
    """Every executing lane is in its mask, and every member executes or has returned."""
    if not b.params.synccheck:
        return
    mask = b.lane_mask()
    if members.lanes:
        own = b.cmp("icmp ne", b.bin("and", members, b.bin("shl", b.i32(1), LANE_IDS)), b.i32(0))
        outside = b.bin("and", mask, b.bin("xor", b.bits_of(own), b.i32(-1)))
        everyone = b.select(b.lanes_of(mask), members, b.splat(b.i32(0)))
        named = b.define(f"call i32 @llvm.vector.reduce.or.v32i32(<32 x i32> {everyone.ir})", "i32")
        b.declarations.add("declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)")
    else:
        outside = b.bin("and", mask, b.bin("xor", members, b.i32(-1)))
        named = members
    lane = b.bin("and", b.first_lane(outside), b.i32(31))
    b.fail_if(b.cmp("icmp ne", outside, b.i32(0)), "bad_mask", lane, aux=b.i64(1))
    if b.has_full_mask:
        return
    present = b.bin("xor", b.load("i32", b.gep("%warp", Warp.EXITED)), b.i32(-1))
    present = b.bin("and", present, b.load("i32", b.gep("%warp", Warp.ENTRY_MASK)))
    missing = b.bin("and", b.bin("and", named, present), b.bin("xor", mask, b.i32(-1)))
    lane = b.bin("and", b.first_lane(missing), b.i32(31))
    b.fail_if(b.cmp("icmp ne", missing, b.i32(0)), "bad_mask", lane, aux=b.i64(2))


def permute(b: WarpBuilder, v: Value, index: Value) -> Value:
    """v[index[lane]] for a vector of lane numbers in 0..31; 32-bit elements."""
    out = b.alloca("<32 x i32>")
    b.store(v, out)
    lanes = []
    for lane in range(LANES):
        at = b.gep(out, b.bin("shl", b.resize(b.extract(index, lane), "i64"), b.i64(2)))
        lanes.append(b.load("i32", at))
    result = Value("poison", "i32", LANES)
    for lane, one in enumerate(lanes):
        result = b.define(f"insertelement {result.typed}, {one.typed}, i64 {lane}", "i32", LANES)
    return result


def _source_lane(mode: str, lane: int, offset: int, clamp: int) -> tuple[int, bool]:
    """PTX's pseudo code for shfl: (source lane, in range)."""
    segment = (clamp >> 8) & 31
    bound = (lane & segment) | (clamp & 31 & ~segment)
    offset &= 31
    if mode == "up":
        j = lane - offset
        valid = j >= bound
    elif mode == "down":
        j = lane + offset
        valid = j <= bound
    elif mode == "bfly":
        j = lane ^ offset
        valid = j <= bound
    else:
        j = (lane & segment) | (offset & ~segment)
        valid = j <= bound
    return (j if valid else lane) & 31, valid


@op("shfl.sync.{mode:up|down|bfly|idx}.b32", "shfl.{mode:up|down|bfly|idx}.b32", varying=True)
def shfl(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    target, source, offset_operand, clamp_operand = i.operands[:4]
    v = b.splat(b.src(source, "b32"))
    members = b.src(i.operands[4], "b32") if "sync" in i.mods else b.block_mask()
    if "sync" in i.mods:
        check_members(b, members)
    offset, clamp = b.constant_of(offset_operand), b.constant_of(clamp_operand)
    if offset is not None and clamp is not None:
        picks = [_source_lane(m["mode"], lane, offset, clamp) for lane in range(LANES)]
        result = b.shuffle(v, None, [p[0] for p in picks])
        valid = Value("<" + ", ".join(f"i1 {'true' if p[1] else 'false'}" for p in picks) + ">", "i1", LANES)
        index = Value("<" + ", ".join(f"i32 {p[0]}" for p in picks) + ">", "i32", LANES)
    else:
        index, valid = _dynamic_source(b, m["mode"], b.src(offset_operand, "b32"), b.src(clamp_operand, "b32"))
        result = permute(b, v, index)
    if b.params.synccheck and not b.has_full_mask:
        _check_sources(b, index, valid)
    if isinstance(target, PredicatePair):
        b.write(target.first, result)
        if target.second is not None:
            b.write(target.second, valid)
    else:
        b.write(target, result)


def _dynamic_source(b: WarpBuilder, mode: str, offset: Value, clamp: Value) -> tuple[Value, Value]:
    offset = b.splat(b.bin("and", offset, b.i32(31)))
    clamp = b.splat(clamp)
    segment = b.bin("and", b.bin("lshr", clamp, b.i32(8)), b.i32(31))
    inverse = b.bin("xor", segment, b.i32(-1))
    in_segment = b.bin("and", LANE_IDS, segment)
    bound = b.bin("or", in_segment, b.bin("and", b.bin("and", clamp, b.i32(31)), inverse))
    if mode == "up":
        j = b.bin("sub", LANE_IDS, offset)
        valid = b.cmp("icmp sge", j, bound)
    elif mode == "idx":
        j = b.bin("or", in_segment, b.bin("and", offset, inverse))
        valid = b.cmp("icmp sle", j, bound)
    else:
        j = b.bin("add" if mode == "down" else "xor", LANE_IDS, offset)
        valid = b.cmp("icmp sle", j, bound)
    return b.bin("and", b.select(valid, j, LANE_IDS), b.i32(31)), valid


def _check_sources(b: WarpBuilder, index: Value, valid: Value) -> None:
    """Reading a lane that does not execute the shuffle is undefined."""
    mask = b.lane_mask()
    available = b.bin("and", b.bin("lshr", b.splat(mask), index), b.i32(1))
    stray = b.bits_of(b.bin("and", valid, b.cmp("icmp eq", available, b.i32(0))))
    stray = b.bin("and", stray, mask)
    lane = b.bin("and", b.first_lane(stray), b.i32(31))
    b.fail_if(b.cmp("icmp ne", stray, b.i32(0)), "bad_shuffle", lane)


def _participants(b: WarpBuilder, i: Instruction, operand: Operand | None) -> Value:
    """Bits of the lanes that vote together, per lane if the masks differ."""
    if operand is None:
        return b.lane_mask()
    members = b.src(operand, "b32")
    check_members(b, members)
    return b.bin("and", *b.same_shape(members, b.lane_mask()))


@op("vote.sync.{mode:all|any|uni}.pred", "vote.{mode:all|any|uni}.pred")
def vote(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    group = _participants(b, i, i.operands[2] if "sync" in i.mods else None)
    true = b.bin("and", *b.same_shape(b.bits_of(b.pred(i.operands[1])), group))
    every, none = b.cmp("icmp eq", *b.same_shape(true, group)), b.cmp("icmp eq", true, b.i32(0))
    if m["mode"] == "all":
        result = every
    elif m["mode"] == "any":
        result = b.bin("xor", none, Value("true", "i1"))
    else:
        result = b.bin("or", every, none)
    b.write(i.operands[0], result)


@op("vote.sync.ballot.b32", "vote.ballot.b32")
def ballot(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    group = _participants(b, i, i.operands[2] if "sync" in i.mods else None)
    b.write(i.operands[0], b.bin("and", *b.same_shape(b.bits_of(b.pred(i.operands[1])), group)))


@op("activemask.b32")
def activemask(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    b.write(i.operands[0], b.lane_mask())


@op("match.any.sync.{t:b32|b64}", varying=True)
def match_any(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """For each lane the bits of the lanes with the same value."""
    v = b.splat(b.src(i.operands[1], m["t"]))
    group = b.splat(_participants(b, i, i.operands[2]))
    result = b.splat(b.i32(0))
    for lane in range(LANES):
        same = b.cmp("icmp eq", v, b.splat(b.extract(v, lane)))
        result = b.select(same, b.bin("or", result, b.const("i32", 1 << lane)), result)
    b.write(i.operands[0], b.bin("and", result, group))


@op("match.all.sync.{t:b32|b64}", varying=True)
def match_all(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The member mask if all values agree, else 0; the predicate says which."""
    v = b.splat(b.src(i.operands[1], m["t"]))
    group = _participants(b, i, i.operands[2])
    bits = b.extract(group, b.first_lane(b.lane_mask())) if group.lanes else group
    reference = b.extract(v, b.first_lane(bits))
    differ = b.bin("and", b.bits_of(b.cmp("icmp ne", v, b.splat(reference))), bits)
    agree = b.cmp("icmp eq", differ, b.i32(0))
    value = b.select(agree, bits, b.i32(0))
    target = i.operands[0]
    if isinstance(target, PredicatePair):
        b.write(target.first, value)
        if target.second is not None:
            b.write(target.second, agree)
    else:
        b.write(target, value)


REDUCTIONS = {"add": "add", "and": "and", "or": "or", "xor": "xor"}


@op("redux.sync.{o:add|min|max}.{t:u32|s32}", "redux.sync.{o:and|or|xor}.{t:b32}", varying=True)
def redux(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """A reduction over the member mask; lanes with different masks reduce separately."""
    v = b.splat(b.src(i.operands[1], m["t"]))
    group = _participants(b, i, i.operands[2])
    name = REDUCTIONS.get(m["o"]) or ("s" if m["t"] == "s32" else "u") + m["o"]
    identity = {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0, "smin": 0x7FFFFFFF, "smax": -0x80000000}[name]
    if not group.lanes:
        b.write(i.operands[0], _reduce(b, v, group, name, identity))
        return
    result, left = b.alloca("<32 x i32>"), b.alloca("i32", 4)
    b.store(b.splat(b.i32(0)), result)
    b.store(b.lane_mask(), left)
    again, done = b.new_label("group"), b.new_label("reduced")
    b.jump(again)
    b.label(again)
    rest = b.load("i32", left)
    bits = b.extract(group, b.first_lane(rest))
    one = _reduce(b, v, bits, name, identity)
    b.store(b.select(b.lanes_of(bits), b.splat(one), b.load("i32", result, LANES)), result)
    rest = b.bin("and", rest, b.bin("xor", bits, b.i32(-1)))
    b.store(rest, left)
    b.branch(b.cmp("icmp ne", rest, b.i32(0)), again, done)
    b.label(done)
    b.write(i.operands[0], b.load("i32", result, LANES))


def _reduce(b: WarpBuilder, v: Value, bits: Value, name: str, identity: int) -> Value:
    kept = b.select(b.lanes_of(bits), v, b.splat(b.const("i32", identity)))
    b.declarations.add(f"declare i32 @llvm.vector.reduce.{name}.v32i32(<32 x i32>)")
    return b.define(f"call i32 @llvm.vector.reduce.{name}.v32i32({kept.typed})", "i32")


@op("elect.sync", varying=True)
def elect(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The lowest member: its lane number, and a predicate that is true there alone."""
    group = _participants(b, i, i.operands[1])
    bits = b.extract(group, b.first_lane(b.lane_mask())) if group.lanes else group
    leader = b.first_lane(bits)
    target = i.operands[0]
    assert isinstance(target, PredicatePair)
    if target.first is not None:
        b.write(target.first, leader)
    b.write(target.second, b.cmp("icmp eq", LANE_IDS, b.splat(leader)))


@op("bar.warp.sync")
def warp_sync(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """Lanes of a warp run in lock step here; the mask is checked, and the race detector learns of the ordering."""
    check_members(b, b.src(i.operands[0], "b32"))
    if b.params.racecheck:
        epoch = b.gep("%warp", Warp.SYNC)
        b.store(b.bin("add", b.load("i32", epoch), b.i32(1)), epoch)
