"""What every kind of memory access is made of: calls into the runtime, the comparison with a memo, where memory lies."""

from __future__ import annotations

from collections.abc import Callable

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Memo
from rawflash.emu.lower.signatures import SIGNATURES


def call(b: WarpBuilder, name: str, *args: Value) -> Value | None:
    """Call a runtime function."""
    ret, params = SIGNATURES[name]
    b.declarations.add(f"declare {ret} @{name}({params})")
    text = f"call {ret} @{name}({', '.join(a.typed for a in args)})"
    if ret == "void":
        b.raw(text)
        return None
    return b.define(text, ret)


def check(b: WarpBuilder, code: Value | None) -> None:
    """Leave through the failure exit unless a runtime function returned 0."""
    assert code is not None
    ok = b.new_label("ok")
    b.branch(b.cmp("icmp eq", code, b.i32(0)), ok, b.fail_label, likely=True)
    b.label(ok)


def first_of(b: WarpBuilder, address: Value, mask: Value) -> Value:
    """The address of the first active lane."""
    if not address.lanes:
        return address
    return b.extract(address, 0 if b.has_full_mask else b.first_lane(mask))


def same_pattern(b: WarpBuilder, memo: Value, address: Value, first: Value, mask: Value) -> list[Value]:
    """i1s that hold if the lanes, and their addresses relative to the first one, are those that a memo remembers."""
    tests = []
    if address.lanes:
        rel = b.bin("sub", address, b.splat(first))
        if not b.has_full_mask:
            rel = b.select(b.lanes_of(mask), rel, b.splat(b.const(rel.ty, 0)))
        known = b.load(rel.ty, b.gep(memo, Memo.REL if rel.ty == "i64" else Memo.REL32), LANES, align=64)
        tests.append(b.cmp("icmp eq", b.bits_of(b.cmp("icmp eq", rel, known)), b.i32(-1)))
    if not b.has_full_mask:
        tests.append(b.cmp("icmp eq", mask, b.load("i32", b.gep(memo, Memo.MASK))))
    return tests


def unless(b: WarpBuilder, tests: list[Value], learn: Callable[[], Value | None]) -> None:
    """Unless all tests hold, call what works the pattern out, and leave through the failure exit if that finds a fault."""
    hit = tests[0]
    for t in tests[1:]:
        hit = b.bin("and", hit, t)
    slow, data = b.new_label("learn"), b.new_label("data")
    b.branch(hit, data, slow, likely=True)
    b.label(slow)
    check(b, learn())
    b.jump(data)
    b.label(data)


def window(b: WarpBuilder, space: str, base: Value) -> Value:
    """Where a space-relative address lies in host memory."""
    origin = {"shared": "%smem", "local": "%local"}.get(space)
    return b.gep(origin, base) if origin else b.define(f"inttoptr i64 {base.ir} to ptr", "ptr")


def shadow(b: WarpBuilder, space: str, pointer: Value) -> Value:
    """The byte that says whether the byte at a pointer into ``space`` was ever written."""
    delta = {"shared": "%smem_shadow_delta", "local": "%local_shadow_delta"}.get(space, "%shadow_delta")
    return b.gep(pointer, Value(delta, "i64"))
