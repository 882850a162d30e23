"""The emulator against a port: fa2 in fp32 as OpenCL C, run by PoCL, in one run with the emulator counting the CUDA kernel's PTX.

    python experiments/pocl_compare.py [--N 2048] [--repeats 7] [--threads 2]

Needs `pip install pyopencl` and PoCL (Debian: apt-get install pocl-opencl-icd). Host wall clock, not GPU times.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rawflash import emu
from rawflash.passes import Emulated
from rawflash.problem import Problem, make_inputs
from rawflash.speed import NUMPY, header, naive_attention, take_turns, threads_of_numpy
from rawflash.tiling import Tiling

EMULATOR = "emulator, counters and checks on"
KERNEL = Path(__file__).with_name("pocl_fa2.cl")


def ports(device: Any, q: Any, k: Any, v: Any, scale: float) -> Iterator[tuple[str, Callable[[], object], Any]]:
    """(name, a call that runs the kernel, its O) for each spelling of exp."""
    import pyopencl as cl

    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    put = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context, put, hostbuf=x) for x in (q, k, v)]
    buffers += [cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 4 * size) for size in (q.size, len(q))]
    for text in ("exp(x)", "native_exp(x)"):
        kernel = cl.Program(context, f"#define EXP(x) {text}\n" + KERNEL.read_text()).build("-cl-fast-relaxed-math -cl-mad-enable").fa2
        kernel.set_args(*buffers, np.int32(len(q)), np.float32(scale))

        def run(kernel: Any = kernel, keep: Any = buffers) -> None:  # a kernel does not keep its arguments alive
            cl.enqueue_nd_range_kernel(queue, kernel, (len(q) // 64 * 256,), (256,))
            queue.finish()

        run()
        O = np.empty_like(q)
        cl.enqueue_copy(queue, O, buffers[3])
        yield f"PoCL, {text}", run, O


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--N", 2048), ("--repeats", 7), ("--threads", emu.EmuParams().worker_count())):
        parser.add_argument(name, type=int, default=default)
    arguments = parser.parse_args()
    if arguments.N % 64 or arguments.N < 64:
        parser.error(f"--N {arguments.N} is not a multiple of 64, which the port needs")
    os.environ["POCL_MAX_PTHREAD_COUNT"] = os.environ["POCL_CPU_MAX_CU_COUNT"] = str(arguments.threads)  # PoCL 3; PoCL 4 and later
    try:
        import pyopencl as cl

        device = next(d for p in cl.get_platforms() if "Portable" in p.name for d in p.get_devices())
    except Exception as error:  # no module, no ICD, no platform: each raises its own kind
        print(f"PoCL was not found ({error or 'no such platform'}): pip install pyopencl, and install pocl-opencl-icd.")
        return 1
    problem = Problem(B=1, H=1, N=arguments.N, d=64, dtype="fp32")
    inputs = make_inputs(problem)
    q, k, v = (inputs[name][0, 0] for name in "QKV")
    expected = naive_attention(q, k, v, problem.scale)
    counted = Emulated("fa2", problem, Tiling(64, 64), emu.EmuParams(threads=arguments.threads))
    counted.prepare(inputs)
    contenders: dict[str, Callable[[], object]] = {NUMPY: lambda: naive_attention(q, k, v, problem.scale), EMULATOR: counted}
    for name, run, O in ports(device, q, k, v, problem.scale):
        if not np.max(np.abs(O - expected)) < 1e-4:
            print(f"{name} is wrong by {np.max(np.abs(O - expected)):.3g}: its time would mean nothing")
            return 1
        contenders[name] = run
    with threads_of_numpy(arguments.threads):
        seconds = take_turns(contenders, arguments.repeats)
    print(f"{header(arguments.threads)}, {device.platform.version}\n")
    for name, values in seconds.items():
        ratios = sorted(a / b for a, b in zip(values, seconds[EMULATOR], strict=True))
        middle, spread = statistics.median(values), f"{min(values):.4f}..{max(values):.4f}"
        print(f"{name:34s} {middle:.4f} s  {spread}  x emulator {statistics.median(ratios):.2f}  {ratios[0]:.2f}..{ratios[-1]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
