"""IV.4: other noise, after two steps."""
