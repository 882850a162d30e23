"""Loops in which a warp may wait for what another warp or CTA does: each gets a block of kind ``yield`` before its back edge.

There the warp leaves the machine code every so often, so that the others can run (lower/suspend.py). A loop may wait when it
contains an instruction that can see memory change:

* a test of an mbarrier, an ordered or volatile load, a compare-and-swap or an exchange: always;
* a barrier, in a loop that stores nothing: such a loop may never end, and this is where that is noticed;
* any other atomic whose result is used, or a load that skips the first-level cache: if its address is the same in every iteration. So
  a histogram is not such a loop, and a queue of work is;
* any load from such an address, if the loop has a fence or a nanosleep, or computes nothing from one iteration to the next, so that
  only memory can end it.

Of nested loops around one such instruction only the innermost gets the block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, registers, uses
from rawflash.emu.cfg.liveness import live_in
from rawflash.emu.ptx.tree import Address, Instruction

ORDERED = frozenset(("volatile", "relaxed", "acquire", "mmio"))
PURE = frozenset("add sub mul mad shl shr and or xor not mov cvt cvta selp min max neg abs bfe bfi lop3 prmt shf".split())
STORES = frozenset("st cp stmatrix wmma rf".split())  # what changes memory without saying whether the value is another one


@dataclass
class _Loop:
    """A loop: its blocks, those of them with a back edge, and what is asked of them."""

    header: int
    body: set[int]
    sources: set[int]
    writers: dict[str, list[Instruction]] = field(default_factory=dict)
    stores: bool = False
    pauses: bool = False

    def look(self, blocks: list[Block], live: list[set[str]]) -> None:
        """Fill in the rest. ``live``: registers live at the start of every block."""
        everything = [i for n in self.body for i in (*blocks[n].instructions, *filter(None, (blocks[n].instruction,)))]
        for i in everything:
            for name in defs(i):
                self.writers.setdefault(name, []).append(i)
        self.stores = any(_changes_silently(i) for i in everything)
        self.pauses = any(i.opcode in ("membar", "fence", "nanosleep") for i in everything) or live[self.header].isdisjoint(self.writers)


def split_spin_loops(blocks: list[Block]) -> list[Block]:
    """The blocks with a ``yield`` block before the back edges of loops that may wait; renumbered."""
    loops = sorted(_loops(blocks), key=lambda loop: len(loop.body))
    if not loops:
        return blocks
    live = live_in(blocks, set())
    for loop in loops:
        loop.look(blocks, live)
    chosen: dict[int, tuple[Instruction, bool]] = {}  # block with a back edge -> the instruction that polls, whether the loop stores
    for b in blocks:
        inner = next((loop for loop in loops if b.index in loop.body), None)
        poll = _poll(b, inner) if inner is not None else None
        if inner is not None and poll is not None:
            ends = (s for s in inner.sources if s not in chosen and blocks[s].kind in ("jump", "branch", "brx"))
            chosen.update((s, (poll, inner.stores)) for s in ends)
    return _split(blocks, chosen) if chosen else blocks


def _polls_always(i: Instruction) -> bool:
    if i.opcode == "mbarrier":
        return i.mods[0] in ("test_wait", "try_wait")
    if i.opcode == "ld":
        return not ORDERED.isdisjoint(i.mods)
    return i.opcode == "atom" and ("cas" in i.mods or "exch" in i.mods)


def _polls_if_fixed(i: Instruction, pauses: bool) -> bool:
    if i.opcode == "atom":
        return True
    if i.opcode != "ld" or "nc" in i.mods or not {"param", "local", "const"}.isdisjoint(i.mods):
        return False
    return pauses or "cg" in i.mods or "cv" in i.mods


def _changes_silently(i: Instruction) -> bool:
    return i.opcode in STORES or (i.opcode in ("bar", "barrier") and "arrive" in i.mods)


def _poll(block: Block, loop: _Loop) -> Instruction | None:
    """The instruction of a block that watches memory."""
    for i in block.instructions:
        if _polls_always(i) or (_polls_if_fixed(i, loop.pauses) and _is_fixed(i, loop.writers)):
            return i
    return block.instruction if block.kind == "barrier" and not loop.stores else None


def _is_fixed(i: Instruction, writers: dict[str, list[Instruction]]) -> bool:
    """Whether the address is computed from what the loop does not change."""
    address = next((o for o in i.operands if isinstance(o, Address)), None)
    if address is None:
        return False

    def fixed(name: str, above: frozenset[str]) -> bool:
        found = writers.get(name, [])
        if not found:
            return True
        if len(found) > 1 or name in above or found[0].opcode not in PURE or found[0].guard is not None:
            return False
        return all(fixed(u, above | {name}) for u in uses(found[0]))

    return all(fixed(name, frozenset()) for name in registers(address))


def _loops(blocks: list[Block]) -> list[_Loop]:
    successors = {b.index: b.successors for b in blocks}
    predecessors: dict[int, list[int]] = {}
    for b in blocks:
        for s in b.successors:
            predecessors.setdefault(s, []).append(b.index)
    found: dict[int, _Loop] = {}
    for b in blocks:
        for header in b.successors:
            if header > b.index:
                continue
            after = _reach(header, successors, -1)
            if b.index in after:
                loop = found.setdefault(header, _Loop(header, {header}, set()))
                loop.body |= _reach(b.index, predecessors, header) & after
                loop.sources.add(b.index)
    return list(found.values())


def _reach(start: int, edges: dict[int, list[int]], stop: int) -> set[int]:
    seen, work = {start}, [start]
    while work:
        n = work.pop()
        if n == stop:
            continue
        for s in edges.get(n, ()):
            if s not in seen:
                seen.add(s)
                work.append(s)
    return seen


def _split(blocks: list[Block], chosen: dict[int, tuple[Instruction, bool]]) -> list[Block]:
    number: dict[int, int] = {}
    for b in blocks:
        number[b.index] = len(number) + sum(n < b.index for n in chosen)
    out: list[Block] = []
    for b in blocks:
        successors = [number[s] for s in b.successors]
        if b.index not in chosen:
            out.append(replace(b, index=number[b.index], successors=successors))
            continue
        poll, stores = chosen[b.index]
        first = number[b.index]
        out.append(Block(first, b.instructions, "yield", [first + 1], poll=poll, stores=stores))
        out.append(replace(b, index=first + 1, instructions=[], successors=successors))
    return out
