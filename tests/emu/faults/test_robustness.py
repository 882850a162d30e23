"""A fault ends the launch, not the process: nothing hangs, and the next launch works (P17)."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rawflash import emu
from tests.emu.faults.table import compiled, full, within
from tests.emu.harness import cuda, launch, zeros

SOURCE = """
extern "C" __global__ void read_then_wait(const int* x, int* out, int far) {
    int v = x[threadIdx.x == 16 ? far : threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = v + 1;
}
extern "C" __global__ void one_bad_cta(const int* x, int* out, int bad) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x + (blockIdx.x == bad && threadIdx.x == 40 ? 1000000 : 0)];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void give_up(int* out) {
    if (threadIdx.x == 3 && blockIdx.x == 2) __trap();
    out[threadIdx.x] = 1;
}
"""
SCRIPT = f"""
import numpy as np
from rawflash import emu
mod = emu.RawModule(code='''{SOURCE}''')
x = emu.asarray(np.arange(32, dtype=np.int32))
mod.get_function("read_then_wait")((1, 1, 1), (32, 1, 1), (x, emu.empty(32, np.int32), np.int32(99)))
"""


def test_a_fault_before_a_barrier_leaves_nobody_waiting() -> None:
    mod = cuda(SOURCE)
    out = zeros(32, np.int32)
    with pytest.raises(emu.OutOfBounds) as caught:
        within(lambda: launch(mod, "read_then_wait", 1, 32, full(32), out, np.int32(99)))
    assert caught.value.tid == (16, 0, 0) and caught.value.ctaid == (0, 0, 0)
    for _ in range(2):
        within(lambda: launch(mod, "read_then_wait", 1, 32, full(32), out, np.int32(31)))
    assert out[16] == 32 and out[0] == 1


def test_the_process_exits_with_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "OutOfBounds" in last and "(16, 0, 0)" in last and "read_then_wait" in last


@pytest.mark.parametrize("bad", [0, 37, 199])
def test_one_bad_cta_among_many(bad: int) -> None:
    mod = cuda(SOURCE)
    with pytest.raises(emu.OutOfBounds) as caught:
        within(lambda: launch(mod, "one_bad_cta", 200, 64, full(64), zeros(200 * 64, np.int32), np.int32(bad)))
    assert caught.value.ctaid == (bad, 0, 0) and caught.value.tid == (40, 0, 0)


def test_the_first_bad_cta_is_reported_whatever_the_threads_do() -> None:
    """Every CTA faults: in ascending order the report is CTA 0's, every time."""
    mod = compiled("memory", emu.EmuParams())
    for _ in range(5):
        with pytest.raises(emu.OutOfBounds) as caught:
            launch(mod, "past_end", 50, 32, full(16, np.float32), full(32, np.float32), np.int32(5000))
        assert caught.value.ctaid == (0, 0, 0) and caught.value.tid == (16, 0, 0)


def test_trap_is_typed() -> None:
    with pytest.raises(emu.Trap) as caught:
        within(lambda: launch(cuda(SOURCE), "give_up", 4, 32, zeros(32, np.int32)))
    assert caught.value.ctaid == (2, 0, 0) and caught.value.tid == (3, 0, 0)


def test_threads_of_the_host_may_launch_together() -> None:
    """Launches of one module from several host threads do not disturb each other's results or reports."""
    mod = compiled("races", emu.EmuParams())
    outs = [zeros(64, np.int32) for _ in range(4)]

    def work(index: int) -> int:
        report = launch(mod, "with_barrier", 1, 64, full(64), outs[index])
        return report.arguments[0].read_bytes

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [256] * 4
    assert all(out.tolist() == list(range(63, -1, -1)) for out in outs)
