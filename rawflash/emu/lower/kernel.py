"""One kernel -> one LLVM function ``i32 kernel(ptr %warp, ptr %w, ptr %l)`` that runs a warp until it returns, meets a barrier or
has spun for long enough (lower/suspend.py).

Branches whose lanes may disagree: divergence.py. Entering and leaving: frame.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.cfg.blocks import Block, build_blocks
from rawflash.emu.cfg.defuse import uses
from rawflash.emu.cfg.inline import inline_calls
from rawflash.emu.cfg.liveness import live_in
from rawflash.emu.cfg.spins import split_spin_loops
from rawflash.emu.cfg.uniformity import CtaShape, Facts, analyse
from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.isa import load_all
from rawflash.emu.isa.registry import Form, Mods, lookup
from rawflash.emu.lower.barriers import arrive, fetch_result
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.divergence import DivergenceStack
from rawflash.emu.lower.flush import needs_explicit_flush
from rawflash.emu.lower.frame import Frame
from rawflash.emu.lower.groups import SETTLING, settle
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.layout import BARRIER, DONE, FAILED, YIELD, Warp, Worker
from rawflash.emu.lower.sites import AccessSite
from rawflash.emu.lower.suspend import Suspension, end_yield
from rawflash.emu.lower.symbols import Symbols, layout_symbols
from rawflash.emu.params import EmuParams
from rawflash.emu.ptx.tree import Function, Instruction, Module

# A guarded instruction of these opcodes is skipped by a branch when no lane wants it; others compute and select.
EFFECTS = frozenset(
    "ld ldu st atom red cp shfl vote match redux mma wmma ldmatrix stmatrix movmatrix mbarrier bar barrier rf activemask elect".split()
)

BARRIER_WEIGHT = 1024  # a wait at a barrier takes about as long as this many back edges


@dataclass
class Lowered:
    """A kernel as LLVM IR, with what Python needs to run it and to read its counters."""

    name: str
    ir: str
    sites: list[AccessSite]
    blocks: list[Block]
    partial: set[int]
    symbols: Symbols
    warp_bytes: int
    directives: dict[str, tuple[int, ...]]
    uses_host: bool = False
    copies: bool = False  # executes cp.async
    spins: bool = False  # has loops that wait for other warps or CTAs


def lower_kernel(module: Module, name: str, params: EmuParams, shape: CtaShape) -> Lowered:
    """Lower the entry ``name`` for CTAs of a shape."""
    load_all()
    kernel: Function = inline_calls(module, name)
    assert kernel.body is not None
    symbols = layout_symbols(module, kernel)
    blocks = split_spin_loops(build_blocks(kernel.body, name))
    facts = analyse(blocks, shape, symbols.private)
    return _KernelLowering(kernel, blocks, facts, symbols, params).run()


class _KernelLowering:
    def __init__(self, kernel: Function, blocks: list[Block], facts: Facts, symbols: Symbols, params: EmuParams):
        self.kernel, self.blocks, self.facts, self.symbols, self.params = kernel, blocks, facts, symbols, params
        explicit, use_mxcsr = needs_explicit_flush(blocks)
        self.declarations: set[str] = set()
        self.b = WarpBuilder(self.declarations, symbols, facts, kernel.registers, params, explicit)
        self.suspension = Suspension(self.b, blocks, facts, live_in(blocks, facts.divergent))
        self.b.wanted = {u for x in blocks for i in (*x.instructions, *([x.instruction] if x.instruction else [])) for u in uses(i)}
        self.frame = Frame(self.b, use_mxcsr)
        self.stack = DivergenceStack(self.b, blocks, facts)

    def run(self) -> Lowered:
        b = self.b
        self.frame.enter()
        self.suspension.dispatch()
        for block in self.blocks:
            self._block(block)
        self._leaves()
        attributes = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "no-trapping-math"="true"'
        text = "\n".join(
            [
                *sorted(self.declarations),
                f"define i32 @kernel(ptr noundef %warp, ptr noundef %w, ptr noundef %l) {attributes} {{",
                "entry:",
                *b.entry,
                "  br label %begin",
                *b.lines,
                "}",
                '!0 = !{!"branch_weights", i32 2000, i32 1}',
                '!1 = !{!"branch_weights", i32 1, i32 2000}',
            ]
        )
        return Lowered(
            self.kernel.name, text, b.code.sites, self.blocks, self.facts.partial, self.symbols, self.suspension.warp_bytes,
            self.kernel.directives, b.code.uses_host, b.code.copies, any(block.kind == "yield" for block in self.blocks),
        )  # fmt: skip

    def _leaves(self) -> None:
        """The exits shared by all blocks: failure, and the pop after lanes have returned."""
        b = self.b
        b.label(b.fail_label)
        self.frame.leave(FAILED)
        if any(block.kind == "yield" for block in self.blocks):
            b.label(f"leave{YIELD}")
            self.frame.leave(YIELD)
        self.stack.pops_after_exit(self.frame.leave)

    # ------------------------------------------------------------------------------------------------ blocks
    def _block(self, block: Block) -> None:
        b, index = self.b, block.index
        b.label(f"bb{index}")
        if index in self.stack.points:
            self.stack.meet(index)
        b.start_block(index in self.facts.divergent, index in self.facts.partial)
        if self.params.count:
            record = b.gep("%blocks", 16 * index)
            b.increment(record, 1)
            if b.partial:
                b.increment(b.gep(record, 8), b.resize(b.intrinsic("ctpop", b.block_mask()), "i64"))
        for i in block.instructions:
            self._instruction(i)
        settle(b)
        if block.instruction is not None:
            b.instruction = block.instruction
        b.set_guard(None)
        if any(s <= index for s in block.successors):
            self._count_iteration()
        getattr(self, f"_end_{block.kind}")(block)

    def _instruction(self, i: Instruction) -> None:
        b = self.b
        b.instruction = i
        form, mods = lookup(i)
        b.set_guard(None)
        if i.opcode in SETTLING:
            settle(b)
        if i.opcode == "rf":  # what it prints comes before any later fault
            b.groups = {}
        try:
            self._handle(i, form, mods)
        except (IndexError, ValueError, TypeError, KeyError, AttributeError) as e:
            raise PtxSyntaxError(f"the operands of '{i.spelling}' do not fit it ({e})", line=i.line) from e

    def _handle(self, i: Instruction, form: Form, mods: Mods) -> None:
        b = self.b
        if i.guard is None:
            form.handler(b, i, mods)
            return
        guard = b.read_register(i.guard)
        if i.guard_negated:
            guard = b.bin("xor", guard, Value("true", "i1"))
        b.set_guard(guard)
        if i.opcode in EFFECTS:
            with b.when(b.cmp("icmp ne", b.lane_mask(), b.i32(0))):
                form.handler(b, i, mods)
        else:
            form.handler(b, i, mods)
        b.set_guard(None)

    def _count_iteration(self, weight: int = 1) -> None:
        b = self.b
        left = b.bin("sub", b.load("i64", b.gep("%w", Worker.ITERATIONS)), b.i64(weight))
        b.store(left, b.gep("%w", Worker.ITERATIONS))
        b.fail_if(b.cmp("icmp slt", left, b.i64(0)), "hung")

    # ------------------------------------------------------------------------------------------------ ways out
    def _end_jump(self, block: Block) -> None:
        self.b.jump(f"bb{block.successors[0]}")

    def _end_trap(self, block: Block) -> None:
        self.b.fail_if(Value("true", "i1"), "trap")
        self.b.raw("unreachable")

    def _end_exit(self, block: Block) -> None:
        if not self.stack.exit(block.index):
            self.frame.leave(DONE)

    def _end_branch(self, block: Block) -> None:
        b = self.b
        taken, falls = block.successors
        assert block.guard is not None
        condition = b.read_register(block.guard)
        if block.negated:
            condition = b.bin("xor", condition, Value("true", "i1"))
        if taken == falls:
            b.jump(f"bb{taken}")
        elif block.index not in self.facts.divergent_branches:
            b.branch(condition, f"bb{taken}", f"bb{falls}")
        else:
            self.stack.branch(block.index, condition, taken, falls)

    def _end_brx(self, block: Block) -> None:
        """A jump table."""
        b = self.b
        assert block.instruction is not None
        index = b.src(block.instruction.operands[0], "u32")
        targets = block.successors
        if block.index not in self.facts.divergent_branches:
            cases = " ".join(f"i32 {n}, label %bb{t}" for n, t in enumerate(targets))
            b.raw(f"switch i32 {b.extract(index, 0).ir}, label %{b.fail_label} [ {cases} ]")
            return
        self.stack.select(block.index, index, targets)

    def _end_barrier(self, block: Block) -> None:
        b = self.b
        assert block.instruction is not None
        b.instruction = block.instruction
        if self.params.synccheck and block.index in self.facts.partial:
            exited = b.load("i32", b.gep("%warp", Warp.EXITED))
            live = b.bin("and", b.load("i32", b.gep("%warp", Warp.ENTRY_MASK)), b.bin("xor", exited, b.i32(-1)))
            missing = b.bin("and", live, b.bin("xor", b.block_mask(), b.i32(-1)))
            lane = b.first_lane(missing)
            b.fail_if(b.cmp("icmp ne", missing, b.i32(0)), "divergent_barrier", b.bin("and", lane, b.i32(31)), aux=b.resize(missing, "i64"))
        arrive(b, block.instruction)
        self._count_iteration(BARRIER_WEIGHT)
        self.suspension.leave(block)
        self.frame.leave(BARRIER)
        self.suspension.come_back(block)
        fetch_result(b, block.instruction)
        b.jump(f"bb{block.successors[0]}")

    def _end_yield(self, block: Block) -> None:
        end_yield(self.suspension, block, YIELD)
