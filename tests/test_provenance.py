"""Where numbers come from, and who started a run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rawflash import owner, paths, provenance


def test_commands_survive_the_shell() -> None:
    arguments = ["kernel=fa2", "hydra.run.dir='a b'", "problem.softmax_scale=$HOME", "-m"]
    assert shlex.split(provenance.repeat_command(arguments)) == ["python", "-m", "rawflash.run", *arguments]


def test_the_program_is_spelled_as_it_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.chdir(tmp_path)
    assert provenance.local_command(["a=1"]) == ".venv/bin/python -m rawflash.run a=1"
    monkeypatch.setenv("PATH", str(python.parent))
    assert provenance.local_command(["a=1"]) == "python -m rawflash.run a=1"
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir("/")
    assert provenance.local_command(["a=1"]) in (f"{python} -m rawflash.run a=1", f"{str(python)[1:]} -m rawflash.run a=1")


def test_the_ui_of_a_server_is_its_address() -> None:
    assert provenance.ui_command("http://h:5000") == "open http://h:5000"


def test_texts_lose_the_folders_of_this_machine() -> None:
    text = f"{paths.kernels_dir()}/fa2.cu {Path.home()}/x"
    assert provenance.impersonal(text) == "kernels_cu/fa2.cu ~/x"


def test_a_table_says_where_it_comes_from() -> None:
    line = provenance.made_by(["kernel=fa2"], [{"backend": "emu", "nvrtc": "13.5"}, {"backend": "emu", "nvrtc": "13.5"}])
    assert line.startswith("Made by `python -m rawflash.run kernel=fa2`; rawflash ") and "; backend emu; NVRTC 13.5; 20" in line


def test_this_process_is_not_gone() -> None:
    assert owner.this_process() and not owner.is_gone(owner.this_process())


def test_an_ended_process_is_gone() -> None:
    code = "from rawflash.owner import this_process; print(this_process())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert owner.is_gone(told)


@pytest.mark.parametrize("text", ["", "x", "other-1-2", "other-PID-1", "-1-2"])
def test_what_cannot_be_judged_is_left_alone(text: str) -> None:
    assert not owner.is_gone(text.replace("PID", str(os.getpid())))
