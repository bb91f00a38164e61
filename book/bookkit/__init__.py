"""How pages become a book: running them, keeping their results, rendering the HTML.

Nothing here imports torch: the numerics run in the kernels of the pages, not in the builder.
"""

DISTRIBUTION = "attnlib"  # brings this package; names the media types of what pages leave for programs
