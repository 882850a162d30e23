"""Integer arithmetic: every form on special and random operands."""

from __future__ import annotations

import pytest

from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import integer as o

SIX = ["u16", "s16", "u32", "s32", "u64", "s64"]
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def plain(name: str, kind: str, function: object, count: int = 2) -> Form:
    return Form(f"{name}.{kind}", kind, " ".join([kind] * count), o.arithmetic(function, kind))  # type: ignore[arg-type]


def chain(first: str, second: str, kind: str, low: object, label: str = "") -> Form:
    """Two instructions joined by the carry flag: results d0 (low) and d1 (high)."""
    bits = o.bits_of(kind)

    def wide(a: int, b: int, c: int, d: int) -> tuple[int, int]:
        total = low(a | c << bits, b | d << bits)  # type: ignore[operator]
        return o.wrap(total, bits), o.wrap(total >> bits, bits)

    text = f"{first}.cc.{kind} {{d0}}, {{a}}, {{b}};\n    {second}.{kind} {{d1}}, {{c}}, {{e}};"
    return Form(f"{first}.cc.{kind}", f"{kind} {kind}", " ".join([kind] * 4), wide, text, label=label or f"{first}.cc+{second}.{kind}")


def three_words(add: bool) -> Form:
    """add.cc, addc.cc, addc across 96 bits: the carry goes through the middle word."""
    first, rest = ("add", "addc") if add else ("sub", "subc")

    def wide(a: int, b: int, c: int, d: int) -> tuple[int, int, int]:
        x, y = a | b << 32 | c << 64, d | a << 32 | b << 64
        total = x + y if add else x - y
        return o.wrap(total, 32), o.wrap(total >> 32, 32), o.wrap(total >> 64, 32)

    text = f"{first}.cc.u32 {{d0}}, {{a}}, {{e}};\n    {rest}.cc.u32 {{d1}}, {{b}}, {{a}};\n    {rest}.u32 {{d2}}, {{c}}, {{b}};"
    return Form(f"{rest}.cc.u32", "u32 u32 u32", "u32 u32 u32 u32", wide, text)


def mad_chain(kind: str) -> Form:
    """mad.lo.cc then madc.hi: the double-width a * b + (d:c)."""
    bits = o.bits_of(kind)

    def wide(a: int, b: int, c: int, d: int) -> tuple[int, int]:
        low = o.wrap(o.read(a, kind) * o.read(b, kind), bits) + c
        high = (o.read(a, kind) * o.read(b, kind) >> bits) + d + (low >> bits)
        return o.wrap(low, bits), o.wrap(high, bits)

    text = f"mad.lo.cc.{kind} {{d0}}, {{a}}, {{b}}, {{c}};\n    madc.hi.{kind} {{d1}}, {{a}}, {{b}}, {{e}};"
    return Form(f"mad.lo.cc.{kind}", f"{kind} {kind}", " ".join([kind] * 4), wide, text)


def mad_carry_middle(kind: str) -> Form:
    """mad.hi.cc, madc.lo.cc, madc.lo: carries out of a high product into the next low ones."""
    bits = o.bits_of(kind)

    def wide(a: int, b: int, c: int, d: int) -> tuple[int, int, int]:
        product = o.read(a, kind) * o.read(b, kind)
        first = o.wrap(product >> bits, bits) + c
        second = o.wrap(product, bits) + d + (first >> bits)
        third = o.wrap(o.read(c, kind) * o.read(d, kind), bits) + a + (second >> bits)
        return o.wrap(first, bits), o.wrap(second, bits), o.wrap(third, bits)

    text = (
        f"mad.hi.cc.{kind} {{d0}}, {{a}}, {{b}}, {{c}};\n    madc.lo.cc.{kind} {{d1}}, {{a}}, {{b}}, {{e}};\n"
        f"    madc.lo.{kind} {{d2}}, {{c}}, {{e}}, {{a}};"
    )
    return Form(f"madc.lo.cc.{kind}", " ".join([kind] * 3), " ".join([kind] * 4), wide, text)


FORMS = [
    *(plain("add", k, lambda a, b: a + b) for k in SIX),
    *(plain("sub", k, lambda a, b: a - b) for k in SIX),
    Form("add.sat.s32", "s32", "s32 s32", lambda a, b: o.clamp(o.signed(a, 32) + o.signed(b, 32), "s32")),
    Form("sub.sat.s32", "s32", "s32 s32", lambda a, b: o.clamp(o.signed(a, 32) - o.signed(b, 32), "s32")),
    *(plain("mul.lo", k, lambda a, b: a * b) for k in SIX),
    *(Form(f"mul.hi.{k}", k, f"{k} {k}", o.high(k)) for k in SIX),
    *(Form(f"mul.wide.{k}", w, f"{k} {k}", o.arithmetic(lambda a, b: a * b, k, o.bits_of(w))) for k, w in WIDE.items()),
    *(Form(f"mad.{part}.{k}", k, f"{k} {k} {k}", o.mad(part, k)) for part in ("lo", "hi") for k in SIX),
    *(Form(f"mad.wide.{k}", w, f"{k} {k} {w}", o.mad("wide", k)) for k, w in WIDE.items()),
    Form("mad.hi.sat.s32", "s32", "s32 s32 s32", o.mad_hi_sat),
    *(Form(f"mul24.{p}.{k}", k, f"{k} {k}", o.mul24(p, k)) for p in ("lo", "hi") for k in ("u32", "s32")),
    *(Form(f"mad24.{p}.{k}", k, f"{k} {k} {k}", o.mad24(p, k)) for p in ("lo", "hi") for k in ("u32", "s32")),
    Form("mad24.hi.sat.s32", "s32", "s32 s32 s32", o.mad24("hi", "s32", sat=True)),
    *(plain("sad", k, lambda a, b, c: abs(a - b) + c, 3) for k in SIX),
    *(Form(f"div.{k}", k, f"{k} {k}", o.quotient(k, False)) for k in SIX),
    *(Form(f"rem.{k}", k, f"{k} {k}", o.quotient(k, True)) for k in SIX),
    *(plain("abs", k, abs, 1) for k in ("s16", "s32", "s64")),
    *(plain("neg", k, lambda a: -a, 1) for k in ("s16", "s32", "s64")),
    *(plain(name, k, function) for name, function in (("min", min), ("max", max)) for k in SIX),
    Form("min.relu.s32", "s32", "s32 s32", o.arithmetic(lambda a, b: max(min(a, b), 0), "s32")),
    Form("max.relu.s32", "s32", "s32 s32", o.arithmetic(lambda a, b: max(a, b, 0), "s32")),
    *(Form(f"{name}.{k}x2", "b32", "b32 b32", o.packed(function, k)) for name, function in
      (("min", min), ("max", max), ("add", lambda a, b: a + b)) for k in ("u16", "s16")),
    Form("min.relu.s16x2", "b32", "b32 b32", o.packed(lambda a, b: max(min(a, b), 0), "s16")),
    Form("max.relu.s16x2", "b32", "b32 b32", o.packed(lambda a, b: max(a, b, 0), "s16")),
    *(Form(f"popc.b{n}", "u32", f"b{n}", o.popc) for n in (32, 64)),
    *(Form(f"clz.b{n}", "u32", f"b{n}", o.clz(n)) for n in (32, 64)),
    *(Form(f"brev.b{n}", f"b{n}", f"b{n}", o.brev(n)) for n in (32, 64)),
    *(Form(f"bfind.{k}", "u32", k, o.bfind(k)) for k in SIX[2:]),
    *(Form(f"bfind.shiftamt.{k}", "u32", k, o.bfind(k, True)) for k in SIX[2:]),
    *(Form(f"bfe.{k}", k, f"{k} u32 u32", o.bfe(k)) for k in SIX[2:]),
    *(Form(f"bfi.b{n}", f"b{n}", f"b{n} b{n} u32 u32", o.bfi(n)) for n in (32, 64)),
    *(Form(f"dp4a.{a}.{b}", "b32", "b32 b32 b32", o.dot(a, b)) for a in ("u32", "s32") for b in ("u32", "s32")),
    *(Form(f"dp2a.{p}.{a}.{b}", "b32", "b32 b32 b32", o.dot(a, b, p))
      for p in ("lo", "hi") for a in ("u32", "s32") for b in ("u32", "s32")),
    *(Form(f"bmsk.{m}.b32", "b32", "u32 u32", o.bmsk(m)) for m in ("clamp", "wrap")),
    *(Form(f"szext.{m}.{k}", k, f"{k} u32", o.szext(m, k)) for m in ("clamp", "wrap") for k in ("u32", "s32")),
    Form("fns.b32", "b32", "b32 b32 s32", lambda a, b, c: o.fns(a, b & 31, c), "and.b32 {d}, {b}, 31;\n    fns.b32 {d}, {a}, {d}, {c};",
         label="fns.b32"),
    *(chain("add", "addc", k, lambda a, b: a + b) for k in ("u32", "s32", "u64", "s64")),
    *(chain("sub", "subc", k, lambda a, b: a - b) for k in ("u32", "s32", "u64", "s64")),
    Form("addc.u32", "u32 u32", "u32 u32", lambda a, b: (o.wrap(a + b, 32), a + b >> 32),
         "add.cc.u32 {d0}, {a}, {b};\n    addc.u32 {d1}, 0, 0;", label="addc.u32 of constants"),
    three_words(True),
    three_words(False),
    *(mad_chain(k) for k in ("u32", "s32", "u64")),
    *(mad_carry_middle(k) for k in ("u32", "s32", "u64")),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)
