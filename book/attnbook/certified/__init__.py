"""Part VIII: certified numbers."""
