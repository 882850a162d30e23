"""How a warp leaves the machine code in the middle of a kernel and comes back: at barriers, and in loops that wait (cfg/spins.py).

Live registers go to the WARP record and return from there. A spinning warp also notes whether it left exactly as it left last
time. When that holds for all warps of a CTA that do not wait at a barrier anyway, and no memory was changed, then nothing inside the CTA
will ever change: the scheduler asks whether another CTA can still do something (machine/stalls.py), and stops the launch if none can.
"""

from __future__ import annotations

from rawflash.emu.cfg.blocks import Block
from rawflash.emu.cfg.dominance import EXIT, region
from rawflash.emu.cfg.uniformity import Facts
from rawflash.emu.lower import access
from rawflash.emu.lower.barriers import order
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, LANES, Value
from rawflash.emu.lower.layout import QUANTUM, Warp


class Suspension:
    """Where the registers of a kernel are kept while a warp is away, and the code that puts them there."""

    def __init__(self, b: WarpBuilder, blocks: list[Block], facts: Facts, live: list[set[str]]):
        self.b, self.blocks, self.facts, self.live = b, blocks, facts, live
        self.resumes = [block.index for block in blocks if block.kind in ("barrier", "yield")]
        self.places: dict[str, int] = {}  # register -> offset in the WARP record
        self.end = Warp.REGISTERS

    @property
    def warp_bytes(self) -> int:
        return -(-self.end // 64) * 64

    def dispatch(self) -> None:
        """Go to where the warp left, or to the first block."""
        b = self.b
        resume = b.load("i32", b.gep("%warp", Warp.RESUME))
        targets = " ".join(f"i32 {n + 1}, label %resume{index}" for n, index in enumerate(self.resumes))
        b.raw(f"switch i32 {resume.ir}, label %bb0 [ {targets} ]")

    def leave(self, block: Block, watch: bool = False) -> None:
        """Save everything; the caller returns. ``watch``: note in WARP.SAME whether the last departure left the same values."""
        b = self.b
        same: list[Value] = []

        def put(value: Value, offset: int) -> None:
            if watch:
                same.append(self._equal(value, offset))
            b.store(value, b.gep("%warp", offset))

        put(b.load("i32", b.mask_slot), Warp.MASK)
        put(b.load("i32", b.rpc_slot), Warp.RPC)
        put(b.i32(1 + self.resumes.index(block.index)), Warp.RESUME)
        for name in self._needed(block):
            put(b.read_register(name), self._place(name))
        if watch:
            if self.facts.divergent_branches:
                total = access.call(b, "rf_stack_sum", Value("%warp", "ptr"))
                assert total is not None
                put(total, Warp.STACK_SUM)
            every = same[0]
            for one in same[1:]:
                every = b.bin("and", every, one)
            b.store(b.resize(every, "i32"), b.gep("%warp", Warp.SAME))

    def come_back(self, block: Block) -> None:
        """The label at which the warp goes on, and its registers."""
        b = self.b
        b.label(f"resume{block.index}")
        b.start_block(block.index in self.facts.divergent, block.index in self.facts.partial)
        for name in self._needed(block):
            lanes = 0 if b.is_uniform(name) else LANES
            b.store(b.load(b.declared(name), b.gep("%warp", self._place(name)), lanes), b.slot(name))

    def _needed(self, block: Block) -> list[str]:
        """Registers that are live where the warp goes on, or where its other lanes wait for their turn."""
        names = set(self.live[block.successors[0]])
        if block.index in self.facts.divergent:
            for index in self.facts.divergent_branches:
                point = self.facts.reconvergence[index]
                if block.index in region(self.blocks, index, point):
                    for waiting in (*self.blocks[index].successors, *(() if point == EXIT else (point,))):
                        names |= self.live[waiting]
        return sorted(name for name in names if name in self.b.registers or name == "%cc")

    def _place(self, name: str) -> int:
        if name not in self.places:
            uniform = self.b.is_uniform(name)
            size = max(1, BITS[self.b.declared(name)] // 8) * (1 if uniform else LANES)
            align = 8 if uniform else 64
            self.end = -(-self.end // align) * align
            self.places[name] = self.end
            self.end += size
        return self.places[name]

    def _equal(self, value: Value, offset: int) -> Value:
        b = self.b
        old = b.load(value.ty, b.gep("%warp", offset), value.lanes)
        bits = f"i{BITS[value.ty]}"
        differ = b.cmp("icmp ne", b.bitcast(value, bits), b.bitcast(old, bits))
        return b.bin("xor", b.reduce_any(differ), Value("true", "i1"))


def end_yield(s: Suspension, block: Block, code: int) -> None:
    """Go on, unless the warp has used up its turn: then leave with ``code`` and come back in the next round."""
    b = s.b
    assert block.poll is not None
    b.instruction = block.poll
    left = b.bin("sub", b.load("i32", b.gep("%warp", Warp.SPINS)), b.i32(1))
    b.store(left, b.gep("%warp", Warp.SPINS))
    pause, on = b.new_label("pause"), f"bb{block.successors[0]}"
    b.branch(b.cmp("icmp slt", left, b.i32(0)), pause, on, likely=False)
    b.label(pause)
    order(b, "cta")  # polling is how this warp learns that others have written
    b.store(b.i32(QUANTUM), b.gep("%warp", Warp.SPINS))
    b.store(b.i32(b.new_site("none", False, 0)), b.gep("%warp", Warp.BAR_SITE))
    s.leave(block, watch=not block.stores)
    if block.stores:  # whether memory changes is not known: only the count of iterations ends such a loop
        b.store(b.i32(0), b.gep("%warp", Warp.SAME))
    b.jump(f"leave{code}")
    s.come_back(block)
    b.jump(on)
