"""IV.9: which weight functions have a threshold."""
