"""Page 05: more classes."""
