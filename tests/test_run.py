"""The program as a person calls it: one invocation, sweeps, exit codes, what is printed, what lies on disk."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawflash.results import read_rows
from rawflash.signals import Stopped
from rawflash.variants import LADDER

Program = Callable[..., Any]


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def cells(text: str, title: str) -> list[list[str]]:
    """The rows of the plain table with `title`, split at two blanks or more."""
    lines = text[text.index(title) :].splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    body = lines[rule + 1 :]
    return [line.split() for line in body[: body.index("")]]


def test_the_default_job_runs_the_whole_ladder(program: Program, workdir: Path, quick: Any) -> None:
    got = program("block_size=64")
    assert got.code == 0 and got.err == ""
    table = cells(got.out, "fp16, B=1 H=2 N=1024 d=64, no mask, block 64")
    assert [row[:2] for row in table] == [[name, "OK"] for name in LADDER]
    folder = only(workdir, "outputs/*/*")
    assert {p.name for p in folder.iterdir()} == {"invocation.json", "results.json", "table.md", "summary.html", "config.yaml", *LADDER}
    assert {p.name for p in (folder / "fa2").iterdir()} == {"fa2.cu", "kernel.ptx", "traffic.md", "config.yaml"}
    assert [row.variant for row in read_rows(folder / "results.json")] == list(LADDER)


@pytest.mark.parametrize("sweep", [(), ("-m", "block_size=32,64")])
def test_who_stops_it_learns_where_the_finished_rows_are(program: Program, workdir: Path, quick: Any, sweep: tuple[str, ...]) -> None:
    quick["fa1"] = Stopped(signal.SIGTERM)
    got = program("backend=emu", *sweep)
    kept = only(workdir, "outputs/*/*")
    assert got.code == 143
    assert got.err == f"rawflash: stopped by SIGTERM; what was finished is in {kept}, runs that were open are marked KILLED\n"
    rows = read_rows(only(kept, "0/results.json" if sweep else "results.json"))
    before = list(LADDER)[: list(LADDER).index("fa1")]
    assert [(row.variant, row.status) for row in rows] == [*((name, "OK") for name in before), ("fa1", "INTERRUPTED")]
    assert rows[-1].sentence == "stopped by SIGTERM; resume=true runs it again"


def test_the_first_line_says_that_it_emulates(program: Program, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rawflash.backends import cupy_gpu

    monkeypatch.setattr(cupy_gpu, "usable", lambda device=0: (False, "a reason"))
    first = program("kernel=fa2").out.splitlines()[0]
    assert first == "auto: no usable CUDA GPU (a reason); emulating on the CPU: counts are exact, no GPU time is shown."
    assert not program("kernel=fa2", "backend=emu").out.startswith("auto")


def test_the_real_emulator_end_to_end(program: Program, workdir: Path) -> None:
    got = program("problem=tiny", "block_size=32", "backend=emu")
    assert (got.code, got.err) == (0, "")
    rows = {row.variant: row for row in read_rows(only(workdir, "outputs/*/*/results.json"))}
    assert list(rows) == list(LADDER)
    for row in rows.values():
        if "fp32" not in LADDER[row.variant].dtypes:  # which the tiny problem is stored in: a row with its sentence, not an error
            assert row.status == "INVALID" and "dtype=fp32" in row.sentence
            continue
        assert row.ok and row.metrics["err/ratio"] <= 1
        assert row.metrics["io/hbm_total_bytes"] == row.metrics["io/model_bytes"]
        assert not [name for name in row.metrics if name.startswith(("time/", "perf/", "gpu/"))], "no GPU time without a GPU"
    assert rows["fa2"].metrics["io/hbm_total_bytes"] < rows["naive"].metrics["io/hbm_total_bytes"]
    assert "counted = modelled" in got.out and "GPU time" not in got.out


def test_results_json_says_what_each_number_is(program: Program, workdir: Path, quick: Any) -> None:
    program("kernel=fa2", "block_size=32")
    document = json.loads(only(workdir, "outputs/*/*/results.json").read_text("utf-8"))
    assert document["command"] == "python -m rawflash.run kernel=fa2 block_size=32 tracking=none"
    for name in document["rows"][0]["metrics"]:
        assert document["metrics"][name]["provenance"] in ("measured", "counted", "modelled", "checked")


# Case M19.
def test_the_last_lines_repeat_the_run(process: Program, workdir: Path) -> None:
    """The printed command is pasted into a shell, in a folder whose name needs quoting, and gives the same numbers."""
    folder = workdir / "my dir" / "100%" / "ü"
    folder.mkdir(parents=True)
    first = process("kernel=fa2", "problem=tiny", "block_size=16", "tracking=none", "problem.softmax_scale=0.5", cwd=folder)
    assert first.code == 0, first.err
    command = first.out.splitlines()[-1].removeprefix("repeat").strip()
    again = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=600, check=True)
    counts = [line for line in first.out.splitlines() if line.startswith("fa2")]
    assert counts and counts == [line for line in again.stdout.splitlines() if line.startswith("fa2")]
    assert len(list(folder.glob("outputs/*/*/results.json"))) == 2


def test_the_ui_command_is_one_that_mlflow_understands(program: Program, workdir: Path, quick: Any) -> None:
    line = next(line for line in program("kernel=fa2", mlflow=True).out.splitlines() if line.startswith("mlflow"))
    words = shlex.split(line.removeprefix("mlflow"))
    assert words[words.index("--backend-store-uri") + 1] == f"sqlite:///{workdir}/mlflow.db"
    assert int(words[words.index("--port") + 1]) >= 5000
    done = subprocess.run([*words[: words.index("ui") + 1], "--help"], capture_output=True, text=True, check=True, timeout=600)
    assert "--backend-store-uri" in done.stdout and "--port" in done.stdout


def test_a_sweep_makes_one_table(program: Program, workdir: Path, quick: Any) -> None:
    got = program("-m", "kernel=naive,fa1,fa2", "block_size=16,32,64,128", "gpu=t4")
    assert got.code == 0
    table = cells(got.out, "12 rows over kernel, block_size; fp16, B=1 H=2 N=1024 d=64")
    assert [row[:2] for row in table] == [[k, b] for k in ("naive", "fa1", "fa2") for b in ("16", "32", "64", "128")]
    bad = [row for row in table if row[2] == "INVALID"]
    assert bad and all(f"INVALID {row[0]} block_size={row[1]}: " in got.out for row in bad)
    folder = only(workdir, "outputs/*/*")
    assert [row.status for row in read_rows(folder / "results.json")] == [row[2] for row in table]
    assert "INVALID" in (folder / "table.md").read_text("utf-8")
    assert len(list(folder.glob("*/results.json"))) == 12


def test_one_printed_table_shows_quadratic_and_linear_growth(program: Program) -> None:
    got = program("-m", "kernel=naive,fa2", "problem.N=64,128", "problem.d=32", "block_size=32", "problem.H=1", "backend=emu")
    assert got.code == 0
    growth = {row[0]: row for row in cells(got.out, "Growth of the bytes with problem.N (times)")}
    head = next(line for line in got.out[got.out.index("Growth") :].splitlines() if line.startswith("variant")).split()
    S, P, Q, O = (head.index(name) + 2 for name in ("S", "P", "Q", "O"))  # "64 -> 128" is three words
    assert growth["naive"][S] == growth["naive"][P] == "4"
    assert growth["fa2"][Q] == growth["fa2"][O] == "2"


# Case M12.
def test_null_lists_and_groups_can_be_swept(program: Program, workdir: Path, quick: Any) -> None:
    assert program("-m", "problem.softmax_scale=null,0.5", "kernel=fa2").code == 0
    assert program("-m", "kernel.variants=[naive,fa2],[fa1]", "block_size=32").code == 0
    assert program("-m", "problem=tiny,causal", "kernel=fa2", "block_size=32").code == 0
    points = [[row.point for row in read_rows(path)] for path in sorted(workdir.glob("outputs/*/*/results.json"))]
    assert points[0] == [{"problem.softmax_scale": "null"}, {"problem.softmax_scale": "0.5"}]
    assert len(points[1]) == 3
    assert points[2] == [{"problem": "tiny"}, {"problem": "causal"}]


def test_a_bad_point_never_ends_a_sweep(program: Program, workdir: Path, quick: dict[str, Any]) -> None:
    quick["fa1"] = ("INCORRECT", "fa1 is wrong: O[0, 0, 0, 0] is nan")
    quick["online"] = TypeError("a slip of ours")
    got = program("-m", "kernel=naive,online,fa1,fa2", "block_size=32")
    assert got.code == 1
    rows = read_rows(only(workdir, "outputs/*/*/results.json"))
    assert [row.status for row in rows] == ["OK", "RUNTIME_ERROR", "INCORRECT", "OK"]
    assert "internal error: TypeError: a slip of ours in conftest.py:" in rows[1].sentence
    assert got.err.splitlines()[-1].endswith("(and 1 more rows, see the table)") and "Traceback" not in got.err


def test_a_senseless_point_is_a_row_and_costs_the_exit_code(program: Program, workdir: Path, quick: Any) -> None:
    got = program("-m", "kernel=fa2", "block_size=16,0,32")
    assert got.code == 2
    rows = read_rows(only(workdir, "outputs/*/*/results.json"))
    assert [row.status for row in rows] == ["OK", "INVALID", "OK"]
    assert "block_size=0 is not the side of a tile" in rows[1].sentence


def test_a_wrong_result_is_an_error(program: Program, workdir: Path, quick: dict[str, Any]) -> None:
    quick["fa2"] = ("INCORRECT", "fa2 is wrong: O[0, 0, 0, 0] is nan")
    got = program("kernel=fa2")
    assert got.code == 1
    assert got.err == "rawflash: fa2 is INCORRECT: fa2 is wrong: O[0, 0, 0, 0] is nan\n"
    assert read_rows(only(workdir, "outputs/*/*/results.json"))[0].status == "INCORRECT"


def test_among_many_an_invalid_variant_is_a_row(program: Program, workdir: Path, quick: Any) -> None:
    got = program("gpu=t4", "problem.dtype=fp32", "block_size=64", "problem.d=128")
    statuses = {row.variant: row.status for row in read_rows(only(workdir, "outputs/*/*/results.json"))}
    assert got.code == 0 and statuses["online"] == "OK" and "INVALID" in statuses.values()


# Case M07.
def test_the_working_directory_stays_whatever_chdir_is(program: Program, workdir: Path, quick: Any) -> None:
    for arguments in (("hydra.job.chdir=true", "kernel=fa2"), ("-m", "hydra.job.chdir=true", "kernel=fa2", "block_size=16,32")):
        assert program(*arguments, mlflow=True).code == 0
    assert [p.relative_to(workdir) for p in workdir.rglob("mlflow.db")] == [Path("mlflow.db")]
    assert [p.relative_to(workdir) for p in workdir.rglob("mlruns")] == [Path("mlruns")]


def test_the_output_folder_can_be_chosen(program: Program, workdir: Path, quick: Any) -> None:
    assert program("kernel=fa2", "hydra.run.dir=here").code == 0
    assert (workdir / "here" / "results.json").exists()
    for folder in ("there", "there-2"):
        assert program("-m", "kernel=fa2", "block_size=16,32", "hydra.sweep.dir=there").code == 0
        assert (workdir / folder / "results.json").exists() and (workdir / folder / "1" / "results.json").exists()


# Case M15.
def test_long_overrides_make_no_long_names_and_points_may_lie_deeper(program: Program, workdir: Path, quick: Any) -> None:
    assert program("-m", "kernel=fa2", "block_size=16,32", f"+gpu.note={'x' * 300}", "hydra.sweep.dir=long").code == 0
    assert sorted(p.parent.name for p in workdir.glob("long/*/results.json")) == ["0", "1"]
    assert program("-m", "kernel=fa2", "block_size=16,32", "hydra.sweep.dir=deep", "hydra.sweep.subdir='b/${block_size}'").code == 0
    assert [row.point["block_size"] for row in read_rows(workdir / "deep" / "results.json")] == ["16", "32"]
    assert len({row.id for row in read_rows(workdir / "deep" / "results.json")}) == 2


def test_a_closed_pipe_does_not_stop_the_work(process: Program, workdir: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m rawflash.run kernel=fa2 problem=tiny block_size=32 tracking=none | head -c 1"
    done = subprocess.run(["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], cwd=workdir, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(workdir.glob("outputs/*/*/results.json"))


@pytest.mark.parametrize("module", ["rawflash", "rawflash.run"])
def test_help_is_quick_and_loads_nothing_heavy(process: Program, module: str) -> None:
    got = process("--help", module=module)
    assert got.code == 0 and "rawflash doctor" in got.out
    for word in (f"kernel: {', '.join(sorted([*LADDER, 'all']))}", "block_size: 64", "-m kernel=naive,fa1,fa2 block_size=16,32,64,128"):
        assert word in got.out
    code = (
        "import sys; from rawflash.run import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(sorted({'mlflow', 'cupy', 'llvmlite', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tracking_none_imports_no_mlflow(workdir: Path) -> None:
    code = (
        "import sys; sys.modules['mlflow'] = None; from rawflash.run import main\n"
        "sys.exit(main(['kernel=fa2', 'problem=tiny', 'block_size=32', 'tracking=none', 'backend=emu']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=workdir, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
