"""One row of the planted-fault table, and how a row is run: with a time limit, and with everything it must report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rawflash import emu
from rawflash.emu import errors
from tests.emu.harness import cuda, launch, line_of

FOLDER = Path(__file__).parent
TIME_LIMIT_S = 600.0  # only a hang gets there, however busy the machine
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Row:
    """A kernel of ``file``.cu and what must happen: ``error`` is a class of rawflash.emu.errors, "" for none.

    The .cu line expected is the one tagged with the kernel's name; ``lines`` lists tags if another line may be blamed too.
    ``tid`` and ``cta`` are the first offending thread; None where several threads are equally at fault.
    """

    kernel: str
    error: str
    args: Callable[[], tuple[Any, ...]]
    grid: int = 1
    block: int = 32
    cta: Dim3 | None = None
    tid: Dim3 | None = None
    space: str | None = None
    shared_mem: int = 0
    lines: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.kernel


def full(count: int, dtype: Any = np.int32) -> np.ndarray:
    """0, 1, 2, ... in the emulator's memory."""
    return emu.asarray(np.arange(count).astype(dtype))


@cache
def compiled(file: str, params: emu.EmuParams) -> Any:
    return cuda((FOLDER / f"{file}.cu").read_text(), params=params)


def within(action: Callable[[], Any]) -> Any:
    """The action's result or exception; TimeoutError if it hangs (its thread is left behind)."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((action(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(TIME_LIMIT_S)
    if not outcome:
        raise TimeoutError(f"still running after {TIME_LIMIT_S} s")
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def run(file: str, row: Row, params: emu.EmuParams) -> Any:
    """Launch the row's kernel and return the report, or raise what it raised."""
    mod = compiled(file, params)
    return within(lambda: launch(mod, row.kernel, row.grid, row.block, *row.args(), shared_mem=row.shared_mem))


def check(file: str, row: Row, params: emu.EmuParams) -> None:
    """Run the row and compare what it reports with what it must report."""
    if not row.error:
        run(file, row, params)
        return
    try:
        run(file, row, params)
    except getattr(errors, row.error) as error:
        check_place(file, row, error)
    except errors.EmuError as error:
        raise AssertionError(f"expected {row.error}, got {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"expected {row.error}, nothing was reported")


def check_place(file: str, row: Row, error: Any) -> None:
    """The error names the kernel, the line, the CTA and the thread, as attributes and in its sentence."""
    source = (FOLDER / f"{file}.cu").read_text()
    lines = [line_of(source, tag) for tag in ((row.kernel,) if row.lines is None else row.lines)]
    got = {"kernel": error.kernel, "line": error.cu_line, "cta": error.ctaid, "tid": error.tid, "space": error.space}
    assert error.kernel == row.kernel, got
    assert not lines or error.cu_line in lines, f"{got}, expected line {lines}"
    for name, want in (("cta", row.cta), ("tid", row.tid), ("space", row.space)):
        assert want is None or got[name] == want, f"{got}, expected {name} {want}"
    assert row.kernel in str(error) and (not lines or str(error.cu_line) in str(error))
