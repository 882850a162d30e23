"""LLVM IR -> machine code, through llvmlite; compiled objects are kept on disk, keyed by content.

A cache entry is one file: a SHA-256 of the rest, then the pickled metadata and object code. It is written under another name
and moved into place, so concurrent processes never see half an entry; one that does not match its sum is built again.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pickle
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

_lock = threading.RLock()
_DIGEST = 32


def cache_folder() -> Path:
    """``$RAWFLASH_CACHE_DIR/emu`` or ``~/.cache/rawflash/emu``; a temporary folder if that cannot be written."""
    root = os.environ.get("RAWFLASH_CACHE_DIR")
    base = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rawflash"
    folder = base / "emu"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.gettempdir()) / f"rawflash-emu-{os.getuid() if hasattr(os, 'getuid') else 0}"


@functools.cache
def code_version() -> str:
    """A digest of the emulator's own sources and of LLVM: a change of either makes every entry stale."""
    h = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info} {llvm.get_host_cpu_name()} {_features()}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        h.update(path.read_bytes())
    return h.hexdigest()


@functools.cache
def _features() -> str:
    return llvm.get_host_cpu_features().flatten()


@functools.cache
def _target_machine(opt_level: int) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=opt_level, reloc="static", codemodel="large", jit=True
    )


@functools.cache
def _jit() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(_target_machine(2))


def optimise_and_emit(ir: str, opt_level: int = 2, seconds: dict[str, float] | None = None) -> bytes:
    """Parse, verify, optimise and compile IR text to an object file. ``seconds`` receives what "optimise" and "codegen" took."""
    with _lock:
        start = time.perf_counter()
        machine = _target_machine(opt_level)
        module = llvm.parse_assembly(ir)
        module.verify()
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=opt_level))
        passes = llvm.create_new_function_pass_manager()
        # registers out of memory, then what the lowering writes naively; more passes cost seconds and gain nothing
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_dead_code_elimination_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        optimised = time.perf_counter()
        image = machine.emit_object(module)
        if seconds is not None:
            seconds |= {"optimise": optimised - start, "codegen": time.perf_counter() - optimised}
        return image


class Library:
    """Loaded object code; keeps its memory alive while referenced."""

    def __init__(self, name: str, image: bytes, exports: list[str], imports: dict[str, int] | None = None):
        with _lock:
            builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
            for symbol, address in (imports or {}).items():
                builder = builder.import_symbol(symbol, address)
            for symbol in exports:
                builder = builder.export_symbol(symbol)
            self._tracker = builder.link(_jit(), name)
        self.addresses: dict[str, int] = {symbol: self._tracker[symbol] for symbol in exports}


def cached(key: tuple[object, ...], build: Any, use_disk: bool) -> Any:
    """``build()``, or what an earlier call with the same key stored on disk. Values are pickled."""
    if not use_disk:
        return build()
    digest = hashlib.sha256(repr((code_version(), key)).encode()).hexdigest()
    path = cache_folder() / digest[:2] / f"{digest}.bin"
    found = _read(path)
    if found is not None:
        return found
    value = build()
    _write(path, value)
    return value


def _read(path: Path) -> Any | None:
    try:
        data = path.read_bytes()
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            return None
        return pickle.loads(data[_DIGEST:])
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError):
        return None


def _write(path: Path, value: Any) -> None:
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(hashlib.sha256(body).digest() + body)
        os.replace(f.name, path)
    except OSError:
        return  # a cache that cannot be written is only slower


RUN_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
