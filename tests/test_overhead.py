"""The benchmark of the program around the kernels: what it runs and what it adds up; no times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawflash.overhead import main, share, sweep_command, tracking_cost
from rawflash.results import Row, write_results
from tests.test_tracking import runs


@pytest.mark.parametrize("points", [1, 2, 4, 20, 100, 200])
def test_the_sweep_has_as_many_points_as_asked_for(points: int) -> None:
    axes = [word.partition("=")[2].split(",") for word in sweep_command(points, "", 2) if word.startswith(("kernel.B", "problem."))]
    total = 1
    for values in axes:
        assert len(set(values)) == len(values)
        total *= len(values)
    assert total == points
    assert sweep_command(points, "laptop", 2)[-2:] == ["hydra/launcher=laptop", "hydra.launcher.n_jobs=2"]


def test_the_sweep_runs_and_its_rows_say_what_they_cost(program: Callable[..., Any], workdir: Path) -> None:
    assert program(*sweep_command(2, "", 1)).code == 0
    rows, seconds = share(workdir)
    assert rows == 2 and seconds > 0


def test_the_share_adds_the_rows_up(tmp_path: Path) -> None:
    rows = [Row("fa2", "OK", metrics={"host/cpu_s": 0.25}), Row("fa2", "OK", metrics={"host/cpu_s": 0.5}), Row("fa2", "INVALID")]
    write_results(tmp_path / "outputs" / "day" / "time" / "results.json", rows, {})
    write_results(tmp_path / "outputs" / "day" / "time" / "0" / "results.json", rows[:1], {})
    assert share(tmp_path) == (3, 0.75)


def test_tracking_files_real_runs(workdir: Path, tmp_path: Path) -> None:
    (tmp_path / "fa2.cu").write_text("// source\n", "utf-8")
    row = Row("fa2", "OK", params={"block_size": "32"}, metrics={"ops/ex2": 3.0}, backend="emu")
    assert tracking_cost(workdir, row, tmp_path, children=2) > 0
    found = [run for run in runs(workdir, "cost.db") if run["parent"]]
    assert [(run["status"], run["metrics"], run["params"]["block_size"]) for run in found] == [("FINISHED", {"ops/ex2": 3.0}, "32")] * 3


def test_numbers_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--points", "0"]) == 2
    assert capsys.readouterr().err == "rawflash: --points 0 cannot be: give at least 1\n"
