"""IV.8: which rules leave the trap, and the first pass of mini-batches."""
