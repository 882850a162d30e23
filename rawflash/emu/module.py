"""CuPy's RawModule and RawKernel on NumPy arrays."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawflash.emu import nvrtc
from rawflash.emu.attributes import KernelAttributes
from rawflash.emu.cfg.uniformity import CtaShape
from rawflash.emu.errors import ArgumentMismatch, EmuError, ResourceLimit
from rawflash.emu.launch import Compiled, compile_kernel, launch
from rawflash.emu.machine.arena import device_memory
from rawflash.emu.machine.limits import check_geometry, check_shared, limits_of
from rawflash.emu.params import DEFAULT, EmuParams
from rawflash.emu.ptx.parser import parse
from rawflash.emu.ptx.tree import Function, Module
from rawflash.emu.resources import Resources, kernel_resources
from rawflash.emu.traffic.report import LaunchReport
from rawflash.emu.variables import ModuleVariables

_PTX_START = re.compile(r"^\s*(?://[^\n]*\n\s*|/\*.*?\*/\s*)*\.version\s", re.S)


def is_ptx(code: str) -> bool:
    """PTX text starts with ``.version``, after comments."""
    return _PTX_START.match(code) is not None


def _dims(value: int | Sequence[int]) -> tuple[int, int, int]:
    if isinstance(value, int | np.integer):
        return (int(value), 1, 1)
    numbers = [int(v) for v in value]
    if not 1 <= len(numbers) <= 3:
        raise ResourceLimit(f"a grid or block has 1 to 3 dimensions, got {tuple(numbers)}")
    return tuple(numbers + [1] * (3 - len(numbers)))  # type: ignore[return-value]


class RawModule:
    """A compiled CUDA or PTX module, like ``cupy.RawModule``.

    Args:
        code: CUDA C++ source, or PTX text (recognised by its ``.version``).
        path: a file with either, instead of ``code``.
        options: NVRTC options, as CuPy takes them; ``-ftz=true``, the architecture and the CUDA headers are added as CuPy does.
        name_expressions: C++ expressions such as ``"scale<float>"`` whose kernels ``get_function`` shall find.
        arch: architecture number, "80" for compute_80; its limits are enforced at launch. For PTX the file's target counts.
        params: how launches are executed and checked.

    Raises NvrtcError for source that does not compile, PtxSyntaxError for PTX that cannot be read.
    """

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | Path | None = None,
        options: Sequence[str] = (),
        name_expressions: Iterable[str] | None = None,
        arch: str | int = "80",
        params: EmuParams | None = None,
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ):
        if (code is None) == (path is None):
            raise TypeError("give exactly one of code and path")
        if backend != "nvrtc":
            raise ValueError(f"backend='{backend}': the emulator compiles with nvrtc only")
        if path is not None:
            code = Path(path).read_text()
        assert code is not None
        del translate_cucomplex, enable_cooperative_groups, jitify
        self.params = params or DEFAULT
        self.options = tuple(options)
        self.arch = int(str(arch).removeprefix("sm_").removeprefix("compute_").rstrip("af"))
        self.source: str | None = None
        self._lowered_names: dict[str, str] = {}
        self.log = ""
        if is_ptx(code):
            self.ptx = code
        else:
            self.source = code
            compiled = nvrtc.compile_ptx(code, str(path or "rawmodule.cu"), self.nvrtc_options(), tuple(name_expressions or ()))
            self.ptx, self.log, self._lowered_names = compiled.ptx, compiled.log, compiled.lowered_names
        self._module: Module = parse(self.ptx)
        if self.source is None:
            digits = re.sub(r"\D", "", self._module.target[0] if self._module.target else "")
            self.arch = int(digits) if digits else self.arch
        self._variables: ModuleVariables | None = None
        self._kernels: dict[str, RawKernel] = {}
        self._resources: dict[str, Resources] | None = None
        self._lock = threading.RLock()

    def compile(self, log_stream: Any = None) -> None:
        """Write NVRTC's log to ``log_stream``; the compilation itself was done when the module was made."""
        if log_stream is not None:
            log_stream.write(self.log)

    def nvrtc_options(self) -> tuple[str, ...]:
        """The option list given to NVRTC: the caller's, then what CuPy adds."""
        chosen = list(self.options)
        if not any(o.startswith(("-arch", "--gpu-architecture")) for o in chosen):
            chosen.append(f"-arch=compute_{self.arch}")
        chosen += [f"-I{folder}" for folder in nvrtc.include_dirs()]
        if not any("lineinfo" in o for o in chosen):
            chosen.append("-lineinfo")
        chosen += ["-ftz=true", "--device-as-default-execution-space"]
        return tuple(chosen)

    @property
    def tree(self) -> Module:
        """The parsed PTX."""
        return self._module

    @property
    def kernel_names(self) -> list[str]:
        """The entries of the module, as they are named in the PTX."""
        return [f.name for f in self._module.functions.values() if f.is_entry and f.body is not None]

    def get_function(self, name: str) -> RawKernel:
        """The kernel of that name, C++ name expressions included. Raises EmuError listing the kernels there are."""
        wanted = self._lowered_names.get(name)
        if wanted is None:
            normal = _normalise(name)
            wanted = next((low for expr, low in self._lowered_names.items() if _normalise(expr) == normal), name)
        function = self._module.functions.get(wanted)
        if function is None or not function.is_entry or function.body is None:
            known = ", ".join([*self._lowered_names, *self.kernel_names]) or "none"
            raise EmuError(f"the module has no kernel '{name}'; it has: {known} (declare kernels extern \"C\", or pass name_expressions)")
        with self._lock:
            if wanted not in self._kernels:
                self._kernels[wanted] = RawKernel._of(self, function)
            return self._kernels[wanted]

    def get_global(self, name: str) -> NDArray[np.uint8]:
        """The memory of a ``__device__`` or ``__constant__`` variable as a byte array (a view: writing it sets the variable)."""
        variables = self.variables
        lowered = self._lowered_names.get(name, name)
        if lowered not in variables.allocations:
            known = ", ".join(variables.allocations) or "none"
            raise EmuError(f"the module has no global variable '{name}'; it has: {known}")
        return variables.arena.view(variables.allocations[lowered])

    @property
    def variables(self) -> ModuleVariables:
        with self._lock:
            if self._variables is None:
                self._variables = ModuleVariables(self._module, device_memory())
                weakref.finalize(self, self._variables.close)
            return self._variables

    def resources(self, kernel: str) -> Resources | None:
        """Registers, spills and memory of a kernel as ptxas reports them; None when the module was loaded from PTX."""
        with self._lock:
            if self.source is None:
                return None
            if self._resources is None:
                names = tuple(self._lowered_names)
                self._resources = kernel_resources(self.source, self.nvrtc_options(), self.arch, names)
            return self._resources.get(kernel)


def _normalise(name: str) -> str:
    return re.sub(r"\s+", "", name)


class RawKernel(KernelAttributes):
    """A kernel, like ``cupy.RawKernel``: ``kernel(grid, block, args, shared_mem=0)`` on NumPy arrays.

    ``RawKernel(code, name, options=())`` compiles a source for one kernel. Every call returns the LaunchReport, which
    ``last_report`` keeps as well.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        arch: str | int = "80",
        params: EmuParams | None = None,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ):
        del translate_cucomplex, enable_cooperative_groups, jitify
        wants_lowering = "<" in name or ("extern" not in code and not is_ptx(code))
        module = RawModule(
            code, options=options, name_expressions=[name] if wants_lowering else None, arch=arch, params=params, backend=backend
        )
        other = module.get_function(name)
        self._set(module, other._function)

    @classmethod
    def _of(cls, module: RawModule, function: Function) -> RawKernel:
        kernel = cls.__new__(cls)
        kernel._set(module, function)
        return kernel

    def _set(self, module: RawModule, function: Function) -> None:
        self._module, self._function = module, function
        self._compiled: dict[CtaShape, Compiled] = {}
        self._opted_in = 0
        self._lock = threading.RLock()
        self.last_report: LaunchReport | None = None

    @property
    def module(self) -> RawModule:
        return self._module

    def compile(self, block: int | Sequence[int] = 32) -> Compiled:
        """Machine code of this kernel for CTAs of the shape that ``block`` has; done at the first launch otherwise."""
        shape = CtaShape.of(_dims(block))
        with self._lock:
            if shape not in self._compiled:
                self._compiled[shape] = compile_kernel(self._module.tree, self.name, self._module.params, shape)
            return self._compiled[shape]

    def __call__(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> LaunchReport:
        """Run the grid to its end, whatever the stream. Raises LaunchRefused before, KernelFault during the launch."""
        del stream
        if isinstance(args, np.ndarray | np.generic | int | float):
            raise ArgumentMismatch(f"the arguments of kernel '{self.name}' are a {type(args).__name__}, not a tuple; write (x,) for one")
        g, cta = _dims(grid), _dims(block)
        limits = limits_of(self._module.arch)
        check_geometry(self.name, g, cta, limits, self._declared_threads(cta))
        compiled = self.compile(cta)
        static = compiled.lowered.symbols.static_shared
        check_shared(self.name, static, shared_mem, self._opted_in, limits)
        threads = cta[0] * cta[1] * cta[2]
        registers = self._known_registers()
        if registers is not None:
            per_warp = -(-registers * 32 // 256) * 256
            if per_warp * -(-threads // 32) > limits.registers:
                raise ResourceLimit(
                    f"kernel '{self.name}' uses {registers} registers per thread: {threads} threads need more than the "
                    f"{limits.registers} of a block; use fewer threads"
                )
        report = launch(compiled, self._module.tree, self._module.variables.table, g, cta, tuple(args), shared_mem, self._module.params)
        self.last_report = report
        if report.output:
            print(report.output, end="")
        return report

    def _declared_threads(self, cta: tuple[int, int, int]) -> int:
        directives = self._function.directives
        required = directives.get("reqntid")
        if required is not None and tuple([*required, 1, 1][:3]) != cta:
            raise ResourceLimit(f"kernel '{self.name}' must be launched with {required} threads (.reqntid), got {cta}")
        most = directives.get("maxntid")
        return int(np.prod(most)) if most else 1024

    def _known_registers(self) -> int | None:
        if self._module._resources is None:
            return None
        found = self._module._resources.get(self.name)
        return found.registers if found is not None else None
