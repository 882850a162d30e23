"""Loops in which a warp may wait for what another warp or CTA does: each gets a block of kind ``yield`` before its back edge.

There the warp leaves the machine code every so often, so that the others can run (lower/suspend.py). A loop may wait when it
contains an instruction that can see memory change:

* a test of an mbarrier, an ordered or volatile load, a compare-and-swap or an exchange: always;
* a barrier, in a loop that stores nothing: such a loop may never end, and this is where that is noticed;
* any other atomic whose result is used, a load that skips the first-level cache, and in a loop with a fence or a nanosleep any load: if
  its address is the same in every iteration. So a histogram is not such a loop, and a queue of work is.

Of nested loops around one such instruction only the innermost gets the block.
"""

from __future__ import annotations

from dataclasses import replace

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.defuse import defs, registers, uses
from rawflash.emu.ptx.tree import Address, Instruction

ORDERED = frozenset(("volatile", "relaxed", "acquire", "mmio"))
PURE = frozenset("add sub mul mad shl shr and or xor not mov cvt cvta selp min max neg abs bfe bfi lop3 prmt shf".split())
STORES = frozenset("st cp stmatrix wmma rf".split())  # what changes memory without saying whether the value is another one


def split_spin_loops(blocks: list[Block]) -> list[Block]:
    """The blocks with a ``yield`` block before the back edges of loops that may wait; renumbered."""
    if not any(b.kind == "barrier" or any(_polls_always(i) or _polls_if_fixed(i, True) for i in b.instructions) for b in blocks):
        return blocks
    loops = _loops(blocks)
    chosen: dict[int, tuple[Instruction, bool]] = {}  # block with a back edge -> the instruction that polls, whether the loop stores
    for b in blocks:
        around = sorted((header for header, (body, _) in loops.items() if b.index in body), key=lambda h: len(loops[h][0]))
        if not around:
            continue
        body, sources = loops[around[0]]
        poll = _poll(b, [blocks[n] for n in body])
        stores = any(_changes_silently(i) for n in body for i in blocks[n].instructions)
        if poll is None and b.kind == "barrier" and not stores:
            poll = b.instruction
        if poll is not None:
            chosen.update((s, (poll, stores)) for s in sources if s not in chosen and blocks[s].kind in ("jump", "branch", "brx"))
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


def _poll(block: Block, body: list[Block]) -> Instruction | None:
    pauses = any(i.opcode in ("membar", "fence", "nanosleep") for b in body for i in b.instructions)
    writers: dict[str, list[Instruction]] = {}
    for b in body:
        for i in [*b.instructions, *([b.instruction] if b.instruction is not None else [])]:
            for name in defs(i):
                writers.setdefault(name, []).append(i)
    for i in block.instructions:
        if _polls_always(i) or (_polls_if_fixed(i, pauses) and _is_fixed(i, writers)):
            return i
    return None


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


def _loops(blocks: list[Block]) -> dict[int, tuple[set[int], set[int]]]:
    """header -> (blocks of the loop, those of them with the back edges)."""
    predecessors: dict[int, list[int]] = {}
    for b in blocks:
        for s in b.successors:
            predecessors.setdefault(s, []).append(b.index)
    found: dict[int, tuple[set[int], set[int]]] = {}
    for b in blocks:
        for header in b.successors:
            if header > b.index:
                continue
            after = _reach(header, {x.index: x.successors for x in blocks}, -1)
            if b.index not in after:
                continue
            body = (_reach(b.index, predecessors, header) & after) | {header, b.index}
            old = found.setdefault(header, (set(), set()))
            old[0].update(body)
            old[1].add(b.index)
    return found


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
