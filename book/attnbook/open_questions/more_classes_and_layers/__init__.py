"""IV.5: more classes, more label noise, unequal classes."""
