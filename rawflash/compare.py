"""`rawflash compare`: variants or runs side by side, read from the MLflow store, with a verdict per metric.

    rawflash compare                          the variants of the newest invocation, against naive
    rawflash compare fa1 fa2                  only these variants, against the first
    rawflash compare <run> <run> ...          these runs, against the first: ids, starts of ids, or names
    rawflash compare <parent> <parent>        the same variants and points of two invocations or sweeps, against the first
    rawflash compare --filter '<MLflow search syntax>'

Exit codes: 0 compared, 1 the store failed (or, with --fail-on-worse, something is worse), 2 the request cannot be met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rawflash.compare_text import as_csv, as_json, as_tables
from rawflash.errors import RawflashError, UsageError
from rawflash.filing import describe
from rawflash.output import say
from rawflash.results import write_text
from rawflash.side_by_side import Group, by_problem, compared, matched
from rawflash.store import TrackingConf
from rawflash.stored import Reader, StoredRun, open_reader
from rawflash.tables import markdown, plain, print_rich
from rawflash.variants import LADDER

__all__ = ["main"]

FORMATS = {"text": (".txt",), "markdown": (".md", ".markdown"), "csv": (".csv",), "json": (".json",)}
_ELSEWHERE = "rows that resume=true took over lie below the run that computed them"
_DETAILED = 8  # runs: of more, params and metrics are shown on request only


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`; returns the exit code."""
    try:
        arguments = _arguments(argv)
        reader = open_reader(_tracking(arguments.words), Path.cwd())
        groups, notes = _groups(reader, arguments)
        _write(reader, groups, notes, arguments)
    except RawflashError as error:
        print(f"rawflash: {error}", file=sys.stderr)
        return error.exit_code
    worse = sum(group.count(index)["worse"] for group in groups for index in range(1, len(group.runs)))
    return 1 if arguments.fail_on_worse and worse else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rawflash compare",
        description=__doc__.partition("\n\nExit")[0],
        epilog=__doc__[__doc__.index("Exit") :],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="what", help="variants, runs or parents; tracking.uri= and tracking.experiment= as for a run"
    )
    parser.add_argument("--filter", default="", help="only runs that fit, in MLflow's search syntax and single quotes")
    parser.add_argument("--order-by", default="attributes.start_time ASC", help="order of what --filter finds (%(default)s)")
    parser.add_argument("--limit", type=int, default=200, help="at most so many runs of a filter (%(default)s)")
    parser.add_argument("--latest", action="store_true", help="a name that several runs have means the newest of them")
    parser.add_argument("--details", action="store_true", help=f"params and metrics one by one, also of more than {_DETAILED} runs")
    parser.add_argument("--all", action="store_true", help="metrics that are the same, too")
    parser.add_argument("--format", choices=FORMATS, help="default: by the ending of --output, else text")
    parser.add_argument("-o", "--output", type=Path, help="write to a file instead of the terminal")
    parser.add_argument("--fail-on-worse", action="store_true", help="exit with 1 when any metric is worse")
    arguments = parser.parse_intermixed_args(argv)
    if arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit} cannot be: give at least 1")
    return arguments


def _tracking(words: list[str]) -> TrackingConf:
    """Takes tracking.<key>=<value> out of `words`: the store is named as it is for a run."""
    conf = TrackingConf()
    for word in [w for w in words if "=" in w and w.startswith("tracking.")]:
        key, _, value = word.removeprefix("tracking.").partition("=")
        if key not in ("uri", "experiment"):
            raise UsageError(f"there is no {word.partition('=')[0]} here: compare takes tracking.uri= and tracking.experiment=")
        setattr(conf, key, value)
        words.remove(word)
    return conf


def _groups(reader: Reader, arguments: argparse.Namespace) -> tuple[list[Group], list[str]]:
    """What the words and the filter mean, compared."""
    variants = [word for word in arguments.words if word in LADDER]
    runs = [_one(reader, word, arguments.latest) for word in arguments.words if word not in LADDER]
    parents = [run for run in runs if run.is_parent]
    notes: list[str] = []
    if runs and not parents:
        if arguments.filter or variants:
            raise UsageError("single runs are compared as they are: leave out the filter and the names of variants, or name a parent run")
        if len({run.run_id for run in runs}) < 2:
            raise UsageError(f"{runs[0].name} alone cannot be compared: name two runs, or the parent of several")
        return [compared(_title(runs), _with_samples(reader, runs))], notes
    if len(parents) < len(runs):
        raise UsageError("single runs and parents of runs cannot be mixed: name either two or more runs, or one or more parents")
    if len(parents) > 1:
        families = [(parent, _chosen(reader.children(parent), variants)) for parent in parents]
        parts, notes = matched(families)
    else:
        parts = by_problem(_found(reader, parents, variants, arguments, notes), variants, describe)
    return [compared(title, _with_samples(reader, members)) for title, members in parts], notes


def _one(reader: Reader, word: str, latest: bool) -> StoredRun:
    found = reader.named(word)
    if not found:
        raise UsageError(
            f"no run of the experiment {reader.experiment!r} in {reader.store.shown} has the id or the name {word!r}, and no variant is "
            f"called so: the variants are {', '.join(LADDER)}"
        )
    if len(found) > 1 and not latest:
        ids = ", ".join(f"{run.run_id[:8]} of {run.started:%Y-%m-%d %H:%M:%S} UTC" for run in found[:5])
        raise UsageError(
            f"{word!r} may mean {len(found)} runs: add --latest for the newest, or give the id ({ids}{', ...' if len(found) > 5 else ''})"
        )
    return found[0]


def _found(
    reader: Reader, parents: Sequence[StoredRun], variants: Sequence[str], arguments: argparse.Namespace, notes: list[str]
) -> list[StoredRun]:
    """Children of the one parent, of the newest one, or what the filter finds; narrowed to `variants`."""
    if arguments.filter:
        runs = reader.search(arguments.filter, [arguments.order_by])
        if parents:
            runs = [run for run in runs if run.tags.get("mlflow.parentRunId") == parents[0].run_id]
        runs = _chosen([run for run in runs if run.variant], variants)
        if len(runs) > arguments.limit:
            notes.append(f"{arguments.limit} of {len(runs)} runs are shown: --limit shows more.")
        if not runs:
            raise UsageError(
                f"no run of a variant fits --filter {arguments.filter!r}: `rawflash compare` alone shows what the newest runs hold"
            )
        return runs[: arguments.limit]
    parent = parents[0] if parents else reader.newest_parent()
    notes.append(f"{parent.name}, {parent.run_id}, of {parent.started:%Y-%m-%d %H:%M:%S} UTC.")
    runs = _chosen(reader.children(parent), variants)
    if not runs:
        what = f"run of {' or '.join(variants)}" if variants else "run"
        raise UsageError(f"{parent.name} ({parent.run_id[:8]}) holds no {what}: name another parent ({_ELSEWHERE})")
    missing = [name for name in variants if name not in {run.variant for run in runs}]
    if missing:
        notes.append(f"It holds no run of {' or '.join(missing)} ({_ELSEWHERE}).")
    return runs


def _chosen(runs: Sequence[StoredRun], variants: Sequence[str]) -> list[StoredRun]:
    return [run for run in runs if not variants or run.variant in variants]


def _with_samples(reader: Reader, runs: Sequence[StoredRun]) -> list[StoredRun]:
    return [replace(run, samples_ms=reader.samples(run)) for run in runs]


def _title(runs: Sequence[StoredRun]) -> str:
    """What all of them share, in one phrase."""
    shared = {k: v for k, v in runs[0].params.items() if all(run.params.get(k) == v for run in runs)}
    return describe(shared) or "the runs"


def _write(reader: Reader, groups: Sequence[Group], notes: Sequence[str], arguments: argparse.Namespace) -> None:
    form = arguments.format or _by_ending(arguments.output)
    if form == "json":
        text = as_json(groups, notes, {"store": reader.store.shown, "experiment": reader.experiment})
    elif form == "csv":
        text = as_csv(groups)
    else:
        tables = as_tables(groups, notes, arguments.details or sum(len(group.runs) for group in groups) <= _DETAILED, arguments.all)
        if form == "text" and arguments.output is None and sys.stdout.isatty():
            from rich.console import Console

            for table in tables:
                print_rich(table, Console())
                say()
            return
        text = "\n".join((markdown if form == "markdown" else plain)(table) for table in tables)
    if arguments.output is None:
        say(text.rstrip("\n"))
    else:
        write_text(arguments.output, text)
        say(f"written to {arguments.output}")


def _by_ending(path: Path | None) -> str:
    if path is None:
        return "text"
    found = [form for form, endings in FORMATS.items() if path.suffix.lower() in endings]
    if not found:
        raise UsageError(f"--output {path} does not tell the format: add --format, or end it in .md, .csv, .json or .txt")
    return found[0]
