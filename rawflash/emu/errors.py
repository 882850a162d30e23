"""Every error that the emulator raises on purpose.

    EmuError
    |-- NvrtcError                  the compiler refused a source: first error line, full log
    |   `-- NvrtcMissing            no libnvrtc on this machine
    |-- PtxSyntaxError              PTX that cannot be read: line and text
    |-- UnsupportedInstruction      PTX that is right but that the emulator does not execute
    |-- LaunchRefused               a launch that was not started
    |   |-- ArgumentMismatch        count, size or kind of an argument
    |   `-- ResourceLimit           grid, CTA, shared memory or registers beyond the limit
    `-- KernelFault                 a launch that was stopped: kernel, .cu line, PTX line, CTA, thread, address
        |-- MemoryFault
        |   |-- OutOfBounds         outside every allocation (or across the end of one)
        |   |-- Misaligned          address not a multiple of the access size
        |   |-- NullPointer         address in the first page
        |   `-- ReadOnlyWrite       store into constant memory or a read-only argument
        |-- UninitializedRead       bytes that nothing has written
        |-- RaceHazard              unordered accesses to the same bytes, one of them a write
        |-- SyncError
        |   |-- DivergentBarrier    a barrier that not every thread reached
        |   |-- Deadlock            nobody can go on, or a loop that does not end
        |   `-- BadMask             member mask of a warp-synchronous instruction does not fit the active lanes
        `-- Trap                    the kernel executed trap
            `-- DeviceAssert        a failed assert()

A message is one sentence that names the wrong thing and where it is, then the way out.
"""

from __future__ import annotations

from typing import Protocol

Dim3 = tuple[int, int, int]


class _Loc(Protocol):
    """A source position (see ptx.tree.Loc)."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


class EmuError(Exception):
    """Root of the tree: catch this to catch everything that the emulator raises on purpose."""


# ------------------------------------------------------------------------------------------------------- before a launch
class NvrtcError(EmuError):
    """NVRTC refused a program. ``log`` is its full output ("" when the failure is not about the source)."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class NvrtcMissing(NvrtcError):
    """No usable NVRTC library (or none of its headers) was found."""


class PtxSyntaxError(EmuError):
    """PTX text that cannot be read. ``line`` is 1-based; ``text`` is that line, or "" when unknown."""

    def __init__(self, message: str, line: int = 0, text: str = "") -> None:
        where = f"PTX line {line}: " if line else ""
        shown = text.strip() if len(text.strip()) <= 120 else text.strip()[:117] + "..."
        super().__init__(f"{where}{message}" + (f" in `{shown}`" if shown else ""))
        self.line = line
        self.text = text


class UnsupportedInstruction(EmuError):
    """An instruction the emulator does not execute. ``hint`` names the file where it would be added, or another way out."""

    def __init__(self, spelling: str, ptx_line: int = 0, loc: _Loc | None = None, hint: str = "") -> None:
        where = [f"PTX line {ptx_line}"] if ptx_line else []
        if loc is not None:
            where.append(f"{loc.file}:{loc.line}")
        at = f" ({', '.join(where)})" if where else ""
        super().__init__(f"the emulator does not execute '{spelling}'{at}" + (f"; {hint}" if hint else ""))
        self.spelling = spelling
        self.ptx_line = ptx_line
        self.loc = loc
        self.hint = hint


class LaunchRefused(EmuError):
    """A launch that was not started; the message says which argument or limit and what would be accepted."""


class ArgumentMismatch(LaunchRefused):
    """The arguments do not fit the kernel's parameters (count, size, kind, alignment, lifetime)."""


class ResourceLimit(LaunchRefused):
    """Grid, CTA, shared memory or registers exceed what the device offers or the kernel declares."""


# ------------------------------------------------------------------------------------------------------- during a launch
class KernelFault(EmuError):
    """A launch that was stopped, with the place of the first offending thread.

    Attributes: kernel; ptx_line (1-based), ptx_text; file, cu_line (None without ``-lineinfo``); ctaid, tid (x, y, z);
    space ("global", "shared", ...), address and size (bytes) of the access; detail, the part of the sentence only the
    raiser knows ("past the end of argument 2 'O' (4096 bytes) by 16").
    """

    title = "the kernel was stopped"
    advice = ""

    def __init__(
        self,
        detail: str = "",
        *,
        kernel: str = "",
        ptx_line: int = 0,
        ptx_text: str = "",
        file: str | None = None,
        cu_line: int | None = None,
        ctaid: Dim3 | None = None,
        tid: Dim3 | None = None,
        space: str | None = None,
        address: int | None = None,
        size: int | None = None,
    ) -> None:
        self.detail = detail
        self.kernel = kernel
        self.ptx_line = ptx_line
        self.ptx_text = ptx_text.strip()
        self.file = file
        self.cu_line = cu_line
        self.ctaid = ctaid
        self.tid = tid
        self.space = space
        self.address = address
        self.size = size
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        what = self.title
        access = []
        if self.size is not None:
            access.append(f"{self.size}-byte")
        if self.space is not None:
            access.append(f"{self.space} access")
        elif access:
            access.append("access")
        if self.address is not None:
            access.append(f"at {self.address:#x}")
        if access:
            what += f": {' '.join(access)}"
        if self.detail:
            what += f"{', ' if access else ': '}{self.detail}"
        where = self._where()
        text = f"{what}, {where}" if where else what
        return f"{text}. {self.advice}" if self.advice else text

    def _where(self) -> str:
        parts = []
        if self.kernel:
            parts.append(f"in kernel '{self.kernel}'")
        if self.file is not None:
            parts.append(f"at {self.file}:{self.cu_line}")
        if self.ptx_line:
            shown = f" `{self.ptx_text}`" if self.ptx_text else ""
            parts.append(f"PTX line {self.ptx_line}{shown}")
        if self.ctaid is not None:
            parts.append(f"CTA {self.ctaid}")
        if self.tid is not None:
            parts.append(f"thread {self.tid}")
        return ", ".join(parts)


class MemoryFault(KernelFault):
    """An access to an address that the kernel may not use in this way."""

    title = "invalid memory access"


class OutOfBounds(MemoryFault):
    title = "out-of-bounds access"
    advice = "Guard the index, or check the sizes of the buffers and of the dynamic shared memory."


class Misaligned(MemoryFault):
    title = "misaligned access"
    advice = "An access of n bytes needs an address that is a multiple of n; align the offset or use narrower accesses."


class NullPointer(MemoryFault):
    title = "null pointer access"
    advice = "Check that every pointer argument was given and that no pointer is used before it is assigned."


class ReadOnlyWrite(MemoryFault):
    title = "write to read-only memory"
    advice = "Constant memory and read-only arrays cannot be stored to; pass a writable array."


class UninitializedRead(KernelFault):
    title = "read of uninitialised memory"
    advice = "Write the bytes before they are read, or fill the buffer on the host."


class RaceHazard(KernelFault):
    title = "data race"
    advice = "Put a barrier between the two accesses, or use an atomic."


class SyncError(KernelFault):
    title = "wrong synchronisation"


class DivergentBarrier(SyncError):
    title = "barrier not reached by every thread"
    advice = "Move the barrier out of the divergent branch, and return early only after the last barrier."


class Deadlock(SyncError):
    title = "deadlock"
    advice = "Check barrier counts and the exit conditions of loops."


class BadMask(SyncError):
    title = "wrong member mask"
    advice = "Name exactly the lanes that execute the instruction (0xffffffff when the whole warp does)."


class Trap(KernelFault):
    title = "the kernel executed trap"


class DeviceAssert(Trap):
    title = "assertion failed"
