"""What the functions behind the fast path of an access share: names of spaces and classes, lanes, failing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import ERROR_KIND, Alloc, Launch, Worker

# Spaces as the slow path knows them.
GLOBAL, SHARED, LOCAL, CONST = 0, 1, 2, 3
CLASS_SCATTERED, CLASS_CONTIGUOUS, CLASS_BROADCAST = 0, 1, 2
GLOBAL_KEY = 31  # sectors depend on the base modulo 32
WIDTHS = [(bits, n) for bits in (8, 16, 32, 64) for n in (1, 2, 4, 8) if bits * n <= 256]


def function_text(name: str, ret: str, params: str, body: Callable[[IRWriter], None], declarations: set[str], attributes: str = "") -> str:
    """One LLVM function: allocas first, then what ``body`` wrote."""
    b = IRWriter(declarations)
    body(b)
    return "\n".join([f"define {ret} @{name}({params}) {attributes} {{", "entry:", *b.entry, "  br label %begin", "begin:", *b.lines, "}"])


def fail(b: IRWriter, kind: str, site: Value, lane: Value, address: Value) -> None:
    """Record what went wrong and return from a runtime function."""
    b.store(b.i32(ERROR_KIND[kind]), b.gep("%w", Worker.ERR_KIND))
    b.store(site, b.gep("%w", Worker.ERR_SITE))
    b.store(lane, b.gep("%w", Worker.ERR_LANE))
    b.store(address, b.gep("%w", Worker.ERR_ADDR))
    b.raw(f"ret i32 {ERROR_KIND[kind]}")


@contextlib.contextmanager
def each_allocation(b: IRWriter, launch: Value, table: Value) -> Iterator[Value]:
    """A loop over the launch's ``table`` of allocations; its body is given an entry (layout.Alloc)."""
    with b.loop(b.load("i64", b.gep(launch, Launch.N_ALLOCS)), "i64") as n:
        yield b.gep(table, b.bin("mul", n, b.i64(Alloc.SIZE)))


def active(b: IRWriter, lane: Value) -> Value:
    """Whether a lane takes part: its bit in ``%mask``."""
    bit = b.bin("and", b.bin("lshr", Value("%mask", "i32"), lane), b.i32(1))
    return b.cmp("icmp ne", bit, b.i32(0))


def address_of(b: IRWriter, lane: Value) -> Value:
    """The address that the kernel left for a lane."""
    offset = b.bin("mul", b.resize(lane, "i64"), b.i64(8))
    return b.load("i64", b.gep(b.gep("%w", Worker.ADDRS), offset))
