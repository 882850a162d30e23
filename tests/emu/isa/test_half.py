"""Half and bfloat16 arithmetic, scalar and packed: rounded once, with .ftz, .sat, .relu, .NaN and .xorsign.abs."""

from __future__ import annotations

import pytest

from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import floating as o
from tests.emu.oracles import softfloat as sf

F16, BF16 = sf.F16, sf.BF16
COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


def both(spelling: str, f: sf.Format, function: o.Function, count: int) -> list[Form]:
    """The scalar form (``spelling`` ends in the type) and the packed one."""
    packed = f"{f.name}x2"
    return [
        Form(f"{spelling}.{f.name}", f.name, " ".join([f.name] * count), function),
        Form(f"{spelling}.{packed}", packed, " ".join([packed] * count), o.packed(function, f)),
    ]


def arithmetic(name: str, f: sf.Format, mode: str, ftz: bool = False, last: str = "") -> list[Form]:
    function = o.rounded(name, f)
    function = o.flushed(function, f) if ftz else function
    function = {"sat": o.saturated, "relu": o.rectified}[last](function, f) if last else function
    return both(".".join(filter(None, [name, mode, "ftz" * ftz, last])), f, function, COUNTS[name])


def minmax(f: sf.Format) -> list[Form]:
    found = []
    for name in ("min", "max"):
        for ftz in (False, True) if f is F16 else (False,):
            for nan in (False, True):
                for xorsign in (False, True):
                    function = o.minmax(name, f, nan, xorsign)
                    function = o.flushed(function, f) if ftz else function
                    spelling = ".".join(filter(None, [name, "ftz" * ftz, "NaN" * nan, "xorsign.abs" * xorsign]))
                    found += both(spelling, f, function, 2)
    return found


FORMS = [
    *(x for n in ("add", "sub", "mul") for mode in ("", "rn") for ftz in (False, True) for last in ("", "sat")
      for x in arithmetic(n, F16, mode, ftz, last)),
    *(x for ftz in (False, True) for last in ("", "sat", "relu") for x in arithmetic("fma", F16, "rn", ftz, last)),
    *(x for n in ("add", "sub", "mul") for mode in ("", "rn") for x in arithmetic(n, BF16, mode)),
    *(x for last in ("", "relu") for x in arithmetic("fma", BF16, "rn", False, last)),
    *(x for f in (F16, BF16) for x in minmax(f)),
    *(x for f in (F16, BF16) for x in both("abs", f, o.absolute(f), 1) + both("neg", f, o.negated(f), 1)),
    *both("abs.ftz", F16, o.flushed(o.absolute(F16), F16), 1),
    *both("neg.ftz", F16, o.flushed(o.negated(F16), F16), 1),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)
