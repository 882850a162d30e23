"""One kernel -> one LLVM function ``i32 kernel(ptr %warp, ptr %w, ptr %l)`` that runs a warp until it returns, meets a barrier or
has spun for long enough (lower/suspend.py).

Divergence uses a stack of (mask, block, reconvergence point) in the WARP record. A branch whose lanes disagree pushes the
union of its lanes for the reconvergence point and the second side, and goes on with the first; entering the reconvergence
point while it is awaited pops the next side. Uniform branches stay plain jumps.
"""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.cfg.blocks import Block, build_blocks
from rawflash.emu.cfg.defuse import uses
from rawflash.emu.cfg.dominance import EXIT, region
from rawflash.emu.cfg.inline import inline_calls
from rawflash.emu.cfg.liveness import live_in
from rawflash.emu.cfg.spins import split_spin_loops
from rawflash.emu.cfg.uniformity import CtaShape, Facts, analyse
from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.isa import load_all
from rawflash.emu.isa.registry import Form, Mods, lookup
from rawflash.emu.lower.barriers import arrive, fetch_result
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.flush import needs_explicit_flush
from rawflash.emu.lower.groups import SETTLING, settle
from rawflash.emu.lower.irtext import Value
from rawflash.emu.lower.layout import BARRIER, DONE, FAILED, YIELD, Launch, Warp, Worker
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


def _exit_label(targets: tuple[int, ...]) -> str:
    return "pop_exit" + "".join(f".{t}" for t in targets)


class _KernelLowering:
    def __init__(self, kernel: Function, blocks: list[Block], facts: Facts, symbols: Symbols, params: EmuParams):
        self.kernel, self.blocks, self.facts, self.symbols, self.params = kernel, blocks, facts, symbols, params
        explicit, self.use_mxcsr = needs_explicit_flush(blocks)
        self.declarations: set[str] = set()
        self.b = WarpBuilder(self.declarations, symbols, facts, kernel.registers, params, explicit)
        self.suspension = Suspension(self.b, blocks, facts, live_in(blocks, facts.divergent))
        self.b.wanted = {u for x in blocks for i in (*x.instructions, *([x.instruction] if x.instruction else [])) for u in uses(i)}
        self.waiting = self._waiting()
        self.points = {facts.reconvergence[i] for i in facts.divergent_branches} - {EXIT}

    def run(self) -> Lowered:
        b = self.b
        self._prologue()
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

    # ------------------------------------------------------------------------------------------------ frame
    def _prologue(self) -> None:
        b = self.b
        b.label("begin")
        pointers = {
            "%memos": ("%w", Worker.MEMOS),
            "%smem": ("%w", Worker.SMEM),
            "%blocks": ("%w", Worker.BLOCKS),
            "%local": ("%warp", Warp.LOCAL),
        }
        for name, (base, offset) in pointers.items():
            b.raw(f"{name}.at = getelementptr i8, ptr {base}, i64 {offset}")
            b.raw(f"{name} = load ptr, ptr {name}.at")
        b.raw(f"%shadow_delta.at = getelementptr i8, ptr %l, i64 {Launch.SHADOW_DELTA}")
        b.raw("%shadow_delta = load i64, ptr %shadow_delta.at")
        b.raw(f"%local_shadow_delta.at = getelementptr i8, ptr %w, i64 {Worker.LOCAL_SHADOW_DELTA}")
        b.raw("%local_shadow_delta = load i64, ptr %local_shadow_delta.at")
        shadow = b.load("i64", b.gep("%w", Worker.SMEM_SHADOW))
        smem = b.load("i64", b.gep("%w", Worker.SMEM))
        b.raw(f"%smem_shadow_delta = sub i64 {shadow.ir}, {smem.ir}")
        if self.use_mxcsr:
            self._set_mxcsr(True)
        b.store(b.load("i32", b.gep("%warp", Warp.MASK)), b.mask_slot)
        b.store(b.load("i32", b.gep("%warp", Warp.RPC)), b.rpc_slot)
        self.suspension.dispatch()

    def _set_mxcsr(self, flush: bool) -> None:
        """Flush-to-zero and denormals-are-zero on, or the caller's state back."""
        b = self.b
        b.declarations.update({"declare void @llvm.x86.sse.ldmxcsr(ptr)", "declare void @llvm.x86.sse.stmxcsr(ptr)"})
        if flush:
            self.old_csr, self.new_csr = b.alloca("i32", 4), b.alloca("i32", 4)
            b.raw(f"call void @llvm.x86.sse.stmxcsr(ptr {self.old_csr.ir})")
            b.store(b.bin("or", b.load("i32", self.old_csr), b.i32(0x8040)), self.new_csr)
            b.raw(f"call void @llvm.x86.sse.ldmxcsr(ptr {self.new_csr.ir})")
        else:
            b.raw(f"call void @llvm.x86.sse.ldmxcsr(ptr {self.old_csr.ir})")

    def _return(self, code: int) -> None:
        if self.use_mxcsr:
            self._set_mxcsr(False)
        self.b.raw(f"ret i32 {code}")

    def _leaves(self) -> None:
        """The exits shared by all blocks: failure, and the pop after lanes have returned."""
        b = self.b
        b.label(b.fail_label)
        self._return(FAILED)
        if any(block.kind == "yield" for block in self.blocks):
            b.label(f"leave{YIELD}")
            self._return(YIELD)
        for targets in sorted(set(self.waiting.values()) - {()}):
            again = _exit_label(targets)
            b.label(again)
            sp = b.load("i32", b.gep("%warp", Warp.SP))
            finished, more = b.new_label("finished"), b.new_label("more")
            b.branch(b.cmp("icmp eq", sp, b.i32(0)), finished, more)
            b.label(finished)
            self._return(DONE)
            b.label(more)
            self._pop(again, set(targets))

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

    def _pop(self, again: str, targets: set[int]) -> None:
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

    def _push(self, mask: Value, block: int, rpc: Value) -> None:
        b = self.b
        sp = b.load("i32", b.gep("%warp", Warp.SP))
        entry = b.gep("%warp", b.bin("add", b.bin("mul", b.resize(sp, "i64"), b.i64(16)), b.i64(Warp.STACK)))
        b.store(mask, entry)
        b.store(b.i32(block), b.gep(entry, 4))
        b.store(rpc, b.gep(entry, 8))
        b.store(b.bin("add", sp, b.i32(1)), b.gep("%warp", Warp.SP))

    # ------------------------------------------------------------------------------------------------ blocks
    def _block(self, block: Block) -> None:
        b, index = self.b, block.index
        b.label(f"bb{index}")
        if index in self.points:
            awaited, go = b.new_label("awaited"), b.new_label("go")
            b.branch(b.cmp("icmp eq", b.load("i32", b.rpc_slot), b.i32(index)), awaited, go)
            b.label(awaited)
            sides = {s for i in self.facts.divergent_branches if self.facts.reconvergence[i] == index for s in self.blocks[i].successors}
            self._pop(f"bb{index}.pop", sides | {index})
            # entries of lanes that have all returned are skipped by popping again
            b.label(f"bb{index}.pop")
            b.jump(awaited)
            b.label(go)
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
        b = self.b
        if not self.waiting[block.index]:
            self._return(DONE)
            return
        mask = b.load("i32", b.mask_slot)
        exited = b.bin("or", b.load("i32", b.gep("%warp", Warp.EXITED)), mask)
        b.store(exited, b.gep("%warp", Warp.EXITED))
        b.jump(_exit_label(self.waiting[block.index]))

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
            mask = b.load("i32", b.mask_slot)
            yes = b.bin("and", b.bits_of(condition), mask)
            no = b.bin("and", b.bin("xor", yes, b.i32(-1)), mask)
            some, split = b.new_label("some"), b.new_label("split")
            b.branch(b.cmp("icmp eq", yes, b.i32(0)), f"bb{falls}", some)
            b.label(some)
            b.branch(b.cmp("icmp eq", no, b.i32(0)), f"bb{taken}", split)
            b.label(split)
            self._diverge(block.index, mask, [(yes, taken), (no, falls)])

    def _diverge(self, index: int, mask: Value, sides: list[tuple[Value, int]]) -> None:
        """Run the first side now; the others and the meeting point go on the stack."""
        b = self.b
        point = self.facts.reconvergence[index]
        sides = sorted(sides, key=lambda side: self.blocks[side[1]].kind != "exit")  # lanes that return go first
        rpc = b.load("i32", b.rpc_slot)
        if point != EXIT:
            with b.when(b.cmp("icmp ne", rpc, b.i32(point))):
                self._push(mask, point, rpc)
        running = [(m, target) for m, target in sides if target != point]
        for m, target in running[1:]:
            self._push(m, target, b.i32(point))
        b.store(b.i32(point), b.rpc_slot)
        b.store(running[0][0], b.mask_slot)
        b.jump(f"bb{running[0][1]}")

    def _end_brx(self, block: Block) -> None:
        """A jump table. Varying indices split off one target after the other."""
        b = self.b
        assert block.instruction is not None
        index = b.src(block.instruction.operands[0], "u32")
        targets = block.successors
        if block.index not in self.facts.divergent_branches:
            cases = " ".join(f"i32 {n}, label %bb{t}" for n, t in enumerate(targets))
            b.raw(f"switch i32 {b.extract(index, 0).ir}, label %{b.fail_label} [ {cases} ]")
            return
        mask = b.load("i32", b.mask_slot)
        point = self.facts.reconvergence[block.index]
        sides: dict[int, Value] = {}
        for n, target in enumerate(targets):
            here = b.bin("and", b.bits_of(b.cmp("icmp eq", b.splat(index), b.i32(n))), mask)
            sides[target] = b.bin("or", sides[target], here) if target in sides else here
        rpc = b.load("i32", b.rpc_slot)
        if point != EXIT:
            with b.when(b.cmp("icmp ne", rpc, b.i32(point))):
                self._push(mask, point, rpc)
        b.store(b.i32(point), b.rpc_slot)
        for target, here in sides.items():
            if target != point:
                with b.when(b.cmp("icmp ne", here, b.i32(0))):
                    self._push(here, target, b.i32(point))
        # every side is on the stack; go and take the last one
        self._pop(b.fail_label, set(targets) | ({point} if point != EXIT else set()))

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
        self._return(BARRIER)
        self.suspension.come_back(block)
        fetch_result(b, block.instruction)
        b.jump(f"bb{block.successors[0]}")

    def _end_yield(self, block: Block) -> None:
        end_yield(self.suspension, block, YIELD)
