"""setp, set, selp and slct: ordered and unordered comparisons, boolean operators, both predicates (case P11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import floating, integer
from tests.emu.oracles import softfloat as sf

INTEGER_TESTS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y, "lo": lambda x, y: x < y, "ls": lambda x, y: x <= y,
    "hi": lambda x, y: x > y, "hs": lambda x, y: x >= y,
}  # fmt: skip
SIX = ["eq", "ne", "lt", "le", "gt", "ge"]
FLOAT_TESTS = [*SIX, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
BOOLEANS = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}


def comparisons_of(kind: str) -> list[str]:
    if kind[0] == "b" and kind in ("b16", "b32", "b64"):
        return ["eq", "ne"]
    return FLOAT_TESTS if kind in sf.FORMATS else [*SIX, "lo", "ls", "hi", "hs"] if kind[0] == "u" else SIX


def comparison(name: str, kind: str, ftz: bool = False) -> Callable[[int, int], bool]:
    if kind in sf.FORMATS:
        return floating.compare(name, sf.FORMATS[kind], ftz)
    return lambda a, b: INTEGER_TESTS[name](integer.read(a, kind), integer.read(b, kind))


def setp(name: str, kind: str, ftz: bool = False) -> Form:
    """Both predicates: p and its complement (16-bit floats have only p)."""
    test = comparison(name, kind, ftz)
    spelling = f"setp.{name}{'.ftz' * ftz}.{kind}"
    if kind in ("f16", "bf16"):
        return Form(spelling, "pred", f"{kind} {kind}", lambda a, b: int(test(a, b)))

    def pair(a: int, b: int) -> tuple[int, int]:
        return int(test(a, b)), 1 - int(test(a, b))

    return Form(spelling, "pred pred", f"{kind} {kind}", pair, f"{spelling} {{d0}}|{{d1}}, {{a}}, {{b}};")


def setp_bool(name: str, op: str, kind: str, negate: bool) -> Form:
    """p = test op c, q = !test op c, with c or !c."""
    test = comparison(name, kind)
    spelling = f"setp.{name}.{op}.{kind}"
    label = spelling + "!" * negate
    if kind in ("f16", "bf16"):
        text = f"{spelling} {{d}}, {{a}}, {{b}}, {'!' * negate}{{c}};"
        return Form(spelling, "pred", f"{kind} {kind} pred", lambda a, b, c: BOOLEANS[op](int(test(a, b)), c ^ negate), text, label=label)

    def pair(a: int, b: int, c: int) -> tuple[int, int]:
        found, c = int(test(a, b)), c ^ negate
        return BOOLEANS[op](found, c), BOOLEANS[op](1 - found, c)

    text = f"{spelling} {{d0}}|{{d1}}, {{a}}, {{b}}, {'!' * negate}{{c}};"
    return Form(spelling, "pred pred", f"{kind} {kind} pred", pair, text, label=label)


def set_(name: str, d: str, kind: str, ftz: bool = False, op: str = "") -> Form:
    """All ones or 1.0 where the comparison holds."""
    test = comparison(name, kind, ftz)
    yes = sf.FORMATS[d].one if d in sf.FORMATS else (1 << integer.bits_of(d)) - 1
    spelling = f"set.{name}{'.' * bool(op)}{op}{'.ftz' * ftz}.{d}.{kind}"

    def run(a: int, b: int, c: int = 0) -> int:
        found = int(test(a, b))
        return yes if (BOOLEANS[op](found, c) if op else found) else 0

    return Form(spelling, d, f"{kind} {kind}" + " pred" * bool(op), run)


def set_packed(name: str, d: str, f: sf.Format) -> Form:
    """f16x2 and bf16x2: 1.0 in each half, or 0xffff for an integer destination."""
    test, mask = floating.compare(name, f), (1 << f.bits) - 1
    yes = f.one if d.endswith("x2") else 0xFFFF

    def run(a: int, b: int) -> int:
        return yes * test(a & mask, b & mask) | yes * test(a >> 16, b >> 16) << 16

    kind = f"{f.name}x2"
    return Form(f"set.{name}.{d}.{kind}", d, f"{kind} {kind}", run, accept=lambda got, want: got == want)


def setp_packed(name: str, f: sf.Format) -> Form:
    test, mask = floating.compare(name, f), (1 << f.bits) - 1
    spelling = f"setp.{name}.{f.name}x2"

    def run(a: int, b: int) -> tuple[int, int]:
        return int(test(a & mask, b & mask)), int(test(a >> 16, b >> 16))

    return Form(spelling, "pred pred", f"{f.name}x2 {f.name}x2", run, f"{spelling} {{d0}}|{{d1}}, {{a}}, {{b}};")


def setp_packed_bool(name: str, op: str, f: sf.Format) -> Form:
    test, mask = floating.compare(name, f), (1 << f.bits) - 1
    spelling = f"setp.{name}.{op}.{f.name}x2"

    def run(a: int, b: int, c: int) -> tuple[int, int]:
        return BOOLEANS[op](int(test(a & mask, b & mask)), c), BOOLEANS[op](int(test(a >> 16, b >> 16)), c)

    return Form(spelling, "pred pred", f"{f.name}x2 {f.name}x2 pred", run, f"{spelling} {{d0}}|{{d1}}, {{a}}, {{b}}, {{c}};")


def slct(kind: str, selector: str, ftz: bool = False) -> Form:
    """a where c >= 0 (-0 included, NaN not), else b."""

    def run(a: int, b: int, c: int) -> int:
        if selector == "s32":
            return a if integer.signed(c, 32) >= 0 else b
        c = sf.flush(c, sf.F32) if ftz else c
        return a if not sf.is_nan(c, sf.F32) and sf.to_order(c, sf.F32) >= 0 else b

    return Form(f"slct{'.ftz' * ftz}.{kind}.{selector}", kind, f"{kind} {kind} {selector}", run, accept=lambda got, want: got == want)


KINDS = ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16"]
MOVED = ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"]
FORMS = [
    *(setp(n, k) for k in KINDS for n in comparisons_of(k)),
    *(setp(n, k, True) for k in ("f32", "f16") for n in FLOAT_TESTS),
    *(setp_bool(n, op, k, negate) for n, k in (("lt", "s32"), ("gtu", "f32"), ("ne", "b64"), ("le", "f16"), ("hs", "u16"))
      for op in BOOLEANS for negate in (False, True)),
    *(set_(n, d, k) for d in ("u32", "s32", "f32") for k in ("u16", "s32", "b64", "u64", "f32", "f64") for n in comparisons_of(k)[:8:3]),
    *(set_(n, d, "f32", True) for d in ("u32", "f32") for n in ("lt", "equ", "nan")),
    *(set_("ge", d, k, op=op) for d, k in (("u32", "s32"), ("f32", "f32")) for op in BOOLEANS),
    *(set_(n, d, "f16") for d in ("f16", "u16", "s16", "u32", "s32") for n in ("lt", "neu")),
    *(set_(n, d, "bf16") for d in ("bf16", "u16", "u32") for n in ("ge", "num")),
    *(set_packed(n, d, f) for f in (sf.F16, sf.BF16) for d in (f"{f.name}x2", "u32") for n in ("lt", "geu", "nan")),
    *(setp_packed(n, f) for f in (sf.F16, sf.BF16) for n in ("eq", "ltu", "num")),
    *(setp_packed_bool("gt", op, f) for f in (sf.F16, sf.BF16) for op in ("and", "xor")),
    *(set_("lt", d, k) for d in ("f16", "bf16") for k in ("u16", "s32", "b64", "f32") if k[0] != "b"),
    *(Form(f"selp.{k}", k, f"{k} {k} pred", lambda a, b, c: a if c else b, accept=lambda got, want: got == want) for k in MOVED),
    *(slct(k, s) for k in MOVED for s in ("s32", "f32")),
    slct("u32", "f32", True),
    slct("f64", "f32", True),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)
