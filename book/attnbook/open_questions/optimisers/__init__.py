"""IV.2: other update rules."""
