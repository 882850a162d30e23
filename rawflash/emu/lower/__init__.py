"""Control-flow graph -> LLVM IR."""
