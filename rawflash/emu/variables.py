"""Module variables (``__device__``, ``__constant__``, string literals) in device memory, with their initial values."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.lower.layout import CONST_WINDOW, FUNCTION_WINDOW
from rawflash.emu.lower.symbols import size_of
from rawflash.emu.lower.types import BYTES
from rawflash.emu.machine.arena import Allocation, Arena
from rawflash.emu.ptx.tree import Imm, Module, Symbol, Variable


class ModuleVariables:
    """Allocations of a module's variables, freed with the module object."""

    def __init__(self, module: Module, arena: Arena):
        self.arena = arena
        self.allocations: dict[str, Allocation] = {}
        self.variables = [v for v in module.variables.values() if v.space != "shared"]
        self.spaces = {v.name: v.space for v in self.variables}
        for v in self.variables:
            self.allocations[v.name] = arena.allocate(size_of(v), initialised=True)
            arena.view(self.allocations[v.name])[:] = 0
        handles = {name: FUNCTION_WINDOW | n for n, name in enumerate(module.functions, start=1)}
        for v in self.variables:
            if v.init is not None:
                data = self._initial(v, handles)
                arena.view(self.allocations[v.name])[: len(data)] = np.frombuffer(data, np.uint8)
            self.allocations[v.name].read_only = v.space == "const"
        self.table: NDArray[np.int64] = np.array([self.allocations[v.name].lo for v in self.variables] or [0], np.int64)

    def _initial(self, v: Variable, handles: dict[str, int]) -> bytes:
        width = BYTES[v.type]
        out = bytearray()
        for item in v.init or ():
            if isinstance(item, Symbol):
                out += self._address(item, handles, v, width)
            elif isinstance(item, Imm):
                out += (item.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        return bytes(out[: size_of(v)])

    def _address(self, item: Symbol, handles: dict[str, int], v: Variable, width: int) -> bytes:
        if item.name in self.allocations:
            value = self.allocations[item.name].lo + item.offset
            if self.spaces[item.name] == "const":  # written generic(name) by every compiler
                value += CONST_WINDOW
        elif item.name in handles:
            value = handles[item.name]
        else:
            raise PtxSyntaxError(f"variable '{v.name}' is initialised with the address of unknown '{item.name}'", line=v.line)
        mask = getattr(item, "mask", None)
        if mask is not None:  # 0xff00(sym): the masked byte, shifted down
            shift = (mask & -mask).bit_length() - 1
            value = (value & mask) >> shift
        return struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)[:width]

    def close(self) -> None:
        for a in self.allocations.values():
            self.arena.free(a.lo)
        self.allocations.clear()
