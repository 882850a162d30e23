"""FlashAttention's figures and tables: the exact numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rawflash.experiments import fa1_fig1, fa1_fig2, fa1_tab21, fa1_thm2
from rawflash.lab import Row, Verdict
from rawflash.lab.papers import published_entry
from rawflash.problem import Problem
from rawflash.tiling import Tiling
from tests.experiments.labs import A100, Timed, lab_of, rows_of

FIGURE_2 = {64: 6_576_668_672, 128: 3_355_443_200, 256: 1_744_830_464, 512: 939_524_096}


@pytest.fixture(scope="module")
def figure_2(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return rows_of("fa1_fig2", lab_of("fa1_fig2", tmp_path_factory.mktemp("memo")))


def test_figure_2_middle_to_the_byte(figure_2: list[Row]) -> None:
    middle = [row for row in figure_2 if row.table == fa1_fig2.MIDDLE]
    assert {row.keys["key block"]: row.cells["Q, K, V, O"].value for row in middle} == FIGURE_2
    assert {row.keys["key block"]: row.cells["closed form"].value for row in middle} == FIGURE_2
    assert all(row.verdict is Verdict.REPRODUCED for row in middle)
    assert all(row.cells["time"].value is None for row in middle)


def test_figure_2_left_counts_the_forward_part_and_waits_for_the_rest(figure_2: list[Row]) -> None:
    left = {(row.keys["attention"], row.keys["passes"]): row for row in figure_2 if row.table == fa1_fig2.LEFT}
    flash, standard = left["FlashAttention", "forward"], left["Standard", "forward"]
    assert (flash.cells["of U"].value, standard.cells["of S"].value) == (13, 8.5)
    assert flash.verdict is standard.verdict is Verdict.REPRODUCED
    totals = {name: left[name, "forward + backward"] for name in ("FlashAttention", "Standard")}
    assert {name: row.cells["bytes"].value for name, row in totals.items()} == {"FlashAttention": 4_429_185_024, "Standard": 40_265_318_400}
    assert all(row.verdict is Verdict.NOT_COMPARABLE and "backward kernel" in row.reason for row in totals.values())


def test_figure_1_every_stage_by_itself(tmp_path: Path) -> None:
    head = Problem(B=1, H=1, N=128, d=32, causal="bottom_right", dropout_p=0.1)
    found = fa1_fig1.stage_bytes(lab_of("fa1_fig1", tmp_path), head, Tiling(16, 16))
    S, U = 2 * 128 * 128, 2 * 128 * 32
    expected = {kernel: in_S * S for kernel, in_S, _ in fa1_fig1.STAGES.values()}
    assert {kernel: matrix for kernel, (matrix, _) in found.items()} == expected
    assert {kernel: vectors // U for kernel, (_, vectors) in found.items() if vectors} == {"unfused_scores": 16, "unfused_output": 9}


def test_theorem_2_is_exact_where_its_tiles_are_whole(tmp_path: Path) -> None:
    assert [fa1_thm2.block_rule(M, 64) for M in (4096, 16384, 65536)] == [Tiling(16, 16), Tiling(64, 64), Tiling(64, 256)]
    assert fa1_thm2.block_rule(4097, 64).Bc == 17
    rows = rows_of("fa1_thm2", lab_of("fa1_thm2", tmp_path, M=[2048, 4096, 16384], sizes=[[256, 32]], tolerance=0.1))
    points = {row.keys["M"]: row for row in rows if row.table == fa1_thm2.FLASH}
    assert set(points) == {2048, 4096}  # 16384 > N d: not the theorem's
    assert points[4096].cells["elements"].value == 12 * 256**2 * 32**2 // 4096 + 256 * 32
    assert all(row.verdict is Verdict.REPRODUCED for row in rows)


def test_table_21_cell_by_cell() -> None:
    entry = published_entry("fa1_table21")
    printed = {row[0]: dict(zip(entry["columns"][1:], row[1:], strict=True)) for row in entry["rows"]}
    for method, model in fa1_tab21.MODELS.items():
        for N, cell in printed[method].items():
            found = model(fa1_tab21.table_problem(N)) / 2**20
            assert int(found) == cell if cell is not None else found > 40 * 1024, (method, N)


def test_memory_of_the_kernels_here() -> None:
    p, U = fa1_tab21.table_problem(256), 16 * 8 * 256 * 64 * 2
    rows = 16 * 8 * 256 * 4
    assert fa1_tab21.allocated("fa2", p, Tiling(64, 64)) == 4 * U + rows
    assert fa1_tab21.allocated("fa1", p, Tiling(64, 64)) == 4 * U + 3 * rows
    assert fa1_tab21.allocated("unfused", p, Tiling(64, 64)) == 4 * U + rows + 2 * (16 * 8 * 256 * 256 * 2)


def test_tables_9_to_20_say_what_each_needs(tmp_path: Path) -> None:
    lab = lab_of("fa1_tables", tmp_path)
    rows = rows_of("fa1_tables", lab)
    ready = {row.table for row in rows if row.verdict is Verdict.NEEDS_GPU}
    assert len(rows) == 120 and ready == {"Table 18: forward, neither dropout nor masking"}
    assert "padding masks and dropout" in rows[0].reason and "a backward pass" in rows[10].reason
    assert not [row for row in rows if row.verdict is Verdict.DIFFERS]


def test_tables_on_a_gpu_compare_speedups(tmp_path: Path) -> None:
    lab = Timed(lab_of("fa1_tables", tmp_path, tables=[18]).options, A100)
    rows = {row.keys["N"]: row for row in rows_of("fa1_tables", lab)}
    assert rows[1024].verdict is Verdict.DIFFERS and rows[1024].reason == "1.0 times faster than the baseline, printed 1.9"
    assert rows[65536].verdict is Verdict.NOT_COMPARABLE
