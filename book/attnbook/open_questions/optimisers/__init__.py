"""Page 02: other update rules, and which of them leave the trap."""
