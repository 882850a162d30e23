"""Entering and leaving the machine code of a kernel."""

from __future__ import annotations

from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.layout import Launch, Warp, Worker


class Frame:
    """``use_mxcsr``: the processor flushes subnormals while the kernel runs."""

    def __init__(self, b: WarpBuilder, use_mxcsr: bool):
        self.b, self.use_mxcsr = b, use_mxcsr

    def enter(self) -> None:
        """Names for what a warp's code uses all the time; the lanes that run and where they are awaited, as the warp left them."""
        b = self.b
        b.label("begin")
        pointers = {
            "%memos": ("%w", Worker.MEMOS),
            "%smem": ("%w", Worker.SMEM),
            "%blocks": ("%w", Worker.BLOCKS),
            "%local": ("%warp", Warp.LOCAL),
        }
        for name, (base, offset) in pointers.items():
            b.raw(f"{name}.at = getelementptr i8, ptr {base}, i64 {offset}")
            b.raw(f"{name} = load ptr, ptr {name}.at")
        b.raw(f"%shadow_delta.at = getelementptr i8, ptr %l, i64 {Launch.SHADOW_DELTA}")
        b.raw("%shadow_delta = load i64, ptr %shadow_delta.at")
        b.raw(f"%local_shadow_delta.at = getelementptr i8, ptr %w, i64 {Worker.LOCAL_SHADOW_DELTA}")
        b.raw("%local_shadow_delta = load i64, ptr %local_shadow_delta.at")
        shadow = b.load("i64", b.gep("%w", Worker.SMEM_SHADOW))
        smem = b.load("i64", b.gep("%w", Worker.SMEM))
        b.raw(f"%smem_shadow_delta = sub i64 {shadow.ir}, {smem.ir}")
        if self.use_mxcsr:
            self._set_mxcsr(True)
        b.store(b.load("i32", b.gep("%warp", Warp.MASK)), b.mask_slot)
        b.store(b.load("i32", b.gep("%warp", Warp.RPC)), b.rpc_slot)

    def leave(self, code: int) -> None:
        """Return to the CTA loop with a code of layout.py."""
        if self.use_mxcsr:
            self._set_mxcsr(False)
        self.b.raw(f"ret i32 {code}")

    def _set_mxcsr(self, flush: bool) -> None:
        """Flush-to-zero and denormals-are-zero on, or the caller's state back."""
        b = self.b
        b.declarations.update({"declare void @llvm.x86.sse.ldmxcsr(ptr)", "declare void @llvm.x86.sse.stmxcsr(ptr)"})
        if flush:
            self.old_csr, self.new_csr = b.alloca("i32", 4), b.alloca("i32", 4)
            b.raw(f"call void @llvm.x86.sse.stmxcsr(ptr {self.old_csr.ir})")
            b.store(b.bin("or", b.load("i32", self.old_csr), b.i32(0x8040)), self.new_csr)
            b.raw(f"call void @llvm.x86.sse.ldmxcsr(ptr {self.new_csr.ir})")
        else:
            b.raw(f"call void @llvm.x86.sse.ldmxcsr(ptr {self.old_csr.ir})")
