"""`rawflash doctor` names everything that matters, and the way to what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawflash import doctor
from rawflash.backends import cupy_gpu, emulated
from rawflash.emu import nvrtc
from rawflash.emu.errors import NvrtcMissing

Program = Callable[..., Any]


def test_everything_is_named(program: Program, workdir: Path) -> None:
    got = program("doctor")
    names = [line[4:].split("  ")[0].strip() for line in got.out.splitlines() if line[:4] in ("ok  ", "--  ")]
    assert names == ["Python", "rawflash", "NVRTC", "CUDA headers", "CuPy", "GPU", "emulator", "cache", "MLflow", "tracking URI"]
    assert f"sqlite:///{workdir}/mlflow.db (default), experiment rawflash" in got.out
    assert got.code == 0 and not list(workdir.iterdir()), "looking changes nothing"


def test_the_same_program_under_every_name(process: Program) -> None:
    assert process("doctor", module="rawflash").code == process("doctor").code == 0


def test_without_a_gpu_it_emulates(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_gpu, "usable", lambda device=0: (False, "no NVIDIA driver was found"))
    got = program("doctor")
    assert "--  GPU           none" in got.out and "-> no NVIDIA driver was found; without one, rawflash emulates" in got.out
    assert got.out.splitlines()[-1] == "kernels run here: in the emulator" and got.code == 0


def test_without_a_compiler_nothing_runs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise NvrtcMissing("no NVRTC library was found; install it with pip")

    monkeypatch.setattr(nvrtc, "find_library", missing)
    monkeypatch.setattr(cupy_gpu, "usable", lambda device=0: (False, "CuPy is not installed"))
    monkeypatch.setattr(emulated, "usable", lambda: (False, "no NVRTC library was found"))
    got = program("doctor")
    assert got.code == 1 and got.out.splitlines()[-1] == "kernels run here: no"
    assert "-> no NVRTC library was found; install it with pip" in got.out


# Case C07.
def test_without_headers_no_kernel_compiles(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise NvrtcMissing("the CUDA headers (cuda_fp16.h) were not found")

    monkeypatch.setattr(nvrtc, "headers_dir", missing)
    got = program("doctor")
    assert got.code == 1 and got.out.splitlines()[-1] == "kernels run here: no"


def test_a_broken_llvmlite_is_told_not_raised(process: Program, workdir: Path) -> None:
    (workdir / "llvmlite.py").write_text("raise ImportError('libstdc++ is too old')\n")
    got = process("doctor")
    assert got.code == 1 and "Traceback" not in got.err
    assert "-> libstdc++ is too old" in got.out and "`pip install llvmlite`" in got.out
    got = process("tracking=none")
    assert got.err == (
        "rawflash: a package that rawflash needs cannot be imported (libstdc++ is too old): install it again with pip; "
        "add debug=true for the traceback\n"
    )


def test_a_package_that_is_missing_has_a_hint(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda names: "")
    out = program("doctor").out
    assert '`pip install "rawflash[cuda13]"`' in out and "tracking=none" in out


def test_an_unreachable_server_is_named(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    out = program("doctor").out
    assert "--  tracking URI  unusable" in out and "does not answer" in out and "secret" not in out


def test_it_loads_no_mlflow(program: Program) -> None:
    before = "mlflow" in sys.modules
    program("doctor")
    assert ("mlflow" in sys.modules) == before
