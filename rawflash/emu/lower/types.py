"""PTX types -> LLVM element types, and the constants that PTX operands denote."""

from __future__ import annotations

LLVM = {
    "pred": "i1",
    "b8": "i8", "u8": "i8", "s8": "i8",
    "b16": "i16", "u16": "i16", "s16": "i16", "f16": "half", "bf16": "bfloat",
    "b32": "i32", "u32": "i32", "s32": "i32", "f32": "float", "f16x2": "i32", "bf16x2": "i32", "tf32": "i32",
    "b64": "i64", "u64": "i64", "s64": "i64", "f64": "double", "f32x2": "i64",
    "b128": "i128",
}  # fmt: skip

# How a register of a declared type is kept: halves and packed types as plain bits.
REGISTER = {"f16": "i16", "bf16": "i16"}

BYTES = {
    "pred": 1,
    "b8": 1, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "e4m3x2": 2, "e5m2x2": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8,
    "b128": 16,
}  # fmt: skip


def llvm_type(ptx_type: str) -> str:
    """LLVM element type of an instruction's PTX type."""
    return LLVM[ptx_type]


def register_type(ptx_type: str) -> str:
    """LLVM element type in which a register of that declared type is kept."""
    return REGISTER.get(ptx_type, LLVM[ptx_type])


def is_signed(ptx_type: str) -> bool:
    return ptx_type.startswith("s") and ptx_type[1:].isdigit()
