"""The table of refusals: every rule speaks in it, every sentence is one, and what is not refused is told."""

from __future__ import annotations

import pytest

from rawflash.experiments import refusals
from rawflash.experiments.refusals import EXPERIMENT, NONSENSE, POINTS, REFUSED
from rawflash.lab import Lab, Row, Verdict
from rawflash.problem import Problem
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    lab = Lab({}, A100)
    return [row for case in EXPERIMENT.cases(lab) for row in EXPERIMENT.rows(lab, case)]


def test_every_sentence_is_one_with_a_value_and_a_way_out(rows: list[Row]) -> None:
    assert len(rows) > 40 and {row.verdict for row in rows} == {Verdict.REPRODUCED}


def test_every_point_is_refused_by_somebody_and_runs_elsewhere_or_nowhere(rows: list[Row]) -> None:
    asked = {(row.keys["asked"], row.keys["gpu"]) for row in rows if row.table == REFUSED}
    assert len(asked) == len(POINTS)
    for row in rows:
        if row.table == REFUSED:
            by, run = (set(str(row.cells[side].value).split(", ")) for side in ("refused by", "run by"))
            assert not by & run and by | run <= {*LADDER, "all", "none"}


def test_every_rule_of_every_kernel_speaks(rows: list[Row]) -> None:
    """A rule that no point breaks would not be seen in the table."""
    from rawflash.config import gpu_values
    from rawflash.roofline import Gpu
    from rawflash.tiling import Tiling

    silent = {rule.__name__ for variant in LADDER.values() for rule in variant.rules}
    for sheet, asked, tile in POINTS:
        point = Problem(**{"N": 512, **asked}), Tiling(**{"Br": 64, "Bc": 64, **tile}), Gpu.from_dict(gpu_values(sheet))
        silent -= {rule.__name__ for variant in LADDER.values() for rule in variant.rules if rule(*point)}
    assert not silent


def test_what_is_taken_although_it_has_no_meaning_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MEANINGLESS", (lambda: Problem(),))
    (row,) = EXPERIMENT.rows(Lab({}, A100), NONSENSE)
    assert row.verdict is Verdict.DIFFERS


@pytest.mark.parametrize("sentence", ["no", "d=3 is wrong", "wrong: take another"])
def test_a_sentence_without_value_or_way_out_differs(sentence: str) -> None:
    assert refusals._judged(sentence)[0] is Verdict.DIFFERS
