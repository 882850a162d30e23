"""cvt in every direction, with rounding, saturation and flushing (cases P05, P06, P07)."""

from __future__ import annotations

import pytest

from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import convert as o
from tests.emu.oracles import integer
from tests.emu.oracles import softfloat as sf

F16, BF16, F32, F64 = sf.F16, sf.BF16, sf.F32, sf.F64
INTEGERS = [f"{s}{n}" for n in (8, 16, 32, 64) for s in "us"]
MODES = ["rn", "rz", "rm", "rp"]


def register(kind: str) -> str:
    """The type of the register that holds a value of ``kind``: narrow integers travel in 32 bits."""
    return kind if kind in sf.FORMATS else "b64" if kind.endswith("64") else "b32"


def form(spelling: str, target: str, source: str, oracle: o.Function, accept: object = None) -> Form:
    out, operand = (register(k) for k in (target, source))
    if "bf16" in (target, source):  # here ptxas wants 16-bit registers for narrow integers
        out, operand = ("b16" if k[1:] in ("8", "16") else register(k) for k in (target, source))
    return Form(spelling, out, operand, oracle, accept=accept)  # type: ignore[arg-type]


def may_saturate(target: str, source: str) -> bool:
    """PTX allows .sat only where the source has values that the target lacks."""
    narrower = integer.bits_of(target) < integer.bits_of(source)
    return narrower or (target[0] != source[0] and (source[0] == "s" or target[1:] == source[1:]))


def int_int() -> list[Form]:
    return [
        form(f"cvt{'.sat' * sat}.{d}.{s}", d, s, o.int_to_int(d, s, sat))
        for d in INTEGERS for s in INTEGERS for sat in (False, True) if d != s and (not sat or may_saturate(d, s))
    ]  # fmt: skip


def float_int() -> list[Form]:
    found = [
        form(f"cvt.{m}.{d}.{f.name}", d, f.name, o.float_to_int(d, f, m)) for f in (F16, F32, F64) for d in INTEGERS for m in o.TO_INTEGER
    ]
    found += [form(f"cvt.{m}.ftz.{d}.f32", d, "f32", o.float_to_int(d, F32, m, True)) for d in ("s32", "u64") for m in ("rmi", "rpi")]
    return found + [form(f"cvt.{m}.{d}.bf16", d, "bf16", o.float_to_int(d, BF16, m)) for d in ("s32", "u16") for m in ("rni", "rzi")]


def int_float() -> list[Form]:
    found = [form(f"cvt.{m}.{f.name}.{s}", f.name, s, o.int_to_float(f, s, m)) for f in (F16, F32, F64) for s in INTEGERS for m in MODES]
    found += [form(f"cvt.rn.bf16.{s}", "bf16", s, o.int_to_float(BF16, s, "rn")) for s in INTEGERS[2:]]
    return found + [
        form(f"cvt.rn.sat.{f.name}.{s}", f.name, s, o.int_to_float(f, s, "rn", True)) for f in (F16, F32) for s in ("s32", "u8")
    ]


def float_float() -> list[Form]:
    wider = [(F32, F16), (F64, F16), (F64, F32), (F32, BF16)]
    found = [form(f"cvt.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s)) for d, s in wider]
    found += [form(f"cvt.ftz.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s, ftz=True)) for d, s in wider[:3] if F32 in (d, s)]
    found += [
        form(f"cvt.sat.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s, sat=True))
        for d, s in (*wider[:3], (F32, F32), (F64, F64))
    ]
    for d, s in ((F16, F32), (F32, F64), (F16, F64), (BF16, F32)):
        found += [form(f"cvt.{m}.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s, m)) for m in MODES]
        if d is not BF16:
            found.append(form(f"cvt.rn.sat.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s, sat=True)))
    for d, s in ((F16, F32), (F32, F64)):
        found += [form(f"cvt.{m}.ftz.{d.name}.{s.name}", d.name, s.name, o.float_to_float(d, s, m, ftz=True)) for m in MODES]
    found += [
        form(f"cvt.{m}.relu.{d.name}.f32", d.name, "f32", o.float_to_float(d, F32, m, relu=True)) for d in (F16, BF16) for m in ("rn", "rz")
    ]
    return found


def integral() -> list[Form]:
    found = []
    for f in (F16, F32, F64):
        for m in o.TO_INTEGER:
            found.append(form(f"cvt.{m}.{f.name}.{f.name}", f.name, f.name, o.to_integral(f, m)))
            found.append(form(f"cvt.{m}.sat.{f.name}.{f.name}", f.name, f.name, o.to_integral(f, m, sat=True)))
    return [*found, *(form(f"cvt.{m}.ftz.f32.f32", "f32", "f32", o.to_integral(F32, m, ftz=True)) for m in o.TO_INTEGER)]


def upper_bits(got: int, want: int) -> bool:
    """tf32 is the upper 19 bits of the register."""
    return got >> 13 == want or (sf.is_nan(got >> 13, sf.TF32) and sf.is_nan(want, sf.TF32))


def packed() -> list[Form]:
    found = []
    for f in (F16, BF16):
        for m in ("rn", "rz"):
            for relu in (False, True):
                found.append(
                    Form(f"cvt.{m}{'.relu' * relu}.{f.name}x2.f32", f"{f.name}x2", "f32 f32", o.pair(o.narrow(f, F32, m, relu), 16))
                )
        clamped = o.narrow(f, F32, satfinite=True)
        found.append(Form(f"cvt.rn.satfinite.{f.name}.f32", f.name, "f32", clamped))
        found.append(Form(f"cvt.rn.satfinite.{f.name}x2.f32", f"{f.name}x2", "f32 f32", o.pair(clamped, 16)))
    for f in (sf.E4M3, sf.E5M2):
        kind = f"{f.name}x2"
        for relu in (False, True):
            r = ".relu" * relu
            found.append(Form(f"cvt.rn.satfinite{r}.{kind}.f32", kind, "f32 f32", o.pair(o.narrow(f, F32, relu=relu, satfinite=True), 8)))
            found.append(
                Form(f"cvt.rn.satfinite{r}.{kind}.f16x2", kind, "f16x2", o.unpair(o.narrow(f, F16, relu=relu, satfinite=True), 16, 8))
            )
            found.append(Form(f"cvt.rn{r}.f16x2.{kind}", "f16x2", kind, o.unpair(o.narrow(F16, f, relu=relu), 8, 16)))
    for spelling, mode, relu in (("rna", "rna", False), ("rn", "rn", False), ("rz", "rz", False), ("rn.relu", "rn", True)):
        found.append(Form(f"cvt.{spelling}.tf32.f32", "b32", "f32", o.narrow(sf.TF32, F32, mode, relu), accept=upper_bits))
    found += [Form(f"cvt.pack.sat.{d}.s32", "b32", "s32 s32", o.pack(d)) for d in ("u16", "s16")]
    return found + [Form(f"cvt.pack.sat.{d}.s32.b32", "b32", "s32 s32 b32", o.pack(d)) for d in ("u8", "s8", "u4", "s4", "u2", "s2")]


FORMS = [*int_int(), *float_int(), *int_float(), *float_float(), *integral(), *packed()]
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)


@pytest.mark.parametrize(("oracle", "given", "wanted"), [
    (o.float_to_float(BF16, F32), [0x3F828000, 0x3F808000, 0x3F818000, 0x7F7F8000], [0x3F82, 0x3F80, 0x3F82, 0x7F80]),
    (o.float_to_float(F16, F32), [0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x3F801000, 0x3F803000, 0x4788B800],
     [0x7BFF, 0x7C00, 0x0000, 0x0001, 0x3C00, 0x3C02, 0x7C00]),
    (o.float_to_float(F16, F32, "rz"), [0x4788B800], [0x7BFF]),
    (o.pair(o.narrow(F16, F32), 16), [(0x3F800000, 0x40000000)], [0x3C004000]),
    (o.int_to_float(F32, "s32", "rz"), [16777219, 2**32 - 16777219], [0x4B800001, 0xCB800001]),
    (o.int_to_float(F32, "s32", "rn"), [16777219], [0x4B800002]),
    (o.float_to_int("s32", F32, "rni"), [0x41180000, 0x41280000], [10, 10]),
    (o.float_to_int("u16", F32, "rni"), [0x477FFF80], [65535]),
    (o.float_to_int("s32", F32, "rzi"), [0x7FC00000, 0x4F32D05E, 0xCF32D05E], [0, 2**31 - 1, 2**31]),
])  # fmt: skip
def test_values_of_the_case_list(oracle: o.Function, given: list[object], wanted: list[int]) -> None:
    """The oracle itself on the published hard inputs (P05, P06, P07)."""
    assert [oracle(*(x if isinstance(x, tuple) else (x,))) for x in given] == wanted
