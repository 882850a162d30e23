"""Runs set side by side: which belong together, what differs between them, and a verdict per metric against the first one.

A group is one baseline and the runs that are compared with it. Runs of one invocation are grouped by the problem that they
solve; runs of several invocations by variant and point, so that a kernel is compared with its own earlier self.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rawflash.errors import UsageError
from rawflash.metrics import METRICS, SAMPLES, Metric
from rawflash.stored import StoredRun
from rawflash.verdict import Verdict, judge

__all__ = ["Group", "Line", "best", "by_problem", "compared", "labels", "matched"]

_BASELINE = "naive"
# Tags that explain a difference; the rest of the tags are bookkeeping.
_TELLING = ("status", "backend", "device", "gpu", "arch", "driver", "nvrtc", "source_hash", "ptx_hash", "options", "git_commit")
# What a group is ranked by: the first of these that its runs have.
_RANKED = ("time/gpu_ms_median", "io/hbm_total_bytes", "io/model_bytes")
_LAUNCH_BOUND = 3.0
_CLOCKS_APART = 0.02


@dataclass(frozen=True)
class Line:
    """One metric: its value in every run of the group (None: absent), and a verdict for every run but the first."""

    metric: Metric
    values: tuple[float | None, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class Group:
    """`runs[0]` is the baseline. `differs`: name of a param or tag -> its value in every run ("" where absent)."""

    title: str
    runs: tuple[StoredRun, ...]
    differs: dict[str, tuple[str, ...]]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def count(self, index: int) -> Counter[str]:
        """How many metrics of run `index` (1 or more) are better, worse, same, too noisy to tell."""
        return Counter(line.verdicts[index - 1].word for line in self.lines)


def compared(title: str, runs: Sequence[StoredRun]) -> Group:
    """Compare every run with the first one."""
    differs = _differs(runs)
    problems = {name: values for name, values in differs.items() if name.startswith("problem.")}
    silent = "they solve different problems" if problems else ""
    lines = []
    for name, m in METRICS.items():
        values = tuple(run.metrics.get(name) for run in runs)
        if name != SAMPLES and any(value is not None for value in values):
            lines.append(Line(m, values, tuple(_judged(m, runs[0], run, silent) for run in runs[1:])))
    notes = [f"They solve different problems ({_spread(problems)}): there are ratios, but no verdicts."] if problems else []
    return Group(title, tuple(runs), differs, tuple(lines), (*notes, *_notes(runs, lines)))


def _judged(m: Metric, base: StoredRun, run: StoredRun, silent: str) -> Verdict:
    found = judge(m, run.metrics.get(m.name), base.metrics.get(m.name), run.samples_ms, base.samples_ms)
    why = silent or next((f"{r.name} is {r.status or r.state}" for r in (base, run) if r.status != "OK"), "")
    return Verdict("", found.ratio, found.interval, why) if why and found.word else found


def _differs(runs: Sequence[StoredRun]) -> dict[str, tuple[str, ...]]:
    params = dict.fromkeys(name for run in runs for name in run.params)
    rows = {name: tuple(run.params.get(name, "") for run in runs) for name in params}
    rows |= {name: tuple(run.tags.get(name, "") for run in runs) for name in _TELLING}
    rows["options"] = _own_words(rows["options"])
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _own_words(options: Sequence[str]) -> tuple[str, ...]:
    """Compiler options without those that all share; the hash of the source has a row of its own."""
    words = [[w for w in text.split() if not w.startswith("-DRF_SRC_HASH")] for text in options]
    shared = set(words[0]).intersection(*words)
    return tuple(" ".join(w for w in own if w not in shared) for own in words)


def _spread(rows: dict[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{name}: {', '.join(dict.fromkeys(values))}" for name, values in rows.items())


def _notes(runs: Sequence[StoredRun], lines: Sequence[Line]) -> list[str]:
    """What a reader must know before believing a verdict."""
    names = labels(runs)
    notes = [
        f"{name}: {run.status or run.state}. {run.tags.get('sentence', '')}".strip()
        for name, run in zip(names, runs, strict=True)
        if run.status != "OK"
    ]
    notes += [f"{name} is still running: more may come." for name, run in zip(names, runs, strict=True) if run.state == "RUNNING"]
    hasty = [n for n, run in zip(names, runs, strict=True) if _launch_bound(run)]
    if hasty:
        notes.append(f"{', '.join(hasty)}: the time is less than {_LAUNCH_BOUND:g} empty launches, so it says little about the kernel.")
    clocks = [run.metrics["gpu/sm_clock_mhz"] for run in runs if "gpu/sm_clock_mhz" in run.metrics]
    if clocks and max(clocks) > min(clocks) * (1 + _CLOCKS_APART):
        notes.append(f"The SM clock was {min(clocks):.0f} to {max(clocks):.0f} MHz: some of the difference in time is the clock's.")
    if any(run.metrics.get("gpu/throttle_reasons") for run in runs):
        notes.append("The GPU was throttled in at least one run (gpu/throttle_reasons).")
    if _other_ptx(runs) and any(
        line.verdicts[0].word not in ("", "same") for line in lines if line.metric.name.startswith(("smem/", "ops/"))
    ):
        notes.append("The source is the same but the PTX is not (ptx_hash): what differs in smem/ and ops/ may be the compiler's doing.")
    return notes


def _launch_bound(run: StoredRun) -> bool:
    median, empty = run.metrics.get("time/gpu_ms_median"), run.metrics.get("time/gpu_ms_empty")
    return median is not None and empty is not None and median < _LAUNCH_BOUND * empty


def _other_ptx(runs: Sequence[StoredRun]) -> bool:
    keys = ("source_hash", "options")
    same = {tuple(run.tags.get(k) for k in keys) for run in runs}
    return len(runs) > 1 and len(same) == 1 and len({run.tags.get("ptx_hash") for run in runs}) > 1


def labels(runs: Sequence[StoredRun]) -> list[str]:
    """Names for column heads: the run's name, with the start of its id where two runs are called the same."""
    often = Counter(run.name for run in runs)
    return [run.name if often[run.name] == 1 else f"{run.name} ({run.run_id[:6]})" for run in runs]


def best(group: Group) -> tuple[str, list[StoredRun]]:
    """The metric that the group is ranked by, and the runs that are best in it; ("", []) when nothing can be ranked.

    Runs that are not OK, and values that are no finite numbers, take no part.
    """
    if any(name.startswith("problem.") for name in group.differs):
        return "", []
    for name in _RANKED:
        right = [(run.metrics[name], run) for run in group.runs if run.status == "OK" and math.isfinite(run.metrics.get(name, math.nan))]
        if right:
            least = min(value for value, _ in right)
            return name, [run for value, run in right if value == least]
    return "", []


# ------------------------------------------------------------------------------------------------- which runs belong together
def by_problem(
    runs: Sequence[StoredRun], variants: Sequence[str], describe: Callable[[dict[str, str]], str]
) -> list[tuple[str, list[StoredRun]]]:
    """(title, runs) per problem. Baseline: the first of `variants` that is there, else naive, else the first run."""
    groups: dict[tuple[tuple[str, str], ...], list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(tuple((k, v) for k, v in run.params.items() if k.startswith("problem.")), []).append(run)
    wanted = [*variants, _BASELINE]
    found = []
    for problem, members in groups.items():
        ranks = [wanted.index(run.variant) if run.variant in wanted and run.status == "OK" else len(wanted) for run in members]
        first = members[ranks.index(min(ranks))]
        found.append((describe(dict(problem)) or first.name, [first, *(run for run in members if run is not first)]))
    return found


def matched(families: Sequence[tuple[StoredRun, Sequence[StoredRun]]]) -> tuple[list[tuple[str, list[StoredRun]]], list[str]]:
    """(title, runs) per variant and point that at least two of the (parent, children) share, and what is left over, in sentences.

    A point is what varies within a parent. Raises UsageError when nothing matches.
    """
    axes = [
        n for n in dict.fromkeys(n for _, runs in families for run in runs for n in run.params) if n != "variant" and _varies(n, families)
    ]
    keyed: dict[tuple[str, ...], dict[str, StoredRun]] = {}
    for parent, runs in families:
        for run in runs:
            keyed.setdefault((run.variant, *(run.params.get(n, "") for n in axes)), {})[parent.run_id] = run
    groups, lonely = [], []
    for key, members in keyed.items():
        title = " ".join([key[0] or "?", *(f"{n.rpartition('.')[2]}={v}" for n, v in zip(axes, key[1:], strict=True))])
        if len(members) > 1:
            groups.append((title, [members[parent.run_id] for parent, _ in families if parent.run_id in members]))
        else:
            lonely.append(title)
    if not groups:
        names = " and ".join(f"{parent.name} ({parent.run_id[:6]})" for parent, _ in families)
        raise UsageError(f"{names} have no variant and point in common: name two single runs instead, by id or name")
    return groups, [f"In one of the invocations only: {', '.join(lonely)}."] if lonely else []


def _varies(name: str, families: Sequence[tuple[StoredRun, Sequence[StoredRun]]]) -> bool:
    return any(len({run.params.get(name) for run in runs}) > 1 for _, runs in families)
