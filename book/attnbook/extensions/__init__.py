"""What this book adds to Sphinx: the figures of `make bench`, and the story in pictures."""
