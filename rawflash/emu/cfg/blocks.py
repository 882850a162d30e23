"""Statements -> basic blocks. A barrier ends a block, because the warp leaves the machine code there and comes back later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rawflash.emu.errors import PtxSyntaxError, UnsupportedInstruction
from rawflash.emu.ptx.tree import BranchTargets, Instruction, Label, Reg, Statement, Symbol, Vector


@dataclass
class Block:
    """A basic block: straight instructions, then one way out.

    ``kind``: jump (one successor), branch (taken, fall-through; ``guard``), barrier (``instruction`` suspends the warp, then
    one successor), yield (the warp may be suspended here, then one successor; see spins.py), brx (``instruction`` selects a
    successor), exit, trap. Of a yield block ``poll`` is the instruction that its loop watches memory with, and ``stores`` says
    whether the loop stores as well.
    """

    index: int
    instructions: list[Instruction] = field(default_factory=list)
    kind: str = "exit"
    successors: list[int] = field(default_factory=list)
    guard: str | None = None
    negated: bool = False
    instruction: Instruction | None = None
    poll: Instruction | None = None
    stores: bool = False

    @property
    def trivial_exit(self) -> bool:
        return self.kind == "exit" and not self.instructions


_ENDS = {"ret", "exit"}


def is_suspending(i: Instruction) -> bool:
    """Whether the warp must leave the machine code at this instruction."""
    return i.opcode in ("bar", "barrier") and "warp" not in i.mods and "arrive" not in i.mods


def build_blocks(statements: list[Statement], function: str) -> list[Block]:
    """Basic blocks in layout order; block 0 is the entry. Labels are resolved to block indices."""
    tables = {s.name: s.targets for s in statements if isinstance(s, BranchTargets)}
    blocks: list[Block] = [Block(0)]
    labels: dict[str, int] = {}
    jumps: list[tuple[Block, list[str], bool]] = []  # block, label names, falls through as well
    closed = False  # the current block has its way out already

    def open_block() -> Block:
        blocks.append(Block(len(blocks)))
        return blocks[-1]

    def fall_into_new() -> Block:
        old = blocks[-1]
        new = open_block()
        if not closed:
            old.kind, old.successors = "jump", [new.index]
        return new

    for s in statements:
        if isinstance(s, Label):
            if blocks[-1].instructions or closed or len(blocks) == 1 or blocks[-1].index in labels.values():
                fall_into_new()
            closed = False
            labels[s.name] = blocks[-1].index
            continue
        if not isinstance(s, Instruction):
            continue
        if closed:
            open_block()
            closed = False
        current = blocks[-1]
        if s.opcode == "bra":
            target = s.operands[0]
            if not isinstance(target, Symbol | Reg):
                raise PtxSyntaxError(f"'bra' needs a label in {function}", line=s.line)
            current.instruction = s
            if s.guard is None:
                current.kind = "jump"
                jumps.append((current, [target.name], False))
                closed = True
            else:
                current.kind, current.guard, current.negated = "branch", s.guard, s.guard_negated
                jumps.append((current, [target.name], True))
                open_block()
            continue
        ends = s.opcode in _ENDS or s.opcode == "trap" or s.opcode == "brx" or is_suspending(s)
        if ends and s.guard is not None:  # a guarded way out becomes a branch around it
            current.kind, current.guard, current.negated = "branch", s.guard, s.guard_negated
            current.instruction = s
            inner = open_block()
            after_label = f"$guard{inner.index}"
            current.successors = [inner.index]
            jumps.append((current, [after_label], False))
            s = replace(s, guard=None, guard_negated=False)
            current = inner
            pending_label: str | None = after_label
        else:
            pending_label = None
        if s.opcode in _ENDS:
            current.kind = "exit"
            closed = True
        elif s.opcode == "trap":
            current.kind, current.instruction = "trap", s
            closed = True
        elif s.opcode == "brx":
            current.kind, current.instruction = "brx", s
            jumps.append((current, _brx_targets(s, tables, function), False))
            closed = True
        elif is_suspending(s):
            current.kind, current.instruction = "barrier", s
            current.successors = [open_block().index]
        else:
            current.instructions.append(s)
        if pending_label is not None:
            if closed:
                open_block()
                closed = False
            labels[pending_label] = blocks[-1].index
    for block, names, falls in jumps:
        for name in names:
            if name not in labels:
                raise PtxSyntaxError(
                    f"branch to an unknown label '{name}' in {function}", line=block.instruction.line if block.instruction else 0
                )
            block.successors.append(labels[name])
        if falls:
            block.successors.append(block.index + 1)
    return _reachable(blocks)


def _brx_targets(s: Instruction, tables: dict[str, tuple[str, ...]], function: str) -> list[str]:
    last = s.operands[-1]
    if isinstance(last, Vector):
        return [item.name for item in last.items if isinstance(item, Symbol)]
    if isinstance(last, Symbol) and last.name in tables:
        return list(tables[last.name])
    raise UnsupportedInstruction(s.spelling, ptx_line=s.line, loc=s.loc, hint=f"brx.idx in {function} needs a .branchtargets list")


def _reachable(blocks: list[Block]) -> list[Block]:
    """Drop blocks that nothing reaches, and renumber."""
    seen, work = {0}, [0]
    while work:
        for successor in blocks[work.pop()].successors:
            if successor not in seen:
                seen.add(successor)
                work.append(successor)
    order = [b for b in blocks if b.index in seen]
    number = {b.index: n for n, b in enumerate(order)}
    for b in order:
        b.successors = [number[s] for s in b.successors]
        b.index = number[b.index]
    return order
