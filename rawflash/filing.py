"""How rows become MLflow runs: one parent per invocation or sweep, one child per row; names, tags, descriptions, artifacts.

Results are on disk before they are filed. When the store fails on the way, the sentence is kept, the work goes on, and the
program says at the end what is missing where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rawflash.artifacts import viewable
from rawflash.errors import TrackingError
from rawflash.gallery import PAGE
from rawflash.metrics import METRICS, SAMPLES
from rawflash.provenance import git_commit, made_by, repeat_command
from rawflash.report import report_markdown
from rawflash.results import Row
from rawflash.signals import deferred
from rawflash.swept import curves
from rawflash.tracking import FAILED, FINISHED, KILLED, MAX_VALUE, Tracker

__all__ = ["COMPLETE", "FINGERPRINT", "ID", "ROW", "Filing", "describe", "family_of"]

# Tags by which `resume=true` and `rawflash sync` know a run again: the invocation, the row, what the row depends on, and that
# everything about it is there.
ID, ROW, FINGERPRINT, COMPLETE = "rawflash.id", "rawflash.row", "rawflash.fingerprint", "rawflash.complete"


def family_of(invocation: str) -> str:
    """The search condition for the runs of one invocation: its parent, which has no tag ROW, and its rows."""
    return f"tags.`{ID}` = '{invocation}'"


_MODIFIERS = ("problem.window_left", "problem.window_right", "problem.softcap")


def describe(params: Mapping[str, str], skip: Sequence[str] = ()) -> str:
    """A problem and its tiling in one phrase: fp16, B=1 H=2 N=512 d=64, no mask, block 64. `skip` names are left out."""
    sizes = [f"{n}={params[f'problem.{n}']}" for n in ("B", "H", "Hkv", "N", "Nkv", "d", "dv") if _told(params, f"problem.{n}", skip)]
    words = [params["problem.dtype"]] if _told(params, "problem.dtype", skip) else []
    words += [" ".join(sizes)] if sizes else []
    if _told(params, "problem.causal", skip):
        mask = params["problem.causal"]
        words.append({"none": "no mask", "false": "no mask", "true": "causal bottom_right"}.get(mask, f"causal {mask}"))
    words += [f"{key.removeprefix('problem.')}={params[key]}" for key in _MODIFIERS if _told(params, key, skip)]
    words += ["layout bnhd"] if params.get("problem.layout") == "bnhd" and "problem.layout" not in skip else []
    words += [f"block {params['block_size']}"] if _told(params, "block_size", skip) else []
    return ", ".join(words)


def _told(params: Mapping[str, str], name: str, skip: Sequence[str]) -> bool:
    return name not in skip and params.get(name, "null") != "null"


_HEADLINE = "io/times_ideal"


class Filing:
    """Files the rows of one invocation in a tracker, or nowhere when there is none.

    After the first failure `problem` is its sentence and the store is left alone; it may also be given, for a store that is known
    to be down.
    """

    def __init__(self, tracker: Tracker | None, parent: str = "", problem: str = "") -> None:
        self.tracker, self.parent, self.problem = tracker, parent, problem

    def _try(self, action: Callable[[Tracker], str | None]) -> str:
        """Do it unless the store has already failed; returns what the action returns, or ""."""
        if self.tracker is None or self.problem:
            return ""
        try:
            with deferred():
                return action(self.tracker) or ""
        except TrackingError as error:
            self.problem = str(error)
            return ""

    def open_parent(self, name: str, arguments: Sequence[str], invocation: str = "") -> str:
        """Start the run that holds the rows of one invocation; returns its id, "" when there is none."""
        tags = {"git_commit": git_commit(), "repro": repeat_command(arguments), "rawflash.kind": "invocation"} | (
            {ID: invocation} if invocation else {}
        )
        self.parent = self._try(lambda tracker: tracker.start(name, tags))
        return self.parent

    def open_child(self, row: Row, run_id: str = "") -> None:
        """Start the run of a row that is about to be computed, or go on with the run `run_id` that lacks something."""
        tags = {"rawflash.kind": "variant", "repro": repeat_command(row.overrides), ID: row.id.partition("/")[0], ROW: row.id}

        def start(tracker: Tracker) -> str:
            row.run_id = run_id or tracker.start(_name(row), tags, parent=self.parent or None, when_s=row.started)
            tracker.log(row.run_id, params={"variant": row.variant, **row.params})
            return row.run_id

        self._try(start)

    def close_child(self, row: Row, folder: Path) -> None:
        """File what came out of a row and end its run; `folder` holds its artifacts."""

        def finish(tracker: Tracker) -> None:
            if not row.run_id:
                return
            tags = {"status": row.status, "git_commit": git_commit(), **row.tags, "mlflow.note.content": _note(row)}
            told = {"sentence": row.sentence, FINGERPRINT: row.fingerprint}
            tags |= {name: text for name, text in told.items() if text}
            tracker.log(row.run_id, metrics=_ordered(row.metrics), tags=tags, when_s=row.ended)
            tracker.series(row.run_id, {SAMPLES: list(enumerate(row.samples_ms))}, row.ended)
            if folder.is_dir():
                with viewable(folder) as shown:
                    tracker.attach(row.run_id, shown)
            tracker.log(row.run_id, tags={COMPLETE: "true"})
            tracker.end(row.run_id, FINISHED if row.ok else KILLED if row.status == "INTERRUPTED" else FAILED, row.ended)

        self._try(finish)
        row.unfiled = self.problem

    def close_parent(self, rows: Sequence[Row], files: Sequence[Path], title: str, arguments: Sequence[str], cut: bool = False) -> None:
        """File the comparison and end the parent run: FINISHED when no row failed and one is right, KILLED when it was `cut` short."""

        def finish(tracker: Tracker) -> None:
            if not self.parent:
                return
            drawn, step = curves(rows)
            note = _parent_note(rows, title, arguments, self.parent, [path.name for path in files], step)
            told: dict[str, str] = {
                name: row.tags[name] for row in rows for name in ("backend", "device", "driver", "nvrtc") if name in row.tags
            }
            counts = {f"rows.{status}": str(sum(r.status == status for r in rows)) for status in {r.status for r in rows}}
            tracker.log(self.parent, params=_common(rows), tags={**told, **counts, "mlflow.note.content": note})
            tracker.series(self.parent, drawn, max((row.ended for row in rows), default=0.0))
            for path in files:
                tracker.attach(self.parent, path)
            good = any(row.ok for row in rows) and all(row.exit_code == 0 for row in rows)
            tracker.log(self.parent, tags={COMPLETE: "true"})
            tracker.end(self.parent, KILLED if cut or "rows.INTERRUPTED" in counts else FINISHED if good else FAILED)

        self._try(finish)

    def file_experiment(
        self, name: str, claim: str, tags: Mapping[str, str], files: Sequence[Path], text: str, arguments: Sequence[str], good: bool
    ) -> None:
        """One finished experiment as a run below the parent: `files` are its artifacts, `text` its Markdown, `claim` stands first."""

        def file(tracker: Tracker) -> None:
            marks = {"git_commit": git_commit(), "repro": repeat_command(arguments), "rawflash.kind": "experiment", **tags}
            run = tracker.start(name, marks, parent=self.parent or None)
            note = text if len(text) < MAX_VALUE else f"{claim}\n\nThe tables are in the artifact {name}.md."
            tracker.log(run, tags={"mlflow.note.content": note})
            for path in files:
                tracker.attach(run, path)
                tracker.attach(self.parent, path)
            tracker.end(run, FINISHED if good else FAILED)

        self._try(file)

    def close_experiments(self, verdicts: Mapping[str, str], good: bool) -> None:
        """End the parent of experiments; `verdicts`: name -> how many rows say what."""

        def finish(tracker: Tracker) -> None:
            lines = [f"- {name}: {told}" for name, told in verdicts.items()]
            tracker.log(self.parent, tags={"mlflow.note.content": "\n".join(lines), "rawflash.kind": "experiments"})
            tracker.end(self.parent, FINISHED if good else FAILED)

        self._try(finish)

    def parent_complete(self) -> bool:
        """True when the parent run has ended with everything there."""
        known: list[bool] = []
        self._try(lambda tracker: known.append(tracker.ended_with(self.parent, COMPLETE)))
        return known == [True]

    def discard(self) -> None:
        """Delete the parent run: nothing ever ran below it."""
        self._try(lambda tracker: tracker.delete(self.parent) if self.parent else None)

    def end_family(self, invocation: str, reason: str) -> None:
        """End the runs of an invocation that still say RUNNING, whoever started them."""

        def end(tracker: Tracker) -> None:
            for run in tracker.search(f"{family_of(invocation)} and attributes.status = 'RUNNING'"):
                tracker.log(run.info.run_id, tags={"rawflash.reason": reason})
                tracker.end(run.info.run_id, KILLED)

        self._try(end)

    def abandon(self, status: str, reason: str) -> None:
        """End everything that is open here, whatever the store says."""
        if self.tracker is not None:
            with deferred():
                self.tracker.abandon(status, reason)


def _ordered(metrics: Mapping[str, float]) -> dict[str, float]:
    """The figure to look at first, then the order of rawflash.metrics: the UI's charts open with the first one."""
    return {name: metrics[name] for name in dict.fromkeys([_HEADLINE, *METRICS, *metrics]) if name in metrics}


def _name(row: Row) -> str:
    """Short, and distinct within one parent: fa2 b64 N512, and what else is swept."""
    known = {"block_size": "b", "problem.N": "N"}
    words = [row.variant, *(f"{short}{row.params[name]}" for name, short in known.items() if name in row.params)]
    words += [f"{name.rpartition('.')[2]}={value}" for name, value in row.point.items() if name not in known]
    return " ".join(words)[:120]


def _note(row: Row) -> str:
    """What, what to look at, how to repeat it: in this order, since the UI folds what is longer than a few lines."""
    emulated = row.backend == "emu"
    made = "emulated on the CPU: counted, not timed" if emulated else "run on a GPU: measured"
    lines = [f"**{row.variant}** on {describe(row.params)}; {made}."]
    if row.sentence:
        lines.append(f"{row.status}: {row.sentence}")
    first = "`io/times_ideal` (HBM bytes over the least possible)" if emulated else "`time/gpu_ms_median`, `perf/gb_s`"
    rest = (
        "`traffic.md` says which tensor and which line of the source moved the bytes"
        if emulated
        else "`time/gpu_ms_sample` is every sample"
    )
    lines.append(f"Look at {first} and `err/ratio` (right when at most 1); among the artifacts, {rest}.")
    lines.append(f"Repeat: `{repeat_command(row.overrides)}`")
    return "\n\n".join(lines)


def _parent_note(rows: Sequence[Row], title: str, arguments: Sequence[str], run_id: str, files: Sequence[str], step: str) -> str:
    """What, what to look at, how to repeat it; the tables too where they fit."""
    counts = ", ".join(f"{sum(row.status == status for row in rows)} {status}" for status in dict.fromkeys(row.status for row in rows))
    pictures = [f"`{name}`" for name in files if name.endswith(".png")]
    look = [f"`{PAGE}` among the artifacts", *([f"the pictures {', '.join(pictures[:4])}"] if pictures else [])]
    look += [f"the tab Model metrics, where every curve is one variant and {step}"] if step else []
    look += [f"`rawflash compare {run_id[:8]}` on the command line"]
    lines = [f"{title}: {counts}.", f"Look at {'; '.join(look)}.", f"Repeat: `{repeat_command(arguments)}`"]
    table = report_markdown(rows, "Comparison", made_by(arguments, [row.tags for row in rows]))
    note = "\n\n".join(lines)
    return f"{note}\n\n{table}" if len(note) + len(table) < MAX_VALUE - 100 else note


def _common(rows: Sequence[Row]) -> dict[str, str]:
    """The inputs that all rows share, and the variants."""
    first = rows[0].params if rows else {}
    shared = {name: value for name, value in first.items() if all(row.params.get(name) == value for row in rows)}
    return {"variants": " ".join(dict.fromkeys(row.variant for row in rows)), **shared}
