"""`rawflash doctor`: what was found on this machine, one line each, with a hint where something is missing.

Exit code 0 when kernels can run here in some way (on a GPU or emulated), 1 when they cannot, 2 for arguments it does not take.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rawflash import __version__, paths
from rawflash.errors import RawflashError

__all__ = ["Finding", "findings", "main"]

_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


@dataclass(frozen=True)
class Finding:
    """One line: `ok` False means missing; `hint` says what to do about it, or "" when nothing needs doing."""

    name: str
    ok: bool
    text: str
    hint: str = ""


def main(arguments: Sequence[str] = ()) -> int:
    """Print all findings; returns the exit code."""
    if arguments:
        print(f"rawflash: doctor takes no arguments, not {' '.join(arguments)}", file=sys.stderr)
        return 2
    found = findings()
    width = max(len(f.name) for f in found)
    for f in found:
        print(f"{'ok' if f.ok else '--'}  {f.name.ljust(width)}  {f.text}")
        if f.hint:
            print(f"    {' ' * width}  -> {f.hint}")
    sound = {f.name for f in found if f.ok}
    able = sound & {"GPU", "emulator"} if "CUDA headers" in sound else set()
    print(
        f"\nkernels run here: {' and '.join({'GPU': 'on the GPU', 'emulator': 'in the emulator'}[name] for name in sorted(able)) or 'no'}"
    )
    return 0 if able else 1


def findings() -> list[Finding]:
    """Everything that matters, in the order in which it depends on each other."""
    return [_python(), _rawflash(), _nvrtc(), _headers(), _cupy(), _gpu(), _emulator(), _cache(), *_tracking()]


def _python() -> Finding:
    fits = sys.version_info >= (3, 11)
    return Finding("Python", fits, f"{platform.python_version()} ({sys.executable})", "" if fits else "rawflash needs Python 3.11 or newer")


def _rawflash() -> Finding:
    try:
        where = "checkout" if paths.is_checkout() else "installed"
        return Finding("rawflash", True, f"{__version__} ({where}; kernels in {paths.kernels_dir()}, configuration in {paths.conf_dir()})")
    except RawflashError as error:
        return Finding("rawflash", False, __version__, str(error))


def _nvrtc() -> Finding:
    try:
        from rawflash.emu import nvrtc

        library = nvrtc.find_library()
        major, minor = nvrtc.version()
        archs = nvrtc.supported_archs()
        return Finding("NVRTC", True, f"{major}.{minor} for compute_{archs[0]} to compute_{archs[-1]} ({library})")
    except Exception as error:
        return Finding("NVRTC", False, "none", str(error))


def _headers() -> Finding:
    try:
        from rawflash.emu import nvrtc

        return Finding("CUDA headers", True, nvrtc.headers_dir())
    except Exception as error:
        return Finding("CUDA headers", False, "none", str(error))


def _cupy() -> Finding:
    found = _installed(_CUPY)
    hint = "" if found else 'needed on a GPU only: `pip install "rawflash[cuda13]"`, or rawflash[cuda12] for a driver older than 580'
    return Finding("CuPy", bool(found), found or "none", hint)


def _installed(names: Iterable[str]) -> str:
    for name in names:
        try:
            return f"{version(name)} ({name})"
        except PackageNotFoundError:
            continue
    return ""


def _gpu() -> Finding:
    try:
        from rawflash.backends.cupy_gpu import CupyBackend, usable
    except ImportError as error:
        return Finding("GPU", False, "none", f"it cannot be looked for: {error}")
    ok, text = usable()
    if not ok:
        return Finding("GPU", False, "none", f"{text}; without one, rawflash emulates")
    try:
        told = CupyBackend().describe()
        return Finding("GPU", True, f"{told['device']}, driver {told['driver']}")
    except Exception as error:
        return Finding("GPU", False, text, f"it is seen but cannot be used: {error}")


def _emulator() -> Finding:
    try:
        from rawflash.backends.emulated import usable
    except ImportError as error:
        return Finding("emulator", False, "none", f"{error}: `pip install llvmlite`")
    ok, text = usable()
    cores = f"{os.cpu_count()} cores, llvmlite {_installed(['llvmlite']) or 'of unknown version'}"
    return Finding("emulator", ok, cores if ok else "none", "" if ok else text)


def _cache() -> Finding:
    root = paths.cache_root()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return Finding("cache", True, f"{root} ({size / 1e6:.1f} MB; may be deleted; RAWFLASH_CACHE_DIR moves it)")


def _tracking() -> list[Finding]:
    from rawflash.store import reach, resolve_experiment, resolve_store

    mlflow = _installed(["mlflow", "mlflow-skinny"])
    lines = [Finding("MLflow", bool(mlflow), mlflow or "none", "" if mlflow else "`pip install mlflow`, or run with tracking=none")]
    try:
        store = resolve_store(None, os.environ, Path.cwd())
        shown = f"{store.shown} ({store.origin}), experiment {resolve_experiment(None, os.environ)}"
        reach(store, 3.0)
        return [*lines, Finding("tracking URI", True, shown)]
    except RawflashError as error:
        return [*lines, Finding("tracking URI", False, "unusable", str(error))]
