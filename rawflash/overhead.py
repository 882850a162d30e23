"""`python -m rawflash.overhead`: what the program around the kernels costs on this machine, as ratios and CPU seconds.

    start      CPU seconds until `rawflash --version`, until a job without MLflow could begin, and until MLflow is imported
    tracking   per child run on a sqlite store: a run with its params, metrics, tags and artifacts, started, filed and ended
    sweep      the share of a sweep's CPU time that goes into the reference, compiling, running and checking (host/cpu_s of its
               rows); the rest is starting, composing, writing, filing and summing up

CPU time, user + system, of all processes, so that a busy machine does not change what is said. Nothing here is a GPU time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rawflash.errors import RawflashError, UsageError
from rawflash.filing import Filing
from rawflash.results import Row, read_rows
from rawflash.store import TrackingConf
from rawflash.tables import Column, Table, plain
from rawflash.tracking import open_tracker

__all__ = ["main", "share", "sweep_command", "tracking_cost"]

_STARTS = {
    "rawflash --version": "import sys; sys.argv[1:] = ['--version']; from rawflash.run import main; main()",
    "ready for a job, tracking=none": "import hydra, rawflash.config, rawflash.job",
    "ready for a job, MLflow imported": "import hydra, rawflash.config, rawflash.job, mlflow",
}
# Tiny problems, and every point a program of its own, as in a sweep over tiles, head sizes and types that is run for the first time.
_SIZES = ("kernel.Br=16,32,48,64", "kernel.Bc=16,32,48,64,80", "problem.d=16,24,32,40,48", "problem.dtype=fp32,fp16")
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true"}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: Sequence[str], folder: Path) -> float:
    """CPU seconds of a command and everything it started and waited for. Raises RawflashError when it fails."""
    before = _children_s()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **_QUIET}, check=False)
    if done.returncode:
        raise RawflashError(f"{' '.join(command[:4])} ... ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return _children_s() - before


def starts(folder: Path) -> list[tuple[str, str]]:
    """(what, CPU seconds) from a new interpreter on."""
    return [(what, f"{_run([sys.executable, '-c', code], folder):.2f} s CPU") for what, code in _STARTS.items()]


def tracking_cost(folder: Path, row: Row, files: Path, children: int) -> float:
    """CPU seconds of this process per child run: `row` is filed `children` times in a new sqlite store in `folder`.

    `files` holds the row's artifacts. Making the store and the parent run is not counted.
    """
    filing = Filing(open_tracker(TrackingConf(uri=f"sqlite:///{folder}/cost.db"), folder))
    filing.open_parent("cost", [], "cost")
    filing.open_child(row)  # the first one imports and prepares
    filing.close_child(row, files)
    started = time.process_time()
    for _ in range(children):
        filing.open_child(row)
        filing.close_child(row, files)
    spent = time.process_time() - started
    if filing.problem:
        raise RawflashError(filing.problem)
    return spent / children


def sweep_command(points: int, launcher: str, jobs: int) -> list[str]:
    """The command line of a sweep of `points` tiny problems with a launcher of conf/hydra/launcher ("": none).

    Other numbers than 1, 2, 4, 20, 40, 100 and 200 become the next larger product of the axes' lengths.
    """
    axes, left = [], points
    for axis in _SIZES:
        name, _, values = axis.partition("=")
        chosen = values.split(",")[: max(1, left)]
        left = -(-left // len(chosen))
        axes.append(f"{name}={','.join(chosen)}")
    parallel = [f"hydra/launcher={launcher}", f"hydra.launcher.n_jobs={jobs}"] if launcher else []
    return ["-m", "kernel=fa2", "problem=tiny", "backend=emu", *axes, *parallel]


def share(folder: Path) -> tuple[int, float]:
    """(rows, CPU seconds of their kernels, compilation and checks) of the sweep whose results lie below `folder`."""
    found = [path for path in folder.glob("outputs/*/*/results.json")]
    rows = [row for path in found for row in read_rows(path)]
    return len(rows), sum(row.metrics.get("host/cpu_s", 0.0) for row in rows)


def _sweep(folder: Path, arguments: argparse.Namespace, cached: bool) -> tuple[str, str]:
    command = sweep_command(arguments.points, arguments.launcher, arguments.jobs)
    work = folder / ("warm" if cached else "cold")
    work.mkdir()
    os.environ["RAWFLASH_CACHE_DIR"] = str(folder / "cache")
    total = _run([sys.executable, "-m", "rawflash.run", *command], work)
    rows, inside = share(work)
    how = f"{arguments.launcher or 'one process'}{f', {arguments.jobs} jobs' if arguments.launcher else ''}"
    around = f"{(total - inside) / rows:.3f} s CPU a row around them"
    return (
        f"sweep of {rows} rows ({how}), {'everything compiled before' if cached else 'nothing compiled before'}",
        f"{inside / total:.0%} in kernels, compilation and checks ({inside:.1f} of {total:.1f} s CPU; {around})",
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rawflash overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200, help="points of the sweep (%(default)s)")
    parser.add_argument("--launcher", default="laptop", help="of conf/hydra/launcher; '' for one process (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="jobs of the launcher (%(default)s)")
    parser.add_argument("--children", type=int, default=20, help="runs filed to measure tracking (%(default)s)")
    arguments = parser.parse_args(argv)
    for name in ("points", "jobs", "children"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} {getattr(arguments, name)} cannot be: give at least 1")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's); returns the exit code."""
    try:
        arguments = _arguments(argv)
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            lines = starts(folder)
            lines += [_sweep(folder, arguments, cached) for cached in (False, True)]
            (results, *_) = folder.glob("warm/outputs/*/*/*/results.json")
            (row, *_) = read_rows(results)
            cost = tracking_cost(folder, row, results.parent / row.folder, arguments.children)
            lines.append(("tracking, per child run on sqlite", f"{cost:.3f} s CPU"))
    except RawflashError as error:
        print(f"rawflash: {error}", file=sys.stderr)
        return error.exit_code
    print(plain(Table("What the program around the kernels costs", (Column("what", key=True), Column("cost", key=True)), tuple(lines))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
