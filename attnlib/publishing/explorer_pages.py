"""The explorers of the book: pages that compute."""

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
