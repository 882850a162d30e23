"""Occupancy: values computed by hand, and NVIDIA's own cuda_occupancy.h, run by the emulator, on thousands of kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rawflash import emu
from rawflash.config import gpu_values
from rawflash.errors import UsageError
from rawflash.occupancy import occupancy
from rawflash.paths import conf_dir
from rawflash.roofline import Gpu

GPUS = {path.stem: Gpu.from_dict(gpu_values(path.stem)) for path in sorted((conf_dir() / "gpu").glob("*.yaml")) if path.stem != "auto"}
A100, H100, T4, RTX3090 = (GPUS[name] for name in ("a100_80gb", "h100", "t4", "rtx3090"))
KIB = 1024


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "smem", "ctas", "limiters"),
    [
        # 128 threads of 144 registers: 4608 a warp, 3 warps fit in a quarter's 16384, 12 in all, 4 a CTA
        (A100, 128, 144, 24 * KIB, 3, ("registers",)),
        # 24 KiB + 1 KiB of the driver: 6 times 25 KiB in 164; 32 registers would allow 16 CTAs, 64 warps another 16
        (A100, 128, 32, 24 * KIB, 6, ("smem",)),
        (H100, 128, 32, 24 * KIB, 9, ("smem",)),
        (A100, 256, 32, 0, 8, ("warps", "registers")),
        (A100, 32, 16, 0, 32, ("slots",)),
        # 255 registers: 8192 a warp after rounding, 2 in a quarter, 8 in all
        (A100, 256, 255, 0, 1, ("registers",)),
        (A100, 1024, 64, 0, 1, ("registers",)),
        # 1056 threads are no CTA; 1024 threads of 72 registers do not start; 163 KiB is the most, one byte more does not start
        (A100, 1056, 16, 0, 0, ("warps",)),
        (A100, 1024, 72, 0, 0, ("registers",)),
        (A100, 128, 32, 163 * KIB, 1, ("smem",)),
        (A100, 128, 32, 163 * KIB + 1, 0, ("smem",)),
        # five warps: 3 warps of 5120 registers fit in a quarter, 12 in the SM, so two CTAs, not 65536 // (5 * 5120) = 2.56
        (A100, 160, 160, 0, 2, ("registers",)),
        # Turing: 32 warps, nothing reserved, units of 256 bytes
        (T4, 128, 32, 0, 8, ("warps",)),
        (T4, 128, 32, 16 * KIB + 1, 3, ("smem",)),
        (RTX3090, 64, 32, 0, 16, ("slots",)),
    ],
)
def test_by_hand(gpu: Gpu, threads: int, registers: int, smem: int, ctas: int, limiters: tuple[str, ...]) -> None:
    found = occupancy(gpu, threads, registers, smem)
    assert (found.ctas, found.limiters) == (ctas, limiters)
    assert found.warps == ctas * -(-threads // 32) and found.fraction == found.warps / (gpu.threads_sm // 32)


def test_what_a_cta_is_given_is_rounded_up() -> None:
    found = occupancy(A100, 33, 33, 1)
    assert (found.cta_registers, found.cta_smem_bytes) == (2 * 1280, 1152)


@pytest.mark.parametrize("numbers", [(0, 32, 0), (32, -1, 0), (32, 32, -1)])
def test_no_kernel_is_a_sentence(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="describe no kernel"):
        occupancy(A100, *numbers)


ORACLE = """
#include <cuda_occupancy.h>
extern "C" __global__ void oracle(const int* gpu, const int* asked, int* found, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    cudaOccDeviceProp p;
    p.computeMajor = gpu[0], p.computeMinor = gpu[1], p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiprocessor = gpu[2];
    p.regsPerBlock = 65536, p.regsPerMultiprocessor = gpu[3], p.warpSize = 32, p.numSms = gpu[4];
    p.sharedMemPerBlock = 48 * 1024, p.sharedMemPerMultiprocessor = gpu[5], p.sharedMemPerBlockOptin = gpu[6];
    p.reservedSharedMemPerBlock = gpu[7];
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024, f.numRegs = asked[3 * at + 1], f.sharedSizeBytes = 0, f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = asked[3 * at + 2], f.numBlockBarriers = 1;
    cudaOccDeviceState state;
    cudaOccResult r;
    const int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &state, asked[3 * at], asked[3 * at + 2]);
    found[3 * at] = error ? -error : r.activeBlocksPerMultiprocessor;
    found[3 * at + 1] = r.allocatedRegistersPerBlock, found[3 * at + 2] = r.allocatedSharedMemPerBlock;
}
"""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> emu.RawKernel:
    """NVIDIA's calculator as a kernel. The host headers that it includes give it size_t, INT_MAX and memset, which NVRTC has or is told."""
    folder: Path = tmp_path_factory.mktemp("headers")
    for name, text in (("stddef.h", ""), ("limits.h", "#define INT_MAX 0x7fffffff\n"), ("string.h", "")):
        (folder / name).write_text("#pragma once\n" + text)
    return emu.RawModule(code=ORACLE, options=(f"-I{folder}",)).get_function("oracle")


@pytest.mark.parametrize("name", GPUS)
def test_the_same_as_nvidias_header(name: str, oracle: emu.RawKernel) -> None:
    gpu, rng = GPUS[name], np.random.default_rng(len(name))
    asked = np.stack([32 * rng.integers(1, 33, 500), rng.integers(1, 256, 500), rng.integers(0, gpu.smem_block_bytes + 1, 500)], 1)
    asked[::3, 2] //= 16
    asked[::7, 1] //= 4
    asked = np.ascontiguousarray(asked, np.int32)
    major, minor = divmod(int(gpu.arch), 10)
    sheet = (major, minor, gpu.threads_sm, gpu.regs_sm, gpu.sms, gpu.smem_sm_bytes, gpu.smem_block_bytes, gpu.smem_reserved_bytes)
    found = np.zeros((500, 3), np.int32)
    oracle((4,), (128,), (np.array(sheet, np.int32), asked, found, np.int32(500)))
    ours = [occupancy(gpu, *map(int, row)) for row in asked]
    assert [[o.ctas, o.cta_registers, o.cta_smem_bytes] for o in ours] == found.tolist()
    assert np.count_nonzero(found[:, 0]) > 0 and len(set(found[:, 0].tolist())) > 4
