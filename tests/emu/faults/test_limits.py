"""What a device refuses, the emulator refuses (P26, C01, C05, C16), before anything runs and with the same meaning."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import cuda, launch, zeros

SOURCE = """
extern "C" __global__ void mark(int* out) { if (threadIdx.x + threadIdx.y + threadIdx.z == 0) out[0] = 1; }
extern "C" __global__ void scale(float* out, float factor, int n) { if (threadIdx.x < n) out[threadIdx.x] = factor * threadIdx.x; }
extern "C" __global__ void bytes(int* out, unsigned char b, unsigned short h, long long l, double d, bool t) {
    out[0] = b; out[1] = h; out[2] = (int)(l >> 32); out[3] = (int)d; out[4] = t;
}
extern "C" __global__ void dynamic(int* out) { extern __shared__ int s[]; s[threadIdx.x] = 1; out[threadIdx.x] = s[threadIdx.x]; }
extern "C" __global__ void both(int* out) {
    __shared__ int fixed[4];
    extern __shared__ int s[];
    fixed[threadIdx.x & 3] = 2;
    s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x] + fixed[0];
}
extern "C" __global__ __launch_bounds__(64) void at_most_64(int* out) { out[threadIdx.x] = 1; }
"""


@cache
def limits() -> Any:
    return cuda(SOURCE)


@pytest.mark.parametrize(("grid", "block"), [
    ((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (1, 1025, 1)), ((1, 1, 1), (1, 1, 65)), ((1, 1, 1), (32, 32, 2)), ((1, 65536, 1), (1, 1, 1)),
    ((1, 1, 65536), (1, 1, 1)), ((2**31, 1, 1), (1, 1, 1)), ((0, 1, 1), (32, 1, 1)), ((1, 0, 1), (32, 1, 1)), ((1, 1, 1), (0, 1, 1)),
])  # fmt: skip
def test_shapes_beyond_the_limits(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    out = zeros(1, np.int32)
    with pytest.raises(emu.LaunchRefused) as caught:
        launch(limits(), "mark", grid, block, out)
    assert isinstance(caught.value, emu.ResourceLimit)
    assert out[0] == 0
    shown = str(caught.value)
    assert any(str(size) in shown for size in (*grid, *block) if size != 1)


@pytest.mark.parametrize(
    ("grid", "block"), [((1, 1, 1), (1024, 1, 1)), ((1, 1, 1), (1, 1, 64)), ((1, 2, 1), (2, 8, 64)), ((1, 65535, 1), (1, 1, 1))]
)
def test_shapes_at_the_limits(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    out = zeros(1, np.int32)
    launch(limits(), "mark", grid, block, out)
    assert out[0] == 1


def test_launch_bounds_are_kept() -> None:
    out = zeros(128, np.int32)
    with pytest.raises(emu.ResourceLimit, match="64"):
        launch(limits(), "at_most_64", 1, 128, out)
    launch(limits(), "at_most_64", 1, 64, out)
    assert limits().get_function("at_most_64").max_threads_per_block == 64
    assert limits().get_function("mark").max_threads_per_block == 1024


@pytest.mark.parametrize(("name", "size", "fits"), [
    ("dynamic", 48 * 1024, True), ("dynamic", 48 * 1024 + 4, False), ("both", 48 * 1024 - 16, True), ("both", 48 * 1024, False),
    ("dynamic", 50 * 1024, False), ("dynamic", 98304, False),
])  # fmt: skip
def test_dynamic_shared_memory_without_opting_in(name: str, size: int, fits: bool) -> None:
    """Static and dynamic together stay within 48 KB unless the kernel opts in."""
    out = zeros(32, np.int32)
    if fits:
        launch(limits(), name, 1, 32, out, shared_mem=size)
        assert out[0] == (1 if name == "dynamic" else 3)
        return
    with pytest.raises(emu.ResourceLimit, match="max_dynamic_shared_size_bytes"):
        launch(limits(), name, 1, 32, out, shared_mem=size)


def test_opting_in_to_more_shared_memory() -> None:
    kernel = cuda(SOURCE).get_function("both")
    kernel.max_dynamic_shared_size_bytes = 98304
    out = zeros(32, np.int32)
    kernel((1, 1, 1), (32, 1, 1), (out,), shared_mem=98304)
    assert out.tolist() == [3] * 32
    with pytest.raises(emu.ResourceLimit, match="98304"):
        kernel((1, 1, 1), (32, 1, 1), (out,), shared_mem=98308)


def test_opting_in_beyond_the_architecture() -> None:
    kernel = cuda(SOURCE, arch="80").get_function("dynamic")
    with pytest.raises(emu.ResourceLimit, match="166912"):  # 163 KB on 8.0
        kernel.max_dynamic_shared_size_bytes = 200 * 1024
        kernel((1, 1, 1), (32, 1, 1), (zeros(32, np.int32),), shared_mem=200 * 1024)


MISFITS = {
    "too few": ((np.float32(2),), "3"),
    "too many": ((np.float32(2), np.int32(4), np.int32(5)), "4"),
    "a Python float for a float": ((2.0, np.int32(4)), "1"),
    "a Python int for an int": ((np.float32(2), 4), "2"),
    "an int for a float": ((np.int32(2), np.int32(4)), "1"),
    "a float for an int": ((np.float32(2), np.float32(4)), "2"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arguments_that_do_not_fit(name: str) -> None:
    """A Python float is a double and a Python int 64 bits, as in CuPy; where the parameter is 4 bytes that is refused (C01).

    The sentence names the position (or the count) that is wrong.
    """
    rest, says = MISFITS[name]
    out = zeros(4, np.float32)
    with pytest.raises(emu.ArgumentMismatch, match=says):
        launch(limits(), "scale", 1, 4, out, *rest)
    assert not out.any()


def test_pointer_and_scalar_mixed_up() -> None:
    with pytest.raises(emu.ArgumentMismatch):
        launch(limits(), "scale", 1, 4, np.float32(1), np.float32(2), np.int32(4))
    with pytest.raises(emu.ArgumentMismatch):
        launch(limits(), "scale", 1, 4, zeros(4, np.float32), zeros(1, np.float32), np.int32(4))


def test_a_forgotten_tuple() -> None:
    for lone in (zeros(4, np.float32), np.int32(4), 4):
        with pytest.raises(emu.ArgumentMismatch, match=r"not a tuple; write \(x,\)"):
            limits().get_function("mark")((1,), (4,), lone)


def test_cupys_other_keywords_are_taken() -> None:
    """They change nothing here: a launch is over when it returns."""
    kernel = emu.RawKernel(SOURCE, "mark", (), "nvrtc", translate_cucomplex=False, enable_cooperative_groups=True, jitify=False)
    out, log = zeros(1, np.int32), io.StringIO()
    kernel.module.compile(log_stream=log)
    kernel((1,), (4,), (out,), shared_mem=0, stream=None)
    assert out[0] == 1 and log.getvalue() == kernel.module.log


def test_every_scalar_width() -> None:
    out = zeros(5, np.int32)
    launch(limits(), "bytes", 1, 1, out, np.uint8(200), np.uint16(60000), 5 << 32, 7.9, np.bool_(True))
    assert out.tolist() == [200, 60000, 5, 7, 1]


def test_objects_that_are_no_arguments() -> None:
    for wrong in ("text", np.array([object()]), [1, 2]):
        with pytest.raises((emu.ArgumentMismatch, TypeError)):
            launch(limits(), "scale", 1, 4, wrong, np.float32(1), np.int32(4))


def test_non_contiguous_views_are_right_or_refused() -> None:
    """CuPy passes the base pointer of a view silently (C03); here a view with a gap between elements is refused or honoured."""
    base = zeros((4, 2), np.float32)
    try:
        launch(limits(), "scale", 1, 4, base[:, 0], np.float32(3), np.int32(4))
    except emu.ArgumentMismatch as error:
        assert "contiguous" in str(error) or "stride" in str(error)
        assert not base.any()
    else:
        assert base[:, 0].tolist() == [0, 3, 6, 9] and not base[:, 1].any()


def test_plain_numpy_arrays_come_back_changed() -> None:
    out = np.zeros(4, np.float32)
    launch(limits(), "scale", 1, 4, out, np.float32(3), np.int32(4))
    assert out.tolist() == [0, 3, 6, 9]


def test_arrays_of_ml_dtypes() -> None:
    """bfloat16 and fp8 arrays are arguments like others."""
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        x = emu.asarray(np.arange(4).astype(dtype))
        assert x.dtype == dtype and x.astype(np.float32).tolist() == [0, 1, 2, 3]
        assert np.isnan(emu.empty(3, dtype).astype(np.float32)).all()
    launch(limits(), "mark", 1, 1, emu.asarray(np.zeros(2, ml_dtypes.bfloat16)))
