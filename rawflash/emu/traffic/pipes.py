"""Which execution pipe of an SM issues an instruction: one table, opcode -> pipe, or opcode -> rule when the type decides.

The unit is a PTX instruction executed by a warp. ptxas turns most of them into one machine instruction, a few into none (a move, a
parameter) or into a sequence (an integer division, a division or square root rounded to nearest); a sequence counts once, under the
pipe its core runs on. The names follow Nsight Compute's pipes; those it reports together are kept apart here:

    tensor   mma, wmma.mma
    fma      fp32 add, sub, mul, fma
    fp16     f16 and bf16 arithmetic, packed or not (its own pipe on sm_80, part of fma from sm_86 on)
    fp64     fp64 arithmetic and comparison
    imad     integer multiply, multiply-add, dot product (issued to the fma pipe by the hardware)
    alu      integer, logic, shifts, comparison, selection, min and max, sign bits
    sfu      ex2 lg2 rcp rsqrt sqrt sin cos tanh, division (called XU by Nsight Compute)
    cvt      conversions
    lsu      loads, stores, atomics, ldmatrix, cp.async, prefetches; constant banks too
    shuffle  what lanes tell each other: shfl vote match redux activemask elect movmatrix
    branch   jumps, calls, returns
    barrier  barriers, fences, waiting for asynchronous copies
    other    moves, address-space conversions, parameters, hints
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rawflash.emu.errors import EmuError

PIPES = ("tensor", "fma", "fp16", "fp64", "imad", "alu", "sfu", "cvt", "lsu", "shuffle", "branch", "barrier", "other")
FLOAT_PIPES = {"f32": "fma", "f32x2": "fma", "f16": "fp16", "f16x2": "fp16", "bf16": "fp16", "bf16x2": "fp16", "f64": "fp64"}

Rule = Callable[[Sequence[str]], str]  # modifiers -> pipe


def _float(mods: Sequence[str], otherwise: str) -> str:
    return next((FLOAT_PIPES[m] for m in mods if m in FLOAT_PIPES), otherwise)


def _add(mods: Sequence[str]) -> str:
    return _float(mods, "alu")


def _multiply(mods: Sequence[str]) -> str:
    return _float(mods, "imad")


def _compare(mods: Sequence[str]) -> str:
    return "fp64" if "f64" in mods else "alu"


def _divide(mods: Sequence[str]) -> str:
    if "approx" in mods:
        return "sfu"
    return {"alu": "alu", "fp64": "fp64"}.get(_float(mods, "alu"), "sfu")


def _memory(mods: Sequence[str]) -> str:
    return "other" if any(m.split("::")[0] == "param" for m in mods) else "lsu"


def _wmma(mods: Sequence[str]) -> str:
    return "tensor" if mods[0] == "mma" else "lsu"


def _copy(mods: Sequence[str]) -> str:
    waits = {"commit_group", "wait_group", "wait_all", "mbarrier"}
    return "barrier" if waits & set(mods) else "lsu"


def _all(pipe: str | Rule, opcodes: str) -> dict[str, str | Rule]:
    return dict.fromkeys(opcodes.split(), pipe)


TABLE: dict[str, str | Rule] = (
    _all(_add, "add sub")
    | _all(_multiply, "mul mad fma")
    | _all(_compare, "min max set setp")
    | _all(_divide, "div rcp sqrt rsqrt")
    | _all(_memory, "ld st")
    | _all(_wmma, "wmma")
    | _all(_copy, "cp")
    | _all("tensor", "mma")
    | _all("imad", "mul24 mad24 madc dp2a dp4a")
    | _all("alu", "abs neg selp slct testp copysign addc subc rem sad and or xor not cnot lop3 shl shr shf prmt")
    | _all("alu", "bfe bfi bfind bmsk brev clz fns popc szext isspacep")
    | _all("sfu", "ex2 lg2 sin cos tanh")
    | _all("cvt", "cvt")
    | _all("lsu", "ldu atom red ldmatrix stmatrix prefetch prefetchu discard applypriority")
    | _all("shuffle", "shfl vote match redux activemask elect movmatrix")
    | _all("branch", "bra brx call ret exit trap brkpt")
    | _all("barrier", "bar barrier membar fence mbarrier")
    | _all("other", "mov cvta nanosleep pmevent griddepcontrol rf")
)


def pipe_of(spelling: str) -> str:
    """The pipe of an instruction such as ``fma.rn.ftz.f32``. Raises EmuError for an opcode that the table lacks."""
    opcode, *mods = spelling.split(".")
    rule = TABLE.get(opcode)
    if rule is None:
        raise EmuError(f"no pipe is known for the opcode '{opcode}' of '{spelling}': add it to the table in rawflash/emu/traffic/pipes.py")
    return rule if isinstance(rule, str) else rule(mods)


def by_pipe(opcodes: Mapping[str, int]) -> dict[str, int]:
    """Counts per spelling, summed by pipe; every pipe is there, in the order of PIPES."""
    found: Counter[str] = Counter()
    for spelling, n in opcodes.items():
        found[pipe_of(spelling)] += n
    return {pipe: found[pipe] for pipe in PIPES}
