"""Who holds what: the pure NumPy maps (lane, element) <-> (row, column) of the warp-wide matrix instructions.

One rule covers every ``mma.sync.m16n8k*`` (and ``m8n8k*``). With ``e`` elements in a register (1 for tf32 and f64, 2 for
f16 and bf16, 4 for s8, u8, e4m3 and e5m2), ``g = lane // 4`` and ``t = lane % 4``::

    A (M x K)   register r, element j:  row = g + 8 * (r % 2)          col = 4e * (r // 2) + e * t + j      (M = 16)
                                        row = g                        col = 4e * r + e * t + j             (M = 8)
    B (K x 8)   register r, element j:  row = 4e * r + e * t + j       col = g
    C (M x 8)   element i:              row = g + 8 * (i // 2)         col = 2 * t + i % 2

    m16n8k16, f16 (e = 2); "5.r2" is register 2 of lane 5, holding two neighbours of a row of A or C, of a column of B

             A   cols 0-1  2-3   4-5   6-7  | 8-9  10-11 12-13 14-15         C   cols 0-1  2-3   4-5   6-7
        row  0       0.r0  1.r0  2.r0  3.r0 | 0.r2  1.r2  2.r2  3.r2    row  0       0.c0  1.c0  2.c0  3.c0
        row  1       4.r0  5.r0  6.r0  7.r0 | 4.r2  5.r2  6.r2  7.r2    row  1       4.c0  5.c0  6.c0  7.c0
         ...                                |                            ...
        row  7      28.r0 29.r0 30.r0 31.r0 |28.r2 29.r2 30.r2 31.r2    row  7      28.c0 29.c0 30.c0 31.c0
        ------------------------------------+-----------------------    ------------------------------------
        row  8       0.r1  1.r1  2.r1  3.r1 | 0.r3  1.r3  2.r3  3.r3    row  8       0.c2  1.c2  2.c2  3.c2
         ...                                |                            ...
        row 15      28.r1 29.r1 30.r1 31.r1 |28.r3 29.r3 30.r3 31.r3    row 15      28.c2 29.c2 30.c2 31.c2

             B   col   0     1     2    ...   7
        rows  0- 1    0.r0  4.r0  8.r0  ... 28.r0         ldmatrix: matrix i of x1/x2/x4 goes to register i. Lane 8i + r
        rows  2- 3    1.r0  5.r0  9.r0  ... 29.r0         holds the address of its row r (8 elements of 16 bits).
        rows  4- 5    2.r0  6.r0 10.r0  ... 30.r0         Lane 4r + t receives columns 2t, 2t+1 of row r, which is a
        rows  6- 7    3.r0  7.r0 11.r0  ... 31.r0         quarter of A above. With .trans it receives rows 2t, 2t+1 of
        ------------------------------------------        column r, which is half of B above.
        rows  8- 9    0.r1  4.r1  8.r1  ... 28.r1
         ...
        rows 14-15    3.r1  7.r1 11.r1  ... 31.r1

PTX leaves the layout of ``wmma`` fragments open: a program may only load, store, multiply and treat elements alike. Here
a wmma fragment is the mma tiles side by side (tiles of rows before tiles of columns), repeated until PTX's number of
registers is full: a 16x16 f16 fragment has 16 elements a lane, so that each element has two holders.

Source of the layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours, "ldmatrix", "movmatrix".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LANES = 32
ELEMENTS_PER_REGISTER = {
    "f16": 2, "bf16": 2, "tf32": 1, "f32": 1, "f64": 1, "s32": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4, "s4": 8, "u4": 8, "b1": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Fragment:
    """A ``rows x cols`` matrix spread over a warp.

    ``row`` and ``col`` have shape (32, elements): where element ``i`` of lane ``l`` sits. Elements are in register order,
    lowest bits first, ``per_register`` of them in each register.
    """

    rows: int
    cols: int
    per_register: int
    row: NDArray[np.intp]
    col: NDArray[np.intp]

    @property
    def elements(self) -> int:
        """Elements per lane."""
        return self.row.shape[1]

    @property
    def registers(self) -> int:
        """Registers per lane."""
        return self.elements // self.per_register

    def distribute(self, matrix: NDArray) -> NDArray:
        """(rows, cols) -> (32, elements): what each lane holds."""
        if matrix.shape != (self.rows, self.cols):
            raise ValueError(f"the fragment is {self.rows}x{self.cols}, the matrix has shape {matrix.shape}")
        return matrix[self.row, self.col]

    def collect(self, held: NDArray) -> NDArray:
        """(32, elements) -> (rows, cols). Where an element has several holders (wmma), the highest lane and element wins."""
        if held.shape != self.row.shape:
            raise ValueError(f"expected {self.row.shape} held elements, got {held.shape}")
        matrix = np.zeros((self.rows, self.cols), held.dtype)
        matrix[self.row, self.col] = held
        return matrix


def _lanes() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    lane = np.arange(LANES)
    return lane[:, None] // 4, lane[:, None] % 4


def mma_a(m: int, k: int, per_register: int) -> Fragment:
    """The A operand, ``m x k`` with m 8 or 16."""
    g, t = _lanes()
    tiles = m // 8
    i = np.arange(m * k // LANES)[None, :]
    register, j = i // per_register, i % per_register
    row = g + 8 * (register % tiles)
    col = 4 * per_register * (register // tiles) + per_register * t + j
    return Fragment(m, k, per_register, row, col)


def mma_b(n: int, k: int, per_register: int) -> Fragment:
    """The B operand, ``k x n`` with n = 8 (one tile) or a multiple of it (tiles side by side, as wmma uses them)."""
    g, t = _lanes()
    per_tile = k * 8 // LANES
    i = np.arange(per_tile * (n // 8))[None, :]
    tile, register, j = i // per_tile, i % per_tile // per_register, i % per_register
    row = 4 * per_register * register + per_register * t + j
    return Fragment(k, n, per_register, row, g + 8 * tile)


def mma_c(m: int, n: int, per_register: int = 1) -> Fragment:
    """The accumulator, ``m x n``; ``per_register`` is 2 for an f16 accumulator. Tiles of 8 columns follow each other."""
    g, t = _lanes()
    per_tile = m * 8 // LANES
    i = np.arange(per_tile * (n // 8))[None, :]
    tile, in_tile = i // per_tile, i % per_tile
    return Fragment(m, n, per_register, g + 8 * (in_tile // 2), 8 * tile + 2 * t + in_tile % 2)


def parse_shape(shape: str) -> tuple[int, int, int]:
    """Split a shape: ``m16n8k16`` -> (16, 8, 16)."""
    match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if not match:
        raise ValueError(f"{shape!r} is not a shape such as m16n8k16")
    m, n, k = (int(part) for part in match.groups())
    return m, n, k


def mma(shape: str, ab_type: str, cd_type: str = "f32") -> tuple[Fragment, Fragment, Fragment]:
    """The A, B and C fragments of ``mma.sync.<shape>``: ``mma("m16n8k16", "f16")``."""
    m, n, k = parse_shape(shape)
    if n != 8 or m not in (8, 16):
        raise ValueError(f"no rule for mma shape {shape}: n must be 8 and m 8 or 16")
    e = ELEMENTS_PER_REGISTER[ab_type]
    return mma_a(m, k, e), mma_b(n, k, e), mma_c(m, n, ELEMENTS_PER_REGISTER[cd_type])


def ldmatrix(count: int, trans: bool = False) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """``ldmatrix.m8n8.x<count>[.trans].b16`` (and ``stmatrix``): arrays (32, count, 2) of matrix, row and column.

    Element ``[lane, register, half]`` of the destination is ``matrix[row, column]`` of the source matrix; row ``r`` of
    matrix ``i`` starts at the address that lane ``8 * i + r`` supplies.
    """
    if count not in (1, 2, 4):
        raise ValueError(f"ldmatrix moves 1, 2 or 4 matrices, not {count}")
    lane, register, half = np.ogrid[:LANES, :count, :2]
    major, minor = lane // 4, 2 * (lane % 4) + half
    row, col = (minor, major) if trans else (major, minor)
    full = (LANES, count, 2)
    return np.broadcast_to(register, full), np.broadcast_to(row, full), np.broadcast_to(col, full)


def movmatrix(held: NDArray) -> NDArray:
    """``movmatrix.m8n8.trans.b16``: (32, 2) 16-bit elements held before -> (32, 2) held after."""
    _, row, col = (part[:, 0] for part in ldmatrix(1))
    matrix = np.empty((8, 8), held.dtype)
    matrix[row, col] = held
    return matrix[col, row]


def wmma_registers(shape: str, operand: str, dtype: str) -> int:
    """Registers per lane that PTX gives the fragment of a ``wmma`` operand ("a", "b", "c" or "d")."""
    m, n, k = parse_shape(shape)
    if operand in "ab":
        if dtype == "f16":
            return 8
        return max(1, (m if operand == "a" else n) * k // LANES // ELEMENTS_PER_REGISTER[dtype])
    return m * n // LANES // ELEMENTS_PER_REGISTER[dtype]


def wmma(shape: str, operand: str, dtype: str) -> Fragment:
    """The fragment of one operand of ``wmma.<shape>`` as this emulator lays it out (see the module's docstring)."""
    m, n, k = parse_shape(shape)
    e = ELEMENTS_PER_REGISTER[dtype]
    if operand == "a":
        base = _stack_rows([mma_a(min(m, 16), k, e) for _ in range(max(1, m // 16))])
    elif operand == "b":
        base = mma_b(n, k, e)
    else:
        base = _stack_rows([mma_c(min(m, 16), n, e) for _ in range(max(1, m // 16))])
    copies = wmma_registers(shape, operand, dtype) // base.registers
    return Fragment(base.rows, base.cols, e, np.tile(base.row, copies), np.tile(base.col, copies))


def _stack_rows(tiles: list[Fragment]) -> Fragment:
    first = tiles[0]
    row = np.concatenate([tile.row + index * first.rows for index, tile in enumerate(tiles)], axis=1)
    col = np.concatenate([np.broadcast_to(tile.col, tile.row.shape) for tile in tiles], axis=1)
    return Fragment(first.rows * len(tiles), first.cols, first.per_register, row, col)


def pack(held: NDArray, bits: int = 0) -> NDArray[np.uint32]:
    """(32, elements) of 8, 16 or 32-bit elements -> (32, registers) 32-bit registers, first element in the lowest bits.

    ``bits`` below 8 takes that many low bits of each element (4 for s4 and u4, 1 for b1).
    """
    bits = bits or held.dtype.itemsize * 8
    raw = held.view(f"u{held.dtype.itemsize}").astype(np.uint32) & np.uint32((1 << bits) - 1)
    per_register = 32 // bits
    grouped = raw.reshape(LANES, -1, per_register)
    shifts = np.arange(per_register, dtype=np.uint32) * np.uint32(bits % 32)
    return np.bitwise_or.reduce(grouped << shifts, axis=2)


def unpack(registers: NDArray[np.uint32], dtype: np.dtype | type) -> NDArray:
    """(32, registers) 32-bit registers -> (32, elements) of ``dtype`` (8, 16 or 32 bits)."""
    dtype = np.dtype(dtype)
    bits = dtype.itemsize * 8
    per_register = 32 // bits
    shifts = np.arange(per_register, dtype=np.uint32) * np.uint32(bits % 32)
    parts = registers[:, :, None] >> shifts & np.uint32((1 << bits) - 1)
    return parts.reshape(LANES, -1).astype(f"u{bits // 8}").view(dtype)
