"""What a device of an architecture accepts (CUDA C++ Programming Guide, technical specifications per compute capability)."""

from __future__ import annotations

from dataclasses import dataclass

from rawflash.emu.errors import ResourceLimit


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes; registers are 32-bit."""

    threads_per_cta: int = 1024
    cta: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    shared_default: int = 48 * 1024
    shared_optin: int = 99 * 1024
    registers: int = 65536
    registers_per_thread: int = 255


_OPTIN_KB = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}


def limits_of(arch: int) -> Limits:
    """``arch`` as a number, 80 for sm_80. An unknown architecture gets the limits of the nearest older one."""
    known = [a for a in _OPTIN_KB if a <= arch]
    return Limits(shared_optin=1024 * _OPTIN_KB[max(known)] if known else 48 * 1024)


def check_geometry(kernel: str, grid: tuple[int, int, int], cta: tuple[int, int, int], limits: Limits, max_threads: int) -> None:
    """Raise ResourceLimit for a grid or CTA that no device would start."""
    for name, value, limit in (("grid", grid, limits.grid), ("block", cta, limits.cta)):
        for axis, n, top in zip("xyz", value, limit, strict=True):
            if n < 1:
                raise ResourceLimit(
                    f"{name}.{axis} = {n} for kernel '{kernel}': it must be at least 1; skip the launch when there is nothing to do"
                )
            if n > top:
                raise ResourceLimit(f"{name}.{axis} = {n} for kernel '{kernel}' exceeds the limit of {top}")
    threads = cta[0] * cta[1] * cta[2]
    if threads > min(limits.threads_per_cta, max_threads):
        most = min(limits.threads_per_cta, max_threads)
        raise ResourceLimit(f"{threads} threads per block ({cta[0]} x {cta[1]} x {cta[2]}) for kernel '{kernel}' exceed {most}")


def check_shared(kernel: str, static: int, dynamic: int, opted_in: int, limits: Limits) -> None:
    """CuPy's rule: above 48 KB in all, the dynamic part must have been opted in, up to the architecture's limit."""
    if dynamic < 0:
        raise ResourceLimit(f"shared_mem = {dynamic} for kernel '{kernel}': it must not be negative")
    total = static + dynamic
    if total > limits.shared_optin:
        raise ResourceLimit(
            f"kernel '{kernel}' needs {total} bytes of shared memory ({static} static + {dynamic} dynamic), "
            f"the architecture offers {limits.shared_optin} per block"
        )
    if total > limits.shared_default and dynamic > opted_in:
        raise ResourceLimit(
            f"kernel '{kernel}' needs {total} bytes of shared memory, more than the default {limits.shared_default}: "
            f"it opted in to {opted_in} dynamic bytes, set kernel.max_dynamic_shared_size_bytes = {dynamic} first"
        )
