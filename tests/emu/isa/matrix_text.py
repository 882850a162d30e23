"""PTX around one mma.sync or one wmma product: operands come from arrays, already laid out for the lanes by rawflash.emu.fragments."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rawflash import emu
from rawflash.emu import fragments
from tests.emu.harness import entry, launch, module

NARROW = {"s4": 4, "u4": 4, "b1": 1}
NUMPY: dict[str, type] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int32,
    "s8": np.int8, "u8": np.uint8, "s4": np.int8, "u4": np.uint8, "b1": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def quantised(x: np.ndarray, kind: str) -> np.ndarray:
    """Values the type holds exactly; tf32 has a 10-bit mantissa."""
    if kind == "tf32":
        return (x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)
    return x.astype(NUMPY[kind])


def registers(fragment: fragments.Fragment, matrices: np.ndarray, kind: str) -> np.ndarray:
    """(count, rows, cols) -> (count, 32, registers) of 32 or 64 bits."""
    held = np.stack([fragment.distribute(matrix) for matrix in matrices])
    if held.dtype.itemsize == 8:
        return held.view(np.uint64)
    return np.stack([fragments.pack(np.ascontiguousarray(each), NARROW.get(kind, 0)) for each in held])


def _vector(letter: str, first: int, count: int) -> list[str]:
    return [f"%{letter}{first + i}" for i in range(count)]


def run_mma(row: tuple[str, str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray, extra: str = "") -> np.ndarray:
    """D of every (A, B, C) in the stacks, one warp per product."""
    shape, a_type, b_type, c_type = row
    fa, _, fc = fragments.mma(shape, a_type, c_type)
    fb = fragments.mma(shape, b_type)[1]
    letter, size = ("d", 8) if c_type == "f64" else ("r", 4)
    counts = {"a": fa.registers, "b": fb.registers, "c": fc.registers}
    lines, names = ["  mov.u32 %r1, %tid.x;", "  mov.u32 %r2, %ctaid.x;", "  mad.lo.u32 %r3, %r2, 32, %r1;"], {}
    first = 20
    for operand, count in counts.items():
        names[operand] = _vector(letter, first, count)
        first += count
        lines.append(f"  mad.wide.u32 %d1, %r3, {size * count}, %p_{operand};")
        lines += [f"  ld.global.b{8 * size} {r}, [%d1+{size * i}];" for i, r in enumerate(names[operand])]
    names["d"] = _vector(letter, first, counts["c"])
    groups = ", ".join("{" + ", ".join(names[k]) + "}" for k in "dabc")
    before, after = ("", extra) if a_type == "b1" else (extra, "")
    lines.append(f"  mma.sync.aligned.{shape}.row.col{before}.{c_type}.{a_type}.{b_type}.{c_type}{after} {groups};")
    lines.append(f"  mad.wide.u32 %d1, %r3, {size * counts['c']}, %p_out;")
    lines += [f"  st.global.b{8 * size} [%d1+{size * i}], {r};" for i, r in enumerate(names["d"])]
    held = [registers(f, x, kind) for f, x, kind in ((fa, a, a_type), (fb, b, b_type), (fc, c, c_type))]
    out = emu.asarray(np.zeros_like(held[2]))
    text = entry("product", ["a", "b", "c", "out"], "\n".join(lines))
    launch(module(text), "product", len(a), 32, *(emu.asarray(x) for x in held), out)
    return np.stack([fc.collect(unpacked(np.array(each), c_type)) for each in out])


def unpacked(held: np.ndarray, kind: str) -> np.ndarray:
    """(32, registers) -> (32, elements) of the type."""
    return held.view(np.float64) if kind == "f64" else fragments.unpack(held, NUMPY[kind])


def run_wmma(row: tuple[str, str, str, str], layouts: tuple[str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """D of one product through wmma.load, wmma.mma and wmma.store; matrices are stored in the layouts with padded strides."""
    shape, ab, c_type, d_type = row
    padding = 16
    stored, strides = {}, {}
    for name, matrix, layout in (("a", a, layouts[0]), ("b", b, layouts[1]), ("c", c, layouts[2])):
        major = matrix if layout == "row" else matrix.T
        stored[name] = np.pad(major.astype(np.float64), ((0, 0), (0, padding))).astype(matrix.dtype)
        strides[name] = major.shape[1] + padding
    lines, names, first = [], {}, {"r": 10, "d": 10}
    for name, kind in (("a", ab), ("b", ab), ("c", c_type), ("d", d_type)):
        letter = "d" if kind == "f64" else "r"
        count = fragments.wmma_registers(shape, name, kind)
        names[name] = "{" + ", ".join(_vector(letter, first[letter], count)) + "}"
        first[letter] += count
        if name != "d":
            layout = layouts["abc".index(name)]
            lines.append(f"  wmma.load.{name}.sync.aligned.{layout}.{shape}.global.{kind} {names[name]}, [%p_{name}], {strides[name]};")
    types = f"{d_type}.{c_type}" if ab == "f16" else f"{d_type}.{ab}.{ab}.{c_type}"
    lines.append(
        f"  wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types} {names['d']}, {names['a']}, {names['b']}, {names['c']};"
    )
    lines.append(f"  wmma.store.d.sync.aligned.{layouts[2]}.{shape}.global.{d_type} [%p_out], {names['d']}, {strides['c']};")
    raw = {k: x.view(f"u{x.dtype.itemsize}") for k, x in stored.items()}
    out = emu.asarray(np.zeros(stored["c"].shape, f"u{np.dtype(NUMPY[d_type]).itemsize}"))
    text = entry("product", ["a", "b", "c", "out"], "\n".join(lines))
    launch(module(text), "product", 1, 32, *(emu.asarray(raw[k]) for k in "abc"), out)
    found = np.array(out)[:, :-padding].view(NUMPY[d_type])
    assert not np.array(out)[:, -padding:].any()
    return found if layouts[2] == "row" else found.T
