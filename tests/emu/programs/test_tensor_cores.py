"""Tensor-core programs: a swizzled bf16 product with its bank conflicts, and nvcuda::wmma in the types that test_matrix.py leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import launch, line_of
from tests.emu.programs.loader import program, text
from tests.emu.programs.test_matrix import needs_mma_h

RNG = np.random.default_rng(12)
BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(("swizzle", "per_matrix"), [(1, 1), (0, 8)])
def test_bank_conflicts_of_a_swizzled_product(swizzle: int, per_matrix: int) -> None:
    """128-byte rows: eight rows of a matrix share their banks unless chunks are swizzled. The result is the same."""
    a, b = RNG.standard_normal((64, 64)).astype(BF16), RNG.integers(-8, 8, (64, 64)).astype(BF16)
    out = emu.empty((64, 64), np.float32)
    bits = [emu.asarray(x.view(np.uint16)) for x in (a, b)]
    report = launch(program("swizzle", f"-DSWIZZLE={swizzle}"), "mma_swizzled", 1, 128, *bits, out)
    wide = [x.astype(np.float64) for x in (a, b)]
    assert (np.abs(out - wide[0] @ wide[1]) <= 64 * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1]))).all()
    loads = {tag: 4 * count for tag, count in (("A", 4), ("B", 16))}  # by four warps
    for tag, count in loads.items():
        line = next(c for (_, n), c in report.lines.items() if n == line_of(text("swizzle"), tag))
        assert line.shared.read_requests == count and line.shared.read_bytes == 512 * count
        assert (line.shared.wavefronts, line.shared.bank_conflicts) == (4 * per_matrix * count, 4 * (per_matrix - 1) * count)
    assert report.shared.bank_conflicts == 4 * (per_matrix - 1) * sum(loads.values())
    assert report.count("mma") == 32 * 4 * 32


@needs_mma_h
def test_wmma_bfloat() -> None:
    a, b, c = (RNG.integers(-8, 8, (16, 16)) for _ in range(3))
    out = emu.asarray(c.astype(np.float32))
    launch(program("wmma_types"), "wmma_bfloat", 1, 32, *(emu.asarray(x.astype(BF16).view(np.uint16)) for x in (a, b)), out)
    assert np.array_equal(out, a @ b + c)


@needs_mma_h
def test_wmma_tf32() -> None:
    """Each operand is rounded to 10 bits of mantissa, by at most 2^-11 of itself; the sums are of fp32."""
    a, b, c = RNG.standard_normal((16, 8)), RNG.standard_normal((8, 16)), RNG.standard_normal((16, 16)).astype(np.float32)
    out = emu.asarray(np.ascontiguousarray(c.T))
    launch(program("wmma_types"), "wmma_tf32", 1, 32, *(emu.asarray(x.astype(np.float32)) for x in (a, b)), out)
    error = np.abs(np.array(out).T - (a @ b + c))
    assert error.max() > 1e-5 and (error <= 2.2 * 2.0**-11 * (np.abs(a) @ np.abs(b)) + 1e-6).all()


@needs_mma_h
def test_wmma_double() -> None:
    a, b, c = RNG.standard_normal((8, 4)), RNG.standard_normal((4, 8)), RNG.standard_normal((8, 8))
    out = emu.asarray(c)
    launch(program("wmma_types"), "wmma_double", 1, 32, emu.asarray(a), emu.asarray(np.ascontiguousarray(b.T)), out)
    assert (np.abs(out - (a @ b + c)) <= 5 * 2.0**-53 * (np.abs(a) @ np.abs(b) + np.abs(c))).all()


@needs_mma_h
def test_wmma_bytes_saturate() -> None:
    a, b = RNG.integers(0, 256, (8, 16)).astype(np.uint8), RNG.integers(0, 256, (16, 32)).astype(np.uint8)
    columns = np.zeros((16, 16), np.uint8)
    columns[:, :8] = a.T
    c = np.full((8, 32), 2**31 - 300_000, np.int32)
    out = emu.asarray(c)
    launch(program("wmma_types"), "wmma_bytes", 1, 32, emu.asarray(columns), emu.asarray(b), out)
    assert np.array_equal(out, np.minimum(a.astype(np.int64) @ b.astype(np.int64) + c, 2**31 - 1))
