"""One job: run the chosen variants, write the rows to disk, file them, print the tables.

`single` is a whole invocation; sweep.py does the same for many points. Nothing is filed or printed before it is on disk.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from rawflash.backends.base import Backend
from rawflash.choose import choose_backend, choose_gpu
from rawflash.config import Settings, gpu_values
from rawflash.errors import InvalidConfiguration, TrackingError
from rawflash.execute import RunResult, invalid_reason, run_variant
from rawflash.explain import internal_error
from rawflash.filing import Filing, describe
from rawflash.gallery import show_rows
from rawflash.output import Progress, print_end, print_tables, say
from rawflash.provenance import about, impersonal, made_by
from rawflash.report import report_markdown
from rawflash.results import Claim, Row, claim_folder, write_results, write_text
from rawflash.roofline import Gpu
from rawflash.signals import Stopped
from rawflash.tracking import FAILED, KILLED, open_tracker
from rawflash.variants import LADDER

__all__ = ["CONFIG", "RESULTS", "TABLE", "Invocation", "Machine", "finish", "run_rows", "single", "write_summary"]

RESULTS, TABLE, CONFIG = "results.json", "table.md", "config.yaml"
FOLDER = "outputs/%Y-%m-%d/%H-%M-%S"


@dataclass(frozen=True)
class Invocation:
    """How the program was called: all its `arguments`, those that describe this job (`overrides`), and where (`cwd`)."""

    arguments: tuple[str, ...]
    overrides: tuple[str, ...]
    cwd: Path


@dataclass(frozen=True)
class Machine:
    """What a job runs on, and the line that says why."""

    backend: Backend
    gpu: Gpu
    told: str

    @classmethod
    def for_settings(cls, settings: Settings) -> Machine:
        """Decide once per job. Raises BackendUnavailable or UsageError."""
        backend, told = choose_backend(settings.backend, settings.threads, settings.racecheck)
        return cls(backend, choose_gpu(settings.gpu, gpu_values(), backend), told)


def single(settings: Settings, invocation: Invocation, folder: Path | None) -> int:
    """Run one invocation; `folder` is where results go (None: a new one below outputs/). Returns the exit code."""
    machine = Machine.for_settings(settings)
    _refuse_if_nothing_can_run(settings, machine)
    filing = Filing(open_tracker(settings.tracking, invocation.cwd))
    claim = (
        claim_folder(invocation.cwd / datetime.now().strftime(FOLDER), "hydra.run.dir=<folder>") if folder is None else Claim(folder, ())
    )
    folder = claim.folder
    if machine.told:
        say(machine.told)
    title = f"{describe(settings.params)} ({machine.backend.name}, limits of {machine.gpu.name})"
    try:
        filing.open_parent(_parent_name(settings), invocation.arguments)
        rows = run_rows(settings, machine, invocation.overrides, {}, folder, filing, Progress(len(settings.variants)))
        files = write_summary(folder, rows, title, invocation.arguments, machine.backend.describe())
        write_text(folder / CONFIG, settings.yaml)
        filing.close_parent(rows, [*files, folder / CONFIG], title, invocation.arguments)
    except BaseException as error:
        filing.abandon(KILLED if isinstance(error, Stopped) else FAILED, str(error))
        claim.release()
        if isinstance(error, Stopped) and (folder / RESULTS).is_file():
            error.kept = folder
        raise
    if any(row.ok or row.tensors for row in rows):
        print_tables(rows, title)
    return finish(rows, filing, folder, invocation.arguments)


def _refuse_if_nothing_can_run(settings: Settings, machine: Machine) -> None:
    """Alone, an invalid configuration is an error, before anything is written or filed."""
    point = settings.problem, settings.tiling, machine.gpu, machine.backend
    reasons = {name: invalid_reason(LADDER[name], *point) for name in settings.variants}
    if all(reasons.values()):
        name, reason = next(iter(reasons.items()))
        raise InvalidConfiguration(name, str(reason))


def _parent_name(settings: Settings) -> str:
    variants = "ladder" if settings.variants == tuple(LADDER) else "+".join(settings.variants)
    return f"{variants} b{settings.params['block_size']} N{settings.params['problem.N']}"[:120]


def run_rows(
    settings: Settings,
    machine: Machine,
    overrides: Sequence[str],
    point: Mapping[str, str],
    folder: Path,
    filing: Filing,
    progress: Progress,
    keep_going: bool = False,
) -> list[Row]:
    """One row per variant, each written below `folder` and then filed as soon as it is there.

    With `keep_going` an error that nobody foresaw costs its row only (a sweep); without, it is raised.
    """
    rows: list[Row] = []
    head = about(overrides, machine.backend.describe())
    for name in settings.variants:
        row = Row(name, "RUNNING", backend=machine.backend.name, told=machine.told, params=settings.params, point=dict(point), folder=name)
        row.overrides = [*(o for o in overrides if not o.lstrip("+").startswith("kernel=")), f"kernel={name}"]
        with progress.step(" ".join([name, *(f"{key}={value}" for key, value in point.items())])):
            filing.open_child(row)
            try:
                result = run_variant(LADDER[name], settings.problem, settings.tiling, machine.gpu, machine.backend, timing=settings.timing)
            except Exception as error:
                if not keep_going:
                    raise
                if settings.debug:
                    traceback.print_exc()
                result = RunResult(name, settings.problem, settings.tiling, machine.backend.name, "RUNTIME_ERROR", internal_error(error))
            _fill(row, result)
            rows.append(row)
            write_artifacts(folder / name, result.texts, settings.yaml)
            write_results(folder / RESULTS, rows, head)
            filing.close_child(row, folder / name)
    write_results(folder / RESULTS, rows, head)
    return rows


def _fill(row: Row, result: RunResult) -> None:
    row.status, row.sentence = result.status, impersonal(result.sentence)
    row.exit_code = 0 if result.status in ("OK", "INVALID") else 1
    row.metrics, row.samples_ms = dict(result.metrics), list(result.samples_ms)
    row.tensors = [asdict(tensor) for tensor in result.tensors]
    row.resources, row.tags = dict(result.resources), {name: impersonal(str(value)) for name, value in result.tags.items()}


def write_artifacts(folder: Path, texts: Mapping[str, str], config: str) -> None:
    """What a row leaves behind besides its numbers: the .cu, the PTX, the traffic table, and the configuration."""
    for name, text in {**texts, CONFIG: config}.items():
        write_text(folder / name, impersonal(text))


def write_summary(folder: Path, rows: Sequence[Row], title: str, arguments: Sequence[str], backend: dict[str, str]) -> list[Path]:
    """results.json, table.md and what there is to look at, of a whole invocation; returns the paths."""
    write_results(folder / RESULTS, rows, about(arguments, backend))
    made = made_by(arguments, [row.tags for row in rows])
    write_text(folder / TABLE, report_markdown(rows, title, made))
    return [folder / RESULTS, folder / TABLE, *show_rows(folder, rows, title, made)]


def finish(rows: Sequence[Row], filing: Filing, folder: Path, arguments: Sequence[str]) -> int:
    """Say where everything is and how to repeat it; returns the exit code. Raises TrackingError when something was not filed."""
    print_end(filing, folder, arguments)
    wrong = [row for row in rows if not row.ok and (row.exit_code or len(rows) == 1)]
    if wrong:
        more = f" (and {len(wrong) - 1} more rows, see the table)" if len(wrong) > 1 else ""
        print(f"rawflash: {wrong[0].variant} is {wrong[0].status}: {wrong[0].sentence}{more}", file=sys.stderr)
    if filing.problem:
        filing.abandon(FAILED, filing.problem)
        raise TrackingError(f"the work is done, but not everything could be filed: {filing.problem}.", folder)
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """0 when no row is wrong and one is right; 2 when nothing could run; else the worst row's."""
    worst = max((row.exit_code for row in rows), default=2)
    return worst if worst or any(row.ok for row in rows) else 2
