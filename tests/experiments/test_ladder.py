"""The ladder's table on a small problem: the numbers of the runs, the closed forms, and the savings between neighbours."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rawflash.config import gpu_values
from rawflash.experiments.ladder import EXPERIMENT, STEPS
from rawflash.io_model import total_bytes
from rawflash.lab import Lab, Row, Verdict
from rawflash.lab.memo import Memo
from rawflash.lab.render import Report, report_tables
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER

OPTIONS = {"N": 48, "d": 16, "dtype": "fp16", "block": 16, "gpus": ["a100_80gb", "h100"]}
PROBLEM, TILING = Problem(B=1, H=1, N=48, d=16), Tiling(16, 16)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    gpu = Gpu.from_dict(gpu_values())
    lab = Lab(OPTIONS, gpu, PROBLEM, TILING, memo=Memo(Path(tmp_path_factory.mktemp("memo"))))
    return list(EXPERIMENT.rows(lab, None))


def line(rows: list[Row], quantity: str) -> dict[str, float]:
    (row,) = (row for row in rows if row.keys.get("one head") == quantity)
    assert list(row.cells) == list(LADDER)
    return {name: cell.number for name, cell in row.cells.items()}


def test_a_column_per_rung_with_the_bytes_of_its_closed_form(rows: list[Row]) -> None:
    assert line(rows, "bytes, all") == {name: total_bytes(variant.io(PROBLEM, TILING)) for name, variant in LADDER.items()}
    assert {row.verdict for row in rows if str(row.keys.get("one head", "")).startswith("bytes of")} == {Verdict.REPRODUCED}
    assert set(line(rows, "bank conflicts").values()) == {0}


def test_slots_add_up_and_tensor_cores_are_where_they_are_said_to_be(rows: list[Row]) -> None:
    parts = [line(rows, str(row.keys["one head"])) for row in rows if str(row.keys.get("one head", "")).startswith("issue slots, ")]
    *pipes, total = parts
    for name in LADDER:
        assert sum(pipe[name] for pipe in pipes) == total[name] > 0
        assert (line(rows, "issue slots, tensor")[name] > 0) == ("fp32" not in LADDER[name].dtypes)


def test_registers_and_occupancy_of_both_gpus(rows: list[Row]) -> None:
    for arch, gpu in (("80", "A100"), ("90", "H100")):
        registers, share, ctas = (line(rows, q) for q in (f"registers, sm_{arch}", f"{gpu}: occupancy", f"{gpu}: CTAs per SM"))
        for name in LADDER:
            assert 16 < registers[name] <= 255 and 0 < share[name] <= 100 and ctas[name] >= 1
    (row,) = (row for row in rows if row.keys.get("one head") == "A100: limited by")
    assert all(set(str(cell.value).split()) <= {"warps", "registers", "smem", "slots"} for cell in row.cells.values())


def test_steps_are_differences_of_neighbours(rows: list[Row]) -> None:
    steps = {(row.keys["from"], row.keys["to"]): row for row in rows if row.table == STEPS}
    assert list(steps) == list(pairwise(LADDER))
    loops, division, lazy = (steps[pair].cells for pair in (("fa1", "fa1_qout"), ("fa1_qout", "fa2"), ("fa2_pipe", "fa2_lazy")))
    moved = line(rows, "bytes, all")
    assert loops["bytes of HBM"].number == moved["fa1"] - moved["fa1_qout"] > 0
    assert division["bytes of HBM"].number == 0 < division["divisions and reciprocals"].number
    assert lazy["multiplications that rescale"].number == line(rows, "multiplications that rescale")["fa2_pipe"] > 0


def test_the_kind_of_number_is_said_once_a_line(rows: list[Row]) -> None:
    report = Report("ladder", EXPERIMENT.title, EXPERIMENT.claim, EXPERIMENT.source, rows)
    table = report_tables(report)[0]
    assert [column.title for column in table.columns][:2] == ["one head", "kind"]
    assert {row[1] for row in table.rows} == {"counted", "modelled"} and not any("(counted)" in cell for row in table.rows for cell in row)
