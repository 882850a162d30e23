"""CUDA C++ -> PTX and resource figures through NVRTC, with exactly the options that CuPy would use.

One function, `nvrtc_options`, makes the option list of both paths:

    GPU         cupy.RawModule(code=text, options=options)       CuPy appends cupy_appends() (cupy/cuda/compiler.py, 14.2)
    emulator    NVRTC with options + the same appendix           so the emulator executes the program that the GPU runs

CuPy also puts its own header folders (bundled CCCL, complex.h) on the search path, which changes nothing for sources that
include none of them; tests/test_compile.py compares the PTX of the two lists. -arch=sm_XX makes NVRTC run ptxas as well, so that
one compile yields the PTX and, in its log, registers, spills, shared memory and stack of each kernel: no GPU needed.

The same source gives the same PTX, wherever it lies: the kernels spell the loads that NVRTC would join in one way or another
(broadcast4 in rf_products.cuh). `CompiledSource.ptx_hash` tells when a compiler of another version does something else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rawflash import paths
from rawflash.emu import nvrtc
from rawflash.emu.errors import NvrtcError, NvrtcMissing
from rawflash.errors import BackendUnavailable, CompileError, UsageError
from rawflash.source import Source

__all__ = ["CompiledSource", "Resources", "compile_source", "cupy_appends", "nvrtc_options", "parse_resources"]

_FORMAT = 1  # of a cache entry; part of its key
_VERBOSE = "--ptxas-options=-v"


@dataclass(frozen=True)
class Resources:
    """What ptxas says of one kernel: registers and stack per thread, static shared memory per CTA, spill bytes per thread."""

    registers: int = 0
    smem_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True)
class CompiledSource:
    """A source compiled for one architecture. `options` is what cupy.RawModule takes; `resources` has one row per kernel."""

    source: Source
    arch: str
    options: tuple[str, ...]
    ptx: str
    log: str
    resources: dict[str, Resources]
    nvrtc: str  # version, "13.5"
    cached: bool
    seconds: float

    @property
    def ptx_hash(self) -> str:
        """16 hex digits over the PTX, the folder of the source left out: runs with the same one executed the same program."""
        return hashlib.sha256(self.ptx.replace(f"{self.source.path.parent}/", "").encode()).hexdigest()[:16]


def nvrtc_options(source: Source, defines: Mapping[str, str | int]) -> tuple[str, ...]:
    """The NVRTC options of a source with macros `defines`: the same for both backends, in a fixed order."""
    return (
        f"-I{source.include_dir}",
        f"-I{_headers_dir()}",
        "--std=c++17",
        "--device-int128",
        "-lineinfo",
        *(f"-D{name}={value}" for name, value in sorted(defines.items())),
        f"-DRF_SRC_HASH=0x{source.hash}",
    )


def cupy_appends(arch: str) -> tuple[str, ...]:
    """What CuPy adds behind a RawModule's options when it compiles for compute capability `arch` ("80")."""
    return ("-ftz=true", f"-arch=sm_{arch}", "--device-as-default-execution-space")


def compile_source(source: Source, defines: Mapping[str, str | int], arch: str) -> CompiledSource:
    """Compile for compute capability `arch`, or take the result from the cache folder.

    Raises CompileError (file and line of the first error), UsageError (an architecture that this NVRTC does not know),
    BackendUnavailable (no NVRTC or no CUDA headers on this machine).
    """
    started = time.perf_counter()
    version = _check_arch(arch)
    options = nvrtc_options(source, defines)
    command = (*options, *cupy_appends(arch), _VERBOSE)
    entry = paths.cache_dir("ptx") / f"{_key(source, command, version)}.json"
    stored = _load(entry)
    ptx, log = stored or _run_nvrtc(source, command)
    if stored is None:
        paths.keep(entry, json.dumps({"ptx": ptx, "log": log, "digest": _digest(ptx, log)}))
    took = time.perf_counter() - started
    return CompiledSource(source, arch, options, ptx, log, parse_resources(log), version, stored is not None, took)


# ---------------------------------------------------------------------------------------------------------------- NVRTC
def _headers_dir() -> str:
    try:
        return nvrtc.headers_dir()
    except NvrtcMissing as error:
        raise BackendUnavailable(str(error)) from error


def _check_arch(arch: str) -> str:
    """The version of NVRTC; UsageError when it does not compile for `arch`."""
    try:
        version, known = nvrtc.version_text(), nvrtc.supported_archs()
    except NvrtcMissing as error:
        raise BackendUnavailable(str(error)) from error
    if not arch.isdecimal() or int(arch) not in known:
        listed = ", ".join(map(str, known))
        raise UsageError(f"gpu.arch={arch} is not an architecture that NVRTC {version} compiles for: choose a GPU with one of {listed}")
    return version


_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic |fatal )?error: ?(?P<text>.*)$", re.M)


def _run_nvrtc(source: Source, command: tuple[str, ...]) -> tuple[str, str]:
    try:
        made = nvrtc.compile_ptx(source.text, str(source.path), command)
    except NvrtcMissing as error:
        raise BackendUnavailable(str(error)) from error
    except NvrtcError as error:
        first = _ERROR.search(error.log)
        if first is None:
            raise CompileError(str(source.path), 0, str(error), error.log) from error
        raise CompileError(first["file"], int(first["line"]), first["text"], error.log) from error
    return made.ptx, made.log


_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def parse_resources(log: str) -> dict[str, Resources]:
    """Kernel name -> Resources, from the lines that ptxas -v leaves in NVRTC's log."""
    found: dict[str, Resources] = {}
    name = ""
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name = match[1]
            found[name] = Resources()
        elif name and (match := _STACK.search(line)):
            stack, stores, loads = map(int, match.groups())
            found[name] = dataclasses.replace(found[name], stack_bytes=stack, spill_store_bytes=stores, spill_load_bytes=loads)
        elif name and (match := _USED.search(line)):
            found[name] = dataclasses.replace(found[name], registers=int(match[1]), smem_bytes=int(match[2] or 0))
    return found


# ---------------------------------------------------------------------------------------------------------------- cache
def _key(source: Source, command: tuple[str, ...], version: str) -> str:
    """Everything the result depends on: text and headers, options, NVRTC, and the CUDA headers that lie in this folder."""
    fp16 = Path(_headers_dir()) / "cuda_fp16.h"
    stamp = fp16.stat()
    parts = (_FORMAT, version, source.hash, str(source.path), command, stamp.st_size, stamp.st_mtime_ns)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _digest(ptx: str, log: str) -> str:
    return hashlib.sha256(f"{len(ptx)}\0{ptx}\0{log}".encode()).hexdigest()


def _load(entry: Path) -> tuple[str, str] | None:
    """PTX and log of a cache entry; None when there is none or it is damaged (it will be rebuilt)."""
    try:
        stored = json.loads(entry.read_text(encoding="utf-8"))
        ptx, log, digest = str(stored["ptx"]), str(stored["log"]), stored["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (ptx, log) if digest == _digest(ptx, log) else None
