"""Page 05: more classes, a second layer."""
