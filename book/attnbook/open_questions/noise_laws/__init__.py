"""Page 04: other noise."""
