"""The register file of a warp as stack slots and values, the lanes that take part, and stopping when something is wrong.

PTX registers are written under the mask of the lanes that take part, so that nobody above thinks about divergence.
"""

from __future__ import annotations

from rawflash.emu.cfg.uniformity import Facts
from rawflash.emu.errors import PtxSyntaxError, UnsupportedInstruction
from rawflash.emu.lower.irtext import INT_BITS, LANES, IRWriter, Value
from rawflash.emu.lower.layout import ERROR_KIND, Worker
from rawflash.emu.lower.sites import AccessSite, Group, KernelCode
from rawflash.emu.lower.specials import special
from rawflash.emu.lower.symbols import Symbols
from rawflash.emu.lower.types import register_type
from rawflash.emu.params import EmuParams
from rawflash.emu.ptx.tree import Instruction


class RegisterFile(IRWriter):
    """IRWriter with the registers and the state of the block being lowered."""

    def __init__(
        self, declarations: set[str], symbols: Symbols, facts: Facts, registers: dict[str, str], params: EmuParams, explicit_ftz: bool
    ):
        super().__init__(declarations)
        self.symbols = symbols
        self.facts = facts
        self.registers = registers
        self.params = params
        self.explicit_ftz = explicit_ftz
        self.code = KernelCode()
        self.instruction: Instruction = Instruction("nop", (), ())
        self.wanted: set[str] = set()  # registers that some instruction reads
        self.divergent = False
        self.partial = False
        self._slots: dict[str, Value] = {}
        self._local: dict[str, Value] = {}
        self._mask: Value | None = None
        self._guard: Value | None = None
        self.groups: dict[tuple[str, str], Group] = {}  # by space and address register
        self.pending: list[Group] = []  # those with loads that settle() has yet to look at
        self.suspects: dict[int, Value] = {}  # by length: the largest 16-bit pieces that they loaded
        self.fail_label = "failed"
        self.mask_slot = self.alloca("i32", 4)
        self.rpc_slot = self.alloca("i32", 4)

    # ------------------------------------------------------------------------------------------- block state
    def start_block(self, divergent: bool, partial: bool) -> None:
        self.divergent, self.partial = divergent, partial
        self._local = {}
        self._mask = self.load("i32", self.mask_slot) if partial else None
        self._guard = None
        self.groups, self.pending, self.suspects = {}, [], {}

    def block_mask(self) -> Value:
        """i32 bits of the lanes that execute this block."""
        return self._mask if self._mask is not None else self.i32(-1)

    def set_guard(self, guard: Value | None) -> None:
        """Predicate of the instruction being lowered, i1 (scalar or vector)."""
        self._guard = guard

    @property
    def has_full_mask(self) -> bool:
        """Whether all 32 lanes take part, known now."""
        return self._mask is None and self._guard is None

    def lane_mask(self) -> Value:
        """i32 bits of the lanes that execute this instruction, its guard included."""
        mask = self.block_mask()
        if self._guard is None:
            return mask
        if not self._guard.lanes:
            return self.select(self._guard, mask, self.i32(0))
        return self.bin("and", mask, self.bits_of(self._guard))

    def bits_of(self, predicate: Value) -> Value:
        """i1 lanes -> i32 bits."""
        if not predicate.lanes:
            return self.select(predicate, self.i32(-1), self.i32(0))
        return self.define(f"bitcast {predicate.typed} to i32", "i32")

    def lanes_of(self, bits: Value) -> Value:
        """i32 bits -> i1 lanes."""
        if bits.is_constant and bits.ir == "-1":
            return Value("splat (i1 true)", "i1", LANES)
        return self.define(f"bitcast i32 {bits.ir} to <32 x i1>", "i1", LANES)

    def first_lane(self, mask: Value) -> Value:
        """i32 index of the lowest set bit."""
        return self.intrinsic("cttz", mask, plain=(Value("false", "i1"),))

    def unsupported(self, hint: str) -> UnsupportedInstruction:
        i = self.instruction
        return UnsupportedInstruction(i.spelling, ptx_line=i.line, loc=i.loc, hint=hint)

    # ------------------------------------------------------------------------------------------- registers
    def declared(self, name: str) -> str:
        """LLVM element type of a register."""
        if name == "%cc":
            return "i1"
        if name not in self.registers:
            raise PtxSyntaxError(f"register '{name}' is used but not declared", line=self.instruction.line)
        return register_type(self.registers[name])

    def is_uniform(self, name: str) -> bool:
        return name not in self.facts.varying

    def slot(self, name: str) -> Value:
        """The stack slot of a register that lives across blocks."""
        found = self._slots.get(name)
        if found is None:
            ty = self.declared(name)
            uniform = self.is_uniform(name)
            found = self._slots[name] = self.alloca(ty if uniform else f"<32 x {ty}>", 8 if uniform else 64)
            zero = "zeroinitializer" if not uniform else ("false" if ty == "i1" else "0" if ty in INT_BITS else "0.0")
            self.entry.append(f"  store {ty if uniform else f'<32 x {ty}>'} {zero}, ptr {found.ir}")
        return found

    def read_register(self, name: str) -> Value:
        if name in self.registers or name == "%cc":
            if name in self._local:
                return self._local[name]
            lanes = 0 if self.is_uniform(name) else LANES
            if name in self.facts.local:  # read before any write
                return self.undef(self.declared(name), lanes)
            return self.load(self.declared(name), self.slot(name), lanes)
        found = special(self, name, self.facts.lanes.rows)
        if found is None:
            raise self.unsupported(f"special register '{name}' is not modelled; add it to rawflash/emu/lower/specials.py")
        return found

    def write_register(self, name: str, value: Value) -> None:
        """Store a value of the register's own element type, keeping lanes that do not take part."""
        uniform = self.is_uniform(name)
        if uniform and value.lanes and self.facts.lanes.same_for_all_lanes(self.instruction):
            value = self.extract(value, 0)
        if uniform and value.lanes:
            raise AssertionError(f"internal error: '{self.instruction.spelling}' gave a vector for the uniform register {name}")
        keep_old = self._guard is not None or (self.divergent and name not in self.facts.local)
        if keep_old:
            old = self.read_register(name)
            condition: Value | None = self._guard
            if self.divergent and not uniform:
                condition = self.lanes_of(self.lane_mask())
            if condition is not None:
                value = self.select(condition, value, old)
        if not uniform:
            value = self.splat(value)
        for key in [key for key in self.groups if key[1] == name]:
            del self.groups[key]
        if name in self.facts.local:
            self._local[name] = value
        else:
            self.store(value, self.slot(name))

    # ------------------------------------------------------------------------------------------- errors
    def fail_if(
        self,
        condition: Value,
        kind: str,
        lane: Value | None = None,
        address: Value | None = None,
        aux: Value | None = None,
        site: int | None = None,
    ) -> None:
        """Stop the launch when the scalar i1 holds. The site is the instruction being lowered, or a given access of it."""
        with self.when(condition, likely=False):
            if site is None:
                site = self.new_site("none", False, 0)
            self.store(self.i32(ERROR_KIND[kind]), self.gep("%w", Worker.ERR_KIND))
            self.store(self.i32(site), self.gep("%w", Worker.ERR_SITE))
            self.store(lane if lane is not None else self.first_lane(self.lane_mask()), self.gep("%w", Worker.ERR_LANE))
            self.store(address if address is not None else self.i64(0), self.gep("%w", Worker.ERR_ADDR))
            self.store(aux if aux is not None else self.i64(0), self.gep("%w", Worker.ERR_AUX))
            self.jump(self.fail_label)
            self.label(self.new_label("dead"))

    def new_site(self, space: str, write: bool, size: int, offset: int = 0, leader: int = -1, narrow: bool = False) -> int:
        index = len(self.code.sites)
        self.code.sites.append(AccessSite(index, self.instruction, space, write, size, offset, leader, narrow))
        return index
