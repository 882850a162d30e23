"""What an L2 cache of a given size would let through to DRAM: modelled (rawflash/emu/machine/l2.py says what the model is)."""

from __future__ import annotations

from rawflash import emu
from rawflash.backends.base import bind_plan
from rawflash.compile import compile_source
from rawflash.lab import Lab
from rawflash.problem import Problem, make_inputs
from rawflash.source import read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["dram_bytes"]


def dram_bytes(lab: Lab, kernel: str, problem: Problem, tiling: Tiling, l2_bytes: int) -> int:
    """Modelled DRAM bytes, reads + writes, of `kernel` behind an L2 of `l2_bytes`.

    Every launch starts with an empty cache and writes back what is dirty when it ends.
    """
    variant = LADDER[kernel]

    def count() -> int:
        plan = variant.plan(problem, tiling)
        compiled = compile_source(read_source(variant.file), plan.defines, lab.gpu.arch)
        module = emu.RawModule(code=compiled.ptx, arch=compiled.arch, params=emu.EmuParams(l2=emu.L2Params(l2_bytes)))
        arrays = {name: emu.asarray(x) for name, x in make_inputs(problem).items()}
        arrays |= {name: emu.empty(shape, dtype) for name, (shape, dtype) in plan.buffers.items()}
        moved = [launch().l2 for launch in bind_plan(module, plan, arrays)]
        return sum(l2.dram_read_bytes + l2.dram_write_bytes + l2.flush_read_bytes + l2.flush_write_bytes for l2 in moved)

    return int(lab.remember(["dram", kernel, repr(problem), repr(tiling), l2_bytes, lab.gpu.arch], count, [variant.file]))
