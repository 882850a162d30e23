"""What an instruction handler writes with: PTX operands in, PTX registers out, on top of the register file.

Handlers see whole warps: a uniform value is a scalar, anything else a vector of 32 lanes. ``write`` keeps the values of lanes
that do not take part, so a handler never thinks about divergence; a handler with a side effect asks ``lane_mask``.
"""

from __future__ import annotations

import struct

from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.lower.irtext import BITS, INT_BITS, Value
from rawflash.emu.lower.layout import Launch
from rawflash.emu.lower.registers import RegisterFile
from rawflash.emu.lower.sites import Place
from rawflash.emu.lower.types import llvm_type
from rawflash.emu.ptx.tree import Address, Imm, NotPred, Operand, Reg, Symbol, Vector


class WarpBuilder(RegisterFile):
    """RegisterFile with the operands of PTX: sources, destinations, addresses."""

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

    def constant_of(self, operand: Operand) -> int | None:
        """The integer an operand is known to hold, or None."""
        return self.facts.lanes.constant(operand, self.instruction)

    def is_uniform_destination(self, operand: Operand | None) -> bool:
        """Whether a destination register is kept as a scalar."""
        return isinstance(operand, Reg) and self.is_uniform(operand.name)

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
