"""atom and red: what is stored and what comes back, lane by lane on own cells, then everyone on one cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module
from tests.emu.isa import values
from tests.emu.isa.forms import BLOCK, THREADS, same_or_nan
from tests.emu.oracles import floating, integer
from tests.emu.oracles import softfloat as sf

Update = Callable[[int, int, int], int]


def of(function: Callable[[int, int], int], kind: str) -> Update:
    exact = integer.arithmetic(function, kind)
    return lambda old, b, c: exact(old, b)


def float_add(f: sf.Format, packed: bool = False) -> Update:
    function = floating.rounded("add", f)
    both = floating.packed(function, f) if packed else function
    return lambda old, b, c: both(old, b)  # type: ignore[return-value]


UPDATES: dict[str, Update] = {
    **{f"add.{k}": of(lambda x, y: x + y, k) for k in ("u32", "s32", "u64")},
    **{f"min.{k}": of(min, k) for k in ("u32", "s32", "u64", "s64")},
    **{f"max.{k}": of(max, k) for k in ("u32", "s32", "u64", "s64")},
    **{f"and.b{n}": lambda old, b, c: old & b for n in (32, 64)},
    **{f"or.b{n}": lambda old, b, c: old | b for n in (32, 64)},
    **{f"xor.b{n}": lambda old, b, c: old ^ b for n in (32, 64)},
    "inc.u32": lambda old, b, c: 0 if old >= b else old + 1,
    "dec.u32": lambda old, b, c: b if old == 0 or old > b else old - 1,
    **{f"exch.b{n}": lambda old, b, c: b for n in (32, 64)},
    **{f"cas.b{n}": lambda old, b, c: c if old == b else old for n in (16, 32, 64)},
    "add.f32": float_add(sf.F32), "add.f64": float_add(sf.F64),
    "add.noftz.f16": float_add(sf.F16), "add.noftz.f16x2": float_add(sf.F16, True),
    "add.noftz.bf16": float_add(sf.BF16), "add.noftz.bf16x2": float_add(sf.BF16, True),
}  # fmt: skip
NO_RED = ("exch", "cas")
SPACES = ["global", "shared", "generic"]


def kind_of(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def text(name: str, space: str, red: bool) -> str:
    """Each thread updates its own cell: the cell is read back to ``after``, what the instruction returned goes to ``old``."""
    bits = values.WIDTH[kind_of(name)]
    size = bits // 8
    b, c, d = {16: ("%h1", "%h2", "%h3"), 32: ("%r11", "%r12", "%r13"), 64: ("%d11", "%d12", "%d13")}[bits]
    start = {
        "global": "mov.b64 %d20, %d2;",
        "generic": "mov.b64 %d20, %d2;",
        "shared": f"""mov.u64 %d20, cells;
  mad.wide.u32 %d20, %r2, {size}, %d20;
  ld.global.b{bits} {d}, [%d2];
  st.shared.b{bits} [%d20], {d};""",
    }[space]
    dot = "" if space == "generic" else f".{space}"
    operands = f"{b}, {c}" if name.startswith("cas") else b
    action = f"red{dot}.{name} [%d20], {operands};" if red else f"atom{dot}.{name} {d}, [%d20], {operands};"
    back = {"global": "global", "generic": "global", "shared": "shared"}[space]
    body = f"""
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r1, {BLOCK}, %r2;
  mad.wide.u32 %d1, %r3, {size}, %p_x;
  mad.wide.u32 %d2, %r3, {size}, %p_cells;
  mad.wide.u32 %d3, %r3, {size}, %p_old;
  mad.wide.u32 %d4, %r3, {size}, %p_after;
  ld.global.b{bits} {b}, [%d1+{THREADS * size}];
  ld.global.b{bits} {c}, [%d1+{2 * THREADS * size}];
  mov.b{bits} {d}, 0;
  {start}
  mov.b{bits} {d}, 0;
  {action}
  st.global.b{bits} [%d3], {d};
  ld.{back}.b{bits} {d}, [%d20];
  st.global.b{bits} [%d4], {d};"""
    return entry("cells", ["x", "cells", "old", "after"], body, f"  .shared .align 8 .b8 cells[{BLOCK * 8}];")


def operands(name: str) -> np.ndarray:
    x = values.pool(kind_of(name)).copy()
    if name.startswith("cas"):
        x[1, ::2] = x[0, ::2]
    return x


@pytest.mark.parametrize("red", [False, True], ids=["atom", "red"])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", UPDATES)
def test_own_cells(name: str, space: str, red: bool) -> None:
    if red and name.startswith(NO_RED):
        assert name.split(".")[0] in NO_RED  # red has no such form: nothing to execute
        return
    x = operands(name)
    old, after, cells = (emu.asarray(a) for a in (np.zeros_like(x[0]), np.zeros_like(x[0]), x[0]))
    launch(module(text(name, space, red)), "cells", THREADS // BLOCK, BLOCK, emu.asarray(x), cells, old, after)
    if not red:
        assert np.array_equal(old, x[0])
    same = same_or_nan(kind_of(name))
    for before, b, c, got in zip(*(row.tolist() for row in (x[0], x[1], x[2], np.array(after))), strict=True):
        want = UPDATES[name](before, b, c)
        if name == "add.f32" and space != "shared" and any(sf.is_subnormal(v, sf.F32) for v in (before, b, want)):
            continue  # atom.add.f32 may flush subnormals in global memory
        assert same(got, want), f"{name}: {before:#x} with {b:#x}, {c:#x} became {got:#x}, should be {want:#x}"


def contend(
    action: str, bits: int, start: int, count: int = 12, block: int = 96, params: emu.EmuParams | None = None
) -> tuple[int, np.ndarray]:
    """All threads of all CTAs update one cell; (its final value, what they saw)."""
    register = "%r10" if bits == 32 else "%d10"
    body = f"""
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r1, {block}, %r2;
  mad.wide.u32 %d3, %r3, {bits // 8}, %p_seen;
  cvt.u64.u32 %d5, %r3;
  {action.format(d=register)}
  st.global.b{bits} [%d3], {register};"""
    cell = emu.asarray(np.array([start], f"u{bits // 8}"))
    seen = emu.asarray(np.zeros(count * block, f"u{bits // 8}"))
    launch(module(entry("contend", ["cell", "seen"], body), params=params or emu.EmuParams()), "contend", count, block, cell, seen)
    return int(cell[0]), np.array(seen)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("seed", [None, 5])
def test_every_thread_sees_another_count(bits: int, seed: int | None) -> None:
    final, seen = contend(f"atom.global.add.u{bits} {{d}}, [%p_cell], 1;", bits, 0, params=emu.EmuParams(order_seed=seed))
    assert final == 12 * 96
    assert np.array_equal(np.sort(seen), np.arange(12 * 96))


def test_wrapping_increment_counts_every_thread() -> None:
    final, seen = contend("atom.global.inc.u32 {d}, [%p_cell], 999;", 32, 0)
    assert final == 12 * 96 - 1000
    assert np.array_equal(np.sort(seen), np.sort(np.arange(12 * 96) % 1000))


def test_exchange_loses_nothing() -> None:
    """The final value and what was seen are the start and what the threads stored."""
    final, seen = contend("atom.global.exch.b64 {d}, [%p_cell], %d5;", 64, 10**6)
    assert sorted([final, *seen.tolist()]) == sorted([10**6, *range(12 * 96)])


def test_compare_and_swap_succeeds_once() -> None:
    final, seen = contend("atom.global.cas.b32 {d}, [%p_cell], 7, 9;", 32, 7)
    assert final == 9 and sorted(seen.tolist()) == [7] + [9] * (12 * 96 - 1)


@pytest.mark.parametrize(
    "modifiers", ["relaxed.gpu.global", "acquire.cta.global", "release.sys.global", "acq_rel.gpu.global", "cta.global", "gpu", "sys"]
)
def test_orders_and_scopes(modifiers: str) -> None:
    final, _ = contend(f"atom.{modifiers}.add.u32 {{d}}, [%p_cell], 2;", 32, 1)
    assert final == 1 + 2 * 12 * 96


@pytest.mark.parametrize("modifiers", ["relaxed.gpu.global", "release.cta.global", "relaxed.sys"])
def test_orders_and_scopes_of_red(modifiers: str) -> None:
    final, _ = contend(f"red.{modifiers}.add.u64 [%p_cell], 3;\n  mov.b64 {{d}}, 0;", 64, 0)
    assert final == 3 * 12 * 96


VECTORS = [
    ("v2", "f32", "add", ""), ("v4", "f32", "add", ""), ("v2", "f16", "add", ".noftz"), ("v8", "bf16", "add", ".noftz"),
    ("v4", "f16", "min", ".noftz"), ("v8", "f16", "max", ".noftz"), ("v2", "bf16", "max", ".noftz"), ("v2", "f16x2", "add", ".noftz"),
    ("v4", "bf16x2", "min", ".noftz"), ("v2", "bf16x2", "max", ".noftz"),
]  # fmt: skip


@pytest.mark.parametrize("red", [False, True], ids=["atom", "red"])
@pytest.mark.parametrize("type_first", [False, True])
@pytest.mark.parametrize(("vector", "kind", "op", "noftz"), VECTORS)
def test_vectors(vector: str, kind: str, op: str, noftz: str, type_first: bool, red: bool) -> None:
    """Each thread updates a vector of its own, of numbers around 1; ptxas takes the type before or after the operation."""
    f, count, width = sf.FORMATS[kind.removesuffix("x2")], int(vector[1:]), values.WIDTH[kind]
    per_thread = count * width // f.bits
    rng = np.random.default_rng(7)
    cells, operand = (np.array([f.one]) + rng.integers(-3 << f.man_bits, 2 << f.man_bits, (2, 64, per_thread))).astype(f"u{f.bits // 8}")
    letter = "h" if width == 16 else "r"
    held, back = ("{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}" for first in (10, 20))
    name = f"{vector}.{kind}.{op}{noftz}" if type_first else f"{op}{noftz}.{vector}.{kind}"
    size = count * width // 8
    moves = "\n".join(f"  ld.global.b{width} %{letter}{10 + i}, [%d1+{width // 8 * i}];" for i in range(count))
    action = f"red.global.{name} [%d2], {held};" if red else f"atom.global.{name} {back}, [%d2], {held};"
    stores = "" if red else "\n".join(f"  st.global.b{width} [%d3+{width // 8 * i}], %{letter}{20 + i};" for i in range(count))
    body = f"""
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, {size}, %p_x;
  mad.wide.u32 %d2, %r1, {size}, %p_cells;
  mad.wide.u32 %d3, %r1, {size}, %p_old;
{moves}
  {action}
{stores}"""
    device, old = emu.asarray(cells), emu.asarray(np.zeros_like(cells))
    launch(module(entry("vectors", ["x", "cells", "old"], body)), "vectors", 1, 64, emu.asarray(operand), device, old)
    function = floating.rounded("add", f) if op == "add" else floating.minmax(op, f)
    want = [function(int(a), int(b)) for a, b in zip(cells.ravel(), operand.ravel(), strict=True)]
    assert device.ravel().tolist() == want
    assert red or np.array_equal(old, cells)
