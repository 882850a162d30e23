"""Kernels without one of their guards: a barrier or a wait that can go without any check noticing is useless, or untested.

    guards(subject)      the lines of a .cu with __syncthreads(), __syncwarp() or a wait for asynchronous copies
    caught(guard)        which check notices that it is gone: the emulator's race, initialisation, bounds and barrier checks, or other
                         bits in the result than the whole kernel gives

Subjects are the rungs of the ladder and softmax.cu. Each runs on small problems that need every guard: several tiles of keys and
of rows, more than one warp, ragged ends, tiles that some rows see in part, a value that is NaN, a scale below 0.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawflash.backends.base import launch_plan
from rawflash.compile import compile_source
from rawflash.emu.errors import EmuError, RaceHazard, SyncError, UninitializedRead
from rawflash.errors import UsageError
from rawflash.problem import Problem, make_inputs
from rawflash.source import Source, read_source
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.variants.softmax import FILE, SOFTMAXES, SoftmaxProblem, softmax_plan

if TYPE_CHECKING:
    from rawflash.backends.emulated import EmulatedBackend
    from rawflash.variants import Plan

__all__ = ["SUBJECTS", "Caught", "Guard", "caught", "guards"]

SUBJECTS = (*LADDER, "softmax")
ARCH = "80"
WORKSPACES = ("S", "P", "P_drop", "Z", "m", "l", "O_part", "ml_part")
_GUARD = re.compile(r"(?<![\w:])(__syncthreads|__syncwarp|rf::wait_for_\w+)\(\);")
_CHECKS: tuple[tuple[type[EmuError], str], ...] = (
    (RaceHazard, "race"),
    (UninitializedRead, "uninitialised read"),
    (SyncError, "barrier"),
    (EmuError, "fault"),
)
Bits = dict[str, bytes]
Run = Callable[[Source], Bits]


@dataclass(frozen=True)
class Guard:
    """One guard of a subject: where it stands (line from 1), what it is, and the reason that its comment gives."""

    subject: str
    file: str
    line: int
    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}, {self.file}:{self.line}"


@dataclass(frozen=True)
class Caught:
    """The check that noticed, and what it saw."""

    check: str
    sentence: str


def guards(subject: str) -> list[Guard]:
    """Every guard of a subject, in the order of the file. Raises UsageError for an unknown subject."""
    source, found = read_source(_file(subject)), []
    for number, line in enumerate(source.text.splitlines(), 1):
        code, _, comment = line.partition("//")
        if match := _GUARD.search(code):
            found.append(Guard(subject, source.name, number, match[1] + "()", comment.strip()))
    return found


def caught(guard: Guard) -> Caught | None:
    """What notices that the guard is gone; None: nothing does. Raises CompileError if the rest does not compile."""
    source = read_source(guard.file)
    lines = source.text.splitlines(keepends=True)
    lines[guard.line - 1] = _GUARD.sub(";", lines[guard.line - 1], count=1)
    mutant = dataclasses.replace(source, text="".join(lines))
    for run, right in zip(_runs(guard.subject), _right(guard.subject), strict=True):
        try:
            found = run(mutant)
        except EmuError as error:
            return Caught(next(check for kind, check in _CHECKS if isinstance(error, kind)), _short(str(error)))
        other = [name for name, bits in found.items() if bits != right[name]]
        if other:
            return Caught("result", f"other bits in {' and '.join(other)}")
    return None


def _short(sentence: str) -> str:
    """The gist of the emulator's sentence: what access, and where; files by name alone, no addresses, threads or PTX."""
    told = re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\S*/([\w.]+\.cuh?:)", r"\1", sentence)).partition(": ")[2] or sentence
    if race := re.match(r"(.*) access, (read|write) after (?:read|write), unordered with the (\w+ at \S+)", told):
        return f"{race[1]} {race[2]} after the {race[3]}"
    return re.sub(r", in kernel '\w+'", "", re.split(r", (?:by thread|PTX line|CTA)", told)[0])


def _file(subject: str) -> str:
    if subject not in SUBJECTS:
        raise UsageError(f"there is no kernel called {subject!r}; the known ones are {', '.join(SUBJECTS)}")
    return FILE if subject == "softmax" else LADDER[subject].file


# ----------------------------------------------------------------------------------------------------- what a subject runs on
@cache
def _right(subject: str) -> list[Bits]:
    """The bits of the whole kernel, run by run: it must pass all checks itself."""
    source = read_source(_file(subject))
    return [run(source) for run in _runs(subject)]


@cache
def _runs(subject: str) -> tuple[Run, ...]:
    """Functions that execute a source of this subject with all checks on and return the bits of its results."""
    if subject == "softmax":
        p = SoftmaxProblem(2, 700, 33)
        ones = {"X": np.ones((p.batch, p.V), np.float32)}
        return tuple(partial(_bits, softmax_plan(name, p), ones) for name in SOFTMAXES)
    variant = LADDER[subject]
    dtype = "fp32" if "fp32" in variant.dtypes else "fp16"
    d = 32 if dtype == "fp32" else 16
    masked = Problem(B=1, H=2, N=97, Nkv=65, d=d, dtype=dtype, causal="bottom_right", softmax_scale=1.0)
    wild = {name: x.copy() for name, x in make_inputs(masked).items()}
    wild["V"][:, :, 60, 3] = np.nan
    whole = Problem(B=1, H=1, N=97, Nkv=65, d=d, dtype=dtype, softmax_scale=-1.0)
    tiling = Tiling(32, 16, num_splits=2)  # a split with one key tile would need no barrier behind it
    return tuple(partial(_bits, variant.plan(p, tiling), inputs) for p, inputs in ((masked, wild), (whole, make_inputs(whole))))


@cache
def _emulator() -> EmulatedBackend:
    from rawflash.backends.emulated import EmulatedBackend
    from rawflash.emu import EmuParams

    return EmulatedBackend(EmuParams(racecheck=True))


def _bits(plan: Plan, inputs: Mapping[str, NDArray[Any]], source: Source) -> Bits:
    backend = _emulator()
    module = backend.compile(compile_source(source, plan.defines, ARCH), plan)
    arrays = {name: backend.to_device(x) for name, x in inputs.items()}
    arrays |= {name: backend.empty(shape, np.dtype(kind)) for name, (shape, kind) in plan.buffers.items()}
    launch_plan(module, plan, arrays)
    return {name: backend.to_host(arrays[name]).tobytes() for name in plan.buffers if name not in WORKSPACES}
