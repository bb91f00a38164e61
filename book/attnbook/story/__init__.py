"""The story in pictures: the numbers that its panels draw, all from runs of `attnlib`. See `run`, and `python -m attnbook.story`."""
