"""MLflow runs: one parent, one child per row, every one of them ended, whatever happens."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rawflash.errors import TrackingError
from rawflash.metrics import METRICS
from rawflash.store import TrackingConf, resolve_store
from rawflash.tracking import FAILED, FINISHED, MAX_VALUE, Tracker, open_tracker
from rawflash.variants import LADDER

Program = Callable[..., Any]
Run = dict[str, Any]


def runs(folder: Path, name: str = "mlflow.db") -> list[Run]:
    """Every run of a store that the lists show, oldest first, read without MLflow."""
    with contextlib.closing(sqlite3.connect(folder / name)) as db:
        found = []
        query = "select run_uuid, name, status, end_time, artifact_uri from runs where lifecycle_stage='active' order by start_time"
        for run_id, title, status, end, artifacts in db.execute(query):
            run: Run = {"id": run_id, "name": title, "status": status, "end": end, "artifacts": artifacts}
            for kind in ("params", "tags"):
                run[kind] = dict(db.execute(f"select key, value from {kind} where run_uuid=?", (run_id,)))
            run["metrics"] = dict(db.execute("select key, value from latest_metrics where run_uuid=?", (run_id,)))
            run["parent"] = run["tags"].get("mlflow.parentRunId")
            found.append(run)
        return found


def family(folder: Path) -> tuple[Run, list[Run]]:
    """The one parent run and its children."""
    found = runs(folder)
    (parent,) = [run for run in found if run["parent"] is None]
    children = [run for run in found if run["parent"] is not None]
    assert {run["parent"] for run in children} <= {parent["id"]}
    return parent, children


def test_one_parent_and_one_child_per_variant(logged: Program, workdir: Path, quick: Any) -> None:
    assert logged("block_size=32").code == 0
    parent, children = family(workdir)
    assert [run["params"]["variant"] for run in children] == list(LADDER)
    assert {run["status"] for run in [parent, *children]} == {"FINISHED"} and all(run["end"] for run in [parent, *children])
    names = [run["name"] for run in children]
    assert names == [f"{name} b32 N1024" for name in LADDER] and parent["name"] == "ladder b32 N1024"


def test_what_a_child_holds(logged: Program, workdir: Path, quick: Any) -> None:
    logged("kernel=fa2", "block_size=32", "problem.causal=true")
    parent, (child,) = family(workdir)
    params, tags = child["params"], child["tags"]
    assert params["block_size"] == "32" and params["problem.causal"] == "true" and params["problem.softmax_scale"] == "null"
    assert not [name for name in params if name.startswith(("tracking", "hydra", "io/", "debug"))]
    assert set(child["metrics"]) <= set(METRICS) and child["metrics"]["err/ratio"] == 0.5
    assert {"backend", "device", "driver", "nvrtc", "git_commit", "source_hash", "repro", "status", "mlflow.note.content"} <= set(tags)
    assert tags["repro"] == "python -m rawflash.run block_size=32 problem.causal=true kernel=fa2"
    assert parent["tags"]["repro"] == "python -m rawflash.run kernel=fa2 block_size=32 problem.causal=true"
    assert "causal bottom_right" in tags["mlflow.note.content"] and tags["repro"] in tags["mlflow.note.content"]
    assert "| variant |" in parent["tags"]["mlflow.note.content"]
    assert parent["tags"]["repro"] in parent["tags"]["mlflow.note.content"]


def test_artifacts_lie_beside_the_database(logged: Program, workdir: Path, quick: Any) -> None:
    logged("kernel=fa2")
    parent, (child,) = family(workdir)
    assert child["artifacts"].startswith((workdir / "mlruns").as_uri())
    folders = [workdir / "mlruns" / run["id"] / "artifacts" for run in (parent, child)]
    assert {p.name for p in folders[0].iterdir()} == {"config.yaml", "results.json", "summary.html", "table.md"}
    assert {p.name for p in folders[1].iterdir()} == {"config.yaml", "source", "kernel.ptx.txt", "traffic.md"}


def test_tags_params_and_artifacts_hold_no_folder_of_this_machine(logged: Program, workdir: Path) -> None:
    logged("kernel=fa2", "problem=tiny", "block_size=32", "backend=emu")
    texts = [json.dumps([run["params"], run["tags"]]) for run in runs(workdir)]
    texts += [path.read_text("utf-8") for path in workdir.glob("mlruns/**/*") if path.is_file()]
    from rawflash.paths import kernels_dir

    for text in texts:
        assert str(kernels_dir()) not in text and str(Path.home()) not in text and sys.prefix not in text


def test_a_sweep_has_one_parent_and_keeps_invalid_points(logged: Program, workdir: Path, quick: Any) -> None:
    assert logged("-m", "kernel=naive,fa2", "block_size=16,128", "gpu=t4", "problem.dtype=fp32").code == 0
    parent, children = family(workdir)
    assert parent["name"] == "block_size sweep" and parent["status"] == "FINISHED"
    by_name = {run["name"]: run for run in children}
    assert len(by_name) == 4
    assert by_name["fa2 b16 N1024"]["status"] == "FINISHED"
    bad = by_name["fa2 b128 N1024"]
    assert (bad["status"], bad["tags"]["status"]) == ("FAILED", "INVALID") and bad["tags"]["sentence"]
    assert bad["tags"]["repro"] == "python -m rawflash.run block_size=128 gpu=t4 problem.dtype=fp32 kernel=fa2"
    assert parent["tags"]["rows.OK"] and parent["tags"]["rows.INVALID"]


def test_the_parent_of_a_sweep_has_curves_pictures_and_a_description(logged: Program, workdir: Path, quick: Any) -> None:
    assert logged("-m", "kernel=naive,fa2", "problem.N=64,128,256", "block_size=32").code == 0
    parent, children = family(workdir)
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db:
        found = db.execute("select key, step, value from metrics where run_uuid=? order by step", (parent["id"],)).fetchall()
    by_name = {run["name"]: run["metrics"] for run in children}
    want = [(N, by_name[f"fa2 b32 N{N}"]["io/times_ideal"]) for N in (64, 128, 256)]
    assert [(step, value) for key, step, value in found if key == "io/times_ideal/fa2"] == want
    assert {p.name for p in (workdir / "mlruns" / parent["id"] / "artifacts").glob("*.*")} >= {"summary.html", "hbm_total_bytes.png"}
    note = parent["tags"]["mlflow.note.content"]
    assert parent["tags"]["repro"] in note and "the step is problem.N" in note and f"rawflash compare {parent['id'][:8]}" in note


# Case M16.
def test_good_points_after_a_bad_one_are_filed(logged: Program, workdir: Path, quick: Any) -> None:
    assert logged("-m", "kernel=fa2", "block_size=16,0,32").code == 2
    parent, children = family(workdir)
    assert [run["status"] for run in children] == ["FINISHED", "FAILED", "FINISHED"]
    assert parent["status"] == "FAILED"


# Case M03.
@pytest.mark.parametrize("answer", [("INCORRECT", "fa2 is wrong"), ("COMPILE_ERROR", "fa2.cu:3: no"), ("RUNTIME_ERROR", "out of bounds")])
def test_a_failing_variant_fails_its_run_and_the_parent(logged: Program, workdir: Path, quick: dict[str, Any], answer: Any) -> None:
    quick["fa2"] = answer
    assert logged().code == 1
    parent, children = family(workdir)
    assert parent["status"] == "FAILED"
    assert {run["params"]["variant"]: run["status"] for run in children} == {name: FAILED if name == "fa2" else FINISHED for name in LADDER}
    (bad,) = [run for run in children if run["status"] == FAILED]
    assert (bad["tags"]["status"], bad["tags"]["sentence"]) == answer


# Case M03.
def test_an_unforeseen_error_leaves_nothing_running(logged: Program, workdir: Path, quick: dict[str, Any]) -> None:
    quick["fa1"] = RuntimeError("a slip of ours")
    assert logged().code == 1
    parent, children = family(workdir)
    assert parent["status"] == "FAILED" and {run["params"]["variant"]: run["status"] for run in children}["fa1"] == "FAILED"
    assert [run["status"] for run in children].count("FAILED") == 1 and len(children) < len(LADDER)
    assert parent["tags"]["rawflash.reason"] == "a slip of ours"


def test_a_refused_sweep_shows_no_run(logged: Program, workdir: Path, quick: Any) -> None:
    assert logged("-m", "kernel=fa2,fa9").code == 2
    assert runs(workdir) == [] and not (workdir / "outputs").exists()


# Case M09.
def test_a_leaked_run_id_is_ignored(logged: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    assert logged("kernel=fa2").code == 0
    assert len(runs(workdir)) == 2
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db:
        assert ("theirs",) in db.execute("select name from experiments").fetchall()


# Case M09.
@pytest.mark.parametrize("uri", ["", "null", "sqlite:///other.db"])
@pytest.mark.parametrize("environment", [None, "sqlite:///env.db"])
def test_the_store_is_chosen_in_the_documented_order(
    program: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch, uri: str, environment: str | None
) -> None:
    if environment:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
    assert program("kernel=fa2", f"tracking.uri={uri}", mlflow=True).code == 0
    expected = "other.db" if uri.startswith("sqlite") else "env.db" if environment else "mlflow.db"
    assert [p.name for p in workdir.rglob("*.db")] == [expected]


def test_results_survive_a_store_that_fails_after_the_work(
    logged: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Tracker.log, []

    def failing(self: Tracker, run_id: str, **entries: Any) -> None:
        calls.append(run_id)
        if len(calls) > 2:
            raise TrackingError("the disk of the server is full")
        real(self, run_id, **entries)

    monkeypatch.setattr(Tracker, "log", failing)
    got = logged()
    assert got.code == 1 and got.err.count("\n") == 1
    (results,) = workdir.glob("outputs/*/*/results.json")
    assert "the work is done, but not everything could be filed: the disk of the server is full." in got.err
    assert str(results.parent) in got.err
    assert [row["status"] for row in json.loads(results.read_text("utf-8"))["rows"]] == ["OK"] * len(LADDER)
    parent, children = family(workdir)
    assert parent["status"] == "FAILED" and not [run for run in children if run["status"] == "RUNNING"]


# Case M18.
def test_odd_numbers_become_a_tag(tracker: Tracker, workdir: Path) -> None:
    run = tracker.start("odd", {})
    tracker.log(run, metrics={"err/ratio": math.nan, "err/max_abs": math.inf, "ops/ex2": 3.0})
    tracker.end(run, FINISHED)
    (found,) = runs(workdir)
    assert found["metrics"] == {"ops/ex2": 3.0}
    assert found["tags"]["rawflash.nonfinite"] == "err/ratio=nan, err/max_abs=inf"


def test_only_known_metrics_are_filed(tracker: Tracker) -> None:
    with pytest.raises(Exception, match="no metric is called 'speed'"):
        tracker.log(tracker.start("x", {}), metrics={"speed": 1.0})


# Case M01.
def test_long_values_point_to_the_artifact(tracker: Tracker, workdir: Path) -> None:
    run = tracker.start("long", {"note": "n" * 10_000})
    tracker.log(run, params={"fits": "f" * MAX_VALUE, "long": "x" * 10_000})
    params = runs(workdir)[0]["params"]
    assert params["fits"] == "f" * MAX_VALUE
    assert params["long"] == "x" * 200 + "... (10000 characters; whole in the artifact config.yaml)"


# Case M20.
def test_many_values_are_filed_in_portions(tracker: Tracker, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawflash.tracking.validate", lambda values: values)
    run = tracker.start("many", {})
    tracker.log(run, {f"p{i}": "v" for i in range(250)}, {f"m{i}": 1.0 for i in range(2500)}, {f"t{i}": "v" for i in range(250)})
    (found,) = runs(workdir)
    assert (len(found["params"]), len(found["metrics"])) == (250, 2500) and len(found["tags"]) > 250


def test_abandon_ends_children_first_and_only_what_is_open(tracker: Tracker, workdir: Path) -> None:
    parent = tracker.start("parent", {})
    done, open_run = (tracker.start(name, {}, parent=parent) for name in ("done", "open"))
    tracker.end(done, FINISHED)
    tracker.abandon(FAILED, "a reason")
    assert {run["name"]: run["status"] for run in runs(workdir)} == {"parent": FAILED, "done": FINISHED, "open": FAILED}
    assert {run["id"] for run in runs(workdir) if "rawflash.reason" in run["tags"]} == {parent, open_run}


def test_a_deleted_experiment_is_told_with_the_way_out(tracker: Tracker, workdir: Path) -> None:
    tracker._client.delete_experiment(tracker.experiment_id)
    with pytest.raises(TrackingError, match=r"was deleted in .*mlflow experiments restore --experiment-id"):
        open_tracker(TrackingConf(), workdir)


def test_a_store_whose_making_was_interrupted_is_not_left(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    def interrupted(uri: str) -> None:
        (workdir / "mlflow.db").write_bytes(b"some of the tables")
        raise KeyboardInterrupt

    monkeypatch.setattr(mlflow, "MlflowClient", interrupted)
    for had in (False, True):
        with pytest.raises(KeyboardInterrupt):
            open_tracker(TrackingConf(), workdir)
        assert (workdir / "mlflow.db").exists() == had, "a file that was there before stays"
        (workdir / "mlflow.db").touch()


def test_a_half_made_store_is_told_with_the_way_out(tracker: Tracker, workdir: Path) -> None:
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db, db:
        db.execute("delete from alembic_version")
    code = "from pathlib import Path; from rawflash.tracking import *; from rawflash.store import TrackingConf\n"
    code += "try: open_tracker(TrackingConf(), Path.cwd())\nexcept Exception as error: print(type(error).__name__, error)"
    done = subprocess.run([sys.executable, "-c", code], cwd=workdir, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("TrackingError the MLflow store") and "mlflow db upgrade" in done.stdout


def test_eight_programs_at_once_on_a_store_that_is_not_there(workdir: Path) -> None:
    """Case M05."""
    command = [sys.executable, "-m", "rawflash.run", "kernel=fa2", "problem=tiny", "block_size=32", "backend=emu", "tracking.timeout_s=300"]
    started = [subprocess.Popen(command, cwd=workdir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate(timeout=900) for process in started]
    assert [process.returncode for process in started] == [0] * 8, said
    found = runs(workdir)
    assert [run["status"] for run in found] == ["FINISHED"] * 16
    parents = {run["id"] for run in found if run["parent"] is None}
    assert len(parents) == 8 and {run["parent"] for run in found} - {None} == parents
    assert len(list(workdir.glob("outputs/*/*/results.json"))) == 8
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@contextlib.contextmanager
def long_job(workdir: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job that takes minutes, once its first variant is running."""
    command = [sys.executable, "-m", "rawflash.run", "problem.N=16384", "problem.H=64", "backend=emu", "kernel=fa2", *arguments]
    before = len(runs(workdir)) if (workdir / "mlflow.db").exists() else 0
    process = subprocess.Popen(command, cwd=workdir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.Error):
                if [run for run in runs(workdir)[before:] if run["parent"]]:
                    break
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.communicate()


# Case M04.
@pytest.mark.parametrize(("signum", "sweep"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)])
def test_a_stopped_job_leaves_nothing_running(workdir: Path, signum: int, sweep: bool) -> None:
    with long_job(workdir, *(("-m", "block_size=32,64") if sweep else ())) as process:
        time.sleep(0.5)
        os.kill(process.pid, signum)
        err = process.communicate(timeout=600)[1]
    assert process.returncode == 128 + signum
    assert err.splitlines()[-1].startswith(f"rawflash: stopped by {signal.Signals(signum).name}; nothing was finished")
    assert "Traceback" not in err
    assert {run["status"] for run in runs(workdir)} == {"KILLED"} and len(runs(workdir)) == 2


# Case M04.
def test_the_next_start_buries_what_kill_9_left(workdir: Path) -> None:
    with long_job(workdir) as process:
        process.kill()
        process.wait(30)
    assert {run["status"] for run in runs(workdir)} == {"RUNNING"}
    with long_job(workdir) as alive:
        assert alive.poll() is None
        open_tracker(TrackingConf(), workdir)
        found = runs(workdir)
        assert [run["status"] for run in found] == ["KILLED", "KILLED", "RUNNING", "RUNNING"]
        assert found[0]["tags"]["rawflash.reason"] == "the process that ran this is gone"


def test_off_means_off(workdir: Path) -> None:
    assert open_tracker(TrackingConf(enabled=False), workdir) is None
    assert resolve_store(None, {}, workdir).file == workdir / "mlflow.db"
