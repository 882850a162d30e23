"""The speed of light: the least time that each resource of one GPU needs for a piece of work. All of it is modelled.

Work is what kernels ask (counted by the emulator); a GPU is a data sheet (conf/gpu). Every resource runs at its peak, all of them at
once, on all SMs, with nothing to wait for: what takes longest bounds the run, whatever else happens.

    hbm      bytes that must cross HBM / bandwidth: inputs once, results as far as they exceed L2
    l2       32-byte sectors that the SMs ask / L2 bandwidth
    smem     wavefronts of 128 bytes / shared-memory width
    tensor   operations of tensor cores / rate of their operands' type
    fma      fp32 and 16-bit arithmetic and integer multiplications / fp32 lanes
    alu      integer, comparison, selection, min and max / 64 lanes
    sfu      exponentials, reciprocals and their like / 16 lanes
    lsu      warp instructions that address memory or other lanes / lanes of the load/store units
    issue    all warp instructions but moves / one per scheduler and clock

The unit of the last five is a PTX instruction: ptxas removes some and splits others, so they are close but no strict bounds; hbm, tensor
and sfu are, and `faster_than_light` judges a measurement by these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rawflash.roofline import Gpu

__all__ = ["RESOURCES", "STRICT", "Light", "Work", "faster_than_light", "speed_of_light"]

RESOURCES = ("hbm", "l2", "smem", "tensor", "fma", "alu", "sfu", "lsu", "issue")
STRICT = ("hbm", "tensor", "sfu")
_LANES = 32
_WAVEFRONT_BYTES = 128
# CUDA C++ programming guide, throughput of native arithmetic instructions: integer addition, comparison, min and max of 7.x to 10.0.
_ALU_LANES = 64
_PIPES = {"fma": ("fma", "fp16", "imad"), "alu": ("alu",), "sfu": ("sfu",), "lsu": ("lsu", "shuffle")}
_NOT_ISSUED = ("other",)  # moves, parameters, address spaces: ptxas renames or folds them


@dataclass(frozen=True)
class Work:
    """What a run asks of a GPU, all launches together.

    hbm_bytes        least bytes that must cross HBM
    l2_bytes         bytes of the sectors that the SMs ask of L2, read and written
    smem_wavefronts  passes over shared memory
    tensor_flops     operand type ("fp16", "bf16", "fp8") -> operations of tensor cores
    pipes            pipe -> warp instructions (the names of rawflash/emu/traffic/pipes.py)
    """

    hbm_bytes: float = 0
    l2_bytes: float = 0
    smem_wavefronts: float = 0
    tensor_flops: Mapping[str, float] = field(default_factory=dict)
    pipes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Light:
    """Modelled least times in ms by resource; a resource whose rate the data sheet lacks is absent."""

    ms: dict[str, float]

    @property
    def binding(self) -> str:
        """The resource that needs the most time; "none" for no work or an empty data sheet."""
        return max(self.ms, key=self.ms.__getitem__) if any(self.ms.values()) else "none"

    @property
    def least_ms(self) -> float:
        """The speed of light: no run can take less."""
        return max(self.ms.values(), default=0.0)

    def share(self, resource: str) -> float:
        """Part of the speed of light during which `resource` is busy (1 for the binding one)."""
        return self.ms.get(resource, 0.0) / self.least_ms if self.least_ms else 0.0


def speed_of_light(work: Work, gpu: Gpu) -> Light:
    """Least time of each resource of `gpu` for `work`, in ms."""
    per_ms = gpu.sms * gpu.boost_mhz * 1e3  # SM clocks in a millisecond, all SMs together
    rates = {
        "hbm": gpu.hbm_gb_s * 1e6,
        "l2": gpu.l2_gb_s * 1e6,
        "smem": gpu.smem_bytes_per_clk_sm / _WAVEFRONT_BYTES * per_ms,
        "fma": gpu.fma_per_clk_sm / _LANES * per_ms,
        "alu": _ALU_LANES / _LANES * per_ms,
        "sfu": gpu.sfu_per_clk_sm / _LANES * per_ms,
        "lsu": gpu.lsu_per_clk_sm / _LANES * per_ms,
        "issue": gpu.schedulers_sm * per_ms,
    }
    asked = {
        "hbm": work.hbm_bytes,
        "l2": work.l2_bytes,
        "smem": work.smem_wavefronts,
        **{resource: sum(work.pipes.get(pipe, 0) for pipe in pipes) for resource, pipes in _PIPES.items()},
        "issue": sum(n for pipe, n in work.pipes.items() if pipe not in _NOT_ISSUED),
    }
    ms = {resource: asked[resource] / rate for resource, rate in rates.items() if rate}
    tensor = _tensor_ms(work.tensor_flops, gpu)
    if tensor is not None:
        ms["tensor"] = tensor
    return Light({resource: ms[resource] for resource in RESOURCES if resource in ms})


def _tensor_ms(flops: Mapping[str, float], gpu: Gpu) -> float | None:
    """None when there are operations of a type whose rate is not known."""
    rates = {dtype: gpu.peak_tflops(dtype) * 1e9 for dtype, n in flops.items() if n}
    return sum(flops[dtype] / rate for dtype, rate in rates.items()) if all(rates.values()) else None


def faster_than_light(measured_ms: float, light: Light, gpu: Gpu) -> str | None:
    """A sentence when `measured_ms` is below what a strict resource needs: then the measurement is wrong; else None."""
    strict = {resource: light.ms[resource] for resource in STRICT if resource in light.ms}
    resource = max(strict, key=strict.__getitem__, default="")
    if not resource or measured_ms >= strict[resource]:
        return None
    return (
        f"error of measurement: {measured_ms:.4g} ms is faster than light, {resource} of {gpu.name} alone needs {strict[resource]:.4g} ms "
        "at its peak; the kernels did not do their work, the clock did not enclose them, or the gpu description is not that of this device"
    )
