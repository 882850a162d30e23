"""The table's numbers follow from the counters; a time faster than light is flagged; a refusal is a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rawflash.config import read_yaml
from rawflash.experiments import speed_of_light as experiment
from rawflash.experiments._light import all_gpus, judge_on, sheet
from rawflash.lab import Chart, HeatMap, Lab, Picture, Row, Verdict, measured
from rawflash.paths import conf_dir
from rawflash.problem import Problem
from rawflash.tiling import Tiling

# What tests/test_extend.py compiles as well.
SHORT = {"kernels": ["fa2_mma", "online"], "tiles": {"others": [32, 16]}, "N": 320, "d": 16, "B": 2, "H": 3}
SHORT["claims"] = [["fa2_mma", "tensor", "so"], ["online", "lsu", "loads"]]
A100 = sheet("a100_80gb")


def test_the_numbers_follow_from_the_counters(run_experiment: Callable[..., tuple[list[Row], list[Picture]]]) -> None:
    rows, (roofline, busy, everywhere) = run_experiment("speed_of_light", **SHORT)
    detail = {row.keys["kernel"]: row.cells for row in rows if row.table.startswith(experiment.DETAIL)}
    cells, p = detail["fa2_mma"], Problem(B=2, H=3, N=320, d=16)
    assert cells["tensor"].number == pytest.approx(p.flops() / 312e9)  # as many operations as the problem: nothing is padded
    assert cells["light"].number == max(cells[r].number for r in ("hbm", "l2", "smem", "tensor", "fma", "alu", "sfu", "lsu", "issue"))
    assert cells["rate at light"].number == pytest.approx(p.flops() / cells["light"].number / 1e9)
    assert cells[str(cells["binds"].value)].number == cells["light"].number
    assert {name for name, cell in cells.items() if cell.provenance != "modelled"} == {"HBM asked"}
    said = {row.keys["kernel"]: row for row in rows if row.table == experiment.SAID}
    assert all(row.cells["binds"].value == detail[kernel]["binds"].value for kernel, row in said.items())
    assert said["fa2_mma"].verdict is Verdict.DIFFERS and said["online"].verdict is not None
    for kernel, claimed in (("fa2_mma", "tensor"), ("online", "lsu")):
        assert (said[kernel].verdict is Verdict.REPRODUCED) == (detail[kernel]["binds"].value == claimed)
    assert isinstance(roofline, Chart) and (roofline.x.log, roofline.y.log) == ("10", "10") and "Modelled, not measured" in roofline.caption
    assert [s.label for s in roofline.series if s.kind == "points"] == ["fa2_mma", "online"]
    assert isinstance(busy, HeatMap) and all(max(v for v in line if v is not None) == pytest.approx(100) for line in busy.values)
    assert isinstance(everywhere, HeatMap) and len(everywhere.rows) == len(all_gpus()) == 10


def test_a_gpu_that_cannot_run_it_says_why(rows_of: Callable[..., list[Row]]) -> None:
    rows = [row for row in rows_of("speed_of_light", **SHORT) if row.table == experiment.EVERYWHERE and row.keys["GPU"] == "T4"]
    note = {row.keys["kernel"]: row.cells["light"].note for row in rows}
    assert "needs compute capability 8.0" in note["fa2_mma"] and note["online"] == ""


@pytest.mark.parametrize(
    ("ms", "verdict", "words"), [(1e-6, Verdict.DIFFERS, "faster than light"), (1.0, None, "times the speed of light")]
)
def test_a_measured_time_is_held_against_light(ms: float, verdict: Verdict | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "time", lambda *_: measured(ms, "ms"))
    device: Any = object()
    lab = Lab({**read_yaml(conf_dir() / "experiment" / "speed_of_light.yaml")["options"], **SHORT}, A100, device=device)
    row = next(iter(experiment.EXPERIMENT.rows(lab, "fa2_mma")))
    assert row.verdict == verdict and words in row.reason and row.cells["measured"].number == ms


def test_occupancy_is_that_of_the_kernel_that_has_the_lowest() -> None:
    found = judge_on(Lab({}, A100), "fa2_mma", Problem(B=2, H=3, N=320, d=16), Tiling(32, 16), A100)
    assert (found.warps, found.smem_bytes, found.exact) == (2, 2 * (32 + 2 * 16) * 16, True)
    assert found.waves == 2 * 3 * 10 / (found.occupancy.ctas * 108)
