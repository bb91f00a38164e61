"""Page 01: many heads, from zero and from random starts, their margins, matrices in place of vectors."""
