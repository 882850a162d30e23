"""A small writer of LLVM IR text.

Values know their element type and whether they are a scalar or a vector of 32 lanes. An operation on two scalars gives a
scalar, anything else a vector, so one instruction handler serves uniform and varying operands alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LANES = 32
INT_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128}
FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
BITS = INT_BITS | FLOAT_BITS


@dataclass(frozen=True, slots=True)
class Value:
    """``ir`` is the operand text without its type; ``lanes`` is 0 for a scalar, otherwise the vector length."""

    ir: str
    ty: str
    lanes: int = 0

    @property
    def full(self) -> str:
        """The LLVM type."""
        return f"<{self.lanes} x {self.ty}>" if self.lanes else self.ty

    @property
    def typed(self) -> str:
        return f"{self.full} {self.ir}"

    @property
    def is_constant(self) -> bool:
        return not self.ir.startswith("%")


def type_text(ty: str, lanes: int) -> str:
    return f"<{lanes} x {ty}>" if lanes else ty


class IRWriter:
    """Appends instructions to one function body; keeps the declarations of the intrinsics it used."""

    def __init__(self, declarations: set[str]):
        self.lines: list[str] = []
        self.entry: list[str] = []  # allocas
        self.declarations = declarations
        self._n = 0
        self._label = 0
        self.current = "entry"

    # ------------------------------------------------------------------------------------------------ raw text
    def name(self) -> str:
        self._n += 1
        return f"%t{self._n}"

    def raw(self, text: str) -> None:
        self.lines.append("  " + text)

    def new_label(self, hint: str = "l") -> str:
        self._label += 1
        return f"{hint}.{self._label}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.current = name

    def define(self, text: str, ty: str, lanes: int = 0) -> Value:
        n = self.name()
        self.lines.append(f"  {n} = {text}")
        return Value(n, ty, lanes)

    # --------------------------------------------------------------------------------------------- constants
    def const(self, ty: str, value: int | float) -> Value:
        """A scalar constant; for float types an int is the bit pattern."""
        if ty in INT_BITS:
            bits = INT_BITS[ty]
            v = int(value) & ((1 << bits) - 1)
            if bits > 1 and v >> (bits - 1):
                v -= 1 << bits
            return Value(("true" if v else "false") if bits == 1 else str(v), ty)
        if isinstance(value, float):
            import struct

            code = {"float": ("<f", "<I"), "double": ("<d", "<Q"), "half": ("<e", "<H")}[ty]
            value = struct.unpack(code[1], struct.pack(code[0], value))[0]
        return Value(f"bitcast (i{BITS[ty]} {value} to {ty})", ty)

    def i32(self, v: int) -> Value:
        return self.const("i32", v)

    def i64(self, v: int) -> Value:
        return self.const("i64", v)

    def undef(self, ty: str, lanes: int = 0) -> Value:
        return Value("zeroinitializer" if lanes else ("0" if ty in INT_BITS else "0.0"), ty, lanes)

    # --------------------------------------------------------------------------------------------- shapes
    def splat(self, v: Value, lanes: int = LANES) -> Value:
        """A vector of ``lanes`` copies of a scalar; a vector is returned as it is."""
        if v.lanes:
            return v
        if v.is_constant:
            if v.ir.startswith("bitcast"):
                ints = v.ir[len("bitcast (") :].split(" to ")[0]
                return Value(f"bitcast (<{lanes} x {ints.split()[0]}> splat ({ints}) to <{lanes} x {v.ty}>)", v.ty, lanes)
            return Value(f"splat ({v.ty} {v.ir})", v.ty, lanes)
        one = self.define(f"insertelement <{lanes} x {v.ty}> poison, {v.typed}, i64 0", v.ty, lanes)
        return self.define(
            f"shufflevector <{lanes} x {v.ty}> {one.ir}, <{lanes} x {v.ty}> poison, <{lanes} x i32> zeroinitializer", v.ty, lanes
        )

    def same_shape(self, *values: Value) -> list[Value]:
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) if lanes and not v.lanes else v for v in values]

    def extract(self, v: Value, lane: int | Value) -> Value:
        if not v.lanes:
            return v
        index = f"i64 {lane}" if isinstance(lane, int) else lane.typed
        return self.define(f"extractelement {v.typed}, {index}", v.ty)

    def shuffle(self, a: Value, b: Value | None, indices: list[int]) -> Value:
        other = b.ir if b is not None else "poison"
        mask = ", ".join(f"i32 {i}" for i in indices)
        return self.define(f"shufflevector {a.typed}, {a.full} {other}, <{len(indices)} x i32> <{mask}>", a.ty, len(indices))

    # --------------------------------------------------------------------------------------------- arithmetic
    def bin(self, op: str, a: Value, b: Value) -> Value:
        a, b = self.same_shape(a, b)
        return self.define(f"{op} {a.typed}, {b.ir}", a.ty, a.lanes)

    def un(self, op: str, a: Value) -> Value:
        return self.define(f"{op} {a.typed}", a.ty, a.lanes)

    def cmp(self, op: str, a: Value, b: Value) -> Value:
        """``op`` includes the kind: ``icmp eq``, ``fcmp olt``."""
        a, b = self.same_shape(a, b)
        return self.define(f"{op} {a.typed}, {b.ir}", "i1", a.lanes)

    def select(self, c: Value, a: Value, b: Value) -> Value:
        c, a, b = self.same_shape(c, a, b)
        return self.define(f"select {c.typed}, {a.typed}, {b.typed}", a.ty, a.lanes)

    def cast(self, op: str, a: Value, ty: str) -> Value:
        if op == "bitcast" and a.ty == ty:
            return a
        return self.define(f"{op} {a.typed} to {type_text(ty, a.lanes)}", ty, a.lanes)

    def bitcast(self, a: Value, ty: str) -> Value:
        return self.cast("bitcast", a, ty)

    def resize(self, a: Value, ty: str, signed: bool = False) -> Value:
        """Integer a to integer type ``ty`` by truncation or extension."""
        have, want = INT_BITS[a.ty], INT_BITS[ty]
        if have == want:
            return a
        return self.cast("trunc" if want < have else ("sext" if signed else "zext"), a, ty)

    def intrinsic(self, name: str, *args: Value, ty: str | None = None, suffix: bool = True, plain: tuple[Value, ...] = ()) -> Value:
        """Call ``llvm.<name>`` overloaded on its first argument's type; ``plain`` are trailing scalar immediates."""
        values = self.same_shape(*args)
        first = values[0]
        ret = ty or first.ty
        letter = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(first.ty, first.ty)
        mangled = f"llvm.{name}" + (f".v{first.lanes}{letter}" if first.lanes else f".{letter}") if suffix else f"llvm.{name}"
        ret_text = type_text(ret, first.lanes)
        everything = [*values, *plain]
        self.declarations.add(f"declare {ret_text} @{mangled}({', '.join(v.full for v in everything)})")
        return self.define(f"call {ret_text} @{mangled}({', '.join(v.typed for v in everything)})", ret, first.lanes)

    def reduce_any(self, c: Value) -> Value:
        """i1: does any lane of an i1 vector hold true?"""
        if not c.lanes:
            return c
        bits = self.define(f"bitcast {c.typed} to i{c.lanes}", f"i{c.lanes}")
        return self.define(f"icmp ne i{c.lanes} {bits.ir}, 0", "i1")

    # --------------------------------------------------------------------------------------------- memory
    def gep(self, base: Value | str, offset: Value | int) -> Value:
        """Byte offset from a pointer."""
        b = base if isinstance(base, str) else base.ir
        if isinstance(offset, int):
            return Value(b, "ptr") if offset == 0 else self.define(f"getelementptr i8, ptr {b}, i64 {offset}", "ptr")
        return self.define(f"getelementptr i8, ptr {b}, {offset.typed}", "ptr")

    def load(self, ty: str, pointer: Value | str, lanes: int = 0, align: int | None = None) -> Value:
        p = pointer if isinstance(pointer, str) else pointer.ir
        tail = f", align {align}" if align else ""
        return self.define(f"load {type_text(ty, lanes)}, ptr {p}{tail}", ty, lanes)

    def store(self, v: Value, pointer: Value | str, align: int | None = None) -> None:
        p = pointer if isinstance(pointer, str) else pointer.ir
        self.raw(f"store {v.typed}, ptr {p}" + (f", align {align}" if align else ""))

    def alloca(self, text: str, align: int = 64) -> Value:
        n = self.name()
        self.entry.append(f"  {n} = alloca {text}, align {align}")
        return Value(n, "ptr")

    def increment(self, pointer: Value, by: Value | int) -> None:
        """``*pointer += by`` on an i64."""
        old = self.load("i64", pointer)
        amount = self.i64(by) if isinstance(by, int) else by
        self.store(self.bin("add", old, amount), pointer)

    # --------------------------------------------------------------------------------------------- control
    def jump(self, label: str) -> None:
        self.raw(f"br label %{label}")

    def branch(self, c: Value, yes: str, no: str, likely: bool | None = None) -> None:
        tail = "" if likely is None else (", !prof !0" if likely else ", !prof !1")
        self.raw(f"br i1 {c.ir}, label %{yes}, label %{no}{tail}")

    @contextmanager
    def when(self, c: Value, likely: bool | None = None) -> Iterator[None]:
        """Code that runs only if the scalar i1 ``c`` holds."""
        yes, after = self.new_label("then"), self.new_label("fi")
        self.branch(c, yes, after, likely)
        self.label(yes)
        yield
        self.jump(after)
        self.label(after)

    @contextmanager
    def loop(self, count: int | Value, ty: str = "i32") -> Iterator[Value]:
        """``for n in range(count)``; yields n."""
        slot = self.alloca(ty, 8)
        self.store(self.const(ty, 0), slot)
        head, body, done = self.new_label("for"), self.new_label("body"), self.new_label("done")
        self.jump(head)
        self.label(head)
        n = self.load(ty, slot)
        limit = self.const(ty, count) if isinstance(count, int) else count
        self.branch(self.cmp("icmp ult", n, limit), body, done)
        self.label(body)
        yield n
        self.store(self.bin("add", n, self.const(ty, 1)), slot)
        self.jump(head)
        self.label(done)

    @contextmanager
    def each_bit(self, mask: Value) -> Iterator[Value]:
        """Code that runs for every set bit of an i32, in ascending order; yields the bit's number."""
        left = self.alloca("i32", 4)
        self.store(mask, left)
        head, body, done = self.new_label("bits"), self.new_label("bit"), self.new_label("done")
        self.jump(head)
        self.label(head)
        now = self.load("i32", left)
        self.branch(self.cmp("icmp ne", now, self.i32(0)), body, done)
        self.label(body)
        self.store(self.bin("and", now, self.bin("sub", now, self.i32(1))), left)
        yield self.intrinsic("cttz", now, plain=(Value("true", "i1"),))
        self.jump(head)
        self.label(done)

    def intrinsic_to(self, name: str, v: Value, ty: str) -> Value:
        """An intrinsic overloaded on result and argument, such as ``llvm.fptosi.sat``."""
        letters = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
        prefix = f"v{v.lanes}" if v.lanes else ""
        mangled = f"llvm.{name}.{prefix}{letters.get(ty, ty)}.{prefix}{letters.get(v.ty, v.ty)}"
        result = type_text(ty, v.lanes)
        self.declarations.add(f"declare {result} @{mangled}({v.full})")
        return self.define(f"call {result} @{mangled}({v.typed})", ty, v.lanes)
