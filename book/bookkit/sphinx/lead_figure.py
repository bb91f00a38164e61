"""The picture that leads a page, as wide as the text, on the first screen, with a link to the figure.

It is that of the cell tagged `lead`, on a page of the path (`sphinx.path`) otherwise the first. Where it comes early anyhow, or on
another page without the tag, there is none. Made when the page is rendered: the notebook does not hold it, and paper does not show it.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

from bookkit.sphinx.html_elements import element
from bookkit.sphinx.path import the_path

TAG = "tag_lead"  # as myst-nb writes the tag of a cell among its classes
LATE = 2500  # letters of prose above the first figure: about two screens
BEFORE = (nodes.title, nodes.paragraph, nodes.target, nodes.comment)  # what opens a page


def lead(doctree: nodes.document, untagged: bool) -> nodes.figure | None:
    """The figure of the cell tagged `lead`, or the first if it may be `untagged`; None where there is no such figure, or it is near."""
    cells = [cell for cell in doctree.findall(nodes.container) if TAG in cell["classes"]] or [doctree] * untagged
    figures = [figure for cell in cells for figure in cell.findall(nodes.figure) if figure["ids"]]
    return figures[0] if figures and _letters_above(doctree, figures[0]) >= LATE else None


def _letters_above(doctree: nodes.document, figure: nodes.figure) -> int:
    letters = 0
    for node in doctree.findall():
        if node is figure:
            break
        letters += len(node.astext()) if isinstance(node, nodes.paragraph) else 0
    return letters


def show_lead(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the picture behind the paragraphs that open the page."""
    figure = lead(doctree, untagged=docname in the_path(str(app.srcdir)).pages)
    section = next(doctree.findall(nodes.section), None)
    if not docname.startswith("notebooks/") or figure is None or section is None:
        return
    original = next(iter(figure.findall(nodes.image)))
    kept = {name: original[name] for name in ("uri", "candidates", "alt", "width", "height") if name in original}
    address, caption = f"#{figure['ids'][0]}", next(iter(figure.findall(nodes.caption)), nodes.caption())
    more = element("a", "The figure in its place", href=address)
    said = element("figcaption", *first_sentence(caption), " ", more, ".")
    place = next((i for i, child in enumerate(section.children) if not _opens(child)), len(section.children))
    section.insert(place, element("figure", nodes.image(**kept), said, class_="lead-figure screen-only"))


def first_sentence(caption: nodes.caption) -> list[nodes.Node]:
    """What stands in a caption before the first stop that ends a sentence, that stop included."""
    kept: list[nodes.Node] = []
    for child in caption.children:
        stop = re.search(r"[.:](?=\s+[A-Z]|\s*$)", child.astext())
        if stop and isinstance(child, nodes.Text):
            return [*kept, nodes.Text(child[: stop.start()] + ".")]
        kept.append(child.deepcopy())
        if stop:  # a formula and its stop
            break
    return kept


def _opens(child: nodes.Node) -> bool:
    return isinstance(child, BEFORE) or (
        isinstance(child, nodes.Element) and child.get("attributes", {}).get("class") == "page-claims"
    )


def register(app: Sphinx) -> None:
    """After `page_claims` has put its strip below the title."""
    app.connect("doctree-resolved", show_lead, priority=600)
