"""What a kernel says of itself, under the names of ``cupy.RawKernel``'s attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rawflash.emu.errors import ResourceLimit
from rawflash.emu.launch import Compiled
from rawflash.emu.lower.symbols import size_of
from rawflash.emu.machine.limits import limits_of
from rawflash.emu.ptx.tree import Function

if TYPE_CHECKING:
    from rawflash.emu.module import RawModule


class KernelAttributes:
    """Figures of one kernel: from ptxas where the source is known, else from the PTX and its lowering.

    A kernel sets ``_module``, ``_function`` and ``_opted_in``, the dynamic shared memory in bytes that a launch may ask for (0: 48 KiB
    less the static), and brings ``compile``.
    """

    _module: RawModule
    _function: Function
    _opted_in: int

    @property
    def name(self) -> str:
        return self._function.name

    def compile(self, block: int | Sequence[int] = 32) -> Compiled:
        """Machine code of the kernel, whose lowering knows its memory."""
        raise NotImplementedError

    @property
    def attributes(self) -> dict[str, int | None]:
        names = (
            "max_threads_per_block", "shared_size_bytes", "const_size_bytes", "local_size_bytes", "num_regs", "ptx_version",
            "binary_version", "max_dynamic_shared_size_bytes", "cache_mode_ca", "preferred_shared_memory_carveout",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    @property
    def num_regs(self) -> int | None:
        """Registers per thread (ptxas); None for a module loaded from PTX text."""
        r = self._module.resources(self.name)
        return r.registers if r is not None else None

    @property
    def local_size_bytes(self) -> int:
        """Stack frame in bytes per thread: ptxas's figure, or the declared local memory for PTX text."""
        r = self._module.resources(self.name)
        return r.stack_bytes if r is not None else self.compile().lowered.symbols.local_bytes

    @property
    def shared_size_bytes(self) -> int:
        """Static shared memory in bytes."""
        return self.compile().lowered.symbols.static_shared

    @property
    def const_size_bytes(self) -> int:
        """Bytes of the module's ``__constant__`` variables."""
        return sum(size_of(v) for v in self._module.tree.variables.values() if v.space == "const")

    @property
    def max_threads_per_block(self) -> int:
        most = self._function.directives.get("maxntid")
        return int(np.prod(most)) if most else 1024

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._opted_in or 48 * 1024 - self.shared_size_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        limits = limits_of(self._module.arch)
        if not 0 <= value <= limits.shared_optin - self.shared_size_bytes:
            raise ResourceLimit(
                f"max_dynamic_shared_size_bytes = {value} for kernel '{self.name}': sm_{self._module.arch} offers "
                f"{limits.shared_optin} bytes per block, "
                f"{self.shared_size_bytes} of them taken by static shared memory"
            )
        self._opted_in = int(value)

    @property
    def preferred_shared_memory_carveout(self) -> int:
        return -1

    @property
    def cache_mode_ca(self) -> int:
        return 0

    @property
    def ptx_version(self) -> int:
        major, minor = self._module.tree.version
        return 10 * major + minor

    @property
    def binary_version(self) -> int:
        return self._module.arch
