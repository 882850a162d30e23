"""Warp-level matrix instructions (PTX ISA 9.7.14.5): mma.sync, ldmatrix, stmatrix, movmatrix.

Who holds what is in fragments.py, the arithmetic in tiles.py (with what silicon may do otherwise). All of them need the 32
lanes of a warp together; with synccheck a warp that has lost some is a BadMask error. ldmatrix and stmatrix travel through
lower/rows.py: each 8x8 matrix is eight 16-byte rows and costs one wavefront when they fall into distinct banks.
"""

from __future__ import annotations

from rawflash.emu.fragments import parse_shape
from rawflash.emu.isa.registry import Mods, op
from rawflash.emu.isa.tiles import Tile, multiply, word
from rawflash.emu.lower import rows
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import BITS, LANES, Value
from rawflash.emu.lower.layout import SHARED_WINDOW
from rawflash.emu.ptx.tree import Address, Instruction, Operand, Reg, Vector

REGISTER = {"double": "f64", "float": "f32", "i32": "b32"}
COUNT, SPACE = "{count:x1|x2|x4}", "{space:shared|shared::cta}"
ROWS = f"m8n8.{COUNT}[.trans][.{SPACE}].b16"


def require_whole_warp(b: WarpBuilder) -> None:
    """All 32 lanes execute the instruction, or the launch stops."""
    if b.has_full_mask or not b.params.synccheck:
        return
    missing = b.bin("xor", b.lane_mask(), b.i32(-1))
    lane = b.bin("and", b.first_lane(missing), b.i32(31))
    b.fail_if(b.cmp("icmp ne", missing, b.i32(0)), "bad_mask", lane, aux=b.i64(3))


def items(operand: Operand) -> tuple[Operand | None, ...]:
    """The registers of ``{a, b}`` or of a bare register."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def read_registers(b: WarpBuilder, operand: Operand, ty: str, count: int) -> list[Value]:
    """``count`` registers of LLVM type ``ty`` as vectors of 32 lanes."""
    found = items(operand)
    if len(found) != count:
        raise b.unsupported(f"an operand has {len(found)} registers where this form takes {count}")
    return [b.splat(b.src(item, REGISTER[ty])) for item in found if item is not None]


def write_registers(b: WarpBuilder, operand: Operand, values: list[Value]) -> None:
    found = items(operand)
    if len(found) != len(values):
        raise b.unsupported(f"the destination has {len(found)} registers where this form gives {len(values)}")
    for target, v in zip(found, values, strict=True):
        b.write(target, v)


# ------------------------------------------------------------------------------------------------------------------ mma
@op(
    "mma.sync.aligned.{shape:m16n8k8|m16n8k16}.row.col.{d:f16}.{a:f16}.{b:f16}.{c:f16}",
    "mma.sync.aligned.{shape:m16n8k8|m16n8k16}.row.col.{d:f32}.{a:f16}.{b:f16}.{c:f32}",
    "mma.sync.aligned.{shape:m16n8k8|m16n8k16}.row.col.{d:f32}.{a:bf16}.{b:bf16}.{c:f32}",
    "mma.sync.aligned.{shape:m16n8k4|m16n8k8}.row.col.{d:f32}.{a:tf32}.{b:tf32}.{c:f32}",
    "mma.sync.aligned.{shape:m16n8k16|m16n8k32}.row.col.{d:f32}.{a:e4m3|e5m2}.{b:e4m3|e5m2}.{c:f32}",
    "mma.sync.aligned.{shape:m16n8k16|m16n8k32}.row.col.{d:f16}.{a:e4m3|e5m2}.{b:e4m3|e5m2}.{c:f16}",
    "mma.sync.aligned.{shape:m8n8k4|m16n8k4|m16n8k8|m16n8k16}.row.col.{d:f64}.{a:f64}.{b:f64}.{c:f64}[.rn]",
    "mma.sync.aligned.{shape:m8n8k4|m16n8k4|m16n8k8|m16n8k16}.row.col.rn.{d:f64}.{a:f64}.{b:f64}.{c:f64}",
    "mma.sync.aligned.{shape:m8n8k16|m16n8k16|m16n8k32}.row.col[.satfinite].{d:s32}.{a:s8|u8}.{b:s8|u8}.{c:s32}",
    "mma.sync.aligned.{shape:m8n8k16|m16n8k16|m16n8k32}.row.col.{d:s32}.{a:s8|u8}.{b:s8|u8}.{c:s32}.satfinite",
    "mma.sync.aligned.{shape:m8n8k32|m16n8k32|m16n8k64}.row.col[.satfinite].{d:s32}.{a:s4|u4}.{b:s4|u4}.{c:s32}",
    "mma.sync.aligned.{shape:m8n8k32|m16n8k32|m16n8k64}.row.col.{d:s32}.{a:s4|u4}.{b:s4|u4}.{c:s32}.satfinite",
    "mma.sync.aligned.{shape:m8n8k128|m16n8k128|m16n8k256}.row.col.{d:s32}.{a:b1}.{b:b1}.{c:s32}.{logic:xor|and}.popc",
    varying=True,
)
def mma(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    rows_m, _, k = parse_shape(m["shape"])
    tile = Tile(rows_m, k, m["a"], m["b"], m["c"], m["d"], "satfinite" in i.mods, m.get("logic", ""))
    a, bb, c = (
        read_registers(b, i.operands[1 + n], word(getattr(tile, operand)), tile.registers(operand)) for n, operand in enumerate("abc")
    )
    write_registers(b, i.operands[0], multiply(b, tile, a, bb, c))


# ---------------------------------------------------------------------------------------------------- 8x8 matrices of 16 bits
def transpose(b: WarpBuilder, register: Value) -> Value:
    """An 8x8 matrix of 16-bit elements, spread over a warp, with rows and columns exchanged."""
    halves = b.define(f"bitcast {register.typed} to <64 x i16>", "i16", 64)
    turned = b.shuffle(halves, None, [8 * (n % 8) + n // 8 for n in range(64)])
    return b.define(f"bitcast {turned.typed} to <{LANES} x i32>", "i32", LANES)


def _row_addresses(b: WarpBuilder, operand: Operand, space: str | None) -> Value:
    """The lanes' addresses in shared memory; 32 bits wide if the register is, which halves the work of checking them."""
    address = b.address(operand)
    base = operand.base if isinstance(operand, Address) else operand
    if space is None and b.symbol_space(base) is None:
        return b.splat(b.bin("sub", address, b.const("i64", SHARED_WINDOW)))
    narrow = isinstance(base, Reg) and BITS[b.read_register(base.name).ty] == 32
    return b.splat(b.resize(address, "i32") if narrow else address)


@op(f"ldmatrix.sync.aligned.{ROWS}", varying=True)
def ldmatrix(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    loaded = rows.load_rows(b, "shared", _row_addresses(b, i.operands[1], m["space"]), int(m["count"][1:]))
    write_registers(b, i.operands[0], [transpose(b, v) for v in loaded] if "trans" in i.mods else loaded)


@op(f"stmatrix.sync.aligned.{ROWS}")
def stmatrix(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    count = int(m["count"][1:])
    values = read_registers(b, i.operands[1], "i32", count)
    rows.store_rows(b, _row_addresses(b, i.operands[0], m["space"]), [transpose(b, v) for v in values] if "trans" in i.mods else values)


@op("movmatrix.sync.aligned.m8n8.trans.b16", varying=True)
def movmatrix(b: WarpBuilder, i: Instruction, m: Mods) -> None:
    require_whole_warp(b)
    b.write(i.operands[0], transpose(b, b.splat(b.src(i.operands[1], "b32"))))
