"""How many CTAs of a kernel an SM holds at once: CUDA's allocation rules, in arithmetic. Modelled, never measured.

An SM hands out five things, and a CTA needs some of each; the scarcest decides (NVIDIA's cuda_occupancy.h states the same rules, and a
test runs that header beside this module):

    warps       whole ones, up to threads_sm / 32
    registers   per warp in units of 256, from the quarter of the register file beside the scheduler that owns the warp
    SMEM        per CTA in units of 128 bytes (256 before compute capability 8.0), 1 KiB of it the driver's own from 8.0 on
    slots       ctas_sm
    threads     1024 at most in one CTA, 255 registers at most in one thread: a kernel beyond that does not start at all
"""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.errors import UsageError
from rawflash.roofline import Gpu
from rawflash.tiling import ceil_div

__all__ = ["Occupancy", "occupancy"]

_LANES = 32
_CTA_THREADS = 1024
_CTA_REGISTERS = 65536
_THREAD_REGISTERS = 255
_REGISTER_UNIT = 256  # registers per warp are handed out in these
_QUARTERS = 4  # schedulers of an SM, each with a quarter of its registers


@dataclass(frozen=True)
class Occupancy:
    """What an SM holds of a kernel.

    ctas, warps     resident at once; 0 when not even one CTA fits
    fraction        warps / the most warps that the SM can hold
    limits          resource -> CTAs that it alone would allow, in the order warps, registers, smem, slots (a kernel without shared
                    memory on a GPU that reserves none has no limit smem)
    limiters        the resources whose limit is `ctas`
    cta_registers   registers handed out per CTA, rounding included
    cta_smem_bytes  shared memory handed out per CTA, rounding and the driver's share included
    """

    ctas: int
    warps: int
    fraction: float
    limits: dict[str, int]
    limiters: tuple[str, ...]
    cta_registers: int
    cta_smem_bytes: int


def occupancy(gpu: Gpu, threads: int, registers: int, smem_bytes: int) -> Occupancy:
    """Occupancy of a kernel with CTAs of `threads`, `registers` per thread and `smem_bytes` (static + dynamic) per CTA.

    Raises UsageError for numbers that no kernel has. Source of the rules: cuda_occupancy.h of CUDA 13, the CUDA C++ programming
    guide's tables per compute capability.
    """
    if threads < 1 or registers < 0 or smem_bytes < 0:
        told = f"threads={threads}, registers={registers}, smem_bytes={smem_bytes}"
        raise UsageError(f"{told} describe no kernel: give at least one thread and nothing negative")
    warps = ceil_div(threads, _LANES)
    most_warps = gpu.threads_sm // _LANES
    smem_unit = 128 if int(gpu.arch) >= 80 else 256
    warp_registers = ceil_div(registers * _LANES, _REGISTER_UNIT) * _REGISTER_UNIT
    cta_smem = ceil_div(smem_bytes + gpu.smem_reserved_bytes, smem_unit) * smem_unit
    limits = {"warps": most_warps // warps if threads <= _CTA_THREADS else 0}
    limits["registers"] = _by_registers(gpu, warps, warp_registers, registers)
    if cta_smem:
        limits["smem"] = gpu.smem_sm_bytes // cta_smem if smem_bytes <= gpu.smem_block_bytes else 0
    limits["slots"] = gpu.ctas_sm
    ctas = min(limits.values())
    return Occupancy(
        ctas=ctas,
        warps=ctas * warps,
        fraction=ctas * warps / most_warps if most_warps else 0.0,
        limits=limits,
        limiters=tuple(name for name, limit in limits.items() if limit == ctas),
        cta_registers=warp_registers * warps,
        cta_smem_bytes=cta_smem,
    )


def _by_registers(gpu: Gpu, warps: int, warp_registers: int, registers: int) -> int:
    """CTAs whose warps find registers in the quarters; the check at launch rounds a CTA's warps up to whole quarters."""
    if registers > _THREAD_REGISTERS or warp_registers * ceil_div(warps, _QUARTERS) * _QUARTERS > _CTA_REGISTERS:
        return 0
    if not warp_registers:
        return gpu.threads_sm // _LANES // warps
    return gpu.regs_sm // _QUARTERS // warp_registers * _QUARTERS // warps
