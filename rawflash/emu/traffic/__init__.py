"""What a launch moved and executed: the report built from the counters of all workers."""
