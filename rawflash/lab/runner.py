"""`experiment=NAME`: run, write, file, print. The counterpart of rawflash.job for experiments.

Every case is one step; what it computed is remembered (rawflash.lab.memo), so an interrupted experiment goes on where it stopped.
Results are on disk before anything is filed in MLflow: one parent run per invocation, one run per experiment below it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rawflash.config import Settings, key_of
from rawflash.errors import TrackingError, UsageError
from rawflash.explain import internal_error
from rawflash.filing import Filing
from rawflash.job import FOLDER, Invocation
from rawflash.lab import plots
from rawflash.lab.crew import Crew
from rawflash.lab.experiment import Experiment
from rawflash.lab.memo import Memo
from rawflash.lab.options import check_options, options_of
from rawflash.lab.registry import chosen
from rawflash.lab.render import Report, counts_text, csv_text, json_text, markdown_text, report_tables, summary, verdict_counts
from rawflash.lab.workbench import Lab, lab_for, open_device
from rawflash.output import Bar, print_all, print_end, say
from rawflash.page import page
from rawflash.paths import make_writable
from rawflash.provenance import about, made_by
from rawflash.results import Claim, claim_folder, write_text
from rawflash.signals import Stopped
from rawflash.tracking import FAILED, KILLED, open_tracker

__all__ = ["run_experiments"]

# What says how, not what, is computed.
_HOW = ("experiment=", "experiment.names", "experiment.publish", "experiment.fresh", "experiment.jobs")
# Keys that any experiment takes: they choose where it runs and where results go, not what it is about.
_ALWAYS = ("experiment", "backend", "tracking", "timing", "debug", "resume", "hydra")


def run_experiments(settings: Settings, invocation: Invocation, folder: Path | None) -> int:
    """Run the experiments that `settings` names; `folder` is where results go (None: a new one below outputs/). Returns the exit code.

    Raises UsageError for an unknown experiment or for a key that it would ignore.
    """
    experiments = chosen(settings.experiments)
    _refuse_ignored(experiments, invocation.overrides)
    if len(experiments) == 1:
        check_options(settings.options, options_of(next(iter(experiments))))
    kept = _kept(settings.publish, invocation.cwd)
    device, told = open_device(settings.backend)
    memo, reports = Memo(fresh=settings.fresh), []
    labs = {name: lab_for(name, settings, device, memo, alone=len(experiments) == 1) for name in experiments}
    crew = Crew(experiments, labs, settings)
    filing = Filing(open_tracker(settings.tracking, invocation.cwd))
    claim = Claim(folder, ()) if folder else claim_folder(invocation.cwd / datetime.now().strftime(FOLDER), "hydra.run.dir=<folder>")
    if told:
        say(told)
    try:
        filing.open_parent(f"experiments {' '.join(settings.experiments)}"[:120], invocation.arguments)
        with Bar(sum(map(len, crew.grids.values()))) as bar, crew:
            for name, experiment in experiments.items():
                report = Report.of(name, experiment)
                for outcome in crew.outcomes(name, bar):
                    report.rows += outcome.rows
                    report.failed += not outcome.well
                reports.append(report)
                _finish_one(report, experiment, labs[name], _arguments(name, invocation), claim.folder, settings.debug, kept, filing)
                if len(experiments) > 1:
                    bar.tell(f"{name}: {counts_text(report.rows)}")
        filing.close_experiments({report.name: counts_text(report.rows) for report in reports}, not any(r.failed for r in reports))
    except BaseException as error:
        filing.abandon(KILLED if isinstance(error, Stopped) else FAILED, str(error))
        claim.release()
        if isinstance(error, Stopped):
            error.kept = claim.folder if claim.folder.is_dir() else None
            print(f"rawflash: {memo.computed} computed numbers are kept; the same command goes on from there", file=sys.stderr)
        raise
    if len(reports) == 1:
        print_all(report_tables(reports[0]))
        say(f"{reports[0].name}: {counts_text(reports[0].rows)}")
    else:
        print_all([summary(reports)])
    say(f"{memo.computed} computed, {memo.reused} reused from an earlier run")
    print_end(filing, claim.folder, invocation.arguments)
    return _exit_code(reports, filing, claim.folder)


def _kept(publish: str | None, cwd: Path) -> Path | None:
    """The folder that gets a copy of the results, made before anything is computed. Raises UsageError when it cannot be written."""
    if not publish:
        return None
    folder = cwd / publish
    try:
        make_writable(folder)
    except OSError as error:
        told = error.strerror or str(error)
        raise UsageError(f"experiment.publish={publish} is no folder that can be written ({told}): name another") from error
    return folder


def _exit_code(reports: Sequence[Report], filing: Filing, folder: Path) -> int:
    if filing.problem:
        filing.abandon(FAILED, filing.problem)
        raise TrackingError(f"the work is done, but not everything could be filed: {filing.problem}.", folder)
    wrong = [report for report in reports if report.failed]
    if wrong:
        names = ", ".join(report.name for report in wrong)
        print(f"rawflash: part of {names} could not be computed; the rows without numbers say why", file=sys.stderr)
    return 1 if wrong else 0


def _refuse_ignored(experiments: Mapping[str, Experiment], overrides: Sequence[str]) -> None:
    """A key that no experiment looks at would be a wish ignored."""
    for override in overrides:
        key = key_of(override)
        group = key.partition(".")[0].partition("@")[0]
        asked = key.removeprefix("experiment.options.").partition(".")[0] if key.startswith("experiment.options.") else ""
        for name, experiment in experiments.items():
            if group not in (*_ALWAYS, *experiment.takes) or (asked and asked not in options_of(name)):
                options = ", ".join(f"experiment.options.{option}" for option in options_of(name)) or "none"
                raise UsageError(
                    f"the experiment {name} does not take {key}: leave it away; what can be changed are its options ({options})"
                )


def _arguments(name: str, invocation: Invocation) -> tuple[str, ...]:
    """The arguments that repeat one experiment: those of the invocation that describe it."""
    kept = [o for o in invocation.overrides if not o.startswith(_HOW)]
    return (f"experiment={name}", *(o for o in kept if not o.startswith(("tracking", "hydra", "debug"))))


def _finish_one(
    report: Report, experiment: Experiment, lab: Lab, arguments: Sequence[str], folder: Path, debug: bool, kept: Path | None, filing: Filing
) -> None:
    """Pictures, then the three files, then MLflow, then the copies that were asked for."""
    report.made = made_by(arguments, [lab.tags])
    report.about = about(arguments, lab.tags)
    report.about.pop("metrics")
    target = folder / report.name
    _draw(report, experiment, lab, target, debug)
    texts = {"md": markdown_text(report), "csv": csv_text(report), "json": json_text(report)}
    for ending, text in texts.items():
        write_text(target / f"{report.name}.{ending}", text)
    images = [target / file for file in report.pictures]
    write_text(target / f"{report.name}.html", page(f"{report.name}: {report.title}", report_tables(report), images, report.made))
    filing.file_experiment(
        report.name, report.claim, _tags(report, lab), sorted(target.iterdir()), texts["md"], arguments, not report.failed
    )
    if kept:
        for path in (*images, *(target / f"{report.name}.{ending}" for ending in texts)):
            (kept / path.name).write_bytes(path.read_bytes())


def _draw(report: Report, experiment: Experiment, lab: Lab, target: Path, debug: bool) -> None:
    """The pictures of an experiment whose rows are whole. One that cannot be drawn costs itself only."""
    if report.failed:
        return
    try:
        pictures = list(experiment.pictures(lab, report.rows))
        drawn, why = plots.usable()
        if pictures and not drawn:
            report.notes = (*report.notes, why)
        for picture in pictures if drawn else []:
            plots.draw(picture, target / f"{picture.name}.png")
            report.pictures[f"{picture.name}.png"] = picture.title
    except Exception as error:
        if debug:
            traceback.print_exc()
        report.failed += 1
        report.notes = (*report.notes, f"a picture could not be drawn: {internal_error(error)}")


def _tags(report: Report, lab: Lab) -> dict[str, str]:
    counts = {f"verdict.{verdict.replace(' ', '_')}": str(n) for verdict, n in verdict_counts(report.rows).items()}
    return {**lab.tags, **counts, "experiment": report.name}
