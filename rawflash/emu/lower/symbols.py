"""Where every named variable lives: static shared memory, the local frame, module variables, kernel parameters, functions."""

from __future__ import annotations

from dataclasses import dataclass, field

from rawflash.emu.errors import PtxSyntaxError
from rawflash.emu.lower.layout import FUNCTION_WINDOW
from rawflash.emu.lower.types import BYTES
from rawflash.emu.ptx.tree import Function, Module, Variable


def size_of(v: Variable) -> int:
    """Bytes of a variable; 0 for an extern array of unknown extent."""
    size = BYTES[v.type] * v.vector
    for extent in v.dims:
        size *= extent
    return size


def alignment_of(v: Variable) -> int:
    return max(v.align or 0, BYTES[v.type] * v.vector)


def round_up(value: int, to: int) -> int:
    return -(-value // to) * to


@dataclass
class Symbols:
    """Resolved names of one kernel.

    ``resolve`` gives a kind and a number: shared/dynamic/local/param -> byte offset, module -> index into the table of
    module variables, function -> handle.
    """

    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    module_names: list[str] = field(default_factory=list)
    module_spaces: list[str] = field(default_factory=list)
    static_shared: int = 0
    local_bytes: int = 0
    param_bytes: int = 0
    private: set[str] = field(default_factory=set)
    params: tuple[Variable, ...] = ()
    param_offsets: list[int] = field(default_factory=list)

    def resolve(self, name: str, line: int) -> tuple[str, int]:
        if name not in self.places:
            raise PtxSyntaxError(f"'{name}' is not declared", line=line)
        return self.places[name]

    def module_space(self, index: int) -> str:
        return self.module_spaces[index]


def layout_symbols(module: Module, kernel: Function) -> Symbols:
    """Place the variables of a kernel whose calls are already inlined (``kernel.variables`` holds every frame)."""
    s = Symbols(params=kernel.params)
    for variable in module.variables.values():
        if variable.space != "shared":
            s.places[variable.name] = ("module", len(s.module_names))
            s.module_names.append(variable.name)
            s.module_spaces.append(variable.space)
    dynamic: list[Variable] = []
    for variable in [*module.variables.values(), *kernel.variables.values()]:
        if variable.space == "shared":
            if variable.linkage == "extern" or 0 in variable.dims:
                dynamic.append(variable)
                continue
            offset = round_up(s.static_shared, alignment_of(variable))
            s.places[variable.name] = ("shared", offset)
            s.static_shared = offset + size_of(variable)
        elif variable.space in ("local", "param") and variable.name in kernel.variables:
            offset = round_up(s.local_bytes, max(alignment_of(variable), 4))
            s.places[variable.name] = ("local", offset)
            s.private.add(variable.name)
            s.local_bytes = offset + size_of(variable)
        elif variable.space in ("global", "const") and variable.name in kernel.variables:
            raise PtxSyntaxError(
                f"variable '{variable.name}' of space {variable.space} inside a function is not supported", line=variable.line
            )
    for variable in dynamic:
        s.places[variable.name] = ("dynamic", round_up(s.static_shared, max(16, alignment_of(variable))))
    for parameter in kernel.params:
        offset = round_up(s.param_bytes, alignment_of(parameter))
        s.places[parameter.name] = ("param", offset)
        s.param_offsets.append(offset)
        s.param_bytes = offset + size_of(parameter)
    for handle, name in enumerate(module.functions, start=1):
        s.places.setdefault(name, ("function", FUNCTION_WINDOW | handle))
    s.local_bytes = round_up(s.local_bytes, 16)
    return s
