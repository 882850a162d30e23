"""Memory with and without the score matrix, and the longest row that fits: by hand."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.experiments import capacity
from rawflash.experiments._light import sheet
from rawflash.lab import Chart, Lab, Picture, Row, Verdict

MI = 2**20


def test_the_lessons_numbers(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (chart,) = run_experiment("capacity")
    head = {row.keys["N"]: row for row in rows if row.table == capacity.HEAD}
    assert head[8192].cells["S, or P"].number == 128 and head[131072].cells["S, or P"].number == 32 * 1024
    assert [row.verdict for row in head.values() if row.verdict] == [Verdict.REPRODUCED] * 2
    assert head[8192].cells["tiled: Q, K, V, O, LSE"].number == 8 + 8192 * 4 / MI
    assert head[8192].cells["naive: Q, K, V, O, LSE, S, P"].number == 8 + 8192 * 4 / MI + 2 * 128
    assert isinstance(chart, Chart) and {s.kind for s in chart.series} == {"line", "theory"}


def test_the_longest_row_fits_and_one_more_does_not() -> None:
    lab = Lab({"d": 8, "dtype": "fp16"}, sheet("a100_80gb"))
    bytes_of = lambda N, matrices: 4 * N * 8 * 2 + 4 * N + 2 * matrices * N * N  # noqa: E731
    for memory in (1, 68, 1000, 80 * 2**30):
        for matrices in (0, 2):
            N = capacity.largest_N(lab, memory, 1, matrices)
            assert bytes_of(N, matrices) <= memory < bytes_of(N + 1, matrices)


def test_every_gpu_has_a_row_per_number_of_heads(rows_of: Callable[..., list[Row]]) -> None:
    rows = [row for row in rows_of("capacity", heads=[1, 4]) if row.table == capacity.FITS]
    assert len(rows) == 20
    for one, four in zip(rows[::2], rows[1::2], strict=True):
        assert abs(one.cells["naive"].number / four.cells["naive"].number - 2) < 0.01  # N^2 times the heads
        assert abs(one.cells["tiled"].number / four.cells["tiled"].number - 4) < 0.01


def test_the_calculator_as_an_experiment(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (chart,) = run_experiment("calculator", N=[128, 256])
    values = {row.keys["figure"]: row.cells["value"] for row in rows if "figure" in row.keys}
    assert values["FLOPs"].number == 4 * 1 * 4 * 64 * 512**2  # Problem()'s default
    assert values["What binds naive"].value == "memory" and {cell.provenance for cell in values.values()} == {"modelled"}
    assert isinstance(chart, Chart) and [s.label for s in chart.series] == ["naive", "tiled"]
