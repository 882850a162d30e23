"""One job: run the chosen variants, write the rows to disk, file them, print the tables.

`single` is a whole invocation; sweep.py does the same for many points. Nothing is filed or printed before it is on disk.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path

from rawflash.backends.base import Backend
from rawflash.choose import choose_backend
from rawflash.config import Settings, key_of
from rawflash.errors import InvalidConfiguration, TrackingError, UsageError
from rawflash.execute import RunResult, invalid_reason, run_variant
from rawflash.explain import internal_error
from rawflash.filing import Filing, describe
from rawflash.fingerprint import fingerprint
from rawflash.output import Progress, print_end, print_tables, say
from rawflash.provenance import about, git_commit, impersonal
from rawflash.record import Record, fixed
from rawflash.results import CONFIG, OUTPUTS, RESULTS, Claim, Row, claim_folder, interrupt, read_rows, write_results, write_text
from rawflash.resume import finished_rows, resumed
from rawflash.roofline import Gpu
from rawflash.signals import Stopped
from rawflash.summary import write_summary
from rawflash.tiling import Tiling
from rawflash.tracking import FAILED, KILLED, open_tracker
from rawflash.variants import LADDER

__all__ = ["Invocation", "Machine", "Place", "any_finished", "finish", "run_rows", "single"]

FOLDER = f"{OUTPUTS}/%Y-%m-%d/%H-%M-%S"


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
        return cls(backend, backend.gpu(settings.sheet), told)


def single(settings: Settings, invocation: Invocation, folder: Path | None) -> int:
    """Run one invocation; `folder` is where results go (None: a new one below outputs/). Returns the exit code."""
    machine = Machine.for_settings(settings)
    _refuse_ignored(settings)
    _refuse_if_nothing_can_run(settings, machine)
    tracker = open_tracker(settings.tracking, invocation.cwd)
    filing = Filing(tracker)
    record = Record(_parent_name(settings), list(invocation.arguments), fixed(settings.tracking, invocation.cwd))
    claim = (
        claim_folder(invocation.cwd / datetime.now().strftime(FOLDER), "hydra.run.dir=<folder>") if folder is None else Claim(folder, ())
    )
    folder = claim.folder
    if machine.told:
        say(machine.told)
    title = f"{describe(settings.params)} ({machine.backend.name}, limits of {machine.gpu.name})"
    try:
        finished = finished_rows(record.tracking, tracker, [invocation.cwd / OUTPUTS, folder.parent]) if settings.resume else {}
        record.parent = filing.open_parent(record.name, invocation.arguments, record.id)
        record.write(folder)
        place = Place(f"{record.id}/0", folder, finished=finished)
        rows = run_rows(settings, machine, invocation.overrides, place, filing, Progress(len(settings.variants)))
        files = write_summary(folder, rows, title, invocation.arguments, machine.backend.describe())
        write_text(folder / CONFIG, settings.yaml)
        filing.close_parent(rows, [*files, folder / CONFIG], title, invocation.arguments)
    except BaseException as error:
        filing.abandon(KILLED if isinstance(error, Stopped) else FAILED, str(error))
        claim.release()
        if isinstance(error, Stopped) and any_finished(folder):
            error.kept = folder
        raise
    if settings.resume:
        say(resumed(rows))
    if any(row.ok or row.tensors for row in rows):
        print_tables(rows, title)
    return finish(rows, filing, folder, invocation.arguments)


def any_finished(folder: Path) -> bool:
    """True when some row below `folder` was finished before the program was stopped."""
    return any(row.status != "INTERRUPTED" for path in folder.rglob(RESULTS) for row in read_rows(path))


def _refuse_ignored(settings: Settings) -> None:
    """A knob that none of the chosen kernels has would be a wish ignored. In a sweep it is only a column that changes nothing."""
    for name, value in {"options": settings.options, "publish": settings.publish, "fresh": settings.fresh, "jobs": settings.jobs}.items():
        if value:
            raise UsageError(f"experiment.{name} changes nothing without an experiment: leave it away, or name one with experiment=")
    heeded = {knob for name in settings.variants for knob in LADDER[name].knobs}
    plain = Tiling(settings.tiling.Br, settings.tiling.Bc)
    for knob in dict.fromkeys(knob for variant in LADDER.values() for knob in variant.knobs):
        value = getattr(settings.tiling, knob)
        if knob not in heeded and value != getattr(plain, knob):
            having = " or ".join(f"kernel={name}" for name, variant in LADDER.items() if knob in variant.knobs)
            chosen = ", ".join(settings.variants)
            raise UsageError(f"kernel.{knob}={value} changes nothing in {chosen}: leave it away, or take {having}")


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


@dataclass(frozen=True)
class Place:
    """Where rows belong: the `id` of their point (<invocation>/<number>), the `folder` that holds its results.json, what of it is
    swept (`point`), and the rows that have `finished` before and need not be run again, by fingerprint.
    """

    id: str
    folder: Path
    point: Mapping[str, str] = field(default_factory=dict)
    finished: Mapping[str, Row] = field(default_factory=dict)


def run_rows(
    settings: Settings,
    machine: Machine,
    overrides: Sequence[str],
    place: Place,
    filing: Filing,
    progress: Progress,
    keep_going: bool = False,
) -> list[Row]:
    """One row per variant, each written to disk before it is run (RUNNING) and after, and then filed.

    With `keep_going` an error that nobody foresaw costs its row only (a sweep); without, it is raised.
    """
    rows: list[Row] = []
    head = about(overrides, machine.backend.describe())
    for name in settings.variants:
        row = _new_row(name, settings, machine, overrides, place)
        rows.append(row)
        if row.reused:
            continue
        with progress.step(" ".join([name, *(f"{key}={value}" for key, value in place.point.items())])):
            write_results(place.folder / RESULTS, rows, head, complete=False)
            filing.open_child(row)
            try:
                result = _run(name, settings, machine, keep_going)
            except BaseException as stop:
                _ended_by(stop, row)
                write_results(place.folder / RESULTS, rows, head)
                filing.close_child(row, place.folder / name)
                raise
            _fill(row, result)
            write_artifacts(place.folder / name, result.texts, settings.yaml)
            write_results(place.folder / RESULTS, rows, head, complete=False)
            filing.close_child(row, place.folder / name)
    write_results(place.folder / RESULTS, rows, head)
    return rows


def _new_row(name: str, settings: Settings, machine: Machine, overrides: Sequence[str], place: Place) -> Row:
    """The row of one variant before it is run, or the one that has finished before."""
    mark = fingerprint(name, settings.params, machine.gpu, machine.backend)
    row = Row(
        name, "RUNNING", backend=machine.backend.name, told=machine.told, params=settings.params, point=dict(place.point), folder=name
    )
    row.overrides = [*(o for o in overrides if key_of(o) != "kernel"), f"kernel={name}"]
    row.id, row.fingerprint, row.started = f"{place.id}/{name}", mark, time.time()
    found = place.finished.get(mark) if mark else None
    if found is None:
        return row
    return replace(found, point=row.point, overrides=row.overrides, told=row.told, folder="", reused=True, unfiled="")


def _run(name: str, settings: Settings, machine: Machine, keep_going: bool) -> RunResult:
    try:
        return run_variant(LADDER[name], settings.problem, settings.tiling, machine.gpu, machine.backend, timing=settings.timing)
    except Exception as error:
        if not keep_going:
            raise
        if settings.debug:
            traceback.print_exc()
        return RunResult(name, settings.problem, settings.tiling, machine.backend.name, "RUNTIME_ERROR", internal_error(error))


def _ended_by(stop: BaseException, row: Row) -> None:
    """The row of a variant that was stopped by a signal, or by an error that nobody foresaw."""
    if isinstance(stop, Exception):
        row.status, row.sentence, row.exit_code, row.ended = "RUNTIME_ERROR", internal_error(stop), 1, time.time()
    else:
        interrupt(row, str(stop) or type(stop).__name__)


def _fill(row: Row, result: RunResult) -> None:
    row.ended = time.time()
    row.status, row.sentence = result.status, impersonal(result.sentence)
    row.exit_code = 0 if result.status in ("OK", "INVALID") else 1
    row.metrics, row.samples_ms = dict(result.metrics), list(result.samples_ms)
    row.tensors = [asdict(tensor) for tensor in result.tensors]
    row.resources, row.tags = dict(result.resources), {name: impersonal(str(value)) for name, value in result.tags.items()}
    row.tags["git_commit"] = git_commit()


def write_artifacts(folder: Path, texts: Mapping[str, str], config: str) -> None:
    """What a row leaves behind besides its numbers: the .cu, the PTX, the traffic table, and the configuration."""
    for name, text in {**texts, CONFIG: config}.items():
        write_text(folder / name, impersonal(text))


def finish(rows: Sequence[Row], filing: Filing, folder: Path, arguments: Sequence[str]) -> int:
    """Say where everything is and how to repeat it; returns the exit code. Raises TrackingError when something was not filed."""
    print_end(filing, folder, arguments)
    wrong = [row for row in rows if not row.ok and (row.exit_code or len(rows) == 1)]
    if wrong:
        more = f" (and {len(wrong) - 1} more rows, see the table)" if len(wrong) > 1 else ""
        print(f"rawflash: {wrong[0].variant} is {wrong[0].status}: {wrong[0].sentence}{more}", file=sys.stderr)
    if filing.problem:
        filing.abandon(FAILED, filing.problem)
        raise TrackingError(
            f"the work is done, but not everything could be filed: {filing.problem}. `rawflash sync` files the rest.", folder
        )
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    """0 when no row is wrong and one is right; 2 when nothing could run; else the worst row's."""
    worst = max((row.exit_code for row in rows), default=2)
    return worst if worst or any(row.ok for row in rows) else 2
