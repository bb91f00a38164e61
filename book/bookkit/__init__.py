"""How pages become a book: running them, keeping their results, rendering the HTML.

What builds the book imports no torch: the numerics run in the kernels of the pages. The rules, which judges need, do.
"""

DISTRIBUTION = "attnlib"  # brings this package; names the media types of what pages leave for programs
