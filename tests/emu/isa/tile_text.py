"""Any form of mma.sync on raw register contents: bit patterns in, bit patterns out, one warp per product.

``matrix_text.run_mma`` takes NumPy types; this one takes elements of any width as unsigned integers (4-bit and single-bit
ones too) and knows nothing of what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rawflash import emu
from rawflash.emu import fragments
from tests.emu.harness import entry, launch, module

BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """``mma.sync.aligned.<shape>.row.col<before>.<d>.<a>.<b>.<c><after>``."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"mma.sync.aligned.{self.shape}.row.col{self.before}.{self.d}.{self.a}.{self.b}.{self.c}{self.after}"

    @property
    def dims(self) -> tuple[int, int, int]:
        return fragments.parse_shape(self.shape)

    def fragment(self, operand: str) -> fragments.Fragment:
        m, n, k = self.dims
        e = max(1, 32 // BITS[getattr(self, operand)])
        if operand == "a":
            return fragments.mma_a(m, k, e)
        return fragments.mma_b(n, k, e) if operand == "b" else fragments.mma_c(m, n, e)


def registers(held: np.ndarray, bits: int) -> np.ndarray:
    """(count, 32, elements) of unsigned integers -> (count, registers, 32) of 32 or 64 bits, first element lowest."""
    if bits == 64:
        return np.ascontiguousarray(np.swapaxes(held, 1, 2)).astype(np.uint64)
    per = 32 // bits
    parts = held.astype(np.uint64).reshape(*held.shape[:2], -1, per) << (np.arange(per, dtype=np.uint64) * np.uint64(bits))
    return np.ascontiguousarray(np.swapaxes(parts.sum(axis=3, dtype=np.uint64), 1, 2)).astype(np.uint32)


def elements(words: np.ndarray, bits: int) -> np.ndarray:
    """The inverse: (count, registers, 32) -> (count, 32, elements)."""
    per = max(1, 32 // bits)
    wide = np.swapaxes(words, 1, 2).astype(np.uint64)[..., None] >> (np.arange(per, dtype=np.uint64) * np.uint64(bits % 64))
    return (wide & np.uint64((1 << bits) - 1)).reshape(*wide.shape[:2], -1)


def text(form: Spelling, guard: str = "") -> str:
    """The kernel ``product(a, b, c, out)``. ``guard`` is PTX that runs before and sets %p1, which then guards the mma."""
    lines, declared, groups = ["  mov.u32 %r1, %tid.x;", "  mov.u32 %r2, %ctaid.x;"], [], {}
    for operand in "abcd":
        kind = getattr(form, operand)
        width, count = max(32, BITS[kind]), form.fragment(operand).registers
        declared.append(f"  .reg .{kind if kind in ('f64', 'f32') else f'b{width}'} %in_{operand}<{count}>;")
        groups[operand] = "{" + ", ".join(f"%in_{operand}{n}" for n in range(count)) + "}"
        lines.append(f"  mul.lo.u32 %r3, %r2, {count * 4 * width};")
        lines.append(f"  mad.lo.u32 %r3, %r1, {width // 8}, %r3;")
        lines += ["  cvt.u64.u32 %d1, %r3;", f"  add.u64 %d1, %p_{operand}, %d1;"]
        if operand != "d":
            lines += [f"  ld.global.b{width} %in_{operand}{n}, [%d1+{4 * width * n}];" for n in range(count)]
    lines.append(f"{guard}\n  {'@%p1 ' if guard else ''}{form} {groups['d']}, {groups['a']}, {groups['b']}, {groups['c']};")
    lines += [f"  st.global.b{width} [%d1+{4 * width * n}], %in_d{n};" for n in range(count)]
    return entry("product", ["a", "b", "c", "d"], "\n".join(lines), "\n".join(declared))


def run(form: Spelling, a: np.ndarray, b: np.ndarray, c: np.ndarray, guard: str = "", block: int = 32, **kwargs: Any) -> np.ndarray:
    """D of stacks of A (count, m, k), B (count, k, 8) and C (count, m, 8), all bit patterns."""
    stacks = {"a": a, "b": b, "c": c}
    packed = {}
    for operand, stack in stacks.items():
        f = form.fragment(operand)
        packed[operand] = registers(stack[:, f.row, f.col], BITS[getattr(form, operand)])
    fd = form.fragment("d")
    width = max(32, BITS[form.d])
    out = emu.asarray(np.zeros((len(a), fd.registers, 32), f"u{width // 8}"))
    launch(module(text(form, guard), **kwargs), "product", len(a), block, *(emu.asarray(packed[k]) for k in "abc"), out)
    held = elements(np.array(out), BITS[form.d])
    d = np.zeros((len(a), fd.rows, fd.cols), np.uint64)
    d[:, fd.row, fd.col] = held
    return d
