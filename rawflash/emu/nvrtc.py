"""NVRTC through ctypes: CUDA C++ text -> PTX or a cubin, on a machine without a GPU, a driver or CuPy.

The library comes from the wheels nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12, else from ``CUDA_PATH``, else from
wherever the system's loader looks. Options are passed as given: whoever calls decides about ``-arch`` and ``-I``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from rawflash.emu.errors import NvrtcError, NvrtcMissing

_INSTALL = 'install it with `pip install "rawflash[cuda13]"` (or `rawflash[cuda12]` for a driver older than 580)'
# folder inside a wheel's `nvidia` namespace, newest CUDA first
_WHEEL_FOLDERS = ("cu13", "cuda_nvrtc")
_HEADER_FOLDERS = ("cu13/include", "cuda_runtime/include")
_PATTERNS = ("libnvrtc.so.*", "libnvrtc.so", "nvrtc64_*.dll", "nvrtc64*.dll")
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_INVALID_OPTION = 5
_LOG_ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic |fatal )?error: ?(?P<text>.*)$", re.M)
_ARCH = re.compile(r"^(?:-arch|--gpu-architecture)[= ]?(?P<arch>\S*)$")


@dataclass(frozen=True)
class CompiledPtx:
    """PTX text, the compiler's log (warnings) and name expression -> lowered (mangled) name."""

    ptx: str
    log: str
    lowered_names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CompiledCubin:
    """An ELF image for one real architecture, the log (with resource figures if asked for) and the lowered names."""

    cubin: bytes
    log: str
    lowered_names: dict[str, str] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------------------- the library
def _wheel_roots() -> list[Path]:
    """Every folder of the ``nvidia`` namespace package."""
    spec = find_spec("nvidia")
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


def _toolkit_roots() -> list[Path]:
    return [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]


@functools.cache
def find_library() -> str:
    """Path of libnvrtc, or the bare soname if only the system's loader knows it. Raises NvrtcMissing."""
    folders = [root / name / sub for name in _WHEEL_FOLDERS for root in _wheel_roots() for sub in ("lib", "bin", "bin/x86_64")]
    folders += [root / sub for root in _toolkit_roots() for sub in ("lib64", "lib", "bin", "targets/x86_64-linux/lib")]
    for folder in folders:
        for pattern in _PATTERNS:
            found = sorted(p for p in folder.glob(pattern) if ".alt." not in p.name and "builtins" not in p.name)
            if found:
                return str(found[-1])
    for soname in _SONAMES:
        try:
            ctypes.CDLL(soname)
        except OSError:
            continue
        return soname
    raise NvrtcMissing(f"no NVRTC library was found in site-packages, CUDA_PATH or the loader's path; {_INSTALL}")


@functools.cache
def headers_dir() -> str:
    """The folder with ``cuda_fp16.h`` and ``mma.h``, to be passed with ``-I``. Raises NvrtcMissing."""
    folders = [root / name for name in _HEADER_FOLDERS for root in _wheel_roots()] + [root / "include" for root in _toolkit_roots()]
    for folder in folders:
        if (folder / "cuda_fp16.h").is_file():
            return str(folder)
    raise NvrtcMissing(
        f"the CUDA headers (cuda_fp16.h) were not found: they come with the packages nvidia-cuda-runtime and nvidia-cuda-cccl; {_INSTALL}"
    )


@functools.cache
def include_dirs() -> tuple[str, ...]:
    """What a CuPy user's source may include from: the CUDA headers, CCCL (``cuda/std``, cooperative groups) and CuPy's own headers."""
    cuda = Path(headers_dir())
    cupy = find_spec("cupy")
    found = [cuda, cuda / "cccl"]
    found += [Path(p) / "_core" / "include" for p in (cupy.submodule_search_locations or ())] if cupy else []
    return tuple(str(p) for p in found if p.is_dir())


@functools.cache
def _library() -> ctypes.CDLL:
    path = find_library()
    try:
        # NVRTC opens its builtins by bare name: having them loaded makes that work from any folder.
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")) if os.sep in path else ():
            if ".alt." not in builtins.name:
                ctypes.CDLL(str(builtins))
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise NvrtcMissing(f"NVRTC was found at {path} but cannot be loaded on {sys.platform} ({error}); {_INSTALL}") from error
    lib.nvrtcGetErrorString.restype = ctypes.c_char_p
    return lib


def _call(function: str, *args: object) -> None:
    lib = _library()
    status = getattr(lib, function)(*args)
    if status:
        raise NvrtcError(f"{function} failed: {lib.nvrtcGetErrorString(status).decode()}")


@functools.cache
def version() -> tuple[int, int]:
    """(major, minor) of the library, e.g. (13, 5)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def version_text() -> str:
    """The same as it is printed: "13.5"."""
    return "{}.{}".format(*version())


@functools.cache
def supported_archs() -> tuple[int, ...]:
    """The architectures the library compiles for, ascending: (75, 80, ..., 121)."""
    count = ctypes.c_int()
    _call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    archs = (ctypes.c_int * count.value)()
    _call("nvrtcGetSupportedArchs", archs)
    return tuple(sorted(archs))


# ---------------------------------------------------------------------------------------------------------------- compiling
def compile_ptx(source: str, name: str, options: Sequence[str], name_expressions: Iterable[str] = ()) -> CompiledPtx:
    """Compile CUDA C++ to PTX. ``name`` is the file name that errors and ``.file`` show. Raises NvrtcError."""
    image, log, lowered = _compile(source, name, options, name_expressions, "PTX")
    return CompiledPtx(image.rstrip(b"\0").decode(), log, lowered)


def compile_cubin(source: str, name: str, options: Sequence[str], name_expressions: Iterable[str] = ()) -> CompiledCubin:
    """Compile CUDA C++ to a cubin; the options must hold a real architecture (``-arch=sm_80``). Raises NvrtcError."""
    image, log, lowered = _compile(source, name, options, name_expressions, "CUBIN")
    if not image:
        raise NvrtcError(f"NVRTC made no cubin for {name}: pass a real architecture such as -arch=sm_80, not compute_80", log)
    return CompiledCubin(image, log, lowered)


# NVRTC is thread-safe per program, but 12.x is not where it loads its builtins: one compile at a time costs little.
_LOCK = threading.Lock()


def _compile(
    source: str, name: str, options: Sequence[str], name_expressions: Iterable[str], kind: str
) -> tuple[bytes, str, dict[str, str]]:
    program = ctypes.c_void_p()
    names = tuple(name_expressions)
    with _LOCK:
        _call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            for expression in names:
                _call("nvrtcAddNameExpression", program, expression.encode())
            flags = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = _library().nvrtcCompileProgram(program, len(options), flags)
            log = _fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                raise NvrtcError(_explain(status, name, options, log), log)
            lowered = {expression: _lowered(program, expression) for expression in names}
            return _fetch(program, kind), log, lowered
        finally:
            _library().nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    _call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(f"nvrtcGet{kind}", program, buffer)
    return buffer.raw


def _lowered(program: ctypes.c_void_p, expression: str) -> str:
    lowered = ctypes.c_char_p()
    _call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(lowered))
    return (lowered.value or b"").decode()


def _explain(status: int, name: str, options: Sequence[str], log: str) -> str:
    """The first sentence of an NvrtcError: the first error of the log, or which option is at fault."""
    first = _LOG_ERROR.search(log)
    if first and first["file"] == "__nv_name_map":
        wrong = re.search(r'Input name expression was: "\s*(.*?)\s*"', log)
        return f"{name} has no kernel {wrong[1] if wrong else 'of that name'!r}: {first['text']}"
    if first:
        return f"{first['file']}({first['line']}): error: {first['text']}"
    release = "NVRTC {}.{}".format(*version())
    arch = next((m["arch"] for o in options if (m := _ARCH.match(o))), None)
    if status == _INVALID_OPTION or "--gpu-architecture" in log or "--nv_arch" in log:
        archs = supported_archs()
        number = re.fullmatch(r"(?:sm|compute|lto)_(\d+)([af]?)", arch or "")
        if arch is not None and (number is None or int(number[1]) not in archs or (number[2] and int(number[1]) < 90)):
            return (
                f"the architecture '{arch}' is not one that {release} compiles for: it supports compute_{archs[0]} to compute_{archs[-1]} "
                f"({', '.join(map(str, archs))}), spelled like "
                f"-arch=compute_{archs[0]}, with a suffix a or f only from 90 on; choose one of these or another NVRTC"
            )
        return f"{release} refuses an option of {list(options)}: {log.splitlines()[-1] if log else 'no further word in its log'}"
    reason = log.splitlines()[0] if log else _library().nvrtcGetErrorString(status).decode()
    return f"{release} could not compile {name}: {reason}"
