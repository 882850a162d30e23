"""Lanes of a warp that take different ways, and where they meet again.

Divergence uses a stack of (mask, block, reconvergence point) in the WARP record. A branch whose lanes disagree pushes the
union of its lanes for the reconvergence point and the second side, and goes on with the first; entering the reconvergence
point while it is awaited pops the next side. Uniform branches stay plain jumps.
"""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.dominance import EXIT, region
from rawflash.emu.cfg.uniformity import Facts
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.layout import DONE, Warp


def _exit_label(targets: tuple[int, ...]) -> str:
    return "pop_exit" + "".join(f".{t}" for t in targets)


class DivergenceStack:
    """Writes the code around the stack of one kernel.

    ``waiting``: for every block that returns, the blocks in which lanes of the warp may be waiting; ``points``: where lanes meet.
    """

    def __init__(self, b: WarpBuilder, blocks: list[Block], facts: Facts):
        self.b, self.blocks, self.facts = b, blocks, facts
        self.waiting = self._waiting()
        self.points = {facts.reconvergence[i] for i in facts.divergent_branches} - {EXIT}

    def _waiting(self) -> dict[int, tuple[int, ...]]:
        """For every block that returns, where lanes of the warp may be waiting: the ways of the branches it lies behind.

        Naming only these, and not every block that is ever waited in, keeps what is live at an exit out of the rest of the kernel.
        """
        found: dict[int, set[int]] = {block.index: set() for block in self.blocks if block.kind == "exit"}
        for i in self.facts.divergent_branches:
            point = self.facts.reconvergence[i]
            for index in region(self.blocks, i, point) & found.keys():
                found[index].update(self.blocks[i].successors, {point} - {EXIT})
        return {index: tuple(sorted(targets)) for index, targets in found.items()}

    # ------------------------------------------------------------------------------------------------ entries
    def push(self, mask: Value, block: int, rpc: Value) -> None:
        b = self.b
        sp = b.load("i32", b.gep("%warp", Warp.SP))
        entry = b.gep("%warp", b.bin("add", b.bin("mul", b.resize(sp, "i64"), b.i64(16)), b.i64(Warp.STACK)))
        b.store(mask, entry)
        b.store(b.i32(block), b.gep(entry, 4))
        b.store(rpc, b.gep(entry, 8))
        b.store(b.bin("add", sp, b.i32(1)), b.gep("%warp", Warp.SP))

    def pop(self, again: str, targets: set[int]) -> None:
        """Take the top entry of the stack; entries whose lanes have all returned are skipped."""
        b = self.b
        sp = b.bin("sub", b.load("i32", b.gep("%warp", Warp.SP)), b.i32(1))
        b.store(sp, b.gep("%warp", Warp.SP))
        entry = b.gep("%warp", b.bin("add", b.bin("mul", b.resize(sp, "i64"), b.i64(16)), b.i64(Warp.STACK)))
        exited = b.load("i32", b.gep("%warp", Warp.EXITED))
        mask = b.bin("and", b.load("i32", entry), b.bin("xor", exited, b.i32(-1)))
        take = b.new_label("take")
        b.branch(b.cmp("icmp eq", mask, b.i32(0)), again, take)
        b.label(take)
        b.store(mask, b.mask_slot)
        b.store(b.load("i32", b.gep(entry, 8)), b.rpc_slot)
        where = b.load("i32", b.gep(entry, 4))
        lost = b.new_label("lost")
        cases = " ".join(f"i32 {t}, label %bb{t}" for t in sorted(targets))
        b.raw(f"switch i32 {where.ir}, label %{lost} [ {cases} ]")
        b.label(lost)
        b.raw("unreachable")

    # ------------------------------------------------------------------------------------------------ meeting
    def meet(self, index: int) -> None:
        """The head of a block at which lanes meet: while it is awaited, the next side runs first."""
        b = self.b
        awaited, go = b.new_label("awaited"), b.new_label("go")
        b.branch(b.cmp("icmp eq", b.load("i32", b.rpc_slot), b.i32(index)), awaited, go)
        b.label(awaited)
        sides = {s for i in self.facts.divergent_branches if self.facts.reconvergence[i] == index for s in self.blocks[i].successors}
        self.pop(f"bb{index}.pop", sides | {index})
        # entries of lanes that have all returned are skipped by popping again
        b.label(f"bb{index}.pop")
        b.jump(awaited)
        b.label(go)

    def exit(self, index: int) -> bool:
        """The lanes that run this block return, and those that wait go on; False: none ever wait here, so the warp is done."""
        b = self.b
        if not self.waiting[index]:
            return False
        mask = b.load("i32", b.mask_slot)
        exited = b.bin("or", b.load("i32", b.gep("%warp", Warp.EXITED)), mask)
        b.store(exited, b.gep("%warp", Warp.EXITED))
        b.jump(_exit_label(self.waiting[index]))
        return True

    def pops_after_exit(self, leave: Callable[[int], None]) -> None:
        """The code that ``exit`` jumps to: take the next entry, or ``leave`` when there is none."""
        b = self.b
        for targets in sorted(set(self.waiting.values()) - {()}):
            again = _exit_label(targets)
            b.label(again)
            sp = b.load("i32", b.gep("%warp", Warp.SP))
            finished, more = b.new_label("finished"), b.new_label("more")
            b.branch(b.cmp("icmp eq", sp, b.i32(0)), finished, more)
            b.label(finished)
            leave(DONE)
            b.label(more)
            self.pop(again, set(targets))

    # ------------------------------------------------------------------------------------------------ parting
    def branch(self, index: int, condition: Value, taken: int, falls: int) -> None:
        """The end of a block whose lanes may disagree on ``condition``."""
        b = self.b
        mask = b.load("i32", b.mask_slot)
        yes = b.bin("and", b.bits_of(condition), mask)
        no = b.bin("and", b.bin("xor", yes, b.i32(-1)), mask)
        some, split = b.new_label("some"), b.new_label("split")
        b.branch(b.cmp("icmp eq", yes, b.i32(0)), f"bb{falls}", some)
        b.label(some)
        b.branch(b.cmp("icmp eq", no, b.i32(0)), f"bb{taken}", split)
        b.label(split)
        self._diverge(index, mask, [(yes, taken), (no, falls)])

    def _diverge(self, index: int, mask: Value, sides: list[tuple[Value, int]]) -> None:
        """Run the first side now; the others and the meeting point go on the stack."""
        b = self.b
        point = self.facts.reconvergence[index]
        sides = sorted(sides, key=lambda side: self.blocks[side[1]].kind != "exit")  # lanes that return go first
        rpc = b.load("i32", b.rpc_slot)
        if point != EXIT:
            with b.when(b.cmp("icmp ne", rpc, b.i32(point))):
                self.push(mask, point, rpc)
        running = [(m, target) for m, target in sides if target != point]
        for m, target in running[1:]:
            self.push(m, target, b.i32(point))
        b.store(b.i32(point), b.rpc_slot)
        b.store(running[0][0], b.mask_slot)
        b.jump(f"bb{running[0][1]}")

    def select(self, index: int, choice: Value, targets: list[int]) -> None:
        """The end of a block whose lanes may choose different ``targets`` of a jump table: split off one after the other."""
        b = self.b
        mask = b.load("i32", b.mask_slot)
        point = self.facts.reconvergence[index]
        sides: dict[int, Value] = {}
        for n, target in enumerate(targets):
            here = b.bin("and", b.bits_of(b.cmp("icmp eq", b.splat(choice), b.i32(n))), mask)
            sides[target] = b.bin("or", sides[target], here) if target in sides else here
        rpc = b.load("i32", b.rpc_slot)
        if point != EXIT:
            with b.when(b.cmp("icmp ne", rpc, b.i32(point))):
                self.push(mask, point, rpc)
        b.store(b.i32(point), b.rpc_slot)
        for target, here in sides.items():
            if target != point:
                with b.when(b.cmp("icmp ne", here, b.i32(0))):
                    self.push(here, target, b.i32(point))
        # every side is on the stack; go and take the last one
        self.pop(b.fail_label, set(targets) | ({point} if point != EXIT else set()))
