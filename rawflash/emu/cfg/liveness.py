"""Which registers hold a value that is still needed at the start of each block."""

from __future__ import annotations

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, uses


def block_use_def(block: Block) -> tuple[set[str], set[str]]:
    """Registers read before any write in the block, and registers written in it."""
    read: set[str] = set()
    written: set[str] = set()
    for i in block.instructions:
        read.update(u for u in uses(i) if u not in written)
        if i.guard is not None:  # a guarded write keeps the old value in the other lanes
            read.update(d for d in defs(i) if d not in written)
        written.update(defs(i))
        if "cc" in i.mods:
            written.add("%cc")
    if block.guard is not None and block.guard not in written:
        read.add(block.guard)
    if block.kind in ("barrier", "brx") and block.instruction is not None:
        read.update(u for u in uses(block.instruction) if u not in written)
        written.update(defs(block.instruction))
    return read, written


def live_in(blocks: list[Block], partial: set[int]) -> list[set[str]]:
    """Live registers at the start of every block. In ``partial`` blocks a write does not end a life: other lanes keep theirs."""
    use_def = [block_use_def(b) for b in blocks]
    live: list[set[str]] = [set(u) for u, _ in use_def]
    changed = True
    while changed:
        changed = False
        for b in reversed(blocks):
            out: set[str] = set()
            for s in b.successors:
                out |= live[s]
            read, written = use_def[b.index]
            new = read | (out if b.index in partial else out - written)
            if not new <= live[b.index]:
                live[b.index] |= new
                changed = True
    return live
