"""Random structured programs: what every thread computes must be what it would compute alone.

A small generator writes the same program twice, as CUDA C++ and as a Python syntax tree that is interpreted one thread at a
time. Nested divergent branches, loops with divergent trip counts, break, continue, early returns and shuffled CTA orders are
all in it; the emulator runs 32 lanes under masks and must not be told apart from the interpreter.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from rawflash import emu

MASK = 0xFFFFFFFF
VARIABLES = ("a", "b", "c", "d")
OPERATORS = ("+", "-", "*", "^", "&", "|")
COMPARISONS = ("<", ">", "==", "!=", "<=")


@dataclass
class Writer:
    """Draws a program; ``lines`` is CUDA, ``tree`` the same thing as nested tuples."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    loops: int = 0

    def operand(self) -> str:
        return self.rng.choice([*VARIABLES, "t", "(t & 7u)", str(self.rng.randrange(16)) + "u"])

    def expression(self) -> str:
        return f"{self.operand()} {self.rng.choice(OPERATORS)} {self.operand()}"

    def condition(self) -> str:
        left = f"(({self.operand()} ^ {self.operand()}) & {self.rng.choice((1, 3, 7, 15))}u)"
        return f"{left} {self.rng.choice(COMPARISONS)} {self.rng.randrange(8)}u"

    def block(self, depth: int, in_loop: bool) -> list[tuple[object, ...]]:
        return [self.statement(depth, in_loop) for _ in range(self.rng.randrange(1, 4))]

    def statement(self, depth: int, in_loop: bool) -> tuple[object, ...]:
        kinds = ["set"] * 4 + (["if", "ifelse", "loop"] * 2 if depth < 4 else []) + (["break", "continue"] if in_loop else []) + ["return"]
        kind = self.rng.choice(kinds)
        if kind == "return" and self.rng.random() < 0.6:
            kind = "set"
        if kind == "set":
            name, text = self.rng.choice(VARIABLES), self.expression()
            self.lines.append(f"{name} = {text};")
            return ("set", name, text)
        if kind in ("break", "continue", "return"):
            text = self.condition()
            self.lines.append(f"if ({text}) {'{ out[t] = a ^ b ^ c ^ d; return; }' if kind == 'return' else kind + ';'}")
            return (kind, text)
        if kind == "loop":
            self.loops += 1
            counter, bound = f"i{self.loops}", self.rng.choice(["t & 3u", "(a ^ t) & 7u", "3u", "(t >> 3) & 3u"])
            self.lines.append(f"for (unsigned {counter} = 0, n{counter} = {bound}; {counter} < n{counter}; ++{counter}) {{")
            body = self.block(depth + 1, True)
            self.lines.append("}")
            return ("loop", bound, body)
        text = self.condition()
        self.lines.append(f"if ({text}) {{")
        yes = self.block(depth + 1, in_loop)
        no: list[tuple[object, ...]] = []
        if kind == "ifelse":
            self.lines.append("} else {")
            no = self.block(depth + 1, in_loop)
        self.lines.append("}")
        return ("if", text, yes, no)


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Return(Exception):
    pass


def _value(text: str, state: dict[str, int]) -> int:
    return int(eval(text.replace("u", ""), {}, state)) & MASK


def _condition(text: str, state: dict[str, int]) -> bool:
    return bool(eval(text.replace("u", ""), {}, state))


def _execute(body: list[tuple[object, ...]], state: dict[str, int]) -> None:
    for s in body:
        kind = s[0]
        if kind == "set":
            state[str(s[1])] = _value(str(s[2]), state)
        elif kind == "if":
            _execute(s[2] if _condition(str(s[1]), state) else s[3], state)  # type: ignore[arg-type]
        elif kind == "loop":
            for _ in range(_value(str(s[1]), state)):
                try:
                    _execute(s[2], state)  # type: ignore[arg-type]
                except _Break:
                    break
                except _Continue:
                    continue
        elif _condition(str(s[1]), state):
            raise {"break": _Break, "continue": _Continue, "return": _Return}[str(kind)]


def _alone(program: list[tuple[object, ...]], thread: int) -> int:
    state = {"a": thread, "b": 1, "c": (thread * 7) & MASK, "d": 5, "t": thread}
    with contextlib.suppress(_Return):
        _execute(program, state)
    return state["a"] ^ state["b"] ^ state["c"] ^ state["d"]


def _programs(seed: int, count: int) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    rng = random.Random(seed)
    for n in range(count):
        w = Writer(rng)
        tree = w.block(0, False) + w.block(0, False) + w.block(0, False)
        body = "\n    ".join(w.lines)
        yield (
            f'extern "C" __global__ void k{n}(unsigned* out) {{\n    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;\n'
            f"    unsigned a = t, b = 1, c = t * 7u, d = 5;\n    {body}\n    out[t] = a ^ b ^ c ^ d;\n}}\n",
            tree,
        )


@pytest.mark.parametrize("seed", range(6))
def test_every_thread_as_if_alone(seed: int) -> None:
    programs = list(_programs(seed, 8))
    block = (64, 48, 33)[seed % 3]
    module = emu.RawModule(
        code="".join(source for source, _ in programs),
        params=emu.EmuParams(opt_level=1, order_seed=seed if seed % 2 else None, count=seed % 2 == 0),
    )
    for n, (source, tree) in enumerate(programs):
        out = emu.empty(2 * block, np.uint32)
        module.get_function(f"k{n}")((2,), (block,), (out,))
        want = [_alone(tree, t) for t in range(2 * block)]
        assert out.tolist() == want, f"thread {next(t for t in range(2 * block) if out[t] != want[t])} of\n{source}"
