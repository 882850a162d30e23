"""What exists while a kernel runs: device memory, the limits of an architecture, the records of launch, workers and warps."""
