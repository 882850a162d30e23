"""Contradictions are found where they are, and not where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash.experiments._repeats import bad_sums, repeated_rows
from rawflash.experiments._traps_later import rescaled_with
from rawflash.lab import Row, Verdict
from rawflash.lab.papers import published_entry
from tests.experiments.labs import lab_of, rows_of

TABLES = {n: published_entry(f"fa1_table{n}") for n in range(9, 21)}


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return rows_of("traps", lab_of("traps", tmp_path_factory.mktemp("memo")))


def test_rows_that_repeat_in_other_settings() -> None:
    found = {(r.method, r.tables): r.cells for r in repeated_rows(TABLES)}
    assert found["LSformer", (11, 14)] == 8
    for pair in ((11, 17), (12, 18), (13, 19), (14, 20)):
        assert {method for method, tables in found if tables == pair} == {"Block Sparse", "Longformer", "BigBird"}
    assert len(found) == 13 and not any("Flash" in method or "PyTorch" in method for method, _ in found)


def test_totals_that_are_less_than_their_parts() -> None:
    assert {(s.method, s.table, s.N) for s in bad_sums(TABLES, 0.8, 1024)} == {
        ("Megatron", 11, 1024),
        ("Megatron", 11, 2048),
        ("Longformer", 11, 1024),
    }
    assert bad_sums(TABLES, 0.5, 1024) == []


def test_the_inverse_factor_is_wrong_and_the_factor_right() -> None:
    rng = np.random.default_rng(5)
    s, v = 3 * rng.standard_normal(40), rng.standard_normal(40)
    right = np.exp(s) @ v / np.exp(s).sum()
    assert rescaled_with(s, v, 8, False) == pytest.approx(right, rel=1e-12)
    assert abs(rescaled_with(s, v, 8, True) - right) > 1e-3
    assert rescaled_with(s, v, 40, True) == pytest.approx(right, rel=1e-12)  # one block: nothing is rescaled


def test_the_gflops_of_figure_2(traps: list[Row]) -> None:
    rows = {str(row.keys["what"]): row for row in traps if "Figure 2" in str(row.keys["where"])}
    assert [rows[f"GFLOPs, {name}"].cells["found"].number for name in ("Standard", "FlashAttention")] == pytest.approx(
        [824.6, 962.1], abs=0.05
    )
    assert rows["GFLOPs, the difference"].cells["found"].number == pytest.approx(8.59, abs=0.005)
    assert rows["GFLOPs, Standard"].cells["at least"].number > 75.2


def test_every_trap_is_one_and_what_agrees_agrees(traps: list[Row]) -> None:
    assert {row.verdict for row in traps} == {Verdict.DIFFERS, Verdict.REPRODUCED}
    differ = {str(row.keys["where"]) for row in traps if row.verdict is Verdict.DIFFERS}
    assert {"FlashAttention, Figure 8 bottom", "FlashAttention-2, section 4.2", "FlashAttention-4, text"} <= differ
    agree = [row for row in traps if row.verdict is Verdict.REPRODUCED]
    assert len(agree) >= 16 and not any("Algorithm" in str(row.keys["where"]) for row in agree)
