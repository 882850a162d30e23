"""The fragment maps: bijections, the pictures of the PTX manual, and matrix products through them (case P20)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rawflash.emu import fragments

SHAPES = [
    ("m16n8k8", "f16"), ("m16n8k16", "f16"), ("m16n8k8", "bf16"), ("m16n8k16", "bf16"), ("m16n8k4", "tf32"),
    ("m16n8k8", "tf32"), ("m8n8k16", "s8"), ("m16n8k16", "s8"), ("m16n8k32", "s8"), ("m16n8k16", "u8"),
    ("m16n8k32", "u8"), ("m16n8k16", "e4m3"), ("m16n8k32", "e4m3"), ("m16n8k32", "e5m2"), ("m8n8k4", "f64"),
    ("m16n8k4", "f64"), ("m16n8k8", "f64"), ("m16n8k16", "f64"),
]  # fmt: skip
WMMA = ["m16n16k16", "m32n8k16", "m8n32k16"]


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_every_element_has_exactly_one_holder(shape: str, dtype: str) -> None:
    for fragment in fragments.mma(shape, dtype):
        places = set(zip(fragment.row.ravel().tolist(), fragment.col.ravel().tolist(), strict=True))
        assert places == {(r, c) for r in range(fragment.rows) for c in range(fragment.cols)}
        assert fragment.row.size == fragment.rows * fragment.cols


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_a_register_holds_neighbours_along_k(shape: str, dtype: str) -> None:
    a, b, _ = fragments.mma(shape, dtype)
    for fragment, along, across in ((a, a.col, a.row), (b, b.row, b.col)):
        step = along.reshape(32, -1, fragment.per_register)
        assert (np.diff(step, axis=2) == 1).all() and (step[..., 0] % fragment.per_register == 0).all()
        assert (np.diff(across.reshape(32, -1, fragment.per_register), axis=2) == 0).all()


def test_m16n8k16_places_as_the_manual_lists_them() -> None:
    """The formulas of the manual's section on m16n8k16 for .f16, written out element by element."""
    a, b, c = fragments.mma("m16n8k16", "f16")
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(8):
            assert a.row[lane, i] == (group if i < 2 or 4 <= i < 6 else group + 8)
            assert a.col[lane, i] == thread * 2 + (i & 1) + (0 if i < 4 else 8)
        for i in range(4):
            assert b.row[lane, i] == thread * 2 + (i & 1) + (0 if i < 2 else 8)
            assert b.col[lane, i] == group
            assert c.row[lane, i] == (group if i < 2 else group + 8)
            assert c.col[lane, i] == thread * 2 + (i & 1)


def test_m16n8k32_places_as_the_manual_lists_them() -> None:
    """The same for the 8-bit shapes."""
    a, b, _ = fragments.mma("m16n8k32", "s8")
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(16):
            assert a.row[lane, i] == (group if i < 4 or 8 <= i < 12 else group + 8)
            assert a.col[lane, i] == thread * 4 + (i & 3) + (0 if i < 8 else 16)
        for i in range(8):
            assert b.row[lane, i] == thread * 4 + (i & 3) + (0 if i < 4 else 16)
            assert b.col[lane, i] == group


def test_accumulator_offset_formula() -> None:
    """The closed form of C: element j of a lane sits at offset (j & 1) + 2 * (lane % 4) + 8 * (lane // 4) + 64 * (j >> 1)."""
    _, _, c = fragments.mma("m16n8k16", "f16")
    lane, j = np.ogrid[:32, :4]
    assert np.array_equal(c.row * 8 + c.col, (j & 1) + 2 * (lane % 4) + 8 * (lane // 4) + 64 * (j >> 1))


def lane_product(shape: str, dtype: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """D = A B computed from what the lanes hold, each lane asking the holders of its row and column."""
    fa, fb, fc = fragments.mma(shape, dtype)
    held_a, held_b = fa.distribute(a), fb.distribute(b)
    held_d = np.zeros((32, fc.elements), np.int64)
    for lane in range(32):
        for i in range(fc.elements):
            row, col = fc.row[lane, i], fc.col[lane, i]
            in_row, in_col = fa.row == row, fb.col == col
            left = held_a[in_row][np.argsort(fa.col[in_row])]
            right = held_b[in_col][np.argsort(fb.row[in_col])]
            held_d[lane, i] = left @ right
    return fc.collect(held_d)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_products_of_integers(shape: str, dtype: str) -> None:
    m, n, k = fragments.parse_shape(shape)
    rng = np.random.default_rng(7)
    a, b = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, n))
    assert np.array_equal(lane_product(shape, dtype, a, b), a @ b)


def test_one_hot_products_have_a_single_one() -> None:
    """A = e_i e_k^T and B = e_k e_j^T give D = e_i e_j^T, for all i, j, k of m16n8k16."""
    fa, fb, fc = fragments.mma("m16n8k16", "f16")
    for k in range(16):
        for i in range(16):
            a = np.zeros((16, 16), np.int64)
            a[i, k] = 1
            assert np.array_equal(np.argwhere(fa.distribute(a)), np.argwhere((fa.row == i) & (fa.col == k)))
            for j in range(8):
                b = np.zeros((16, 8), np.int64)
                b[k, j] = 1
                d = fa.collect(fa.distribute(a)) @ fb.collect(fb.distribute(b))
                assert np.argwhere(fc.collect(fc.distribute(d))).tolist() == [[i, j]]


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_is_a_bijection(count: int, trans: bool) -> None:
    matrix, row, col = fragments.ldmatrix(count, trans)
    places = set(zip(matrix.ravel().tolist(), row.ravel().tolist(), col.ravel().tolist(), strict=True))
    assert len(places) == count * 64
    assert (matrix == np.arange(count)[None, :, None]).all()


def test_ldmatrix_feeds_mma() -> None:
    """ldmatrix.x4 of the four quarters of a row-major A is the A fragment; ldmatrix.x2.trans of a row-major B is the B fragment."""
    a, b, _ = fragments.mma("m16n8k16", "f16")
    full = np.arange(256).reshape(16, 16)
    quarters = np.stack([full[:8, :8], full[8:, :8], full[:8, 8:], full[8:, 8:]])
    matrix, row, col = fragments.ldmatrix(4)
    assert np.array_equal(quarters[matrix, row, col].reshape(32, -1), a.distribute(full))
    tall = np.arange(128).reshape(16, 8)
    matrix, row, col = fragments.ldmatrix(2, trans=True)
    assert np.array_equal(np.stack([tall[:8], tall[8:]])[matrix, row, col].reshape(32, -1), b.distribute(tall))


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    _, row, col = (part[:, 0] for part in fragments.ldmatrix(1))
    assert np.array_equal(fragments.movmatrix(matrix[row, col]), matrix.T[row, col])
    assert np.array_equal(fragments.movmatrix(fragments.movmatrix(matrix[row, col])), matrix[row, col])


@pytest.mark.parametrize("shape", WMMA)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "s8", "u8"])
def test_wmma_fragments_cover_their_matrix(shape: str, dtype: str) -> None:
    accumulators = ("f16", "f32") if dtype in ("f16", "bf16") else ("s32",)
    for operand, kind in [("a", dtype), ("b", dtype), *(("c", kind) for kind in accumulators)]:
        fragment = fragments.wmma(shape, operand, kind)
        assert fragment.registers == fragments.wmma_registers(shape, operand, kind)
        _, holders = np.unique(fragment.row * fragment.cols + fragment.col, return_counts=True)
        assert holders.size == fragment.rows * fragment.cols and (holders == holders[0]).all()
        full = np.arange(fragment.rows * fragment.cols).reshape(fragment.rows, fragment.cols)
        assert np.array_equal(fragment.collect(fragment.distribute(full)), full)


def test_wmma_register_counts_of_the_manual() -> None:
    """f16: 8 for A and B of every shape; bf16 and s8 follow the tile; accumulators 8 of f32 or s32, 4 of f16."""
    counts = {(s, o, t): fragments.wmma_registers(s, o, t) for s in WMMA for o in "ab" for t in ("f16", "bf16", "s8")}
    assert {n for (_, _, t), n in counts.items() if t == "f16"} == {8}
    assert [counts[s, o, "bf16"] for s in WMMA for o in "ab"] == [4, 4, 8, 2, 2, 8]
    assert [counts[s, o, "s8"] for s in WMMA for o in "ab"] == [2, 2, 4, 1, 1, 4]
    assert [fragments.wmma_registers("m16n16k8", o, "tf32") for o in "ab"] == [4, 4]
    assert [fragments.wmma_registers("m8n8k4", o, "f64") for o in "abc"] == [1, 1, 2]
    assert {fragments.wmma_registers(s, "d", t) for s in WMMA for t in ("f32", "s32")} == {8}
    assert {fragments.wmma_registers(s, "d", "f16") for s in WMMA} == {4}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, ml_dtypes.bfloat16, np.float32])
def test_pack_and_unpack(dtype: type) -> None:
    held = np.arange(-64, 64).astype(np.int8).reshape(32, 4).astype(dtype)
    registers = fragments.pack(held)
    assert registers.shape == (32, 4 * held.dtype.itemsize // 4)
    assert np.array_equal(fragments.unpack(registers, dtype), held)
    assert registers[0, 0] & ((1 << 8 * held.dtype.itemsize) - 1) == int(held.view(f"u{held.dtype.itemsize}")[0, 0])


def test_errors_name_the_shape() -> None:
    with pytest.raises(ValueError, match="m8n16k8"):
        fragments.mma("m8n16k8", "f16")
    with pytest.raises(ValueError, match="16x16"):
        fragments.mma("m16n8k16", "f16")[0].distribute(np.zeros((8, 16)))
