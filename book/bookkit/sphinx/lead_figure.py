"""A picture on the first screen of each page: one of its own figures, shown small below the opening paragraph.

A notebook must define and run before it can draw, so its first figure stands far down. The page in the book shows one figure already
at the top, with its caption and a link to the place where it is computed: the figure of the cell tagged `lead`, otherwise the first.
Made when the page is rendered: the notebook does not hold it, and paper, which needs no second print of a figure, does not show it.
"""

from docutils import nodes
from sphinx.application import Sphinx

from bookkit.sphinx.html_elements import element

TAG = "tag_lead"  # as myst-nb writes the tag of a cell among its classes
BEFORE = (nodes.title, nodes.paragraph, nodes.target, nodes.comment)  # what opens a page


def lead(doctree: nodes.document) -> nodes.figure | None:
    """The figure that stands for the page: that of the cell tagged `lead`, otherwise the first; None without any that is named."""
    figures = [
        figure for figure in doctree.findall(nodes.figure) if any(name.startswith("fig-") for name in figure["ids"])
    ]
    for figure in figures:
        cell = figure.parent
        while cell is not None:
            if TAG in cell.get("classes", []):
                return figure
            cell = cell.parent
    return next(iter(figures), None)


def show_lead(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put a copy of the figure behind the paragraphs that open the page."""
    figure, section = lead(doctree), next(doctree.findall(nodes.section), None)
    if not docname.startswith("notebooks/") or figure is None or section is None:
        return
    image = next(iter(figure.findall(nodes.image))).deepcopy()
    caption = next(iter(figure.findall(nodes.caption)), nodes.caption())
    words = [child.deepcopy() for child in caption.children]
    for node in (image, *(inner for word in words for inner in word.findall())):
        if isinstance(node, nodes.Element):
            node["ids"], node["names"] = [], []
    link = element("a", "Where it is computed.", href=f"#{figure['ids'][0]}")
    shown = element("figure", image, element("figcaption", *words, " ", link), class_="lead-figure screen-only")
    place = next((i for i, child in enumerate(section.children) if not _opens(child)), len(section.children))
    section.insert(place, shown)


def _opens(child: nodes.Node) -> bool:
    return isinstance(child, BEFORE) or (
        isinstance(child, nodes.Element) and child.get("attributes", {}).get("class") == "page-claims"
    )


def register(app: Sphinx) -> None:
    """After `page_claims` has put its strip below the title."""
    app.connect("doctree-resolved", show_lead, priority=600)
