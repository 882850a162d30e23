"""Approximate functions: special values exactly, everything else within the documented error (case P13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import entry, launch, module
from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import approximate as o
from tests.emu.oracles import softfloat as sf

F16, BF16, F32, F64 = sf.F16, sf.BF16, sf.F32, sf.F64


def low_word_is_zero(f: sf.Format, ftz: bool) -> Callable[[int, Any], bool]:
    """The .ftz.f64 approximations deliver the upper 32 bits only."""
    near = o.accepts(f, ftz)
    return lambda got, want: near(got, want) and (sf.is_nan(got, f) or got & 0xFFFFFFFF == 0)


def packed(name: str, f: sf.Format, oracle: Callable[[int], o.Expected], ftz: bool = False) -> Form:
    mask, near = (1 << f.bits) - 1, o.accepts(f, ftz)

    def both(got: int, want: tuple[o.Expected, o.Expected]) -> bool:
        return near(got & mask, want[0]) and near(got >> f.bits, want[1])

    def halves(a: int) -> tuple[tuple[o.Expected, o.Expected]]:
        return ((oracle(a & mask), oracle(a >> f.bits)),)

    return Form(name, f"{f.name}x2", f"{f.name}x2", halves, accept=both)


def form(name: str, oracle: Callable[..., o.Expected], f: sf.Format = F32, ftz: bool = False, count: int = 1) -> Form:
    return Form(name, f.name, " ".join([f.name] * count), oracle, accept=o.accepts(f, ftz))


FORMS = [
    *(form(f"rcp.approx{m}.f32", o.rcp(F32, z), ftz=z) for m, z in (("", False), (".ftz", True))),
    *(form(f"sqrt.approx{m}.f32", o.sqrt(F32, z), ftz=z) for m, z in (("", False), (".ftz", True))),
    *(form(f"rsqrt.approx{m}.f32", o.rsqrt(F32, z), ftz=z) for m, z in (("", False), (".ftz", True))),
    *(form(f"{n}.approx{m}.f32", o.sine(n, F32, z), ftz=z) for n in ("sin", "cos") for m, z in (("", False), (".ftz", True))),
    *(form(f"lg2.approx{m}.f32", o.lg2(F32, z), ftz=z) for m, z in (("", False), (".ftz", True))),
    *(form(f"ex2.approx{m}.f32", o.ex2(F32, z), ftz=z) for m, z in (("", False), (".ftz", True))),
    form("tanh.approx.f32", o.tanh(F32, 2.0**-11)),
    *(form(f"div.{k}{m}.f32", o.div(F32, z, k == "full"), ftz=z, count=2)
      for k in ("approx", "full") for m, z in (("", False), (".ftz", True))),
    Form("rcp.approx.ftz.f64", "f64", "f64", o.upper_word(o.rcp(F64, True, 0.0, 2.0**-19)), accept=low_word_is_zero(F64, True)),
    Form("rsqrt.approx.ftz.f64", "f64", "f64", o.upper_word(o.rsqrt(F64, True, 2.0**-18)), accept=low_word_is_zero(F64, True)),
    form("rsqrt.approx.f64", o.rsqrt(F64, False, 2.0**-20), F64),
    form("ex2.approx.f16", o.ex2(F16, False, 2.0**-9.9), F16),
    packed("ex2.approx.f16x2", F16, o.ex2(F16, False, 2.0**-9.9)),
    form("ex2.approx.ftz.bf16", o.ex2(BF16, True, 2.0**-7), BF16, True),
    packed("ex2.approx.ftz.bf16x2", BF16, o.ex2(BF16, True, 2.0**-7), True),
    form("tanh.approx.f16", o.tanh(F16, 0.0, 2.0**-10.987), F16),
    packed("tanh.approx.f16x2", F16, o.tanh(F16, 0.0, 2.0**-10.987)),
    form("tanh.approx.bf16", o.tanh(BF16, 0.0, 2.0**-8), BF16),
    packed("tanh.approx.bf16x2", BF16, o.tanh(BF16, 0.0, 2.0**-8)),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)


def sweep(instruction: str, x: np.ndarray) -> np.ndarray:
    """The f32 results of ``instruction`` on many values, in one launch."""
    body = f"""
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r1, 256, %r2;
  mad.wide.u32 %d1, %r3, 4, %p_x;
  mad.wide.u32 %d2, %r3, 4, %p_out;
  ld.global.b32 %r4, [%d1];
  {instruction} %r5, %r4;
  st.global.b32 [%d2], %r5;"""
    padded = np.resize(x.astype(np.float32), -(-x.size // 256) * 256)
    out = emu.asarray(np.zeros_like(padded))
    launch(module(entry("sweep", ["x", "out"], body)), "sweep", padded.size // 256, 256, emu.asarray(padded), out)
    return np.array(out)[: x.size]


def test_ex2_on_a_hundred_thousand_values() -> None:
    x = np.random.default_rng(1).uniform(-126, 128, 100_000).astype(np.float32)
    exact = np.exp2(x.astype(np.float64))
    assert (np.abs(sweep("ex2.approx.ftz.f32", x) - exact) <= 2.0**-22 * exact).all()


def test_ex2_special_values_of_the_case_list() -> None:
    x = np.array([0.0, -0.0, 1.0, 10.0, -126.0, -127.0, -149.0, -150.5, 128.0, np.inf, -np.inf, np.nan], np.float32)
    plain = [1.0, 1.0, 2.0, 1024.0, 2.0**-126, 2.0**-127, 2.0**-149, 0.0, np.inf, np.inf, 0.0, np.nan]
    flushed = [1.0, 1.0, 2.0, 1024.0, 2.0**-126, 0.0, 0.0, 0.0, np.inf, np.inf, 0.0, np.nan]
    for name, want in (("ex2.approx.f32", plain), ("ex2.approx.ftz.f32", flushed)):
        assert np.array_equal(sweep(name, x), np.array(want, np.float32), equal_nan=True)


def test_lg2_and_ex2_are_inverse_on_powers_of_two() -> None:
    x = np.arange(-126, 128).astype(np.float32)
    assert np.array_equal(sweep("lg2.approx.f32", sweep("ex2.approx.f32", x)), x)
