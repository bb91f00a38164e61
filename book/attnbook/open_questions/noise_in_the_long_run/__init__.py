"""IV.10: noise in the long run."""
