"""wmma beyond the product itself: layouts, shared and generic addresses, packed integers, bits, default strides."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rawflash import emu
from rawflash.emu import fragments
from tests.emu.harness import entry, launch, module
from tests.emu.isa.tile_text import BITS

RNG = np.random.default_rng(19)
HALVES = ("m16n16k16", "m32n8k16", "m8n32k16")
FORMS = [  # shape, A and B, C, D
    *((s, "f16", c, d) for s in HALVES for c in ("f16", "f32") for d in ("f16", "f32")),
    *((s, "bf16", "f32", "f32") for s in HALVES),
    *((s, t, "s32", "s32") for s in HALVES for t in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
    ("m8n8k32", "s4", "s32", "s32"), ("m8n8k32", "u4", "s32", "s32"), ("m8n8k128", "b1", "s32", "s32"),
]  # fmt: skip
LAYOUTS = [("row", "col", "col"), ("col", "row", "row"), ("row", "row", "col"), ("col", "col", "row")]
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int32}
PACKED = ("s4", "u4", "b1")
LOW = {"s8": -128, "u8": 0, "s4": -8, "u4": 0, "b1": 0}
HIGH = {"s8": 128, "u8": 256, "s4": 8, "u4": 16, "b1": 2}


def stored(matrix: np.ndarray, kind: str, layout: str) -> np.ndarray:
    """The bytes of a matrix in memory, rows or columns one after another."""
    major = np.ascontiguousarray(matrix if layout == "row" else matrix.T)
    if kind in PACKED:
        bits = BITS[kind]
        spread = (major.reshape(-1, 8 // bits) & ((1 << bits) - 1)) << (np.arange(8 // bits) * bits)
        return spread.sum(axis=1).astype(np.uint8)
    return major.astype(NUMPY.get(kind, np.int8 if kind == "s8" else np.uint8)).view(np.uint8).reshape(-1)


def vector(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + n}" for n in range(count)) + "}"


def text(form: tuple[str, str, str, str], layouts: tuple[str, str, str], space: str, strides: tuple[str, str, str], logic: str = "") -> str:
    """``product(a, b, c, out)``: for ``space`` shared the operands are first copied to shared memory and the result back."""
    shape, ab, c_type, d_type = form
    lines, names, at, declared = ["  mov.u32 %r1, %tid.x;"], {}, {}, ""
    m, n, k = fragments.parse_shape(shape)
    elements = {"a": (m * k, ab), "b": (k * n, ab), "c": (m * n, c_type), "out": (m * n, d_type)}
    sizes = {name: count * BITS[kind] // 8 for name, (count, kind) in elements.items()}
    first = {"r": 20, "d": 30}
    for name, kind in (("a", ab), ("b", ab), ("c", c_type), ("d", d_type)):
        letter = "d" if kind == "f64" else "r"
        count = fragments.wmma_registers(shape, name, kind)
        names[name] = vector(letter, first[letter], count)
        first[letter] += count
    for name, size in sizes.items():
        at[name] = f"%p_{name}"
        if space == ".shared":
            declared += f"  .shared .align 128 .b8 tile_{name}[{size}];\n"
            at[name] = f"tile_{name}"
            if name != "out":
                lines += copy(f"%p_{name}", f"tile_{name}", size, "global", "shared")
    lines.append("  bar.warp.sync 0xffffffff;")
    for name, kind, layout, stride in zip("abc", (ab, ab, c_type), layouts, strides, strict=True):
        lines.append(f"  wmma.load.{name}.sync.aligned.{layout}.{shape}{space}.{kind} {names[name]}, [{at[name]}]{stride};")
    types = f"{d_type}.{c_type}" if ab == "f16" else f"{d_type}.{ab}.{ab}.{c_type}"
    lines.append(
        f"  wmma.mma{logic}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types} {names['d']}, {names['a']}, {names['b']}, {names['c']};"
    )
    lines.append(f"  wmma.store.d.sync.aligned.{layouts[2]}.{shape}{space}.{d_type} [{at['out']}], {names['d']}{strides[2]};")
    if space == ".shared":
        lines += ["  bar.warp.sync 0xffffffff;", *copy("%p_out", "tile_out", sizes["out"], "shared", "global")]
    return entry("product", ["a", "b", "c", "out"], "\n".join(lines), declared)


def copy(pointer: str, tile: str, size: int, source: str, target: str) -> list[str]:
    """Four bytes a lane and step between global and shared memory."""
    lines = [f"  mov.u32 %r2, {tile};", "  mad.lo.u32 %r2, %r1, 4, %r2;", f"  mad.wide.u32 %d1, %r1, 4, {pointer};"]
    places = {"global": "%d1", "shared": "%r2"}
    for step in range(0, size, 128):
        lines += [f"  ld.{source}.b32 %r3, [{places[source]}+{step}];", f"  st.{target}.b32 [{places[target]}+{step}], %r3;"]
    return lines


def run(form: tuple[str, str, str, str], layouts: tuple[str, str, str], space: str, default_stride: bool = False, logic: str = "") -> None:
    shape, ab, c_type, d_type = form
    m, n, k = fragments.parse_shape(shape)
    low, high = LOW.get(ab, -6), HIGH.get(ab, 7)
    a, b, c = RNG.integers(low, high, (m, k)), RNG.integers(low, high, (k, n)), RNG.integers(-9, 9, (m, n))
    leads = [(k if layouts[0] == "row" else m), (n if layouts[1] == "row" else k), (n if layouts[2] == "row" else m)]
    strides = ("", "", "") if default_stride else tuple(f", {lead}" for lead in leads)
    held = [emu.asarray(stored(x, t, layout)) for x, t, layout in zip((a, b, c), (ab, ab, c_type), layouts, strict=True)]
    out = emu.asarray(np.zeros(m * n, NUMPY[d_type]))
    launch(module(text(form, layouts, space, strides, logic)), "product", 1, 32, *held, out)  # type: ignore[arg-type]
    d = np.array(out).reshape(m, n) if layouts[2] == "row" else np.array(out).reshape(n, m).T
    if logic:
        pairs = a[:, :, None] & b[None] if "and" in logic else a[:, :, None] ^ b[None]
        assert np.array_equal(d, pairs.sum(axis=1) + c)
    else:
        assert np.array_equal(d.astype(np.float64), a @ b + c)


def allowed(form: tuple[str, str, str, str]) -> list[tuple[str, str, str]]:
    """Packed integers and bits exist only as rows of A and columns of B."""
    return LAYOUTS if form[1] not in PACKED else LAYOUTS[:1]


def logics(form: tuple[str, str, str, str]) -> tuple[str, ...]:
    return (".xor.popc", ".and.popc") if form[1] == "b1" else ("",)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_product_in_shared_memory(form: tuple[str, str, str, str]) -> None:
    for layouts in allowed(form)[:2]:
        for logic in logics(form):
            run(form, layouts, ".shared", logic=logic)


@pytest.mark.parametrize("form", [f for f in FORMS if f[0] in ("m16n16k16", "m16n16k8") or f[1] in PACKED or f[1] == "f64"], ids="-".join)
def test_product_through_generic_addresses(form: tuple[str, str, str, str]) -> None:
    for layouts in allowed(form)[2:3] or allowed(form):
        run(form, layouts, "", logic=logics(form)[0])


@pytest.mark.parametrize("form", [FORMS[0], FORMS[8], FORMS[-2], FORMS[-1]], ids="-".join)
def test_default_strides(form: tuple[str, str, str, str]) -> None:
    run(form, allowed(form)[0], ".global", default_stride=True, logic=logics(form)[0])


def test_what_a_load_counts() -> None:
    """A 16x16 f16 tile is one request of 16 bytes a lane; C and D are one request per pair of registers, 8x8 elements each."""
    form = ("m16n16k16", "f16", "f32", "f32")
    m = module(text(form, ("row", "col", "row"), ".global", (", 16", ", 16", ", 16")))
    a, b = (emu.asarray(np.zeros((16, 16), np.float16)) for _ in range(2))
    c, out = emu.asarray(np.zeros((16, 16), np.float32)), emu.empty((16, 16), np.float32)
    report = launch(m, "product", 1, 32, a, b, c, out)
    assert [arg.read_bytes for arg in report.arguments] == [512, 512, 1024, 0]
    assert [arg.read_requests for arg in report.arguments[:3]] == [1, 1, 4]
    assert [arg.read_sectors for arg in report.arguments[:3]] == [16, 16, 32]
    assert (report.arguments[3].write_bytes, report.arguments[3].write_requests) == (1024, 4)


def test_a_tile_that_leaves_its_array() -> None:
    form = ("m16n16k16", "f16", "f32", "f32")
    m = module(text(form, ("row", "col", "row"), ".global", (", 16", ", 16", ", 16")))
    operands = [emu.asarray(np.zeros(shape, t)) for shape, t in (((15, 16), np.float16), ((16, 16), np.float16), ((16, 16), np.float32))]
    with pytest.raises(emu.OutOfBounds):
        launch(m, "product", 1, 32, *operands, emu.empty((16, 16), np.float32))


def test_a_short_warp() -> None:
    form = ("m16n16k16", "f16", "f32", "f32")
    m = module(text(form, ("row", "col", "row"), ".global", (", 16", ", 16", ", 16")))
    operands = [emu.asarray(np.zeros((16, 16), t)) for t in (np.float16, np.float16, np.float32)]
    with pytest.raises(emu.BadMask, match="all 32 lanes"):
        launch(m, "product", 1, 31, *operands, emu.empty((16, 16), np.float32))
