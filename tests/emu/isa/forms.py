"""Testing one instruction form: operands in, a line of PTX, an oracle on Python integers.

A ``Chapter`` is a table of forms. All of them run in few launches, one after another on the same operands: every pair of
special values, then random values. If a module does not compile or run, the chapter splits it until the culprits are known,
so that each form passes or fails alone. Each form runs in three modes: operands that differ between the lanes, operands that
are the same in a warp (an emulator may compute those once), and one of each kind in a branch that a quarter of the lanes skips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawflash import emu
from tests.emu.harness import launch, module
from tests.emu.isa import values
from tests.emu.oracles import softfloat

THREADS = values.COUNT
BLOCK = 128
GEOMETRY = {"varying": (THREADS // BLOCK, BLOCK), "uniform": (THREADS, 32), "mixed": (THREADS // 32, 32)}  # (CTAs, threads)
CHUNK = 48
QUICK = emu.EmuParams(count=False, initcheck=False)

Oracle = Callable[..., Any]


@dataclass(frozen=True)
class Form:
    """``spelling`` as PTX writes it; types of results and operands; what the results must be.

    The oracle takes the operands' bits as unsigned Python integers and returns the result's bits (a tuple for several), or
    None where PTX leaves the result open. ``text`` replaces the default ``spelling d, a, b, c, e;``; several results are d0,
    d1, ... ``accept`` replaces equality: it takes the bits that came and whatever the oracle returned.
    """

    spelling: str
    out: str
    ins: str
    oracle: Oracle
    text: str = ""
    accept: Callable[[int, Any], bool] | None = None
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.spelling

    @property
    def results(self) -> list[str]:
        return self.out.split()

    @property
    def operands(self) -> list[str]:
        return self.ins.split()


def width(kind: str) -> int:
    """Bits of a register of this type."""
    return 32 if kind == "pred" else values.WIDTH[kind]


def _is_uniform(mode: str, form: Form, operand: int) -> bool:
    return mode == "uniform" or (mode == "mixed" and operand == len(form.spelling) % max(1, len(form.operands)))


def _register(mode: str, form: Form, operand: int) -> str:
    return f"%{form.operands[operand]}_{operand}{'u' if _is_uniform(mode, form, operand) else 'v'}"


def _body(form: Form, mode: str) -> str:
    names = {letter: _register(mode, form, i) for i, letter in enumerate("abce"[: len(form.operands)])}
    lines, stores = [], []
    for i, kind in enumerate(form.results):
        names[f"d{i}"] = f"%x{i}"
        lines.append(f"    .reg .{'pred' if kind == 'pred' else f'b{width(kind)}'} %x{i};")
        stored = f"%x{i}"
        if kind == "pred":
            lines.append(f"    .reg .b32 %y{i};")
            stores.append(f"    selp.b32 %y{i}, 1, 0, %x{i};")
            stored = f"%y{i}"
        stores.append(f"    st.global.b{width(kind)} [%at+{8 * THREADS * i}], {stored};")
    names["d"] = names["d0"]
    text = form.text or f"{form.spelling} {', '.join(names[k] for k in ['d0', *'abce'[: len(form.operands)]])};"
    step = len(form.results) * 8 * THREADS
    return "\n".join(["  {", *lines, "    " + text.format(**names), *stores, f"    add.s64 %at, %at, {step};", "  }"])


def build(forms: Sequence[Form], mode: str = "varying") -> str:
    """The kernel that executes the forms one after another: thread t uses column t of the operand pools.

    A uniform operand is column t of the warp's first thread; with only uniform operands, CTA t is that thread.
    """
    used = sorted({(kind, i, _is_uniform(mode, form, i)) for form in forms for i, kind in enumerate(form.operands)})
    pools = sorted({"b32" if kind == "pred" else kind for kind, _, _ in used})
    block = GEOMETRY[mode][1]
    params = ", ".join(f".param .u64 p_{name}" for name in ["out", *pools])
    head = [f".visible .entry forms({params})\n{{", "  .reg .b32 %n, %t, %m, %same;", "  .reg .b64 %at, %from, %base;"]
    head += ["  mov.u32 %n, %ctaid.x;", "  mov.u32 %m, %tid.x;", f"  mul.lo.u32 %same, %n, {block};", "  add.u32 %t, %same, %m;"]
    if mode == "uniform":
        head += ["  mov.u32 %same, %n;", "  mov.u32 %t, %n;"]
    if mode == "mixed":
        head += ["  .reg .pred %skip;", "  .reg .b32 %quarter;", "  and.b32 %quarter, %m, 3;", "  setp.eq.u32 %skip, %quarter, 3;"]
    head += ["  ld.param.u64 %base, [p_out];", "  mad.wide.u32 %at, %t, 8, %base;"]
    for kind, i, uniform in used:
        pool = "b32" if kind == "pred" else kind
        size = width(kind) // 8
        register, index = (f"%{kind}_{i}u", "%same") if uniform else (f"%{kind}_{i}v", "%t")
        head += [f"  .reg .{'pred' if kind == 'pred' else f'b{width(kind)}'} {register};", f"  ld.param.u64 %base, [p_{pool}];"]
        head += [f"  mad.wide.u32 %from, {index}, {size}, %base;"]
        target = "%m" if kind == "pred" else register
        head += [f"  ld.global.b{width(kind)} {target}, [%from+{i * THREADS * size}];"]
        if kind == "pred":
            head += ["  and.b32 %m, %m, 1;", f"  setp.ne.b32 {register}, %m, 0;"]
    if mode == "mixed":
        head.append("  @%skip bra DONE;")
    return "\n".join([*head, *(_body(form, mode) for form in forms), "DONE:\n  ret;\n}"])


def run(forms: Sequence[Form], mode: str = "varying") -> list[list[np.ndarray]]:
    """Bits of every result of every form, one per thread."""
    pools = sorted({"b32" if kind == "pred" else kind for form in forms for kind in form.operands})
    rows = sum(len(form.results) for form in forms)
    out = emu.asarray(np.zeros((rows, THREADS), np.uint64))
    kernel_args = [out, *(emu.asarray(values.pool(name)) for name in pools)]
    launch(module(build(forms, mode), params=QUICK), "forms", *GEOMETRY[mode], *kernel_args)
    taken = iter(np.array(out))
    return [[next(taken) & np.uint64((1 << width(kind)) - 1) for kind in form.results] for form in forms]


class Chapter:
    """The forms of one chapter of the ISA manual; results are computed on first use and shared by the tests."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = list(forms)
        self._results: dict[tuple[int, str], list[np.ndarray] | Exception] = {}

    def _solve(self, forms: Sequence[Form], mode: str) -> None:
        try:
            found: Sequence[Any] = run(forms, mode)
        except Exception as error:
            if len(forms) == 1:
                found = [error]
            else:
                half = len(forms) // 2
                self._solve(forms[:half], mode)
                self._solve(forms[half:], mode)
                return
        self._results.update({(id(form), mode): result for form, result in zip(forms, found, strict=True)})

    def results(self, form: Form, mode: str) -> list[np.ndarray]:
        if (id(form), mode) not in self._results:
            position = next(i for i, f in enumerate(self.forms) if f is form) // CHUNK * CHUNK
            self._solve(self.forms[position : position + CHUNK], mode)
        result = self._results[id(form), mode]
        if isinstance(result, Exception):
            raise result
        return result

    def check(self, form: Form) -> None:
        """Compare every thread's result in every mode with the oracle's; the message shows the first differing operands in hex."""
        for mode in GEOMETRY:
            if mode != "mixed" or len(form.operands) > 1:
                self._check(form, mode)

    def _check(self, form: Form, mode: str) -> None:
        got = self.results(form, mode)
        columns: list[Sequence[int]] = [values.operand(kind, i) for i, kind in enumerate(form.operands)]
        if mode == "mixed":
            first = [32 * (t // 32) for t in range(THREADS)]
            columns = [[c[t] for t in first] if _is_uniform(mode, form, i) else c for i, c in enumerate(columns)]
        wrong = []
        for thread in range(THREADS):
            if mode == "mixed" and thread % 4 == 3:
                assert not any(int(values_got[thread]) for values_got in got), f"{form}: a lane outside the branch stored a result"
                continue
            operands = [column[thread] for column in columns]
            want = form.oracle(*operands)
            if want is None:
                continue
            wants = want if isinstance(want, tuple) else (want,)
            for kind, values_got, expected in zip(form.results, got, wants, strict=True):
                bits = int(values_got[thread])
                if expected is not None and not (form.accept or _default(kind))(bits, expected):
                    wrong.append((operands, bits, expected))
        if wrong:
            operands, bits, expected = wrong[0]
            shown = hex(expected) if isinstance(expected, int) else expected
            given = ", ".join(map(hex, operands))
            raise AssertionError(f"{form}, {mode} operands: {len(wrong)} of {THREADS} wrong; ({given}) gives {bits:#x}, should be {shown}")


def _default(kind: str) -> Callable[[int, Any], bool]:
    return same_or_nan(kind) if kind in softfloat.FORMATS or kind.endswith("x2") else lambda got, want: got == want


def same_or_nan(kind: str) -> Callable[[int, Any], bool]:
    """Equal bits; any NaN matches a NaN (PTX fixes the bits of only some NaN results). Packed types go half by half."""
    f = softfloat.FORMATS.get(kind.removesuffix("x2"))
    if f is None:
        return lambda got, want: got == want

    def same(got: int, want: Any) -> bool:
        return got == want or (softfloat.is_nan(got, f) and softfloat.is_nan(want, f))

    if not kind.endswith("x2"):
        return same
    mask = (1 << f.bits) - 1
    return lambda got, want: same(got & mask, want & mask) and same(got >> f.bits, want >> f.bits)


def exactly(got: int, want: Any) -> bool:
    """Equal bits, NaN included."""
    return got == want
