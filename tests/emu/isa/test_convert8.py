"""The 8-bit floats over all their values: every code decoded, every half and bfloat16 encoded, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import cuda, entry, launch, module

TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
ALL16 = np.arange(1 << 16, dtype=np.uint16)


def convert(instruction: str, x: np.ndarray, source_bits: int, target_bits: int) -> np.ndarray:
    """``instruction`` over an array of bit patterns, one per thread."""
    registers = {16: "%h", 32: "%r"}
    body = f"""
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 256, %r1;
  mad.wide.u32 %d1, %r3, {source_bits // 8}, %p_x;
  ld.global.b{source_bits} {registers[source_bits]}10, [%d1];
  {instruction} {registers[target_bits]}20, {registers[source_bits]}10;
  mad.wide.u32 %d2, %r3, {target_bits // 8}, %p_y;
  st.global.b{target_bits} [%d2], {registers[target_bits]}20;"""
    out = emu.asarray(np.zeros(x.size, f"u{target_bits // 8}"))
    launch(module(entry("convert", ["x", "y"], body)), "convert", x.size // 256, 256, emu.asarray(x), out)
    return np.array(out)


def numbers(bits: np.ndarray, kind: str) -> np.ndarray:
    """The values as float32."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        return bits.view(TYPES[kind]).astype(np.float32)


def same(got: np.ndarray, want: np.ndarray, kind: str) -> bool:
    """Equal bits, or NaN and NaN."""
    nan = [np.isnan(numbers(np.ascontiguousarray(v), kind)) for v in (got, want)]
    return bool(((got == want) | (nan[0] & nan[1])).all())


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_every_pair_of_codes(kind: str, target: str, relu: str) -> None:
    got = convert(f"cvt.rn{relu}.{target}x2.{kind}x2", ALL16, 16, 32).view(np.uint16)
    value = numbers(ALL16.view(np.uint8), kind)
    if relu:
        value = np.where(value < 0, np.float32(0), value)
    with np.errstate(invalid="ignore"):
        want = value.astype(TYPES[target]).view(np.uint16)
    assert same(got, want, target)


@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_every_half(kind: str, source: str, relu: str) -> None:
    """Rounded to nearest even; what is too large becomes the largest number, infinity included."""
    pairs = np.stack([ALL16, ALL16[::-1]], 1)
    got = convert(f"cvt.rn.satfinite{relu}.{kind}x2.{source}x2", np.ascontiguousarray(pairs).view(np.uint32)[:, 0], 32, 16).view(np.uint8)
    value = numbers(pairs.reshape(-1), source)
    value = np.where(value < 0, np.float32(0), value) if relu else value
    limit = np.float32(LARGEST[kind])
    with np.errstate(invalid="ignore"):
        want = np.clip(value, -limit, limit).astype(TYPES[kind]).view(np.uint8)  # clip keeps NaN
    assert same(got, want, kind)
    assert (got[np.isnan(value)] == 0x7F).all()


CODE = """
#include <cuda_fp8.h>
extern "C" __global__ void round_trip(const float4* x, float4* y, unsigned* codes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_fp8x4_e4m3 q(x[i]);
    codes[i] = q.__x;
    y[i] = (float4)q;
}
"""


@pytest.mark.parametrize("arch", ["80", "90"])
def test_cuda_fp8_header(arch: str) -> None:
    """The same through cuda_fp8.h, which spells out the arithmetic below sm_89."""
    x = (np.random.default_rng(4).standard_normal((256, 4)) * 10.0 ** np.arange(-2, 2)).astype(np.float32)
    y, codes = emu.empty((256, 4), np.float32), emu.empty((256, 4), np.uint8)
    launch(cuda(CODE, arch=arch), "round_trip", 2, 128, emu.asarray(x), y, codes)
    want = np.clip(x, -448, 448).astype(TYPES["e4m3"])
    assert np.array_equal(codes, want.view(np.uint8)) and np.array_equal(y, want.astype(np.float32))
