"""Nothing that is fed to the emulator crashes the interpreter or hangs: each test runs in a process of its own, with a time limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPIN = """
import numpy as np
from rawflash import emu
mod = emu.RawModule(code='''
extern "C" __global__ void wait(volatile int* flag) { while (flag[0] == 0) __syncthreads(); }
extern "C" __global__ void named(volatile int* flag) { while (flag[0] == 0) asm volatile("bar.sync 3, 64;"); }
extern "C" __global__ void spin(volatile int* flag) { while (flag[0] == 0) ; }
extern "C" __global__ void talk(volatile int* flag) { while (__any_sync(0xffffffffu, flag[0] == 0)) __syncwarp(); }
''', params=emu.EmuParams(max_loop_iterations=50_000))
try:
    mod.get_function("KERNEL")((1, 1, 1), (64, 1, 1), (emu.asarray(np.zeros(1, np.int32)),))
except emu.Deadlock as error:
    print("Deadlock:", error)
"""


@pytest.mark.parametrize("first", [0, 1000])
def test_damaged_ptx_ends_in_a_typed_error(first: int) -> None:
    """60 seeds of tests/emu/fuzz_ptx.py; run more with ``python -m tests.emu.fuzz_ptx FIRST COUNT``."""
    command = [sys.executable, "-m", "tests.emu.fuzz_ptx", str(first), "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.replace("\r", "\n").splitlines() if ":" in line]
    assert done.returncode == 0, "\n".join([*lines, done.stderr[-500:]])


@pytest.mark.parametrize("kernel", ["wait", "named", "spin", "talk"])
def test_endless_loops_are_stopped(kernel: str) -> None:
    """With or without a barrier in the loop: a launch that goes on for ever is a deadlock."""
    done = subprocess.run([sys.executable, "-c", SPIN.replace("KERNEL", kernel)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.startswith("Deadlock"), done.stdout + done.stderr[-500:]
