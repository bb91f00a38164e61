"""IV.1: many heads from zero are one head with slower attention."""
