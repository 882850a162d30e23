"""Where numbers come from: command, commit, versions. Texts only, without home folders or host names."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from rawflash import __version__, paths
from rawflash.metrics import METRICS

__all__ = ["about", "git_commit", "impersonal", "local_command", "made_by", "repeat_command", "ui_command"]


@cache
def git_commit() -> str:
    """Commit of the checkout that runs, with -dirty when tracked files differ from it; "" outside a checkout."""
    if not paths.is_checkout():
        return ""
    root = Path(__file__).resolve().parent.parent
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return f"{commit}-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()


def impersonal(text: str) -> str:
    """`text` without this machine's folders: they say who ran it, and make equal results differ."""
    known = {str(paths.kernels_dir()): "kernels_cu", sysconfig.get_paths()["purelib"]: "<site-packages>", str(Path.home()): "~"}
    for folder, name in known.items():
        text = text.replace(folder, name) if len(folder) > 1 else text
    return text


def repeat_command(arguments: Sequence[str]) -> str:
    """The command line that repeats a run, quoted for a POSIX shell; machine-independent, for tags and reports."""
    return shlex.join(["python", "-m", "rawflash.run", *arguments])


def local_command(arguments: Sequence[str]) -> str:
    """The same for this shell, here and now: the interpreter that runs."""
    return shlex.join([_here(Path(sys.executable)), "-m", "rawflash.run", *arguments])


def ui_command(uri: str) -> str:
    """The command that opens MLflow's UI on a store, on a port that is free now."""
    if uri.startswith(("http://", "https://")):
        return f"open {uri}"
    beside = Path(sys.executable).with_name("mlflow")
    program = [_here(beside)] if beside.exists() else [_here(Path(sys.executable)), "-m", "mlflow"]
    return shlex.join([*program, "ui", "--backend-store-uri", uri, "--port", str(_free_port())])


def _here(program: Path) -> str:
    """The shortest spelling that starts `program` from this folder: its name, a relative path, or the absolute path."""
    found = shutil.which(program.name)
    if found and Path(found) == program:
        return program.name
    cwd = Path.cwd()
    return os.path.relpath(program, cwd) if program.is_relative_to(cwd) else str(program)


def _free_port(first: int = 5000) -> int:
    for port in range(first, first + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return first


def made_by(arguments: Sequence[str], machines: Sequence[Mapping[str, str]]) -> str:
    """One line below a table: command, commit, backend, device, driver, NVRTC and date. `machines` are the rows' tags."""
    told = [
        ", ".join(dict.fromkeys(tags[name] for tags in machines if tags.get(name))) for name in ("backend", "device", "driver", "nvrtc")
    ]
    commits = ", ".join(dict.fromkeys(tags["git_commit"] for tags in machines if tags.get("git_commit"))) or git_commit() or "unknown"
    words = [f"Made by `{repeat_command(arguments)}`", f"rawflash {__version__}", f"commit {commits}"]
    words += [f"{name} {text}" for name, text in zip(("backend", "device", "driver", "NVRTC"), told, strict=True) if text]
    return "; ".join([*words, f"{date.today():%Y-%m-%d}"])


def about(arguments: Sequence[str], backend: dict[str, str]) -> dict[str, object]:
    """The head of results.json: who made these rows, and what kind of number each metric is."""
    return {
        "rawflash": __version__,
        "git_commit": git_commit(),
        "command": repeat_command(arguments),
        "backend": backend,
        "metrics": {m.name: {"unit": m.unit, "provenance": m.provenance, "meaning": m.meaning} for m in METRICS.values()},
    }
