"""IV.11: a second layer."""
