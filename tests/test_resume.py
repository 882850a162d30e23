"""resume=true: what finished OK before is taken over, everything else is run, and nothing is there twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rawflash import fingerprint as marks
from rawflash import job
from rawflash.results import read_rows
from tests.test_tracking import runs

Program = Callable[..., Any]
SWEEP = ("-m", "kernel=naive,fa2", "backend=emu")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second per sweep, and tests/test_swept.py looks at them."""
    monkeypatch.setattr("rawflash.summary.show_rows", lambda *_: [])


@pytest.fixture
def ran(quick: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every kernel that is really run, as `variant Br`."""
    done: list[str] = []
    fake = job.run_variant

    def run(variant: Any, problem: Any, tiling: Any, *rest: Any, **more: Any) -> Any:
        done.append(f"{variant.name} {tiling.Br}")
        return fake(variant, problem, tiling, *rest, **more)

    monkeypatch.setattr(job, "run_variant", run)
    yield done


def last(workdir: Path) -> Path:
    return max((p.parent for p in workdir.glob("outputs/*/*/invocation.json")), key=lambda p: (p / "invocation.json").stat().st_mtime_ns)


def test_what_finished_is_skipped_and_counted(program: Program, workdir: Path, ran: list[str]) -> None:
    assert program(*SWEEP, "block_size=16,32").code == 0
    ran.clear()
    got = program(*SWEEP, "block_size=16,32,64", "resume=true")
    assert got.code == 0 and ran == ["naive 64", "fa2 64"]
    assert "resume: 4 of 6 rows had finished before and were not run again." in got.out
    rows = read_rows(last(workdir) / "results.json")
    assert [(r.variant, r.point["block_size"], r.reused) for r in rows] == [
        (name, side, side != "64") for name in ("naive", "fa2") for side in ("16", "32", "64")
    ]
    assert all(row.ok and row.metrics["io/hbm_total_bytes"] > 0 and row.tensors for row in rows)
    ran.clear()
    assert program("kernel=fa2", "block_size=32", "backend=emu", "resume=true").code == 0, "a job without -m resumes too"
    assert ran == []


def test_without_resume_everything_runs(program: Program, ran: list[str]) -> None:
    for _ in range(2):
        assert program(*SWEEP, "block_size=16").code == 0
    assert len(ran) == 4


def test_what_went_wrong_is_run_again(program: Program, workdir: Path, quick: dict[str, Any], ran: list[str]) -> None:
    quick["fa2"] = ("INCORRECT", "fa2 is wrong")
    assert program(*SWEEP, "block_size=16").code == 1
    del quick["fa2"]
    ran.clear()
    assert program(*SWEEP, "block_size=16", "resume=true").code == 0
    assert ran == ["fa2 16"]


@pytest.mark.parametrize("change", ["seed=1", "problem.N=512", "gpu=t4", "tracking.experiment=other"])
def test_another_configuration_is_another_row(logged: Program, ran: list[str], change: str) -> None:
    assert logged(*SWEEP, "block_size=16").code == 0
    ran.clear()
    assert logged(*SWEEP, "block_size=16", change, "resume=true").code == 0
    assert len(ran) == 2


def test_a_changed_source_or_version_makes_a_row_stale(program: Program, ran: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    from rawflash import paths

    assert program(*SWEEP, "block_size=16").code == 0
    kernels = tmp_path / "kernels_cu"
    shutil.copytree(paths.kernels_dir(), kernels)
    with (kernels / "fa2.cu").open("a") as file:
        file.write("// edited\n")
    monkeypatch.setattr(paths, "kernels_dir", lambda: kernels)
    ran.clear()
    assert program(*SWEEP, "block_size=16", "resume=true").code == 0
    assert ran == ["fa2 16"]
    monkeypatch.setattr(marks, "__version__", "99")
    ran.clear()
    assert program(*SWEEP, "block_size=16", "resume=true").code == 0
    assert ran == ["naive 16", "fa2 16"]


def test_the_store_alone_is_enough_and_nothing_is_filed_twice(logged: Program, workdir: Path, ran: list[str]) -> None:
    assert logged(*SWEEP, "block_size=16").code == 0
    shutil.rmtree(workdir / "outputs")
    ran.clear()
    got = logged(*SWEEP, "block_size=16,32", "resume=true")
    assert got.code == 0 and ran == ["naive 32", "fa2 32"]
    assert all(row.metrics["io/hbm_total_bytes"] > 0 for row in read_rows(last(workdir) / "results.json"))
    children = [run for run in runs(workdir) if run["parent"]]
    assert sorted(run["name"] for run in children) == ["fa2 b16 N1024", "fa2 b32 N1024", "naive b16 N1024", "naive b32 N1024"]


def test_kill_9_in_the_middle_then_resume(logged: Program, workdir: Path, ran: list[str]) -> None:
    """Case M04: the union is complete, nothing is there twice, nothing says RUNNING."""
    code = (
        "import os, signal\n"
        "from rawflash import job\nfrom rawflash.execute import RunResult\nfrom rawflash.run import main\n"
        "count = []\n"
        "def run(variant, problem, tiling, gpu, backend, *, timing):\n"
        "    count.append(1)\n"
        "    if len(count) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return RunResult(variant.name, problem, tiling, backend.name, metrics={'io/hbm_total_bytes': 7.0})\n"
        "job.run_variant = run\n"
        f"main({[*SWEEP, 'block_size=16,32']!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=workdir, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    killed = last(workdir)
    assert sorted(run["status"] for run in runs(workdir)) == ["FINISHED", "FINISHED", "RUNNING", "RUNNING"]
    got = logged(*SWEEP, "block_size=16,32", "resume=true")
    assert got.code == 0 and ran == ["fa2 16", "fa2 32"]
    assert "resume: 2 of 4 rows had finished before" in got.out
    found = runs(workdir)
    assert {run["status"] for run in found} == {"FINISHED", "KILLED"}
    finished = [run["name"] for run in found if run["parent"] and run["status"] == "FINISHED"]
    assert sorted(finished) == ["fa2 b16 N1024", "fa2 b32 N1024", "naive b16 N1024", "naive b32 N1024"]
    assert logged("sync").code == 0
    assert [row.status for row in read_rows(killed / "results.json")] == ["OK", "OK", "INTERRUPTED"]
    assert "only 3 of 4 points were begun" in (killed / "table.md").read_text("utf-8")
    assert "nothing new to file" in logged("sync").out
    assert len(runs(workdir)) == len(found) and not [run for run in runs(workdir) if run["status"] == "RUNNING"]
