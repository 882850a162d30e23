"""What an instruction handler writes with: PTX operands in, PTX registers out, on top of the IR writer.

Handlers see whole warps: a uniform value is a scalar, anything else a vector of 32 lanes. ``write`` keeps the values of lanes
that do not take part, so a handler never thinks about divergence; a handler with a side effect asks ``lane_mask``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.cfg.uniformity import Facts
from rawflash.emu.errors import PtxSyntaxError, UnsupportedInstruction
from rawflash.emu.lower.irtext import BITS, INT_BITS, LANES, IRWriter, Value
from rawflash.emu.lower.layout import Launch, Warp, Worker
from rawflash.emu.lower.symbols import Symbols
from rawflash.emu.lower.types import llvm_type, register_type
from rawflash.emu.params import EmuParams
from rawflash.emu.ptx.tree import Address, Imm, Instruction, NotPred, Operand, Reg, Symbol, Vector

AXES = {"x": 0, "y": 1, "z": 2}


@dataclass(frozen=True)
class AccessSite:
    """One memory access in the code, for counters and error messages."""

    index: int
    instruction: Instruction
    space: str
    write: bool
    size: int
    offset: int = 0  # from the address register, for members of a group
    leader: int = -1  # site of the group's first access, -1 outside groups
    narrow: bool = False  # of a leader: the register has 32 bits


@dataclass(frozen=True)
class Place:
    """An address that is a register plus a constant."""

    register: str
    value: Value
    offset: int

    def whole(self, b: WarpBuilder, narrow: bool = False) -> Value:
        """The address, which wraps at 32 bits when the register has 32; i64, unless a ``narrow`` one may stay as it is."""
        v = self.value if self.value.ty == "i32" else b.resize(self.value, "i64")
        if self.offset:
            v = b.bin("add", v, b.const(v.ty, self.offset))
        return v if narrow else b.resize(v, "i64")


@dataclass(eq=False)
class Group:
    """Accesses of a block through one register (groups.py): space, site of the first, the register of the first active lane (i64)."""

    space: str
    leader: int
    base: Value
    uniform: bool
    last_load: int = -1


@dataclass
class KernelCode:
    """What lowering learns about a kernel besides its IR."""

    sites: list[AccessSite] = field(default_factory=list)
    uses_host: bool = False
    copies: bool = False  # cp.async


class WarpBuilder(IRWriter):
    """IRWriter with the register file and the state of the block being lowered."""

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
        return self.special(name)

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

    # ------------------------------------------------------------------------------------------- operands
    def src(self, operand: Operand, ptx_type: str) -> Value:
        """A source operand as the LLVM type of ``ptx_type``, whatever the register was declared as."""
        return self.as_type(self.raw_operand(operand, ptx_type), llvm_type(ptx_type))

    def raw_operand(self, operand: Operand, ptx_type: str) -> Value:
        if isinstance(operand, Reg):
            return self.read_register(operand.name)
        if isinstance(operand, Imm):
            return self.immediate(operand, ptx_type)
        if isinstance(operand, NotPred):
            return self.bin("xor", self.read_register(operand.reg.name), Value("true", "i1"))
        if isinstance(operand, Symbol):
            return self.symbol(operand)
        if isinstance(operand, Vector):
            return self.pack(operand, ptx_type)
        raise self.unsupported(f"operand {operand} is not understood here")

    def immediate(self, operand: Imm, ptx_type: str) -> Value:
        ty = llvm_type(ptx_type)
        if operand.kind == "int":
            if ty in ("float", "double", "half", "bfloat"):
                if ty in ("half", "bfloat"):
                    return self.const("i16", operand.value)
                return self.const(ty, float(operand.value))
            return self.const(ty, operand.value)
        if operand.kind == "f64":
            if ty == "float":
                import struct

                wide = struct.unpack("<d", struct.pack("<Q", operand.value))[0]
                return self.const("float", struct.unpack("<f", struct.pack("<f", wide))[0])
            return self.const("double" if ty not in INT_BITS else "i64", operand.value)
        return self.const("float" if ty != "i32" else "i32", operand.value)

    def as_type(self, v: Value, ty: str) -> Value:
        """Reinterpret bits; a wider register is cut, a narrower one zero-extended."""
        if v.ty == ty:
            return v
        have, want = BITS[v.ty], BITS[ty]
        if have == want:
            return self.bitcast(v, ty)
        if v.ty == "i1" or ty == "i1":
            raise PtxSyntaxError(f"'{self.instruction.spelling}' mixes a predicate and a value", line=self.instruction.line)
        bits = v if v.ty in INT_BITS else self.bitcast(v, f"i{have}")
        return self.bitcast(self.resize(bits, f"i{want}"), ty)

    def pred(self, operand: Operand) -> Value:
        """A predicate source, i1."""
        if isinstance(operand, Imm):
            return self.const("i1", int(operand.value != 0))
        return self.raw_operand(operand, "pred")

    def write(self, operand: Operand | None, value: Value, signed: bool = False) -> None:
        """Write a destination; a register wider than the value gets it extended by ``signed``."""
        if operand is None or (isinstance(operand, Reg) and operand.name == "_"):
            return
        if isinstance(operand, Symbol) and operand.name == "_":
            return
        if isinstance(operand, Vector):
            self.unpack(operand, value)
            return
        if not isinstance(operand, Reg):
            raise self.unsupported(f"destination {operand} is not a register")
        ty = self.declared(operand.name)
        have, want = BITS[value.ty], BITS[ty]
        if have != want:
            bits = value if value.ty in INT_BITS else self.bitcast(value, f"i{have}")
            value = self.resize(bits, f"i{want}", signed)
        self.write_register(operand.name, self.bitcast(value, ty))

    def pack(self, operand: Vector, ptx_type: str) -> Value:
        """``{a, b}`` as one value: a in the low bits."""
        ty = llvm_type(ptx_type)
        total = BITS[ty]
        part = total // len(operand.items)
        out: Value | None = None
        for n, item in enumerate(operand.items):
            if item is None:
                continue
            piece = self.as_type(self.raw_operand(item, f"b{part}"), f"i{part}")
            wide = self.resize(piece, f"i{total}")
            shifted = self.bin("shl", wide, self.const(f"i{total}", n * part)) if n else wide
            out = shifted if out is None else self.bin("or", out, shifted)
        return self.as_type(out if out is not None else self.const(f"i{total}", 0), ty)

    def unpack(self, operand: Vector, value: Value) -> None:
        total = BITS[value.ty]
        bits = value if value.ty in INT_BITS else self.bitcast(value, f"i{total}")
        part = total // len(operand.items)
        for n, item in enumerate(operand.items):
            if item is not None:
                shifted = self.bin("lshr", bits, self.const(f"i{total}", n * part)) if n else bits
                self.write(item, self.resize(shifted, f"i{part}"))

    # ------------------------------------------------------------------------------------------- names
    def symbol(self, operand: Symbol) -> Value:
        """Address of a variable (in its own space), of a kernel parameter, or a function's handle."""
        kind, where = self.symbols.resolve(operand.name, self.instruction.line)
        if kind in ("shared", "local"):
            return self.const("i64", where + operand.offset)
        if kind == "dynamic":
            return self.const("i64", where + operand.offset)
        if kind == "module":
            table = self.load("ptr", self.gep("%l", Launch.SYMBOLS))
            address = self.load("i64", self.gep(table, 8 * where))
            return self.bin("add", address, self.i64(operand.offset)) if operand.offset else address
        if kind == "param":
            block = self.load("i64", self.gep("%l", Launch.PARAMS))
            return self.bin("add", block, self.i64(where + operand.offset))
        return self.const("i64", where)  # function handle

    def symbol_space(self, operand: Operand) -> str | None:
        """The space of a symbol used as an address base; None for a register."""
        if isinstance(operand, Symbol):
            kind, where = self.symbols.resolve(operand.name, self.instruction.line)
            return self.symbols.module_space(where) if kind == "module" else {"dynamic": "shared"}.get(kind, kind)
        return None

    def address(self, operand: Operand) -> Value:
        """An i64 address in the space of the instruction, uniform if its base is."""
        place = self.place(operand)
        return place if isinstance(place, Value) else place.whole(self)

    def place(self, operand: Operand) -> Place | Value:
        """The same, taken apart where it is a register plus a constant."""
        base: Operand = operand
        offset = 0
        if isinstance(operand, Address):
            base, offset = operand.base, operand.offset
        if isinstance(base, Imm):
            return self.i64(base.value + offset)
        if isinstance(base, Symbol):
            return self.symbol(Symbol(base.name, base.offset + offset))
        if not isinstance(base, Reg):
            raise self.unsupported(f"address {operand} is not understood")
        v = self.read_register(base.name)
        if v.ty not in INT_BITS:
            v = self.bitcast(v, f"i{BITS[v.ty]}")
        return Place(base.name, v, offset)

    # ------------------------------------------------------------------------------------------- special registers
    def special(self, name: str) -> Value:
        base, _, axis = name[1:].partition(".")
        n = AXES.get(axis, 0)
        if base == "tid":
            if n and self.facts.lanes.rows:
                return self.load("i32", self.gep("%warp", Warp.TID + 128 * n))
            return self.load("i32", self.gep("%warp", Warp.TID + 128 * n), LANES)
        if base in ("ntid", "nctaid"):
            return self.load("i32", self.gep("%l", (Launch.NTID if base == "ntid" else Launch.NCTAID) + 4 * n))
        if base == "ctaid":
            return self.load("i32", self.gep("%w", Worker.CTAID + 4 * n))
        if base == "laneid":
            return Value("<" + ", ".join(f"i32 {k}" for k in range(32)) + ">", "i32", LANES)
        if base.startswith("lanemask_"):
            masks = {
                "eq": [1 << k for k in range(32)],
                "lt": [(1 << k) - 1 for k in range(32)],
                "le": [(2 << k) - 1 for k in range(32)],
                "gt": [0xFFFFFFFF & ~((2 << k) - 1) for k in range(32)],
                "ge": [0xFFFFFFFF & ~((1 << k) - 1) for k in range(32)],
            }.get(base.removeprefix("lanemask_"))
            if masks is not None:
                return Value("<" + ", ".join(f"i32 {k - (k >> 31 << 32)}" for k in masks) + ">", "i32", LANES)
        if base == "warpid":
            return self.load("i32", self.gep("%warp", Warp.INDEX))
        if base == "nwarpid":
            return self.load("i32", self.gep("%l", Launch.NWARPS))
        if base == "gridid":
            return self.load("i64", self.gep("%l", Launch.GRIDID))
        if base in ("smid", "envreg", "pm0", "pm1", "pm2", "pm3") or base.startswith("envreg"):
            return self.i32(0)
        if base == "nsmid":
            return self.i32(1)
        if base in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            self.declarations.add("declare i64 @llvm.readcyclecounter()")
            ticks = self.define("call i64 @llvm.readcyclecounter()", "i64")
            if base in ("clock64", "globaltimer"):
                return ticks
            if base.endswith("_hi"):
                ticks = self.bin("lshr", ticks, self.i64(32))
            return self.resize(ticks, "i32")
        if base == "dynamic_smem_size":
            return self.load("i32", self.gep("%l", Launch.SMEM_DYNAMIC))
        if base == "total_smem_size":
            return self.load("i32", self.gep("%l", Launch.SMEM_BYTES))
        if name in ("%clusterid.x", "%clusterid.y", "%clusterid.z"):
            return self.load("i32", self.gep("%w", Worker.CTAID + 4 * n))
        raise self.unsupported(f"special register '{name}' is not modelled; add it to rawflash/emu/lower/builder.py")

    def constant_of(self, operand: Operand) -> int | None:
        """The integer an operand is known to hold, or None."""
        return self.facts.lanes.constant(operand, self.instruction)

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
        from rawflash.emu.lower.layout import ERROR_KIND

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

    def is_uniform_destination(self, operand: Operand | None) -> bool:
        """Whether a destination register is kept as a scalar."""
        return isinstance(operand, Reg) and self.is_uniform(operand.name)
