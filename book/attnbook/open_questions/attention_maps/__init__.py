"""Page 03: other attention maps."""
