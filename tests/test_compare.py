"""`rawflash compare` on a store that holds two invocations, a sweep, a wrong run and odd numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawflash.metrics import SAMPLES
from rawflash.run import main
from rawflash.store import TrackingConf
from rawflash.tracking import FAILED, FINISHED, Tracker, open_tracker

Compare = Callable[..., tuple[int, str, str]]
BYTES = {"naive": 1000.0, "fa1": 400.0, "fa2": 250.0}


def child(tracker: Tracker, parent: str, variant: str, N: int = 64, metrics: dict[str, float] | None = None, **apart: Any) -> str:
    """File one run of a variant; `apart`: status, block, name, samples, tags."""
    tags = {"status": apart.get("status", "OK"), "rawflash.kind": "variant", "source_hash": "s0", **apart.get("tags", {})}
    block = str(apart.get("block", 32))
    run = tracker.start(apart.get("name", f"{variant} b{block} N{N}"), tags, parent=parent)
    params = {"variant": variant, "block_size": block, "problem.N": str(N), "problem.dtype": "fp16", "problem.causal": "none"}
    tracker.log(run, params, {"io/hbm_total_bytes": BYTES[variant] * N, "err/ratio": 0.5, "ops/flops": 4096.0, **(metrics or {})})
    tracker.series(run, {SAMPLES: list(enumerate(apart.get("samples", ())))})
    tracker.end(run, FINISHED if tags["status"] == "OK" else FAILED)
    return run


def timed(median: float, seed: int) -> dict[str, Any]:
    values = median * (1 + 0.01 * np.random.default_rng(seed).standard_normal(30))
    return {"samples": list(values), "metrics": {"time/gpu_ms_median": float(np.median(values)), "time/gpu_ms_empty": 0.004}}


@pytest.fixture(scope="module")
def made(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """(folder with mlflow.db, ids by a name of ours)."""
    folder = tmp_path_factory.mktemp("history")
    shutil.copy(made_store, folder)
    tracker = open_tracker(TrackingConf(), folder)
    assert tracker is not None
    ids: dict[str, str] = {}
    for when, slower, hash in (("old", 1.0, "s0"), ("new", 1.25, "s1")):
        parent = ids[when] = tracker.start("ladder b32 N64", {"rawflash.kind": "invocation"})
        for variant in BYTES:
            factor = slower if variant == "fa2" else 1.0
            figures = timed(factor * BYTES[variant] / 1000, len(ids))
            ids[f"{when} {variant}"] = child(tracker, parent, variant, tags={"source_hash": hash}, **figures)
        tracker.end(parent, FINISHED)
    sweep = ids["sweep"] = tracker.start("sweep problem.N", {"rawflash.kind": "invocation"})
    for N in (64, 128, 256):
        for variant in BYTES:
            ids[f"{variant} {N}"] = child(tracker, sweep, variant, N, name=f"{variant} swept N{N}")
    tracker.end(sweep, FINISHED)
    odd = ids["odd"] = tracker.start("odd ones", {"rawflash.kind": "invocation"})
    ids["wrong"] = child(
        tracker, odd, "fa1", name="wrong", status="INCORRECT", tags={"sentence": "fa1 is wrong"}, metrics={"io/hbm_total_bytes": 1.0}
    )
    ids["right"] = child(tracker, odd, "naive", name="right")
    for name, value in (("nan", math.nan), ("inf", math.inf)):
        ids[name] = child(tracker, odd, "fa2", name=name)
        tracker._client.log_metric(ids[name], "io/hbm_total_bytes", value)  # what another program may have stored
    return folder, ids


@pytest.fixture
def compare(
    made: tuple[Path, dict[str, str]], workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """compare("fa1", ...) -> (exit code, stdout, stderr), in the folder of the store."""
    monkeypatch.chdir(made[0])

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["compare", *arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def ids(made: tuple[Path, dict[str, str]]) -> dict[str, str]:
    return made[1]


def parsed(answer: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = answer
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def verdicts(group: dict[str, Any], metric: str) -> list[str]:
    (line,) = [entry for entry in group["metrics"] if entry["name"] == metric]
    return [entry["verdict"] for entry in line["verdicts"]]


def test_two_runs_side_by_side(compare: Compare, ids: dict[str, str]) -> None:
    (group,) = parsed(compare(ids["old naive"], ids["old fa2"][:10], "--format", "json"))["groups"]
    assert group["baseline"] == ids["old naive"] and [run["variant"] for run in group["runs"]] == ["naive", "fa2"]
    assert group["differs"] == {"variant": ["naive", "fa2"]}
    assert verdicts(group, "io/hbm_total_bytes") == ["better"] and verdicts(group, "ops/flops") == ["same"]
    assert verdicts(group, "time/gpu_ms_median") == ["better"]
    assert group["best"] == {"metric": "time/gpu_ms_median", "runs": [ids["old fa2"]]}
    assert SAMPLES not in [entry["name"] for entry in group["metrics"]]


def test_two_invocations_are_matched_by_variant_and_point(compare: Compare, ids: dict[str, str]) -> None:
    groups = {group["title"]: group for group in parsed(compare(ids["old"], ids["new"], "--format", "json"))["groups"]}
    assert list(groups) == ["naive", "fa1", "fa2"]
    assert [run["run_id"] for run in groups["fa2"]["runs"]] == [ids["old fa2"], ids["new fa2"]]
    assert verdicts(groups["fa2"], "time/gpu_ms_median") == ["worse"] and verdicts(groups["fa2"], "io/hbm_total_bytes") == ["same"]
    assert set(groups["fa2"]["differs"]) == {"source_hash"}
    assert compare(ids["old"], ids["new"], "--fail-on-worse")[0] == 1
    assert compare(ids["new"], ids["old"], "fa2", "--fail-on-worse")[0] == 0


def test_a_sweep_is_compared_problem_by_problem(compare: Compare, ids: dict[str, str]) -> None:
    code, out, err = compare(ids["sweep"], "fa2", "fa1")
    assert (code, err) == (0, "")
    head = out.split("sweep problem.N")[0]
    assert head.count("baseline") == 3 and head.count("fa2 swept") == 3 and "naive" not in head
    assert "least io/hbm_total_bytes: fa2 swept N128." in out
    groups = parsed(compare(ids["sweep"], "--format", "json"))["groups"]
    assert [group["runs"][0]["variant"] for group in groups] == ["naive"] * 3


def test_without_words_it_is_the_newest_invocation(compare: Compare, ids: dict[str, str]) -> None:
    assert parsed(compare("--format", "json"))["notes"][0].startswith(f"odd ones, {ids['odd']}, of 20")


def test_an_invocation_that_skipped_everything_is_not_the_newest(
    compare: Compare, tracker: Tracker, workdir: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(workdir)
    parent = tracker.start("all of it", {"rawflash.kind": "invocation"})
    child(tracker, parent, "naive")
    tracker.end(parent, FINISHED)
    tracker.end(tracker.start("resumed", {"rawflash.kind": "invocation"}), FINISHED)
    notes = parsed(compare("naive", "fa2", "--format", "json"))["notes"]
    assert notes[0].startswith(f"all of it, {parent}") and notes[1].startswith(
        "It holds no run of fa2 (rows that resume=true took over lie below "
    )


def test_m18_odd_numbers_and_wrong_results_are_never_best(compare: Compare, ids: dict[str, str]) -> None:
    (group,) = parsed(compare(ids["odd"], "--format", "json"))["groups"]
    assert group["best"] == {"metric": "io/hbm_total_bytes", "runs": [ids["right"]]}
    names = [run["name"] for run in group["runs"]]
    found = dict(zip(names[1:], verdicts(group, "io/hbm_total_bytes"), strict=True))
    assert names[0] == "right" and found == {"wrong": "", "nan": "", "inf": ""}
    (line,) = [entry for entry in group["metrics"] if entry["name"] == "io/hbm_total_bytes"]
    assert dict(zip(names, line["values"], strict=True)) == {"right": 64000, "wrong": 1, "nan": "nan", "inf": "inf"}
    assert "wrong: INCORRECT. fa1 is wrong" in group["notes"]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("params.variant = 'fa2' and metrics.`io/hbm_total_bytes` < 20000", {"old fa2", "new fa2", "fa2 64"}),
        ("params.`problem.N` = '256'", {"naive 256", "fa1 256", "fa2 256"}),
        ("tags.status = 'INCORRECT'", {"wrong"}),
    ],
)
def test_filters_are_mlflows_own(compare: Compare, ids: dict[str, str], where: str, found: set[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(compare("--filter", where, "--format", "csv")[1])))
    assert {row["run_id"] for row in rows} - {ids["nan"], ids["inf"]} == {ids[name] for name in found}


def test_runs_of_different_problems_are_told_apart(compare: Compare, ids: dict[str, str]) -> None:
    (group,) = parsed(compare(ids["fa2 64"], ids["fa2 256"], "--format", "json"))["groups"]
    assert group["notes"][0] == "They solve different problems (problem.N: 64, 256): there are ratios, but no verdicts."
    assert verdicts(group, "io/hbm_total_bytes") == [""] and group["best"] == {"metric": "", "runs": []}


def test_csv_has_exact_numbers_and_one_line_per_run_and_metric(compare: Compare, ids: dict[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(compare(ids["naive 64"], ids["fa1 64"], "--format", "csv")[1])))
    assert len(rows) == 2 * 3
    (row,) = [r for r in rows if r["variant"] == "fa1" and r["metric"] == "io/hbm_total_bytes"]
    assert (row["value"], row["baseline_value"], row["ratio"], row["verdict"], row["kind"]) == (
        "25600",
        "64000",
        "0.4",
        "better",
        "counted",
    )


def test_markdown_goes_to_a_file(compare: Compare, ids: dict[str, str], tmp_path: Path) -> None:
    code, out, err = compare(ids["old naive"], ids["old fa1"], "-o", str(tmp_path / "table.md"))
    assert (code, out, err) == (0, f"written to {tmp_path / 'table.md'}\n", "")
    text = (tmp_path / "table.md").read_text("utf-8")
    assert (
        text.startswith("### Verdicts\n\n| compared |")
        and "| io/hbm_total_bytes | bytes | counted | 64,000 | 25,600 (x0.4 better) |" in text
    )
    assert "| variant | naive | fa1 |" in text and "1 more metrics" not in text and "2 more metrics are the same" in text
    assert "| err/ratio | " in compare(ids["old naive"], ids["old fa1"], "--all", "--format", "markdown")[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nosuch",), "has the id or the name 'nosuch', and no variant is called so"),
        (("ladder b32 N64",), "'ladder b32 N64' may mean 2 runs: add --latest for the newest, or give the id ("),
        (("right",), "right alone cannot be compared"),
        (("right", "odd ones"), "single runs and parents of runs cannot be mixed"),
        (("right", "nan", "fa2"), "single runs are compared as they are"),
        (("odd ones", "sweep problem.N", "online"), "have no variant and point in common"),
        (("odd ones", "online"), "holds no run of online"),
        (("--filter", "params.x ==== 3"), "MLflow does not understand --filter 'params.x ==== 3' ("),
        (("--filter", "params.variant = 'fa9'"), "no run of a variant fits --filter"),
        (("--filter", "params.variant = 'fa2'", "--order-by", "foo bar"), "MLflow does not understand"),
        (("--limit", "0"), "--limit 0 cannot be"),
        (("-o", "x.pdf"), "--output x.pdf does not tell the format"),
        (("tracking.uri=sqlite:///none.db",), "there is no MLflow store at "),
        (("tracking.experiment=nix",), "has no experiment 'nix': choose one with tracking.experiment= (it has "),
        (("tracking.timeout=3",), "there is no tracking.timeout here"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_sentence(compare: Compare, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = compare(*words)
    assert (code, out) == (2, "") and err.count("\n") == 1 and err.startswith("rawflash: ")
    assert sentence in err


def test_reading_makes_no_store(compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.listdir()
    assert compare()[0] == 2 and os.listdir() == before


def test_latest_takes_the_newest_of_a_name(compare: Compare, ids: dict[str, str]) -> None:
    assert parsed(compare("ladder b32 N64", "--latest", "--format", "json"))["notes"][0].startswith(f"ladder b32 N64, {ids['new']}")


def test_b07_b09_notes_say_what_to_know_before_believing(
    compare: Compare, tracker: Tracker, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B07 and B09: clocks that moved, throttling, and times that are mostly the launch."""
    parent = tracker.start("p", {"rawflash.kind": "invocation"})
    for name, clock, reasons in (("a", 1980.0, 0.0), ("b", 1400.0, 4.0)):
        gpu = {"time/gpu_ms_median": 0.006, "time/gpu_ms_empty": 0.004, "gpu/sm_clock_mhz": clock, "gpu/throttle_reasons": reasons}
        child(
            tracker,
            parent,
            "fa2",
            name=name,
            metrics={**gpu, "ops/add": clock},
            tags={"ptx_hash": name, "options": f"-I{name}/i -arch=sm_90"},
        )
    monkeypatch.chdir(workdir)
    (group,) = parsed(compare("a", "b", "--format", "json"))["groups"]
    assert group["notes"] == [
        "a, b: the time is less than 3 empty launches, so it says little about the kernel.",
        "The SM clock was 1400 to 1980 MHz: some of the difference in time is the clock's.",
        "The GPU was throttled in at least one run (gpu/throttle_reasons).",
    ]
    assert group["differs"] == {"ptx_hash": ["a", "b"], "options": ["-Ia/i", "-Ib/i"]}
    child(tracker, parent, "fa2", name="c", metrics={"ops/add": 1.0}, tags={"ptx_hash": "c", "options": "-Ia/i -arch=sm_90"})
    (group,) = parsed(compare("a", "c", "--format", "json"))["groups"]
    assert any("the PTX is not (ptx_hash)" in note for note in group["notes"])
