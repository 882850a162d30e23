"""Every error that rawflash raises on purpose.

    RawflashError                      exit code 1
    |-- UsageError                     2   a value or a name that cannot be meant (also a ValueError)
    |-- BackendUnavailable             2   the asked-for backend cannot run on this machine
    |-- InvalidConfiguration           2   a variant refuses this problem, tiling or GPU, in one sentence
    |-- CompileError                   1   NVRTC refused a source: file, line, message, full log
    |-- LaunchError                    1   a kernel could not be launched, or stopped while running
    |   |-- Unsupported                1   the backend cannot execute what the kernel asks for (an instruction, a feature)
    |   |-- Race                       1   racecheck found two accesses that nothing puts in order
    |   `-- OutOfMemory                1   the host or the GPU has no memory left for this problem
    |-- CheckFailed                    1   a result differs from the oracle by more than the tolerance
    `-- TrackingError                  1   the work is done but could not be filed; results_path says where it lies

The message of each is one sentence (or two) that names the wrong thing and the way out; `exit_code` is what a program that
ends because of it should return to the shell.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "BackendUnavailable",
    "CheckFailed",
    "CompileError",
    "InvalidConfiguration",
    "LaunchError",
    "OutOfMemory",
    "Race",
    "RawflashError",
    "TrackingError",
    "Unsupported",
    "UsageError",
]


class RawflashError(Exception):
    """Root of the tree: catch this to catch everything that rawflash raises on purpose."""

    exit_code: int = 1


class UsageError(RawflashError, ValueError):
    """A value that cannot be right, or a name that does not exist; nothing was run."""

    exit_code = 2


class BackendUnavailable(RawflashError):
    """The backend that was asked for by name cannot run here (no driver, no CuPy, no such device)."""

    exit_code = 2


class InvalidConfiguration(RawflashError):
    """A variant refuses a (problem, tiling, GPU) before launch; `reason` is the sentence that goes into a sweep's row."""

    exit_code = 2

    def __init__(self, variant: str, reason: str) -> None:
        super().__init__(f"{variant}: {reason}")
        self.variant = variant
        self.reason = reason


class CompileError(RawflashError):
    """NVRTC refused a source. `file` and `line` point at the first error (line 0: the log names none)."""

    def __init__(self, file: str, line: int, message: str, log: str) -> None:
        where = f"{file}:{line}" if line else file
        super().__init__(f"{where}: {message}")
        self.file = file
        self.line = line
        self.message = message
        self.log = log


class LaunchError(RawflashError):
    """A kernel could not be launched, or was stopped while it ran."""


class Unsupported(LaunchError):
    """The backend cannot execute what the kernel asks for; the kernel itself may be right."""


class Race(LaunchError):
    """Racecheck stopped a kernel: two threads touched the same bytes, one of them writing, and nothing puts them in order."""


class OutOfMemory(LaunchError):
    """The host's or the GPU's memory ran out; a smaller problem may well run."""


class CheckFailed(RawflashError):
    """A variant's O or LSE differs from the float64 reference by more than the tolerance allows."""


class TrackingError(RawflashError):
    """Results could not be filed; they are on disk at `results_path` (None when nothing was written)."""

    def __init__(self, message: str, results_path: Path | None = None) -> None:
        suffix = f" The results are on disk: {results_path}" if results_path is not None else ""
        super().__init__(message + suffix)
        self.results_path = results_path
