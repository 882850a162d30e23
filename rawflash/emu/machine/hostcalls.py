"""printf and assert on the Python side."""

from __future__ import annotations

import ctypes
import re
import struct
import threading

from rawflash.emu.lower.layout import LOCAL_WINDOW, Warp

HOST_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


class HostCalls:
    """Collects the output of a launch's printf calls and the text of a failed assertion."""

    def __init__(self, local_stride: int):
        self.output: list[str] = []
        self.note = ""
        self._stride = local_stride
        self._lock = threading.Lock()
        self.callback = HOST_TYPE(self._call)

    def _call(self, worker: int, warp: int, kind: int, lane: int, arguments: int) -> int:
        try:
            if kind == 1:
                fmt, buffer = struct.unpack("<2Q", ctypes.string_at(arguments, 16))
                text = self._format(self._string(fmt), self._translate(buffer, warp, lane))
                with self._lock:
                    self.output.append(text)
                return 0
            message, file, line, function, _ = struct.unpack("<5Q", ctypes.string_at(arguments, 40))
            self.note = f"'{self._string(message)}' at {self._string(file)}:{line & 0xFFFFFFFF} in {self._string(function)}"
            return 1
        except Exception as e:  # an exception must not travel through machine code
            self.note = f"the host call failed: {e}"
            return 2

    def _translate(self, address: int, warp: int, lane: int) -> int:
        if address >> 60 == LOCAL_WINDOW >> 60:
            local = ctypes.c_uint64.from_address(warp + Warp.LOCAL).value
            return int(local + lane * self._stride + (address - LOCAL_WINDOW))
        return address

    @staticmethod
    def _string(address: int) -> str:
        return ctypes.string_at(address).decode("utf-8", "replace") if address else "(null)"

    def _format(self, fmt: str, buffer: int) -> str:
        """C's printf over the packed argument buffer: every argument is aligned to its size."""
        offset = 0

        def take(code: str, size: int) -> int | float:
            nonlocal offset
            offset = -(-offset // size) * size
            (value,) = struct.unpack("<" + code, ctypes.string_at(buffer + offset, size))
            offset += size
            return value  # type: ignore[no-any-return]

        def one(match: re.Match[str]) -> str:
            flags, width, precision, length, kind = match.groups()
            if kind == "%":
                return "%"
            if width == "*":
                width = str(take("i", 4))
            if precision == "*":
                precision = str(take("i", 4))
            spec = "%" + flags + (width or "") + (f".{precision}" if precision is not None else "")
            wide = length in ("l", "ll", "j", "z", "t")
            if kind in "di":
                return (spec + "d") % take("q" if wide else "i", 8 if wide else 4)
            if kind in "ouxX":
                return (spec + ("d" if kind == "u" else kind)) % take("Q" if wide else "I", 8 if wide else 4)
            if kind == "c":
                return (spec + "c") % chr(int(take("i", 4)) & 255)
            if kind == "s":
                return (spec + "s") % self._string(int(take("Q", 8)))
            if kind == "p":
                return (spec + "s") % hex(int(take("Q", 8)))
            value = float(take("d", 8))
            return (spec + "s") % value.hex() if kind in "aA" else (spec + kind) % value

        return _SPEC.sub(one, fmt)
