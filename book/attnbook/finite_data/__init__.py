"""Part V: finite data in context."""
