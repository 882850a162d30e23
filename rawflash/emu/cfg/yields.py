"""Loops that wait for another thread give way to it.

A warp runs until it meets a barrier. A loop that polls memory which another warp writes would never end, so at its back edge
the warp leaves the machine code now and then. Such loops are recognised by what is in them: a volatile, relaxed or acquire load,
an atomic, or a wait on an mbarrier, and no barrier of the CTA (which gives way by itself).
"""

from __future__ import annotations

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.ptx.tree import Instruction

_POLLING = frozenset(("volatile", "relaxed", "acquire", "mmio"))


def _polls(i: Instruction) -> bool:
    if i.opcode == "ld":
        return bool(_POLLING & set(i.mods))
    if i.opcode == "mbarrier":
        return i.mods[0] in ("test_wait", "try_wait")
    return i.opcode == "atom"


def insert_yields(blocks: list[Block]) -> list[Block]:
    """Split the last block of every polling loop: what it computes, a point to give way, and its branch."""
    waiting = {b.index for b in blocks if any(_is_polling_loop(blocks, b.index, s) for s in b.successors if s <= b.index)}
    if not waiting:
        return blocks
    number: dict[int, int] = {}
    n = 0
    for b in blocks:
        number[b.index] = n
        n += 2 if b.index in waiting else 1
    out: list[Block] = []
    for b in blocks:
        targets = [number[s] for s in b.successors]
        if b.index not in waiting:
            out.append(Block(number[b.index], b.instructions, b.kind, targets, b.guard, b.negated, b.instruction))
            continue
        first = number[b.index]
        last = b.instructions[-1] if b.instructions else b.instruction
        out.append(Block(first, b.instructions, "yield", [first + 1], instruction=None))
        out.append(Block(first + 1, [], b.kind, targets, b.guard, b.negated, b.instruction if b.instruction is not None else last))
    return out


def _is_polling_loop(blocks: list[Block], end: int, head: int) -> bool:
    """The natural loop of the edge end -> head polls and holds no barrier."""
    predecessors: dict[int, list[int]] = {}
    for b in blocks:
        for s in b.successors:
            predecessors.setdefault(s, []).append(b.index)
    body, work = {head, end}, [end]
    while work:
        here = work.pop()
        if here == head:
            continue
        for p in predecessors.get(here, ()):
            if p not in body:
                body.add(p)
                work.append(p)
    if any(blocks[k].kind == "barrier" for k in body):
        return False
    return any(_polls(i) for k in body for i in blocks[k].instructions)
