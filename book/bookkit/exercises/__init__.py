"""Exercises that answer back: what is stored of an answer is a slow hash of its rounded value (`table`), never the answer."""
