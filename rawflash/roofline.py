"""What a GPU of a given description could do at best: modelled figures, never measurements.

A `Gpu` is a data sheet (conf/gpu/*.yaml): limits that a launch must respect, and peak rates. Peaks are dense ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from rawflash.errors import UsageError
from rawflash.problem import Problem

__all__ = ["Gpu", "floor_ms", "ridge_flop_per_byte", "roofline_ms"]


@dataclass(frozen=True)
class Gpu:
    """One GPU model. Rates are peaks of the data sheet; limits are those of CUDA for the compute capability."""

    name: str
    arch: str  # compute capability without the dot: "80"
    sms: int
    smem_block_bytes: int  # most shared memory of one CTA (opt-in), reserved byte excluded
    smem_sm_bytes: int  # shared memory of one SM
    regs_sm: int = 65536
    threads_sm: int = 2048  # most resident threads of one SM
    ctas_sm: int = 32  # most resident CTAs of one SM
    smem_reserved_bytes: int = 1024  # shared memory that the driver takes of every CTA (none before compute capability 8.0)
    memory_bytes: int = 0
    hbm_gb_s: float = 0.0
    fp16_tflops: float = 0.0  # tensor cores, fp16 in, fp32 accumulation, dense
    bf16_tflops: float = 0.0  # the same for bf16; 0: the GPU has none
    fp8_tflops: float = 0.0  # the same for fp8
    fp32_tflops: float = 0.0  # FMA pipe
    l2_bytes: int = 0
    l2_gb_s: float = 0.0  # reads; seldom published, so look at its confidence
    boost_mhz: float = 0.0
    tensor_mhz: float = 0.0  # clock at which the tensor rates are stated
    tensor_flop_per_clk_sm: float = 0.0  # fp16, dense
    fma_per_clk_sm: float = 0.0  # fp32 multiply-adds per clock and SM
    sfu_per_clk_sm: float = 0.0  # exp2 results per clock and SM
    smem_bytes_per_clk_sm: float = 0.0
    lsu_per_clk_sm: float = 0.0  # addresses of loads and stores per clock and SM
    schedulers_sm: int = 4  # warp instructions that an SM issues per clock
    source: str = ""  # where the figures were published
    confidence: tuple[tuple[str, str], ...] = ()  # (figure, how well it is known)
    note: str = ""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Gpu:
        """Build from a mapping (one YAML of conf/gpu). Raises UsageError for a missing, unknown or unusable entry."""
        known = {field.name: field for field in fields(cls)}
        unknown = sorted(set(values) - set(known))
        missing = sorted(name for name, field in known.items() if field.default is MISSING and name not in values)
        if unknown or missing:
            told = [f"unknown: {', '.join(unknown)}"] * bool(unknown) + [f"missing: {', '.join(missing)}"] * bool(missing)
            raise UsageError(f"the gpu description has wrong entries ({'; '.join(told)}); it takes {', '.join(known)}")
        return cls(**{name: _convert(name, str(known[name].type), value) for name, value in values.items()})

    def peak_tflops(self, dtype: str) -> float:
        """Peak rate for operands of `dtype`: the FMA pipe for fp32, tensor cores for fp16, bf16 and fp8 (0: unknown, or none)."""
        rates = {"fp32": self.fp32_tflops, "fp16": self.fp16_tflops, "bf16": self.bf16_tflops, "fp8": self.fp8_tflops}
        return rates[dtype]


def _convert(name: str, kind: str, value: Any) -> Any:
    """`value` as the field's type; UsageError with a hint when it is not one."""
    if name == "confidence":
        return tuple((str(figure), str(how)) for figure, how in dict(value).items())
    try:
        if kind == "str":
            text = str(value)
            if name == "arch" and not (text.isascii() and text.isdigit()):
                raise ValueError
            return text
        number = int(value) if kind == "int" else float(value)
        if isinstance(value, bool) or number < 0 or number != float(value):
            raise ValueError
        return number
    except (TypeError, ValueError):
        hint = 'digits of the compute capability such as "80"' if name == "arch" else f"a non-negative {kind}"
        raise UsageError(f"gpu.{name}={value!r} is not usable: give {hint}") from None


def _slowest(flops: float, bytes_moved: float, gpu: Gpu, dtype: str) -> float:
    rate = gpu.peak_tflops(dtype)
    compute = flops / (rate * 1e9) if rate else 0.0
    memory = bytes_moved / (gpu.hbm_gb_s * 1e6) if gpu.hbm_gb_s else 0.0
    return max(compute, memory)


def roofline_ms(problem: Problem, bytes_moved: int, gpu: Gpu) -> float:
    """Modelled lower bound in ms for a kernel that moves `bytes_moved` through HBM: the slower of memory and arithmetic."""
    return _slowest(problem.flops(), bytes_moved, gpu, problem.dtype)


def floor_ms(problem: Problem, gpu: Gpu) -> float:
    """Modelled time in ms below which a measurement with a flushed L2 cannot be true.

    Counted are the nominal FLOPs at peak rate, and the reads of Q, K and V that some row needs: what is written may still
    be in L2 when the timer stops.
    """
    begin, end = problem.visible()
    seen = int(end[-1] - begin[0]) if problem.N else 0  # every key between the two is seen by some row
    rows = int((problem.visible_keys() > 0).sum())
    reads = problem.B * problem.itemsize * (problem.H * rows * problem.d + problem.Hkv * seen * (problem.d + problem.dv))
    return _slowest(problem.flops(), reads, gpu, problem.dtype)


def ridge_flop_per_byte(gpu: Gpu, dtype: str) -> float:
    """FLOPs per HBM byte at which memory and arithmetic take the same time; inf when the bandwidth is unknown."""
    return gpu.peak_tflops(dtype) * 1e3 / gpu.hbm_gb_s if gpu.hbm_gb_s else float("inf")
