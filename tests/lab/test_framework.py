"""Cells, verdicts, texts and the runner, on a toy experiment that takes no time."""

from __future__ import annotations

import csv
import io
import json
import math
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rawflash.config import read_yaml
from rawflash.errors import RawflashError, UsageError
from rawflash.lab import (
    Axis,
    Cell,
    Chart,
    Experiment,
    Row,
    Series,
    Verdict,
    counted,
    crew,
    judge,
    measured,
    modelled,
    plots,
    published,
    registry,
    runner,
)
from rawflash.lab.memo import Memo
from rawflash.lab.papers import published_entries, published_entry
from rawflash.lab.render import Report, cell_text, csv_text, json_text, markdown_text, read_report, summary, verdict_counts
from rawflash.lab.workbench import lab_for
from rawflash.paths import conf_dir
from rawflash.signals import Stopped

CONF = {path.stem: path for path in (conf_dir() / "experiment").glob("*.yaml")}


def toy_rows(lab: Any, case: int) -> list[Row]:
    if case == 3:
        raise ValueError("three is too many")
    twice = lab.remember(["twice", case], lambda: 2 * case)
    return [
        Row(
            {"n": case},
            {"twice": counted(twice, "B"), "time": measured(None, "ms", note="NEEDS GPU")},
            *judge(twice, 4, 0.01, "n is not 2"),
        )
    ]


def toy_picture(lab: Any, rows: list[Row]) -> list[Chart]:
    points = Series("twice", list(range(len(rows))), [row.cells["twice"].number for row in rows])
    return [Chart("toy", "Twice", Axis("n"), Axis("2n (B), counted"), [points], "Counted.")]


TOY = Experiment("Twice as much", "2n is 4.", "nobody", toy_rows, lambda lab: lab.options["n"], toy_picture)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The experiment `traffic` replaced by the toy, its options too, and a cache of its own."""
    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "rawflash.experiments.traffic", SimpleNamespace(EXPERIMENT=TOY))
    monkeypatch.setattr(runner, "lab_for", _lab_of_toy(lab_for))
    monkeypatch.setattr(crew, "PATIENCE_S", math.inf)  # no other process knows the toy


def _lab_of_toy(real: Callable[..., Any]) -> Callable[..., Any]:
    def lab(name: str, settings: Any, device: Any, memo: Memo, *, alone: bool) -> Any:
        made = real(name, settings, device, memo, alone=alone)
        made.options = {"n": [n for n in settings.options.get("N", [1, 2]) if n < 10] or [1, 2]}
        return made

    return lab


def test_a_toy_is_written_filed_and_told(toy: None, program: Callable[..., Any], workdir: Path) -> None:
    done = program("experiment=traffic", "experiment.publish=kept", mlflow=True)
    assert done.code == 0, done.err
    assert "1 REPRODUCED, 1 DIFFERS" in done.out and "n is not 2" in done.out and "NEEDS GPU" in done.out
    (folder,) = workdir.glob("outputs/*/*/traffic")
    names = {"traffic.md", "traffic.csv", "traffic.json", "toy.png"}
    assert {p.name for p in folder.iterdir()} == {*names, "traffic.html"} and {p.name for p in (workdir / "kept").iterdir()} == names
    assert "NEEDS GPU" in (folder / "traffic.html").read_text("utf-8")
    report = read_report(folder / "traffic.json")
    assert verdict_counts(report.rows) == {Verdict.REPRODUCED: 1, Verdict.DIFFERS: 1}
    assert report.about["command"].endswith("rawflash.run experiment=traffic") and "rawflash 0" in report.made
    assert markdown_text(report) == (folder / "traffic.md").read_text("utf-8")
    assert plots.stored_hash(folder / "toy.png") == plots.picture_hash(toy_picture(None, report.rows)[0])
    _check_filed({*names, "traffic.html"})


def _check_filed(names: set[str]) -> None:
    from mlflow import MlflowClient

    client = MlflowClient("sqlite:///mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("rawflash").experiment_id])
    child = next(run for run in runs if run.data.tags["rawflash.kind"] == "experiment")
    parent = next(run for run in runs if run.data.tags["rawflash.kind"] == "experiments")
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.tags["verdict.REPRODUCED"] == "1"
    for run in (child, parent):
        assert run.info.status == "FINISHED"
        assert {file.path for file in client.list_artifacts(run.info.run_id)} == names


def test_what_was_computed_is_reused_and_an_error_is_a_row(toy: None, program: Callable[..., Any], workdir: Path) -> None:
    assert "2 computed, 0 reused" in program("experiment=traffic").out
    done = program("experiment=traffic", "experiment.options.N=[1,3,2,4]")
    assert done.code == 1 and "part of traffic could not be computed" in done.err
    assert "1 computed, 2 reused" in done.out and "internal error: ValueError: three is too many" in done.out
    assert "3 computed" in program("experiment=traffic", "experiment.options.N=[1,2,4]", "experiment.fresh=true").out


def test_a_stopped_experiment_goes_on_where_it_was(toy: None, program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_two(lab: Any, case: int) -> list[Row]:
        if case == 2:
            raise Stopped(signal.SIGINT)
        return toy_rows(lab, case)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "rawflash.experiments.traffic", SimpleNamespace(EXPERIMENT=replace(TOY, rows=stop_at_two)))
        stopped = program("experiment=traffic")
    assert stopped.code == 130 and "1 computed numbers are kept; the same command goes on" in stopped.err
    assert "1 computed, 1 reused" in program("experiment=traffic").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["experiment=trafic"], "experiment=trafic is unknown (did you mean traffic?); the known ones are "),
        (["experiment.names=[trafic]"], "there is no experiment 'trafic' (did you mean traffic?)"),
        (["experiment=traffic", "problem.N=64"], "the experiment traffic does not take problem.N"),
        (["experiment=traffic", "+experiment.options.M=64"], "the experiment traffic does not take experiment.options.M"),
        (["-m", "experiment=traffic"], "experiments do not go with -m"),
        (["experiment=traffic,all"], "'experiment.names=[traffic,all]'"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused(program: Callable[..., Any], workdir: Path, arguments: list[str], sentence: str) -> None:
    done = program(*arguments)
    assert (done.code, done.err.count("\n")) == (2, 1) and sentence in done.err
    assert not list(workdir.iterdir())


def test_every_experiment_has_a_yaml_that_opens_with_its_command() -> None:
    assert set(CONF) == {*registry.experiment_names(), "all", "none"}
    for name in registry.experiment_names():
        lines = CONF[name].read_text("utf-8").splitlines()
        assert lines[0].startswith(f"# python -m rawflash.run experiment={name}")
        assert read_yaml(CONF[name])["names"] == [name]
        experiment = registry.load(name)
        assert experiment.title and experiment.claim and experiment.source


def test_all_leaves_out_what_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    names = registry.experiment_names()
    assert list(registry.chosen(["all"])) == [name for name in names if not registry.load(name).needs_gpu]
    assert list(registry.chosen(["traffic", "traffic"])) == ["traffic"]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (counted(1234567, "B"), "1,234,567"),
        (modelled(0.123456), "0.1235"),
        (modelled(1234.56, digits=3), "1,235"),
        (modelled(1.5e12), "1,500,000,000,000"),
        (modelled(float("inf")), "inf"),
        (modelled(float("nan")), "nan"),
        (published("about 1.3x"), "about 1.3x"),
        (measured(None, "ms", note="NEEDS GPU"), "NEEDS GPU"),
    ],
)
def test_a_cell_reads_well(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_cells_and_rows_say_where_they_come_from() -> None:
    with pytest.raises(RawflashError, match="needs a provenance"):
        Cell(3.0, "B")
    with pytest.raises(RawflashError, match="unknown: choose one of measured, counted"):
        Cell(3.0, "B", "guessed")
    with pytest.raises(RawflashError, match="needs a note"):
        Cell(None)
    with pytest.raises(RawflashError, match="without a reason"):
        Row({"n": 1}, {}, Verdict.DIFFERS)
    with pytest.raises(RawflashError, match="holds no number"):
        _ = published("x").number


def test_judge() -> None:
    assert judge(3, 3, 0) == (Verdict.REPRODUCED, "exactly")
    assert judge(1.009, 1, 0.01)[0] is Verdict.REPRODUCED
    assert judge(1.011, 1, 0.01, "because") == (Verdict.DIFFERS, "because")
    assert judge(5, 4, 0.01) == (Verdict.DIFFERS, "found 5, claimed 4")
    assert judge(float("nan"), 1, 0.01)[0] is Verdict.DIFFERS


def report() -> Report:
    rows = [
        Row({"n": 1}, {"bytes": counted(5, "B"), "t": measured(None, "ms", note="NEEDS GPU")}, Verdict.NEEDS_GPU, "no clock here"),
        Row({"n": 2}, {"bytes": modelled(float("inf"), "KB")}, table="another"),
        Row({"n": 3}, {"bytes": modelled(7, "B", note="odd | end"), "t": published(3, "ms")}),
    ]
    return Report("toy", "Toy", "All is well.", "nobody", rows, made="Made by nobody", pictures={"a.png": "A"})


def test_several_experiments_are_told_in_one_table() -> None:
    table = summary([report(), report()])
    assert [column.title for column in table.columns][1:5] == ["reproduced", "differs", "not comparable", "needs gpu"]
    assert table.rows == (("toy", "", "", "", "1", "toy/toy.md"),) * 2


def test_json_reads_back() -> None:
    text = json_text(report())
    assert "Infinity" not in text and json.loads(text)["format"] == 1


def test_json_keeps_every_number(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text(json_text(report()), "utf-8")
    assert read_report(tmp_path / "toy.json") == report()


def test_markdown_names_unit_and_kind_of_every_number() -> None:
    text = markdown_text(report())
    assert "| n | bytes, B | t, ms (published) | verdict | why |" in text
    assert "| 1 | 5 (counted) | NEEDS GPU | NEEDS GPU | no clock here |" in text
    assert "| 3 | 7 (modelled) | 3 |  |  |" in text and "bytes 3: odd | end" in text
    assert "### another" in text and "![A](a.png)" in text and text.endswith("Made by nobody\n")


def test_csv_has_a_line_per_cell() -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(report()))))
    assert [(line["n"], line["column"], line["value"], line["provenance"]) for line in lines] == [
        ("1", "bytes", "5", "counted"),
        ("1", "t", "", "measured"),
        ("2", "bytes", "inf", "modelled"),
        ("3", "bytes", "7", "modelled"),
        ("3", "t", "3", "published"),
    ]


def test_memo_survives_damage_and_asks_again_when_anything_changes(tmp_path: Path) -> None:
    memo = Memo(tmp_path)
    assert [memo.get(["q"], [], lambda: [1, "a"]), memo.get(["q"], [], lambda: 0)] == [[1, "a"]] * 2
    assert memo.get(["q"], ["fa2.cu"], lambda: 3) == 3 and memo.get(["p"], [], lambda: 4) == 4
    for path in tmp_path.iterdir():
        path.write_text(path.read_text("utf-8")[:-2], "utf-8")
    assert memo.get(["q"], [], lambda: 5) == 5
    assert (memo.computed, memo.reused) == (4, 0)  # its own numbers are not from an earlier run
    later = Memo(tmp_path)
    assert later.get(["q"], [], lambda: 6) == 5 and (later.computed, later.reused) == (0, 1)
    fresh = Memo(tmp_path, fresh=True)
    assert [fresh.get(["q"], [], lambda: 7), fresh.get(["q"], [], lambda: 8)] == [7, 7] and (fresh.computed, fresh.reused) == (1, 0)


def test_published_numbers_have_a_citation_and_say_how_sure_they_are() -> None:
    for name, entry in published_entries().items():
        assert {"id", "paper", "where", "confidence"} <= set(entry), name
    assert published_entry("milakov_accesses")["rows"][0] == ["naive softmax", 2, 1, 3]
    with pytest.raises(UsageError, match="did you mean milakov_accesses"):
        published_entry("milakov_acesses")
