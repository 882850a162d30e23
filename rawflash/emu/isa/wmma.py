"""The older matrix instructions (PTX ISA 9.7.14.4): wmma.load, wmma.store, wmma.mma.

PTX leaves the layout of a wmma fragment open; here it is the mma tiles side by side (fragments.py), so that wmma.mma is a few
tiles of tiles.py. Each register of A or B is an 8x8 block of 16-bit words, and up to four of them are loaded as ldmatrix does
it, 16 bytes a lane. What does not fit (C and D, f64, a layout across the register for other than 16-bit elements) is one
access per register: elements that lie side by side travel together, others alone. Silicon may use other accesses for the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.fragments import parse_shape, wmma
from rawflash.emu.isa.matrix import read_registers, require_whole_warp, transpose, write_registers
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.isa.tiles import ELEMENT_BITS, Tile, elements_per_register, multiply, word
from rawflash.emu.lower import access, rows
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.ptx.tree import Address, Instruction, Operand

LAYOUTS, HALF_SHAPES = "row|col", "m16n16k16|m32n8k16|m8n32k16"
SPACE = "[.{space:global|shared|shared::cta}]"
F16_REGISTERS = 8  # of an A or B fragment, whatever the shape


class Placement:
    """Where in memory a lane's elements lie: runs of neighbours, each one access."""

    def __init__(self, b: WarpBuilder, i: Instruction, m: Mods, operand: str):
        self.b, self.ty = b, m["t"]
        memory = i.operands[0] if i.mods[0] == "store" else i.operands[1]
        fragment = wmma(m["shape"], operand, self.ty)
        held = fragment.rows * fragment.cols // LANES  # without the copies that fill up an f16 fragment
        row, col = fragment.row[:, :held], fragment.col[:, :held]
        self.major, self.minor = (row, col) if m["layout"] == "row" else (col, row)
        self.bits = ELEMENT_BITS[self.ty]
        self.per_register = elements_per_register(self.ty)
        self.space = _space(b, memory, m["space"])
        self.base = b.address(memory)
        stride: Value = b.src(i.operands[2], "b32") if len(i.operands) > 2 else b.i32(int(self.minor.max()) + 1)
        self.pitch = b.bin("lshr", b.bin("mul", b.resize(stride, "i64"), b.i64(self.bits)), b.i64(3))

    def runs(self) -> Iterator[tuple[int, int]]:
        """(first element, elements) of each access: a register's elements, or two whole registers, if they are neighbours."""
        count = self.major.shape[1]
        most = 2 if self.per_register == 1 and self.bits * 2 <= 128 else self.per_register
        first = 0
        while first < count:
            size = most
            while size > 1 and not self._neighbours(first, size):
                size //= 2
            yield first, size
            first += size

    def _neighbours(self, first: int, size: int) -> bool:
        if first + size > self.major.shape[1]:
            return False
        major, minor = self.major[:, first : first + size], self.minor[:, first : first + size]
        return bool((major == major[:, :1]).all() and (minor == minor[:, :1] + np.arange(size)).all())

    def address(self, first: int) -> Value:
        """Byte addresses of element ``first`` of all lanes."""
        return self._at(self.major[:, first], self.minor[:, first])

    def _at(self, major: NDArray[np.intp], minor: NDArray[np.intp]) -> Value:
        """Byte addresses of 32 elements."""
        b = self.b
        lines = b.bin("add", b.splat(self.base), b.bin("mul", _constant(major), b.splat(self.pitch)))
        return b.bin("add", lines, _constant(minor * self.bits // 8))

    # -------------------------------------------------------------------------------------------- registers as 8x8 blocks
    def along(self) -> bool:
        """Whether the four lanes of a row hold neighbours in memory, in every register."""
        e = self.per_register
        major, minor = (x.reshape(8, 4, -1, e).swapaxes(1, 2).reshape(8, -1, 4 * e) for x in (self.major, self.minor))
        return bool((major == major[..., :1]).all() and (minor == minor[..., :1] + np.arange(4 * e)).all())

    def blocks(self) -> list[Value]:
        """Load A or B, 32-bit registers; elements along the registers, or 16 bits wide and across."""
        b, e = self.b, self.per_register
        along = self.along()
        count = self.major.shape[1] // e
        lane, j = (4 * np.arange(8), np.zeros(8, np.intp)) if along else np.divmod(np.arange(8), 2)
        loaded: list[Value] = []
        for first in range(0, count, 4):
            group = range(first, min(first + 4, count))
            used = [np.concatenate([x[lane, e * r + j] for r in group]) for x in (self.major, self.minor)]
            major, minor = (np.pad(x, (0, LANES - len(x))) for x in used)
            loaded += rows.load_rows(b, self.space, self._at(major, minor), len(group))
        return loaded if along else [transpose(b, v) for v in loaded]

    # -------------------------------------------------------------------------------------------- register by register
    def pieces(self) -> list[Value]:
        """Load anything, one access per run."""
        b = self.b
        registers: list[Value] = []
        whole: Value | None = None
        for first, size in self.runs():
            if self.per_register == 1:
                registers += access.load(b, self.space, self.address(first), self.bits, size)
                continue
            bits, shift = self.bits * size, first % self.per_register * self.bits
            wide = b.resize(b.splat(access.load(b, self.space, self.address(first), bits, 1)[0]), "i32")
            placed = b.bin("shl", wide, b.i32(shift)) if shift else wide
            whole = placed if whole is None else b.bin("or", whole, placed)
            if shift + bits == 32:
                registers.append(whole)
                whole = None
        return registers


def _constant(numbers: NDArray[np.intp]) -> Value:
    return Value("<" + ", ".join(f"i64 {int(v)}" for v in numbers) + ">", "i64", LANES)


def _space(b: WarpBuilder, operand: Operand, space: str | None) -> str:
    known = b.symbol_space(operand.base if isinstance(operand, Address) else operand)
    return (space or known or "generic").split("::")[0]


# ------------------------------------------------------------------------------------------------------------ load, store
@op(
    f"wmma.load.{{x:a|b}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:{HALF_SHAPES}}}{SPACE}.{{t:f16|bf16|s8|u8}}",
    f"wmma.load.{{x:a|b}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m16n16k8}}{SPACE}.{{t:tf32}}",
    f"wmma.load.{{x:a|b}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m8n8k4}}{SPACE}.{{t:f64}}",
    f"wmma.load.{{x:a}}.sync.aligned.{{layout:row}}.{{shape:m8n8k32}}{SPACE}.{{t:s4|u4}}",
    f"wmma.load.{{x:b}}.sync.aligned.{{layout:col}}.{{shape:m8n8k32}}{SPACE}.{{t:s4|u4}}",
    f"wmma.load.{{x:a}}.sync.aligned.{{layout:row}}.{{shape:m8n8k128}}{SPACE}.{{t:b1}}",
    f"wmma.load.{{x:b}}.sync.aligned.{{layout:col}}.{{shape:m8n8k128}}{SPACE}.{{t:b1}}",
    f"wmma.load.{{x:c}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:{HALF_SHAPES}}}{SPACE}.{{t:f16|f32|s32}}",
    f"wmma.load.{{x:c}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m16n16k8}}{SPACE}.{{t:f32}}",
    f"wmma.load.{{x:c}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m8n8k4}}{SPACE}.{{t:f64}}",
    f"wmma.load.{{x:c}}.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m8n8k32|m8n8k128}}{SPACE}.{{t:s32}}",
    varying=True,
)
def load(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    place = Placement(b, i, m, m["x"])
    in_blocks = m["x"] in "ab" and place.bits <= 32 and (place.bits == 16 or place.along())
    registers = place.blocks() if in_blocks else place.pieces()
    if m["t"] == "f16" and m["x"] in "ab":
        registers = registers * (F16_REGISTERS // len(registers))
    write_registers(b, i.operands[0], [b.splat(v) for v in registers])


@op(
    f"wmma.store.d.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:{HALF_SHAPES}}}{SPACE}.{{t:f16|f32|s32}}",
    f"wmma.store.d.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m16n16k8}}{SPACE}.{{t:f32}}",
    f"wmma.store.d.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m8n8k4}}{SPACE}.{{t:f64}}",
    f"wmma.store.d.sync.aligned.{{layout:{LAYOUTS}}}.{{shape:m8n8k32|m8n8k128}}{SPACE}.{{t:s32}}",
)
def store(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    place = Placement(b, i, m, "d")
    n = place.major.shape[1] // place.per_register
    registers = [b.bitcast(v, f"i{max(32, place.bits)}") for v in read_registers(b, i.operands[1], word(m["t"]), n)]
    for first, size in place.runs():
        if place.per_register == 1:
            access.store(b, place.space, place.address(first), registers[first : first + size], place.bits)
            continue
        whole = registers[first // place.per_register]
        piece = b.bin("lshr", whole, b.i32(first % place.per_register * place.bits))
        access.store(b, place.space, place.address(first), [b.resize(piece, f"i{place.bits * size}")], place.bits * size)


# ------------------------------------------------------------------------------------------------------------ multiply
PAIR = f"{{al:{LAYOUTS}}}.{{bl:{LAYOUTS}}}"


@op(
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:{HALF_SHAPES}}}.{{d:f16|f32}}.{{c:f16|f32}}",
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:{HALF_SHAPES}}}.{{d:f32}}.{{a:bf16}}.{{b:bf16}}.{{c:f32}}",
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:m16n16k8}}.{{d:f32}}.{{a:tf32}}.{{b:tf32}}.{{c:f32}}",
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:m8n8k4}}.{{d:f64}}.{{a:f64}}.{{b:f64}}.{{c:f64}}[.rn]",
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:{HALF_SHAPES}}}.{{d:s32}}.{{a:s8}}.{{b:s8}}.{{c:s32}}[.satfinite]",
    f"wmma.mma.sync.aligned.{PAIR}.{{shape:{HALF_SHAPES}}}.{{d:s32}}.{{a:u8}}.{{b:u8}}.{{c:s32}}[.satfinite]",
    "wmma.mma.sync.aligned.row.col.{shape:m8n8k32}.{d:s32}.{a:s4}.{b:s4}.{c:s32}[.satfinite]",
    "wmma.mma.sync.aligned.row.col.{shape:m8n8k32}.{d:s32}.{a:u4}.{b:u4}.{c:s32}[.satfinite]",
    "wmma.mma.{logic:xor|and}.popc.sync.aligned.row.col.{shape:m8n8k128}.{d:s32}.{a:b1}.{b:b1}.{c:s32}",
    varying=True,
)
def mma(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    """The layouts say how the fragments were loaded; once loaded they are all alike."""
    require_whole_warp(b)
    height, width, k = parse_shape(m["shape"])
    a_type, b_type = m.get("a", "f16"), m.get("b", "f16")
    tile = Tile(min(height, 16), k, a_type, b_type, m["c"], m["d"], "satfinite" in i.mods, m.get("logic", ""))
    n_a, n_b, n_c = (tile.registers(o) for o in "abc")
    tiles_down, tiles_across = height // tile.m, width // 8
    a = read_registers(b, i.operands[1], word(a_type), F16_REGISTERS if a_type == "f16" else n_a * tiles_down)
    bb = read_registers(b, i.operands[2], word(b_type), F16_REGISTERS if b_type == "f16" else n_b * tiles_across)
    c = read_registers(b, i.operands[3], word(m["c"]), n_c * tiles_down * tiles_across)
    out: list[Value] = []
    for down in range(tiles_down):
        for across in range(tiles_across):
            at = down * tiles_across + across
            part = (a[n_a * down : n_a * (down + 1)], bb[n_b * across : n_b * (across + 1)], c[n_c * at : n_c * (at + 1)])
            out += multiply(b, tile, *part)
    write_registers(b, i.operands[0], out)
