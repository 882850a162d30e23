"""Where kernels run: a CUDA GPU through CuPy (cupy_gpu) or this CPU through the emulator (emulated). One launch code (base)."""
