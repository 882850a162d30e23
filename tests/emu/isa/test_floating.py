"""Single and double precision: four rounding modes, flushing, saturation, NaN rules, all exact to the bit."""

from __future__ import annotations

import pytest

from tests.emu.isa.forms import Chapter, Form, exactly
from tests.emu.oracles import floating as o
from tests.emu.oracles import softfloat as sf

F32, F64 = sf.F32, sf.F64
MODES = ["rn", "rz", "rm", "rp"]
COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}


def form(name: str, f: sf.Format, mode: str = "", ftz: bool = False, sat: bool = False) -> Form:
    """One arithmetic form; without a mode PTX rounds to nearest."""
    function = o.rounded(name, f, mode or sf.RN)
    function = o.flushed(function, f) if ftz else function
    function = o.saturated(function, f) if sat else function
    spelling = ".".join([name, *filter(None, [mode, "ftz" * ftz, "sat" * sat]), f.name])
    return Form(spelling, f.name, " ".join([f.name] * COUNTS[name]), function)


def packed_forms() -> list[Form]:
    """Two single-precision numbers in 64 bits."""
    found = []
    for name in ("add", "sub", "mul", "fma"):
        for ftz in (False, True):
            function = o.rounded(name, F32)
            both = o.packed(o.flushed(function, F32) if ftz else function, F32)
            found.append(Form(f"{name}.rn{'.ftz' * ftz}.f32x2", "f32x2", " ".join(["f32x2"] * COUNTS[name]), both))
    return found


def minmax_forms(f: sf.Format) -> list[Form]:
    found = []
    for name in ("min", "max"):
        for ftz in (False, True) if f is F32 else (False,):
            for nan in (False, True) if f is F32 else (False,):
                for xorsign in (False, True) if f is F32 else (False,):
                    function = o.minmax(name, f, nan, xorsign)
                    function = o.flushed(function, f) if ftz else function
                    parts = [name, "ftz" * ftz, "NaN" * nan, "xorsign.abs" * xorsign, f.name]
                    accept = exactly if f is F32 and not xorsign else None
                    found.append(Form(".".join(filter(None, parts)), f.name, f"{f.name} {f.name}", function, accept=accept))
    return found


FORMS = [
    *(form(n, F32, m, ftz, sat) for n in ("add", "sub", "mul") for m in ("", *MODES) for ftz in (False, True) for sat in (False, True)),
    *(form(n, F32, m, ftz, sat) for n in ("fma", "mad") for m in MODES for ftz in (False, True) for sat in (False, True)),
    *(form(n, F32, m, ftz) for n in ("div", "rcp", "sqrt") for m in MODES for ftz in (False, True)),
    *(form(n, F64, m) for n in ("add", "sub", "mul") for m in ("", *MODES)),
    *(form(n, F64, m) for n in ("fma", "mad", "div", "rcp", "sqrt") for m in MODES),
    *packed_forms(),
    *minmax_forms(F32),
    *minmax_forms(F64),
    *(Form(f"abs.{f.name}", f.name, f.name, o.absolute(f)) for f in (F32, F64)),
    *(Form(f"neg.{f.name}", f.name, f.name, o.negated(f)) for f in (F32, F64)),
    Form("abs.ftz.f32", "f32", "f32", o.flushed(o.absolute(F32), F32)),
    Form("neg.ftz.f32", "f32", "f32", o.flushed(o.negated(F32), F32)),
    *(Form(f"copysign.{f.name}", f.name, f"{f.name} {f.name}", o.copysign(f)) for f in (F32, F64)),
    *(Form(f"testp.{t}.{f.name}", "pred", f.name, o.testp(t, f)) for f in (F32, F64)
      for t in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)


def test_directed_addition_of_a_speck() -> None:
    """1 + 2**-25 rounds up to 0x3f800001 and down to 1 (case P01), in the oracle that the table above relies on."""
    speck = 0x33000000
    assert sf.add(F32.one, speck, F32, "rp") == 0x3F800001
    assert sf.add(F32.one, speck, F32, "rm") == sf.add(F32.one, speck, F32, "rn") == F32.one
