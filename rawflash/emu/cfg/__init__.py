"""Syntax tree -> control-flow graph: basic blocks, reconvergence points, liveness, uniformity. No LLVM here."""
