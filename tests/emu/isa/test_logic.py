"""Logic and shifts: clamped shift counts, funnel shifts, byte permutation, three-input tables."""

from __future__ import annotations

import pytest

from tests.emu.isa.forms import Chapter, Form
from tests.emu.oracles import integer as o

BINARY = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
TABLES = [0x00, 0x1A, 0x80, 0x96, 0xB8, 0xCA, 0xE8, 0xFE, 0xFF]


def lop3(table: int) -> Form:
    return Form(
        "lop3.b32", "b32", "b32 b32 b32", o.lop3(table), f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x};", label=f"lop3.b32 {table:#x}"
    )


def lop3_predicate(op: str) -> Form:
    """``lop3.BoolOp d|p, a, b, c, lut, q``: p is (d != 0) op q."""
    look_up = o.lop3(0xCA)

    def both(a: int, b: int, c: int, q: int) -> tuple[int, int]:
        found = look_up(a, b, c)
        return found, BINARY[op](int(found != 0), q)

    return Form(
        f"lop3.{op}.b32",
        "b32 pred",
        "b32 b32 b32 pred",
        both,
        f"lop3.{op}.b32 {{d0}}|{{d1}}, {{a}}, {{b}}, {{c}}, 0xCA, {{e}};",
    )


FORMS = [
    *(Form(f"{name}.b{n}", f"b{n}", f"b{n} b{n}", f) for name, f in BINARY.items() for n in (16, 32, 64)),
    *(Form(f"{name}.pred", "pred", "pred pred", f) for name, f in BINARY.items()),
    *(Form(f"not.b{n}", f"b{n}", f"b{n}", lambda a, n=n: o.wrap(~a, n)) for n in (16, 32, 64)),
    Form("not.pred", "pred", "pred", lambda a: 1 - a),
    *(Form(f"cnot.b{n}", f"b{n}", f"b{n}", lambda a: int(a == 0)) for n in (16, 32, 64)),
    *(Form(f"shl.b{n}", f"b{n}", f"b{n} u32", o.shift_left(n)) for n in (16, 32, 64)),
    *(Form(f"shr.{k}{n}", f"b{n}", f"b{n} u32", o.shift_right(f"{k}{n}")) for k in "bus" for n in (16, 32, 64)),
    *(Form(f"shf.{d}.{m}.b32", "b32", "b32 b32 u32", o.funnel(d, m)) for d in "lr" for m in ("clamp", "wrap")),
    *(lop3(t) for t in TABLES),
    lop3_predicate("or"),
    lop3_predicate("and"),
    Form("prmt.b32", "b32", "b32 b32 b32", o.prmt(None)),
    *(Form(f"prmt.b32.{m}", "b32", "b32 b32 u32", o.prmt(m)) for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")),
    Form("prmt.b32", "b32", "b32 b32", lambda a, b: o.prmt(None)(a, b, 0x7531), "prmt.b32 {d}, {a}, {b}, 0x7531;", label="prmt.b32 0x7531"),
]  # fmt: skip
CHAPTER = Chapter(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_form(form: Form) -> None:
    CHAPTER.check(form)
