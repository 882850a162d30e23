"""Python arguments -> the kernel's parameter block, with CuPy's rules, and an error where a GPU would corrupt silently."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.errors import ArgumentMismatch
from rawflash.emu.lower.symbols import Symbols, size_of
from rawflash.emu.lower.types import BYTES
from rawflash.emu.machine.arena import Allocation, Arena
from rawflash.emu.ptx.tree import Variable


@dataclass
class Staged:
    """A foreign NumPy buffer copied into device memory for one launch, and written back after it."""

    owner: NDArray[Any]
    low: int
    size: int
    allocation: Allocation


@dataclass
class Bound:
    """The parameter block and what its pointers point to."""

    block: bytearray
    staged: dict[int, Staged] = field(default_factory=dict)
    pointers: dict[int, tuple[int, str]] = field(default_factory=dict)  # lowest address of an allocation -> (argument, name)
    writable: dict[int, bool] = field(default_factory=dict)  # the same -> some argument may be written through


def _bounds(a: NDArray[Any]) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(a) if a.size else (a.ctypes.data, a.ctypes.data)
    return int(low), int(high)


def bind_arguments(kernel: str, symbols: Symbols, args: tuple[Any, ...], arena: Arena) -> Bound:
    """Check and lay out the arguments. Foreign arrays are staged; the caller must ``write_back`` and free them."""
    if len(args) != len(symbols.params):
        raise ArgumentMismatch(f"kernel '{kernel}' takes {len(symbols.params)} arguments, {len(args)} were given")
    bound = Bound(bytearray(symbols.param_bytes))
    try:
        for n, (arg, parameter, offset) in enumerate(zip(args, symbols.params, symbols.param_offsets, strict=True)):
            data = _encode(kernel, n, arg, parameter, arena, bound)
            bound.block[offset : offset + len(data)] = data
    except Exception:
        release(bound, arena)
        raise
    return bound


def _encode(kernel: str, n: int, arg: Any, p: Variable, arena: Arena, bound: Bound) -> bytes:
    where = f"argument {n} of kernel '{kernel}'"
    size = size_of(p)
    if isinstance(arg, np.ndarray) and arg.dtype.kind == "O":
        raise ArgumentMismatch(f"{where} is an array of Python objects; pass an array of numbers")
    if isinstance(arg, np.ndarray) and not (arg.ndim == 0 and arg.dtype.kind == "V"):
        if size != 8 or p.dims:
            raise ArgumentMismatch(f"{where} is an array, but parameter '{p.name}' is a {_describe(p)}, not a pointer")
        return struct.pack("<Q", _pointer(arg, n, p, arena, bound, where))
    if arg is None:
        data = bytes(8)
        kind = "pointer"
    elif hasattr(arg, "ptr") and hasattr(arg, "size") and not isinstance(arg, np.generic):
        address = int(arg.ptr)
        found = arena.find(address)
        if found is not None:
            bound.pointers.setdefault(found.lo, (n, p.name))
        return struct.pack("<Q", address)
    elif isinstance(arg, bool | np.bool_):
        data, kind = bytes([bool(arg)]), "int"
    elif isinstance(arg, int):
        if not -(1 << 63) <= arg < 1 << 64:
            raise ArgumentMismatch(f"{where} = {arg} does not fit into 64 bits")
        data, kind = struct.pack("<q" if arg < 0 else "<Q", arg), "int"
    elif isinstance(arg, float):
        data, kind = struct.pack("<d", arg), "float"
    elif isinstance(arg, complex):
        data, kind = struct.pack("<dd", arg.real, arg.imag), "struct"
    elif isinstance(arg, np.generic | np.ndarray):
        data = arg.tobytes()
        kind = {"i": "int", "u": "int", "f": "float", "b": "int"}.get(arg.dtype.kind, "struct")
    elif isinstance(arg, bytes | ctypes.Structure):
        data, kind = bytes(arg), "struct"
    else:
        raise ArgumentMismatch(f"{where} is a {type(arg).__name__}; pass a NumPy array, a NumPy scalar, an int or a float")
    _check_scalar(where, arg, data, kind, p, size)
    return data


def _describe(p: Variable) -> str:
    return f"{size_of(p)}-byte struct" if p.dims else f".{p.type} ({BYTES[p.type] * p.vector} bytes)"


def _check_scalar(where: str, arg: Any, data: bytes, kind: str, p: Variable, size: int) -> None:
    shown = f"{'Python ' if isinstance(arg, int | float) and not isinstance(arg, np.generic) else ''}{type(arg).__name__}"
    if len(data) != size:
        hint = (
            " wrap it, e.g. numpy.float32(x) or numpy.int32(n)" if isinstance(arg, int | float) and not isinstance(arg, np.generic) else ""
        )
        raise ArgumentMismatch(
            f"{where} is a {shown} of {len(data)} bytes, but parameter '{p.name}' is a {_describe(p)};{hint or ' pass one of that size'}"
        )
    if p.dims or kind in ("struct", "pointer"):
        return
    wants_float = p.type in ("f32", "f64", "f16", "bf16")
    if p.type.startswith(("f", "s", "u")) and wants_float != (kind == "float"):
        half = size == 2  # halves are declared .b16 or .u16 by some front ends
        if not half:
            raise ArgumentMismatch(f"{where} is a {shown}, but parameter '{p.name}' is a {_describe(p)}; its bits would be misread")


def _pointer(arg: NDArray[Any], n: int, p: Variable, arena: Arena, bound: Bound, where: str) -> int:
    address = int(arg.ctypes.data)
    if arg.size and not arg.flags.c_contiguous:
        raise ArgumentMismatch(
            f"{where} is not C-contiguous (strides {arg.strides}); a kernel sees only the pointer: "
            "pass numpy.ascontiguousarray(x), or the base array and the strides as arguments"
        )
    if arena.contains(address):
        found = arena.find(address)
        if found is None:
            raise ArgumentMismatch(f"{where} points into freed device memory")
        bound.writable[found.lo] = bound.writable.get(found.lo, False) or arg.flags.writeable
        bound.pointers.setdefault(found.lo, (n, p.name))
        return address
    owner = arg
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    staged = bound.staged.get(id(owner))
    if staged is None:
        low, high = _bounds(owner)
        allocation = arena.allocate(high - low, initialised=True)
        allocation.read_only = not owner.flags.writeable
        if high > low:
            ctypes.memmove(allocation.lo, low, high - low)
        staged = bound.staged[id(owner)] = Staged(owner, low, high - low, allocation)
    bound.pointers.setdefault(staged.allocation.lo, (n, p.name))
    return staged.allocation.lo + (address - staged.low)


def write_back(bound: Bound) -> None:
    """Copy staged buffers back to their owners."""
    for s in bound.staged.values():
        if s.size and not s.allocation.read_only:
            ctypes.memmove(s.low, s.allocation.lo, s.size)


def release(bound: Bound, arena: Arena) -> None:
    """Free the staging memory."""
    for s in bound.staged.values():
        arena.free(s.allocation.lo)
