"""The trace by hand, against numbers worked out here, and kernels that go through the same states."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rawflash.errors import UsageError
from rawflash.experiments import problem2
from rawflash.lab import Row, Verdict


def executed(rows: list[Row], kernel: str) -> list[Row]:
    return [row for row in rows if row.table == f"{kernel}, executed"]


def test_four_scores_in_two_tiles_by_hand(rows_of: Callable[..., list[Row]]) -> None:
    rows = rows_of("problem2", block=2, scores=[1, 3, 2, 5], values=[10, 20, 30, 40])
    first, second = (row.cells for row in rows if row.table == problem2.FORMULA)
    e = math.exp
    assert [first[name].number for name in ("m", "alpha", "l", "O[0]")] == pytest.approx([3, 0, e(-2) + 1, 10 * e(-2) + 20])
    alpha = e(-2)
    l, O = alpha * (e(-2) + 1) + e(-3) + 1, alpha * (10 * e(-2) + 20) + 30 * e(-3) + 40
    assert [second[name].number for name in ("m", "alpha", "l", "O[0]")] == pytest.approx([5, alpha, l, O])
    kernel = executed(rows, "fa1")[1].cells
    assert [kernel[name].number for name in ("m", "alpha", "l", "O[0]")] == pytest.approx([5, alpha, l, O], rel=1e-6)
    assert {cell.provenance for name, cell in kernel.items() if name != "largest difference"} == {"counted"}
    assert executed(rows, "fa2")[1].cells["LSE"].number == pytest.approx(5 + math.log(l), rel=1e-6)
    assert {row.verdict for row in rows if row.table != problem2.FORMULA} == {Verdict.REPRODUCED}


@pytest.mark.parametrize(("row", "block"), [(0, 16), (79, 7), (3, 100)])
def test_any_row_and_tile(rows_of: Callable[..., list[Row]], row: int, block: int) -> None:
    rows = rows_of("problem2", row=row, block=block, kernels=["fa1"])
    assert len(executed(rows, "fa1")) == -(-80 // block)
    assert {r.verdict for r in rows if r.table != problem2.FORMULA} == {Verdict.REPRODUCED}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"row": 80}, "row=80 is not a row of a problem with N=80: give 0 to 79"),
        ({"row": -1}, "row=-1 is not a row"),
        ({"block": 0}, "block=0 is no tile"),
        ({"scores": [1, 2], "values": [1]}, "two lists of finite numbers of the same length"),
        ({"scores": []}, "at least one"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(rows_of: Callable[..., list[Row]], options: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        rows_of("problem2", **options)
