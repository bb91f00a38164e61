"""Page 11: a second layer."""
