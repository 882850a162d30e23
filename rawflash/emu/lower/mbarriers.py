"""The mbarrier object: one 64-bit word of shared memory, and what the operations on it do, lane after lane.

    bits 0-19 pending arrivals of this phase | 20-39 arrivals a phase expects | 40-61 pending bytes (signed) | 63 parity of the phase

A phase is over when neither arrivals nor bytes are pending; then the parity flips and the expected arrivals are pending again. The
value of an arrive is the whole word as it was before, so that a wait on it compares parities. CTAs run on one thread each, so plain
loads and stores are atomic enough.
"""

from __future__ import annotations

from rawflash.emu.lower.irtext import IRWriter, Value
from rawflash.emu.lower.layout import Worker
from rawflash.emu.lower.slowpath import fail as record

COUNT_BITS, BYTE_BITS = 20, 22
MOST = (1 << COUNT_BITS) - 1
UNDERFLOW, COMPLETED, BAD_COUNT = 1, 2, 3  # what is wrong, as the error record says it


def pending(b: IRWriter, word: Value) -> Value:
    """i64 pending arrivals of a word (any shape)."""
    return b.bin("and", word, b.i64(MOST))


def parity(b: IRWriter, word: Value) -> Value:
    """i1 parity of the current phase."""
    return b.cmp("icmp slt", word, b.i64(0))


def initial(b: IRWriter, count: Value) -> Value:
    """The word of a fresh object."""
    wide = b.bin("and", b.resize(count, "i64"), b.i64(MOST))
    return b.bin("or", wide, b.bin("shl", wide, b.i64(COUNT_BITS)))


def fail(b: IRWriter, reason: int, site: Value, lane: Value, address: Value) -> None:
    b.store(b.i64(reason), b.gep("%w", Worker.ERR_AUX))
    record(b, "bad_mbarrier", site, lane, address)
    b.label(b.new_label("dead"))


def change(
    b: IRWriter,
    pointer: Value,
    site: Value,
    lane: Value,
    address: Value,
    *,
    arrivals: Value | None = None,
    added: int = 0,
    n_bytes: Value | None = None,
    drop: bool = False,
    may_complete: bool = True,
) -> Value:
    """One lane's operation: ``n_bytes`` (i32) more bytes are expected, ``added`` more arrivals are pending, then ``arrivals`` (i32)
    come in, which with ``drop`` the later phases do not expect either. Returns the word as it was. Inside a function with ``%w``
    that returns an error code.
    """
    old = b.load("i64", pointer, align=8)
    left, expected = pending(b, old), b.bin("and", b.bin("lshr", old, b.i64(COUNT_BITS)), b.i64(MOST))
    shifted = b.bin("shl", old, b.i64(64 - 2 * COUNT_BITS - BYTE_BITS))
    in_flight = b.bin("ashr", shifted, b.i64(64 - BYTE_BITS))
    if n_bytes is not None:
        in_flight = b.bin("add", in_flight, b.resize(n_bytes, "i64", signed=True))
    if added:
        left = b.bin("add", left, b.i64(added))
    if arrivals is not None:
        count = b.resize(arrivals, "i64")
        with b.when(b.bin("or", b.cmp("icmp ugt", count, left), b.cmp("icmp eq", count, b.i64(0)))):
            fail(b, UNDERFLOW, site, lane, address)
        left = b.bin("sub", left, count)
        if drop:
            expected = b.bin("sub", expected, b.intrinsic("umin", count, expected))
    over = b.bin("and", b.cmp("icmp eq", left, b.i64(0)), b.cmp("icmp eq", in_flight, b.i64(0)))
    if not may_complete:
        with b.when(over):
            fail(b, COMPLETED, site, lane, address)
    left = b.select(over, expected, left)
    phase = b.bin("and", b.bin("xor", old, b.select(over, b.i64(-(1 << 63)), b.i64(0))), b.i64(-(1 << 63)))
    bytes_field = b.bin("shl", b.bin("and", in_flight, b.i64((1 << BYTE_BITS) - 1)), b.i64(2 * COUNT_BITS))
    word = b.bin("or", b.bin("or", phase, bytes_field), b.bin("or", left, b.bin("shl", expected, b.i64(COUNT_BITS))))
    b.store(word, pointer, align=8)
    b.store(b.i32(1), b.gep("%w", Worker.CHANGED))
    # what was accessed before the phase ended is ordered before what follows a wait for it: a new interval for the race detector
    epoch = b.gep("%w", Worker.EPOCH)
    b.store(b.bin("add", b.load("i32", epoch), b.resize(over, "i32")), epoch)
    return old
