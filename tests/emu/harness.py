"""Running PTX and CUDA text in tests, with as little around it as possible."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rawflash import emu

SPELLING = re.compile(r"(?:^|[;{}]|@!?%\w+)\s*([a-z][a-z0-9]*(?:\.[\w:]+)*)(?=\s|;)", re.M)
EXECUTED: set[str] = set()  # every instruction spelling of a module that a test of this process compiled
VERSION = ".version 8.8\n.target sm_90\n.address_size 64\n"


def entry(name: str, params: list[str], body: str, registers: str = "", directives: str = "") -> str:
    """A ``.visible .entry``. ``params`` are names of 64-bit pointers, each loaded into ``%p_<name>`` first.

    Registers declared: ``%r<99>`` b32, ``%d<99>`` b64, ``%h<99>`` b16, ``%p<99>`` pred, and whatever ``registers`` adds.
    """
    declared = ", ".join(f".param .u64 {name}_{p}" for p in params)
    loads = "\n".join(f"  .reg .b64 %p_{p};\n  ld.param.u64 %p_{p}, [{name}_{p}];" for p in params)
    return f"""
.visible .entry {name}({declared}) {directives}
{{
  .reg .b32 %r<99>;
  .reg .b64 %d<99>;
  .reg .b16 %h<99>;
  .reg .pred %p<99>;
{registers}
{loads}
{body}
  ret;
}}
"""


def module(code: str, **kwargs: Any) -> Any:
    """``emu.RawModule``; PTX without a header gets one."""
    if ".entry" in code and not code.lstrip().startswith(".version"):
        code = VERSION + code
    return _noted(emu.RawModule(code=code, **kwargs))


def _noted(mod: Any) -> Any:
    EXECUTED.update(SPELLING.findall(re.sub(r"//.*", "", mod.ptx)))
    return mod


def cuda(code: str, *options: str, **kwargs: Any) -> Any:
    """A module of CUDA C++ text with line information, so that errors and counters speak of its lines."""
    return _noted(emu.RawModule(code=code, options=("-lineinfo", *options), **kwargs))


def launch(mod: Any, name: str, grid: Any, block: Any, *args: Any, shared_mem: int = 0) -> Any:
    """Launch and return the report; ``grid`` and ``block`` may be plain integers."""
    kernel = mod.get_function(name)
    return kernel(_triple(grid), _triple(block), args, shared_mem=shared_mem)


def _triple(shape: Any) -> tuple[int, int, int]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return (*sizes, *(1,) * (3 - len(sizes)))  # type: ignore[return-value]


def line_of(source: str, tag: str) -> int:
    """The 1-based line of ``source`` that carries the comment ``// <tag>``."""
    found = [number for number, line in enumerate(source.splitlines(), 1) if line.rstrip().endswith(f"// {tag}")]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lines carry the tag {tag!r}")
    return found[0]


def zeros(shape: Any, dtype: Any) -> np.ndarray:
    """An initialised array in the emulator's memory."""
    return emu.asarray(np.zeros(shape, dtype))
