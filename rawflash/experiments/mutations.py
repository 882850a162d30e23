"""Every guard of every kernel, deleted one at a time: which check notices that it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rawflash.lab import Cell, Experiment, Lab, Row, Verdict
from rawflash.mutants import SUBJECTS, Guard, caught, guards

__all__ = ["EXPERIMENT"]


def _cases(lab: Lab) -> Sequence[Guard]:
    return [guard for subject in lab.options["kernels"] or SUBJECTS for guard in guards(subject)]


def _rows(lab: Lab, guard: Guard) -> Iterable[Row]:
    def make() -> list[str]:
        found = caught(guard)
        return [found.check, found.sentence] if found else []

    told = lab.remember(("mutant", *asdict(guard).values()), make, [guard.file])
    keys = {"kernel": guard.subject, "line": f"{guard.file}:{guard.line}", "deleted": guard.what}
    if not told:
        yield Row(keys, {"caught by": Cell("nothing")}, Verdict.DIFFERS, "no check notices that it is gone")
        return
    check, sentence = told
    yield Row(
        keys, {"caught by": Cell(check), "what it saw": Cell(sentence), "it stood there": Cell(guard.reason)}, Verdict.REPRODUCED, "noticed"
    )


EXPERIMENT = Experiment(
    title="Kernels without one barrier or wait",
    claim="Deleting any one barrier or wait for asynchronous copies from any kernel makes a check fail.",
    source="kernels_cu/README.md",
    rows=_rows,
    cases=_cases,
    notes=(
        "Each mutant runs on two small problems with the emulator's checks on: races, uninitialised reads, bounds, barriers. Its results "
        "must be those of the whole kernel, bit by bit. The first check that notices is named.",
        "A barrier inside an expression (the vote of fa2_mma and its successors on NaN values) cannot be deleted alone.",
    ),
)
