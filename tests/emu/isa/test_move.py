"""mov in every type, packing and unpacking, special registers, generic addresses."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import VERSION, entry, launch, module
from tests.emu.isa.forms import Chapter, Form


def exact(got: int, want: object) -> bool:
    return got == want


MOVES = ["b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"]
FORMS = [
    *(Form(f"mov.{k}", k, k, lambda a: a, accept=exact) for k in MOVES),
    Form("mov.pred", "pred", "pred", lambda a: a),
    Form("mov.b32", "b32", "b16 b16", lambda a, b: a | b << 16, "mov.b32 {d}, {{{a}, {b}}};", label="mov.b32 {b16,b16}"),
    Form("mov.b64", "b64", "b32 b32", lambda a, b: a | b << 32, "mov.b64 {d}, {{{a}, {b}}};", label="mov.b64 {b32,b32}"),
    Form("mov.b64", "b64", "b16 b16 b16 b16", lambda a, b, c, e: a | b << 16 | c << 32 | e << 48, "mov.b64 {d}, {{{a}, {b}, {c}, {e}}};",
         label="mov.b64 {b16 x 4}"),
    Form("mov.b32", "b16 b16", "b32", lambda a: (a & 0xFFFF, a >> 16), "mov.b32 {{{d0}, {d1}}}, {a};", label="mov {b16,b16} of b32"),
    Form("mov.b64", "b32 b32", "b64", lambda a: (a & 0xFFFFFFFF, a >> 32), "mov.b64 {{{d0}, {d1}}}, {a};", label="mov {b32,b32} of b64"),
    Form("mov.b64", "b32", "b64", lambda a: a >> 32, "mov.b64 {{_, {d0}}}, {a};", label="mov {_,b32} of b64"),
    Form("mov.b64", "b16 b16 b16 b16", "b64", lambda a: tuple(a >> s & 0xFFFF for s in (0, 16, 32, 48)),
         "mov.b64 {{{d0}, {d1}, {d2}, {d3}}}, {a};", label="mov {b16 x 4} of b64"),
    Form("mov.f32", "f32", "f32", lambda a: 0x3FC00000, "mov.f32 {d}, 0f3FC00000;", label="mov.f32 immediate"),
    Form("mov.f64", "f64", "f64", lambda a: 0xC000000000000000, "mov.f64 {d}, 0dC000000000000000;", label="mov.f64 immediate"),
    Form("mov.s64", "s64", "s64", lambda a: 2**64 - 5, "mov.s64 {d}, -5;", label="mov.s64 immediate"),
    Form("mov.u32", "u32", "u32", lambda a: 0xFFFFFFFF, "mov.u32 {d}, -1;", label="mov.u32 immediate"),
    Form("mov.b128", "b64 b64", "b64 b64", lambda a, b: (b, a),
         "{{\n    .reg .b128 %q, %s;\n    mov.b128 %q, {{{b}, {a}}};\n    mov.b128 %s, %q;\n    mov.b128 {{{d0}, {d1}}}, %s;\n    }}"),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)


GRID, BLOCK = (3, 2, 2), (5, 4, 3)
THREADS, CTAS = 60, 12


def special(register: str, bits: int = 32) -> np.ndarray:
    """The register in every thread, (CTAS, THREADS), CTAs and threads in linear order."""
    body = f"""
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %tid.y;
  mov.u32 %r3, %tid.z;
  mad.lo.u32 %r2, %r3, {BLOCK[1]}, %r2;
  mad.lo.u32 %r1, %r2, {BLOCK[0]}, %r1;
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ctaid.y;
  mov.u32 %r6, %ctaid.z;
  mad.lo.u32 %r5, %r6, {GRID[1]}, %r5;
  mad.lo.u32 %r4, %r5, {GRID[0]}, %r4;
  mad.lo.u32 %r7, %r4, {THREADS}, %r1;
  mad.wide.u32 %d1, %r7, {bits // 8}, %p_out;
  mov.u{bits} %{"r" if bits == 32 else "d"}10, {register};
  st.global.b{bits} [%d1], %{"r" if bits == 32 else "d"}10;"""
    out = emu.asarray(np.zeros((CTAS, THREADS), f"u{bits // 8}"))
    launch(module(entry("special", ["out"], body)), "special", GRID, BLOCK, out, shared_mem=96)
    return np.array(out)


LANE = np.arange(THREADS) % 32
REGISTERS = {
    "%tid.x": np.arange(THREADS) % 5, "%tid.y": np.arange(THREADS) // 5 % 4, "%tid.z": np.arange(THREADS) // 20,
    "%ntid.x": 5, "%ntid.y": 4, "%ntid.z": 3, "%nctaid.x": 3, "%nctaid.y": 2, "%nctaid.z": 2,
    "%ctaid.x": np.arange(CTAS)[:, None] % 3, "%ctaid.y": np.arange(CTAS)[:, None] // 3 % 2, "%ctaid.z": np.arange(CTAS)[:, None] // 6,
    "%laneid": LANE, "%warpid": np.arange(THREADS) // 32, "WARP_SZ": 32,
    "%lanemask_eq": 1 << LANE, "%lanemask_lt": (1 << LANE) - 1, "%lanemask_le": (2 << LANE) - 1,
    "%lanemask_ge": 2**32 - (1 << LANE), "%lanemask_gt": 2**32 - (2 << LANE), "%dynamic_smem_size": 96,
}  # fmt: skip


@pytest.mark.parametrize("register", REGISTERS)
def test_special_registers(register: str) -> None:
    assert np.array_equal(special(register), np.broadcast_to(REGISTERS[register], (CTAS, THREADS)))


def test_registers_without_a_fixed_value() -> None:
    assert (special("%nwarpid") >= 2).all() and (special("%smid") < special("%nsmid")).all()
    assert (special("%total_smem_size") >= 96).all()
    assert len(np.unique(special("%gridid", 64))) == 1
    for register, bits in (("%clock", 32), ("%clock64", 64), ("%globaltimer", 64)):
        special(register, bits)


def test_clocks_go_forward() -> None:
    body = """
  mov.u64 %d1, %clock64;
  mov.u64 %d2, %clock64;
  sub.u64 %d3, %d2, %d1;
  st.global.b64 [%p_out], %d3;"""
    out = emu.asarray(np.zeros(1, np.int64))
    launch(module(entry("clocks", ["out"], body)), "clocks", 1, 1, out)
    assert out[0] >= 0


@pytest.mark.parametrize("space", ["global", "shared", "local", "const"])
def test_generic_addresses(space: str) -> None:
    """cvta and cvta.to are inverse; isspacep knows the space; a generic load finds the value."""
    store = "" if space == "const" else f"st.{space}.u32 [%d1], 77;"
    start = {"global": "mov.b64 %d1, cell;", "shared": "mov.u64 %d1, s;", "local": "mov.u64 %d1, l;", "const": "mov.u64 %d1, c;"}[space]
    tests = "\n".join(
        f"  isspacep.{other} %p{i}, %d2;\n  selp.u32 %r{i}, 1, 0, %p{i};\n  st.global.u32 [%p_out+{4 * i}], %r{i};"
        for i, other in enumerate(("global", "shared", "local", "const"), 1)
    )
    body = f"""
  {start}
  {store}
  cvta.{space}.u64 %d2, %d1;
  cvta.to.{space}.u64 %d3, %d2;
  ld.u32 %r10, [%d2];
  ld.{space}.u32 %r11, [%d3];
  st.global.u32 [%p_out], %r10;
{tests}
  st.global.u32 [%p_out+20], %r11;"""
    variables = "  .shared .align 4 .b8 s[64];\n  .local .align 4 .b8 l[64];"
    globals_ = ".global .align 4 .b8 cell[64];\n.const .align 4 .u32 c[2] = {77, 78};\n"
    out = emu.asarray(np.zeros(6, np.uint32))
    launch(module(VERSION + globals_ + entry("generic", ["out"], body, variables)), "generic", 1, 1, out)
    want = [int(space == other) for other in ("global", "shared", "local", "const")]
    assert out.tolist() == [77, *want, 77]
