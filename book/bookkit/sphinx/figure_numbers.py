"""Figures are numbered within their page: "Fig. 1" is the first of the page, wherever the page stands in the book."""

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def number_within_pages(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Count again what Sphinx has numbered through the book; nothing has to be read once more for it."""
    for kinds in env.toc_fignumbers.values():
        names = kinds.get("figure", {})
        names.update((name, (number,)) for number, name in enumerate(names, 1))
    return []


def register(app: Sphinx) -> None:
    """After Sphinx has numbered."""
    app.connect("env-get-updated", number_within_pages, priority=900)
