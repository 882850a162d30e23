"""The online softmax paper's accesses, and the speedups that follow from them."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.experiments import softmax
from rawflash.lab import Picture, Row, Verdict


def test_accesses_are_the_papers_and_imply_its_speedups(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (bars,) = run_experiment("softmax", V=[300], K=[5])
    accesses = {str(row.keys["algorithm"]): row for row in rows if row.table == softmax.ACCESSES}
    assert [row.cells["total"].number for row in accesses.values()] == [3, 4, 3, 5, 4, 2, 1]
    assert {row.verdict for row in accesses.values()} == {Verdict.REPRODUCED}
    speedups = {row.keys["figure"]: row for row in rows if row.table == softmax.SPEEDUPS}
    assert [speedups[figure].cells["implied by accesses"].number for figure in "1234"] == [4 / 3, 4 / 3, 5, 5]
    assert [speedups[figure].verdict for figure in "13"] == [Verdict.REPRODUCED] * 2
    assert [speedups[figure].verdict for figure in "24"] == [Verdict.DIFFERS] * 2
    assert bars.name == "softmax" and "published" in bars.caption.lower()
