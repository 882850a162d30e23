"""`python -m rawflash.speed`: how fast the emulator is on this machine, as ratios that one run measures.

    ratios    emulated seconds with all default counters and checks, without any, and with the race detector on top, each over NumPy's
              float32 naive attention on the same problem with the same number of threads; all take turns, so that a busy
              machine slows them alike
    passes    what compiling costs, pass by pass (passes.py)

Everything here is wall clock of this host. Nothing here is, or predicts, a GPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash import __version__, emu
from rawflash.errors import CheckFailed, RawflashError, UsageError
from rawflash.passes import Emulated, Pass, pass_table, passes
from rawflash.problem import Problem, make_inputs, to_f64
from rawflash.tables import Column, Table, plain
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

__all__ = ["Ratio", "header", "main", "measure", "naive_attention", "take_turns", "threads_of_numpy"]

RATIOS = (("fa2", "fp32"), ("fa2_mma", "fp16"))  # of these, those that the ladder has
NUMPY = "NumPy naive float32"
MODES = {
    "counters and checks on": emu.EmuParams(),
    "counters and checks off": emu.EmuParams(count=False, memcheck=False, initcheck=False, synccheck=False),
    "racecheck on top": emu.EmuParams(racecheck=True),
}
NOTE = "Wall clock of this host, not GPU times. Every contender runs once per round, in turn; ratios are taken within a round."


@dataclass(frozen=True)
class Ratio:
    """One contender: seconds of every round, and over NumPy's in the same round. `compile_s`: source to loaded code, apart."""

    kernel: str
    dtype: str
    contender: str
    seconds: list[float]
    ratios: list[float] = field(default_factory=list)
    compile_s: float = 0.0


# ------------------------------------------------------------------------------------------------------------- contenders
def naive_attention(Q: NDArray[np.float32], K: NDArray[np.float32], V: NDArray[np.float32], scale: float) -> NDArray[Any]:
    """softmax(scale Q K^T) V of one head, float32 [N, d] each, as one writes it in NumPy when it shall be fast: in place."""
    S = Q @ K.T
    S *= np.float32(scale)
    S -= S.max(axis=1, keepdims=True)
    np.exp(S, out=S)
    S /= S.sum(axis=1, keepdims=True)
    return S @ V


@contextlib.contextmanager
def threads_of_numpy(count: int) -> Iterator[str]:
    """Hold NumPy's BLAS to `count` threads; yields a text that says how many it uses, and with code for which processor."""
    try:
        from threadpoolctl import threadpool_info, threadpool_limits
    except ImportError:
        yield "as many threads as its BLAS chose; install threadpoolctl to set them"
        return
    with threadpool_limits(limits=count):
        used = {
            f"{pool['internal_api']} {pool.get('architecture', '')}".strip() for pool in threadpool_info() if pool["user_api"] == "blas"
        }
        yield f"{count} thread{'s' * (count != 1)} of its BLAS ({', '.join(sorted(used)) or 'none found'})"


def take_turns(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Wall seconds of `repeats` rounds, every contender once per round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}


def measure(variant: str, problem: Problem, tiling: Tiling, threads: int, repeats: int) -> list[Ratio]:
    """NumPy and the emulator in every mode. Raises CheckFailed when the emulated result is not NumPy's."""
    inputs = make_inputs(problem)
    q, k, v = (np.ascontiguousarray(to_f64(inputs[name], problem.dtype)[0, 0], np.float32) for name in "QKV")
    expected = naive_attention(q, k, v, problem.scale)
    runs = {mode: Emulated(variant, problem, tiling, replace(params, threads=threads)) for mode, params in MODES.items()}
    for mode, run in runs.items():
        run.prepare(inputs)
        run()
        error = float(np.max(np.abs(run.output()[0, 0] - expected)))
        if not error <= (1e-4 if problem.dtype == "fp32" else 1e-2):
            raise CheckFailed(f"{variant} with {mode} differs from NumPy by {error:.3g}: a wrong result has no speed")
    contenders: dict[str, Callable[[], object]] = {NUMPY: lambda: naive_attention(q, k, v, problem.scale), **runs}
    with threads_of_numpy(threads):
        seconds = take_turns(contenders, repeats)
    rows = [Ratio(variant, problem.dtype, NUMPY, seconds[NUMPY])]
    for mode, run in runs.items():
        ratios = [a / b for a, b in zip(seconds[mode], seconds[NUMPY], strict=True)]
        rows.append(Ratio(variant, problem.dtype, mode, seconds[mode], ratios, run.compile_s))
    return rows


# ---------------------------------------------------------------------------------------------------------------- the text
def header(threads: int) -> str:
    """CPU, cores, versions, date."""
    from rawflash.emu import nvrtc

    parts = [
        _cpu(),
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores",
        f"{threads} thread{'s' * (threads != 1)}",
        f"rawflash {__version__}",
        f"Python {platform.python_version()}",
        f"NumPy {np.__version__}",
        f"llvmlite {_version('llvmlite')}",
        f"NVRTC {nvrtc.version_text()}",
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    ]
    return ", ".join(parts)


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _spread(values: Sequence[float], digits: int) -> tuple[str, str]:
    """(median, min..max) as texts."""
    if not values:
        return "", ""
    return f"{statistics.median(values):.{digits}f}", f"{min(values):.{digits}f}..{max(values):.{digits}f}"


def ratio_table(rows: Sequence[Ratio], problem: Problem, tiling: Tiling, numpy_threads: str) -> Table:
    """One row per contender."""
    columns = [Column(title, key=True) for title in ("kernel", "dtype", "contender")]
    columns += [Column(title) for title in ("median s", "min..max", "x NumPy", "min..max", "compile s")]
    cells = tuple(
        (r.kernel, r.dtype, r.contender, *_spread(r.seconds, 4), *_spread(r.ratios, 2), f"{r.compile_s:.2f}" if r.ratios else "")
        for r in rows
    )
    title = f"Emulated against NumPy: B=1 H=1 N={problem.N} d={problem.d} block {tiling.Br}, {len(rows[0].seconds)} rounds"
    return Table(title, tuple(columns), cells, (f"NumPy: {numpy_threads}.", NOTE))


# ------------------------------------------------------------------------------------------------------------- the command
def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rawflash speed", description="Speed of the emulator on this host, in ratios and by pass.")
    parser.add_argument("--N", type=int, default=2048, help="queries and keys (%(default)s)")
    parser.add_argument("--d", type=int, default=64, help="head dimension (%(default)s)")
    parser.add_argument("--block", type=int, default=64, help="rows and columns of a tile (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="threads of the emulator and of NumPy's BLAS (0: one per core)")
    parser.add_argument("--only", choices=("ratios", "passes"), help="leave the other table out")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, every sample included")
    arguments = parser.parse_args(argv)
    for name, least in (("N", 1), ("d", 1), ("block", 1), ("repeats", 1), ("threads", 0)):
        if getattr(arguments, name) < least:
            raise UsageError(f"--{name} {getattr(arguments, name)} cannot be: give at least {least}")
    return arguments


def _run(arguments: argparse.Namespace) -> None:
    threads = arguments.threads or emu.EmuParams().worker_count()
    tiling = Tiling(arguments.block, arguments.block)
    problem = Problem(B=1, H=1, N=arguments.N, d=arguments.d, dtype="fp32")
    ratios: list[Ratio] = []
    compiled: list[Pass] = []
    if arguments.only != "ratios":
        for dtype in ("fp16", "fp32"):
            compiled += passes(replace(problem, dtype=dtype), tiling)
    if arguments.only != "passes":
        for variant, dtype in RATIOS:
            if variant in LADDER:
                ratios += measure(variant, replace(problem, dtype=dtype), tiling, threads, arguments.repeats)
    head = header(threads)
    with threads_of_numpy(threads) as numpy_threads:
        pass
    if arguments.json:
        tables = {"ratios": [asdict(r) for r in ratios], "passes": [asdict(p) for p in compiled]}
        print(json.dumps({"machine": head, "numpy_threads": numpy_threads, "note": NOTE, "problem": asdict(problem), **tables}, indent=1))
        return
    print(head + "\n")
    if ratios:
        print(plain(ratio_table(ratios, problem, tiling, numpy_threads)))
    for dtype in dict.fromkeys(p.dtype for p in compiled):
        print(plain(pass_table([p for p in compiled if p.dtype == dtype])))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's); returns the exit code."""
    try:
        _run(_arguments(argv))
    except RawflashError as error:
        print(f"rawflash: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
