"""512 MiB, 8 MiB, 64 times; and what real tiles make of it."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.experiments import problem1
from rawflash.lab import Picture, Row, Verdict


def test_the_numbers_of_the_exercise(rows_of: Callable[..., list[Row]]) -> None:
    rows = [row for row in rows_of("problem1", tiles=[], lengths=[8192, 16384])]
    hand = [row.cells["value"].number for row in rows if row.table == problem1.HAND]
    assert hand == [512, 8, 64]
    assert {row.verdict for row in rows if row.table == problem1.HAND} == {Verdict.REPRODUCED}
    assert [row.cells["ratio"].number for row in rows if row.table == problem1.GROWTH] == [64, 128]


def test_tiles_read_again_what_a_cache_would_catch(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (chart,) = run_experiment("problem1", N=512, d=32, tiles=[["naive", 32], ["fa2", 32], ["fa2", 64]], lengths=[512])
    asked = {f"{r.keys['kernel']} {r.keys['Br = Bc']}": r for r in rows if r.table == problem1.MOVED and r.keys["bytes"] == problem1.ASKED}
    pairs, row = 512 * 512, 512 * 32 * 2
    for block in (32, 64):
        assert asked[f"fa2 {block}"].cells["found"].number * 2**20 == 2 * pairs * 32 * 2 // block + 2 * row + 4 * 512
        assert asked[f"fa2 {block}"].verdict is Verdict.DIFFERS
    assert asked["naive 32"].cells["found"].number * 2**20 == 12 * pairs + 3 * pairs * 32 * 2 // 32 + row + 4 * 512
    behind = [r for r in rows if r.table == problem1.MOVED and r.keys["kernel"] == "fa2" and r.keys["bytes"] != problem1.ASKED]
    assert {r.verdict for r in behind} == {Verdict.REPRODUCED}
    assert "counted" in chart.caption and "modelled" in chart.caption
    assert not [r for r in rows if r.table == problem1.HAND and r.verdict]  # other sizes than the lesson's
