"""IV.7: the largest margin of many heads, and where gradient descent ends instead."""
