"""Everything that a new user may get wrong: one clear sentence on stderr, a non-zero exit, no run that looks successful."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawflash import paths
from rawflash.variants import LADDER

Program = Callable[..., Any]

REFUSED = [
    (("blocksize=64",), "there is no key blocksize: did you mean block_size?"),
    (("+blocksize=64",), "there is no key blocksize: did you mean block_size?"),
    (("problem.n=64",), "there is no key problem.n: did you mean problem.N?"),
    (("dtype=int8",), "there is no key dtype: did you mean problem.dtype?"),
    (("gpu.nane=x",), "there is no key gpu.nane: did you mean gpu.name?"),
    (("kernal=fa2",), "there is no key kernal: did you mean kernel?"),
    (("kernel=fa9",), f"; the known ones are {', '.join(sorted([*LADDER, 'all']))}"),
    (("kernel=naiv",), "kernel=naiv is unknown (did you mean naive?)"),
    (("gpu=h1000",), "gpu=h1000 is unknown (did you mean h100?)"),
    (("gpu=T4",), "gpu=T4 is unknown (did you mean t4?)"),
    (("synch",), "'synch' is not an argument that rawflash knows (did you mean sync?)"),
    (("resume=maybe",), "resume=maybe is not true or false"),
    (("kernel.num_splits=1.5",), "kernel.num_splits=1.5 is neither a whole number nor a name"),
    (("kernel=splitkv", "backend=emu", "problem.N=1000000000"), "splitkv: emulating and checking this problem takes about "),
    (("calculator", "problem.N=99999999999999999999999"), "problem.N=99999999999999999999999 is too long"),
    (
        ("kernel=[naive,fa2]",),
        "kernel=[naive,fa2] merges files, and the last one wins: to run each of them write 'kernel.variants=[naive,fa2]'",
    ),
    (("experiment=[traffic,problem1]",), "to run each of them write 'experiment.names=[traffic,problem1]'"),
    (("block_size=0",), "block_size=0 is not the side of a tile: give a whole number from 1 to 1024, such as 64"),
    (("block_size=-3",), "block_size=-3 is not the side of a tile"),
    (("block_size=100000",), "block_size=100000 is not the side of a tile"),
    (("block_size=48.5",), "block_size=48.5 is not a whole number"),
    (("block_size=abc",), "block_size=abc is not a whole number"),
    (("block_size=0x10",), "block_size=0x10 is not a whole number"),
    (("block_size=true",), "block_size=True is not a whole number"),
    (("block_size=null",), "block_size=null is not allowed: give a value"),
    (("block_size=",), "block_size= is not a whole number"),
    (("block_size",), "'block_size' is not an argument that rawflash knows: write key=value"),
    (("block_size=[1",), "cannot be read as key=value"),
    (("block_size=16,32",), "block_size=16,32 names several values: add -m to run each of them"),
    (("problem.N=0",), "problem.N=0 is not a size"),
    (("problem.B=-1",), "problem.B=-1 is not a size"),
    (("problem.H=3", "problem.Hkv=2"), "problem.H=3 query heads cannot share problem.Hkv=2 key/value heads"),
    (("problem.dtype=int8",), "problem.dtype='int8' is unknown: choose one of fp32, fp16, bf16"),
    (("problem.softmax_scale=inf",), "problem.softmax_scale=inf is not a finite number"),
    (("problem=4",), "a group takes the name of one of its options"),
    (("backend=gpu",), "backend=gpu is unknown; the known ones are auto, cupy, emu"),
    (("gpu=t4", "gpu.arch=7.5"), "gpu.arch=7.5 is not usable"),
    (("--config-name=nope",), "there is no configuration file called 'nope'"),
    (("kernel=naive", "backend=emu", "problem.N=1000000"), "naive: emulating and checking this problem takes about "),
    (("kernel.variants=fa2",), "kernel.variants is a list: write kernel.variants=[a,b]"),
    (("-m", "block_size=16,abc"), "block_size=abc is not a whole number"),
    (("-m", "kernel=fa2,fa9"), "kernel=fa9 is unknown"),
    (("-m", "block_size=interval(1,3)"), "does not support sweep type"),
    (("tracking.uri=file:./mlruns",), "tracking.uri=file:./mlruns is a file store, which MLflow no longer takes"),
    (("tracking.uri=./mlruns",), "is a file store"),
    (("tracking.uri=sqlite://",), "names no database file"),
    (("tracking.uri=http://me:secret@example.org/",), "tracking.uri holds a user or a password"),
    (("kernel=fa2", "kernel.num_splits=2"), "kernel.num_splits=2 changes nothing in fa2: leave it away, or take kernel=splitkv"),
    (("kernel=fa2", "kernel.warps=4"), "changes nothing in fa2: leave it away, or take kernel=fa2_pipe or kernel=fa2_lazy"),
    (("kernel.variants=[fa1,fa2]", "kernel.scale_pass=true"), "changes nothing in fa1, fa2: leave it away, or take kernel=unfused"),
    (("hydra/launcher=laptop", "block_size=16"), "hydra/launcher=laptop shares out the points of a sweep, and this is none: add -m"),
    (("calculator", "kernel=fa2"), "kernel changes no figure of the calculator: leave it away; the keys are problem, problem.B, "),
    (("calculator", "problem.dropout_p=0.1"), "problem.dropout_p changes no figure of the calculator"),
    (("calculator", "problem.dropuot=0.1"), "there is no key problem.dropuot"),
    (("problem.N=16", "calculator"), "calculator is a program of its own: write it first, as in `rawflash calculator`, and without -m"),
    (("experiment=traffic", "experiment.options.N=[]"), "experiment.options.N=[] is not a list [a, b, ...] of at least one"),
    (("experiment=problem2", "experiment.options.row=foo"), "experiment.options.row=foo is not a whole number of at least 1; usual is 5"),
    (("experiment=problem2", "experiment.publish=/proc/nothing"), "experiment.publish=/proc/nothing is no folder that can be written"),
    (("kernel=fa2", "problem.N=16", "hydra.run.dir=/proc/nothing"), "/proc/nothing cannot be used"),
    (("kernel=fa2", "experiment.jobs=2"), "experiment.jobs changes nothing without an experiment: leave it away, or name one"),
    (("seed=-1",), "seed=-1 is not a seed: give a whole number from 0 to 2^64-1"),
    (("seed=18446744073709551616",), "seed=18446744073709551616 is not a seed"),
    (("doctor", "please"), "doctor takes no arguments, not please"),
]


# Case M12.
@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[" ".join(a) for a, _ in REFUSED])
def test_refused_before_anything_is_run(program: Program, workdir: Path, quick: Any, arguments: tuple[str, ...], sentence: str) -> None:
    got = program(*arguments)
    assert got.code == 2
    assert sentence in got.err
    assert got.err.startswith("rawflash: ") and got.err.count("\n") == 1
    assert "secret" not in got.err
    assert list(workdir.iterdir()) == [], "a refused request leaves nothing behind"


def test_a_configuration_file_that_is_no_yaml(program: Program, workdir: Path) -> None:
    (workdir / "mine" / "problem").mkdir(parents=True)
    (workdir / "mine" / "problem" / "odd.yaml").write_text("N: : 3\n")
    got = program("--config-dir=mine", "problem=odd")
    assert got.code == 2 and got.err.count("\n") == 1
    assert got.err.startswith("rawflash: a configuration file is no YAML: ") and "odd.yaml" in got.err


# Case C15.
@pytest.mark.skipif(
    os.path.exists("/dev/nvidia0"), reason="this machine has a GPU, so backend=cupy may well work; the refusal needs a machine without"
)
def test_cupy_without_a_gpu(program: Program, workdir: Path) -> None:
    got = program("backend=cupy")
    assert got.code == 2
    assert got.err.startswith("rawflash: backend=cupy cannot run: ") and got.err.count("\n") == 1
    assert "backend=emu" in got.err and not list(workdir.iterdir())


def test_cupy_not_installed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from rawflash.backends import cupy_gpu

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(cupy_gpu, "find_spec", lambda name: None)
    got = program("backend=cupy")
    assert got.code == 2
    assert 'CuPy is not installed; install it with `pip install "rawflash[cuda13]"`' in got.err and got.err.count("\n") == 1


def test_auto_without_cupy_emulates_and_says_why(program: Program, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rawflash.backends import cupy_gpu

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(cupy_gpu, "find_spec", lambda name: None)
    got = program("kernel=fa2")
    assert got.code == 0
    assert got.out.startswith("auto: no usable CUDA GPU (CuPy is not installed")
    assert "emulating on the CPU: counts are exact, no GPU time is shown." in got.out.splitlines()[0]


def test_an_invalid_configuration_alone_is_an_error(program: Program, workdir: Path) -> None:
    got = program("kernel=fa2", "gpu=t4", "problem.dtype=fp32", "problem.d=128", "block_size=128", mlflow=True)
    assert got.code == 2
    assert got.err.startswith("rawflash: fa2: ") and got.err.count("\n") == 1
    assert not list(workdir.iterdir())


def test_a_syntax_error_in_a_kernel(program: Program, workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setenv("RAWFLASH_CACHE_DIR", str(tmp_path / "cache"))
    kernels = tmp_path / "kernels_cu"
    shutil.copytree(paths.kernels_dir(), kernels)
    source = kernels / "fa2.cu"
    source.write_text(source.read_text("utf-8") + "\nint oops(;\n", "utf-8")
    line = len(source.read_text("utf-8").splitlines())
    monkeypatch.setattr(paths, "kernels_dir", lambda: kernels)
    got = program("kernel=fa2", "problem=tiny", "block_size=32", mlflow=True)
    assert got.code == 1
    assert f"rawflash: fa2 is COMPILE_ERROR: kernels_cu/fa2.cu:{line}: " in got.err and "Traceback" not in got.err
    assert statuses(workdir) == {"FAILED": 2}
    assert "error" in next(workdir.glob("outputs/*/*/fa2/nvrtc.log")).read_text("utf-8")


def test_an_unreachable_server_is_refused_quickly(program: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    got = program("kernel=fa2", "tracking.timeout_s=2", mlflow=True)
    assert got.code == 1
    assert "the tracking server http://127.0.0.1:9 (from MLFLOW_TRACKING_URI) does not answer within 2 s (Connection refused)" in got.err
    assert "tracking=none" in got.err and got.err.count("\n") == 1
    assert not list(workdir.iterdir())


def test_a_folder_that_cannot_be_written(process: Program, workdir: Path) -> None:
    """/proc refuses everybody, root included; a mode without the write bit stops only others."""
    got = process("kernel=fa2", cwd=Path("/proc"))
    assert got.code == 1 and "cannot be written" in got.err and got.err.count("\n") == 1
    got = process("kernel=fa2", "tracking=none", "backend=emu", cwd=Path("/proc"))
    assert got.code == 2 and "results cannot be written to /proc/outputs" in got.err and "hydra.run.dir=" in got.err
    if os.getuid() != 0:
        workdir.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert process("kernel=fa2").code != 0


def test_a_traceback_comes_on_request_only(program: Program, quick: dict[str, Any]) -> None:
    quick["fa2"] = TypeError("a slip of ours")
    got = program("kernel=fa2")
    assert got.code == 1
    assert "rawflash: internal error: TypeError: a slip of ours in conftest.py:" in got.err and "Traceback" not in got.err
    got = program("kernel=fa2", "debug=true")
    assert got.code == 1 and "Traceback" in got.err and "a slip of ours" in got.err


def test_hydra_full_error_asks_for_the_traceback_too(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    got = program("block_size=abc")
    assert got.code == 2 and "Traceback" in got.err
    assert got.err.splitlines()[-1] == "rawflash: block_size=abc is not a whole number"
    assert os.environ["HYDRA_FULL_ERROR"] == "1"


def statuses(folder: Path) -> dict[str, int]:
    """Status -> number of runs that the lists show, in the store of a working directory."""
    with sqlite3.connect(folder / "mlflow.db") as db:
        found = dict(db.execute("select status, count(*) from runs where lifecycle_stage = 'active' group by status"))
    db.close()
    return found
