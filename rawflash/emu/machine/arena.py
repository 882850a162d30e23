"""Device memory: one reserved range of addresses, allocations aligned to 256 bytes with guard bands, and a shadow byte for every
byte that says whether anything was ever written there.
"""

from __future__ import annotations

import bisect
import mmap
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 256
GUARD = 256
POISON = 0xFF


class OutOfDeviceMemory(MemoryError):
    """The arena has no room for an allocation."""


@dataclass
class Allocation:
    """``[lo, hi)`` in host addresses; ``tracked``: uninitialised reads are looked for."""

    lo: int
    hi: int
    read_only: bool = False


class Arena:
    """A bump allocator with a free list over one private, lazily committed mapping; its upper half is the shadow."""

    def __init__(self, size: int = 1 << 36):
        while True:
            try:
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
                self._map = mmap.mmap(-1, 2 * size, flags=flags)
                break
            except (OSError, ValueError):
                if size <= 1 << 28:
                    raise
                size //= 2
        self.size = size
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        self.base = self._bytes.ctypes.data
        self.shadow_delta = size
        self._next = self.base + (1 << 16)  # nothing lives at small offsets
        self._free: dict[int, list[int]] = {}
        self._starts: list[int] = []
        self._live: dict[int, Allocation] = {}
        self._lock = threading.RLock()

    @property
    def used_bytes(self) -> int:
        """Extent of the addresses handed out so far."""
        return self._next - self.base

    def contains(self, address: int) -> bool:
        return self.base <= address < self.base + self.size

    def allocate(self, n_bytes: int, initialised: bool) -> Allocation:
        """New memory, poisoned unless ``initialised``. A zero-size allocation has an address but no bytes."""
        room = -(-max(n_bytes, 1) // ALIGNMENT) * ALIGNMENT + GUARD
        with self._lock:
            reusable = self._free.get(room)
            if reusable:
                lo = reusable.pop()
            else:
                lo = self._next
                if lo + room > self.base + self.size - (1 << 16):
                    raise OutOfDeviceMemory(f"{n_bytes} bytes do not fit into the emulator's device memory of {self.size >> 20} MiB")
                self._next += room
            allocation = Allocation(lo, lo + n_bytes)
            self._live[lo] = allocation
            bisect.insort(self._starts, lo)
        offset = lo - self.base
        if initialised:
            self._bytes[offset + self.size : offset + self.size + n_bytes] = 1
        else:
            self._bytes[offset : offset + n_bytes] = POISON
            self._bytes[offset + self.size : offset + self.size + n_bytes] = 0
        return allocation

    def free(self, lo: int) -> None:
        with self._lock:
            allocation = self._live.pop(lo, None)
            if allocation is None:
                return
            self._starts.remove(lo)
            room = -(-max(allocation.hi - lo, 1) // ALIGNMENT) * ALIGNMENT + GUARD
            self._free.setdefault(room, []).append(lo)

    def live(self) -> list[Allocation]:
        """All allocations in address order."""
        with self._lock:
            return [self._live[lo] for lo in self._starts]

    def find(self, address: int) -> Allocation | None:
        with self._lock:
            n = bisect.bisect_right(self._starts, address) - 1
            if n < 0:
                return None
            allocation = self._live[self._starts[n]]
            return allocation if address < allocation.hi or address == allocation.lo else None

    def view(self, allocation: Allocation) -> NDArray[np.uint8]:
        """The bytes of an allocation (without keeping it alive)."""
        offset = allocation.lo - self.base
        return self._bytes[offset : offset + allocation.hi - allocation.lo]

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike, initialised: bool) -> NDArray[Any]:
        """A NumPy array in this memory; the memory is freed when the array and all its views are gone."""
        dt = np.dtype(dtype)
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        n_bytes = dt.itemsize * int(np.prod(dims, dtype=np.int64))
        owner = _Owner(self, self.allocate(n_bytes, initialised))
        return np.asarray(owner).view(dt).reshape(dims)  # by way of bytes, which also serves dtypes NumPy cannot name


class _Owner:
    """The base object of arrays in the arena."""

    def __init__(self, arena: Arena, allocation: Allocation):
        self.__array_interface__ = {
            "data": (allocation.lo, False),
            "shape": (allocation.hi - allocation.lo,),
            "typestr": "|u1",
            "version": 3,
        }
        weakref.finalize(self, arena.free, allocation.lo)


_arena: Arena | None = None
_arena_lock = threading.Lock()


def device_memory() -> Arena:
    """The process's one arena, made at first use."""
    global _arena
    with _arena_lock:
        if _arena is None:
            _arena = Arena()
        return _arena
