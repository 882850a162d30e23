"""What is the same for all lanes of a warp, and which blocks may run with only some of them.

Three facts per kernel, found together because each depends on the others:

* a register is *uniform* when every definition gives all lanes the same value: it is kept as a scalar;
* a block is *divergent* when it lies between a branch on a varying predicate and that branch's reconvergence point: other
  lanes of the warp may be waiting elsewhere, so a write must keep their values;
* a block is *partial* when its mask may have holes, be it by divergence, because lanes have returned, or because the
  last warp of the CTA is not full. Only memory accesses care about that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, uses
from rawflash.emu.cfg.dominance import immediate_post_dominators, region
from rawflash.emu.cfg.lanes import LaneKnowledge, lane_knowledge
from rawflash.emu.cfg.liveness import block_use_def
from rawflash.emu.isa.registry import lookup
from rawflash.emu.ptx.tree import Address, Imm, Instruction, Symbol, Vector

VARYING_SPECIAL = ("%tid", "%laneid", "%lanemask")


@dataclass
class Facts:
    """The result of the analysis; block numbers index the list of blocks."""

    reconvergence: list[int]
    varying: set[str] = field(default_factory=set)  # every other register is uniform, one that is never written included
    local: set[str] = field(default_factory=set)  # registers that live inside one block only
    divergent_branches: set[int] = field(default_factory=set)
    divergent: set[int] = field(default_factory=set)
    partial: set[int] = field(default_factory=set)
    constants: dict[str, Imm] = field(default_factory=dict)
    lanes: LaneKnowledge = field(default_factory=lambda: LaneKnowledge(False, {}))


def _loads_one_value(i: Instruction) -> bool:
    """A load from one address gives one value, unless the memory is private to the lane or may be."""
    return any(space in i.mods for space in ("global", "shared", "const", "param", "shared::cta"))


@dataclass(frozen=True)
class CtaShape:
    """What the generated code may rely on: every warp has 32 threads; tid.x = 32 w + lane within every warp."""

    full_warps: bool
    rows: bool

    @classmethod
    def of(cls, cta: tuple[int, int, int]) -> CtaShape:
        return cls(cta[0] * cta[1] * cta[2] % 32 == 0, cta[0] % 32 == 0 or cta[1] * cta[2] == 1)


def analyse(blocks: list[Block], shape: CtaShape, private_symbols: set[str]) -> Facts:
    """``private_symbols``: names of .local and call-parameter variables, whose contents differ between lanes."""
    facts = Facts(immediate_post_dominators(blocks))
    facts.local = _block_local(blocks)
    facts.constants = _constants(blocks)
    facts.lanes = lane_knowledge(blocks, shape.rows, facts.constants)
    varying: set[str] = {"%cc"}  # the carry flag is kept per lane
    while True:
        before = (len(varying), len(facts.divergent_branches))
        _divergence(blocks, facts, varying)
        facts.lanes.refine(varying, facts.divergent, facts.local)
        for b in blocks:
            body = b.instructions if b.kind != "barrier" or b.instruction is None else [*b.instructions, b.instruction]
            for i in body:
                targets = defs(i)
                if not targets or all(t in varying for t in targets):
                    continue
                split = b.index in facts.divergent
                if _is_varying(i, varying, private_symbols, facts.lanes):
                    varying.update(targets)
                else:
                    varying.update(t for t in targets if split and t not in facts.local)
        if (len(varying), len(facts.divergent_branches)) == before:
            break
    facts.varying = varying
    facts.partial = set(range(len(blocks))) if not shape.full_warps else _partial(blocks, facts)
    return facts


def _varies_with_lane(name: str, lanes: LaneKnowledge) -> bool:
    if lanes.rows and name in ("%tid.y", "%tid.z"):
        return False
    return name.startswith(VARYING_SPECIAL)


def _is_varying(i: Instruction, varying: set[str], private_symbols: set[str], lanes: LaneKnowledge) -> bool:
    form, _ = lookup(i)
    if lanes.same_for_all_lanes(i):
        return False
    if form.varying:
        return True
    if i.opcode in ("ld", "ldu"):
        address = i.operands[1]
        base = address.base if isinstance(address, Address) else address
        if not _loads_one_value(i) or (isinstance(base, Symbol) and base.name in private_symbols):
            return True
        if "param" in i.mods and not isinstance(base, Symbol):
            return True
    if any(u in varying or _varies_with_lane(u, lanes) for u in uses(i)):
        return True
    return any(isinstance(o, Symbol) and o.name in private_symbols for o in i.operands) and i.opcode == "ld"


def _divergence(blocks: list[Block], facts: Facts, varying: set[str]) -> None:
    for b in blocks:
        if b.index in facts.divergent_branches or len(set(b.successors)) < 2:
            continue
        if b.kind == "branch":
            splits = b.guard in varying
        else:
            index = uses(b.instruction) if b.kind == "brx" and b.instruction is not None else []
            splits = any(u in varying or _varies_with_lane(u, facts.lanes) for u in index)
        if splits:
            facts.divergent_branches.add(b.index)
            facts.divergent |= region(blocks, b.index, facts.reconvergence[b.index])


def _partial(blocks: list[Block], facts: Facts) -> set[int]:
    """Divergent blocks, and everything that may run after some lanes have returned."""
    partial = set(facts.divergent)
    for index in facts.divergent_branches:
        split = region(blocks, index, facts.reconvergence[index])
        if any(blocks[i].kind == "exit" for i in split):
            partial |= region(blocks, index, -1)
    return partial


def _block_local(blocks: list[Block]) -> set[str]:
    home: dict[str, int] = {}
    shared: set[str] = set()
    for b in blocks:
        exposed, written = block_use_def(b)
        shared |= exposed
        if b.kind == "barrier" and b.instruction is not None:
            shared.update(defs(b.instruction))
        shared.update(name for i in b.instructions if i.guard is not None for name in defs(i))
        for name in exposed | written | {u for i in b.instructions for u in uses(i)}:
            if home.setdefault(name, b.index) != b.index:
                shared.add(name)
    return set(home) - shared


def _constants(blocks: list[Block]) -> dict[str, Imm]:
    """Registers with one definition, an unguarded ``mov`` of an integer or float literal."""
    found: dict[str, Imm] = {}
    count: dict[str, int] = {}
    for b in blocks:
        for i in [*b.instructions, *([b.instruction] if b.instruction is not None else [])]:
            for name in defs(i):
                count[name] = count.get(name, 0) + 1
                source = i.operands[1] if len(i.operands) > 1 else None
                if i.opcode == "mov" and i.guard is None and isinstance(source, Imm) and not isinstance(i.operands[0], Vector):
                    found[name] = source
    return {name: value for name, value in found.items() if count[name] == 1}
