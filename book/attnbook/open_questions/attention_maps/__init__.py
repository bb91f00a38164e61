"""IV.3: other attention maps."""
