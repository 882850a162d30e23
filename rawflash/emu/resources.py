"""Registers, spills and memory of kernels, as ptxas inside NVRTC reports them; no GPU is needed for that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rawflash.emu import nvrtc

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SMEM = re.compile(r"(?P<smem>\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Per thread: registers (32-bit), stack and spill bytes. Per CTA: static shared memory in bytes."""

    registers: int
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0


def parse_ptxas_log(log: str) -> dict[str, Resources]:
    """Kernel name -> figures, from the output of ``--ptxas-options=-v``."""
    found: dict[str, Resources] = {}
    parts = _ENTRY.split(log)
    for k in range(1, len(parts), 3):
        name, text = parts[k], parts[k + 2]
        used, stack, smem = _USED.search(text), _STACK.search(text), _SMEM.search(text)
        if used is not None:
            found[name] = Resources(
                int(used["registers"]),
                int(stack["stack"]) if stack else 0,
                int(stack["stores"]) if stack else 0,
                int(stack["loads"]) if stack else 0,
                int(smem["smem"]) if smem else 0,
            )
    return found


def kernel_resources(source: str, options: Sequence[str], arch: int, name_expressions: Sequence[str] = ()) -> dict[str, Resources]:
    """Compile for the real architecture and read ptxas's report."""
    kept = [o for o in options if not o.startswith(("-arch", "--gpu-architecture"))]
    compiled = nvrtc.compile_cubin(source, "rawmodule.cu", [*kept, f"-arch=sm_{arch}", "--ptxas-options=-v"], name_expressions)
    return parse_ptxas_log(compiled.log)
