"""A small picture on the first screen of a page whose first figure comes late: a link to that figure.

It stands for the page: the figure of the cell tagged `lead`, otherwise the first. Made when the page is rendered: the notebook does not
hold it, and paper does not show it.
"""

from docutils import nodes
from sphinx.application import Sphinx

from bookkit.sphinx.html_elements import element

TAG = "tag_lead"  # as myst-nb writes the tag of a cell among its classes
LATE = 2500  # letters of prose above the first figure: about two screens
BEFORE = (nodes.title, nodes.paragraph, nodes.target, nodes.comment)  # what opens a page


def lead(doctree: nodes.document) -> nodes.figure | None:
    """The figure that stands for the page; None where the first figure is not far, or none has a name."""
    figures = [each for each in doctree.findall(nodes.figure) if any(name.startswith("fig-") for name in each["ids"])]
    if not figures or _letters_above(doctree, figures[0]) < LATE:
        return None
    tagged = [cell for cell in doctree.findall(nodes.container) if TAG in cell["classes"]]
    return next((figure for cell in tagged for figure in cell.findall(nodes.figure)), figures[0])


def _letters_above(doctree: nodes.document, figure: nodes.figure) -> int:
    letters = 0
    for node in doctree.findall():
        if node is figure:
            break
        letters += len(node.astext()) if isinstance(node, nodes.paragraph) else 0
    return letters


def show_lead(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the picture behind the paragraphs that open the page."""
    figure, section = lead(doctree), next(doctree.findall(nodes.section), None)
    if not docname.startswith("notebooks/") or figure is None or section is None:
        return
    original = next(iter(figure.findall(nodes.image)))
    kept = {name: original[name] for name in ("uri", "candidates", "alt") if name in original}
    link = element("a", nodes.image(classes=["small-picture"], **kept), href=f"#{figure['ids'][0]}")
    place = next((i for i, child in enumerate(section.children) if not _opens(child)), len(section.children))
    section.insert(place, element("figure", link, class_="lead-figure screen-only"))


def _opens(child: nodes.Node) -> bool:
    return isinstance(child, BEFORE) or (
        isinstance(child, nodes.Element) and child.get("attributes", {}).get("class") == "page-claims"
    )


def register(app: Sphinx) -> None:
    """After `page_claims` has put its strip below the title."""
    app.connect("doctree-resolved", show_lead, priority=600)
