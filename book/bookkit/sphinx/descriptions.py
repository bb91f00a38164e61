"""What a search engine or a message shows of a page: a sentence or two, and a picture.

The description is the page's first paragraph, or `description` under `html_meta` in its header; the picture is its first figure, or
`assets/preview.png`. Both stand in the head of the page, the picture with the public address of the book.
"""

import html
import re

from docutils import nodes
from sphinx.application import Sphinx

from bookkit.settings import settings

LONGEST = 200  # characters; what follows is cut off in most places that show it
DEFAULT = "_static/preview.png"


def described(doctree: nodes.document) -> str:
    """The first paragraph of running text, cut behind a sentence or a word; empty if there is none."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section | nodes.document):
            words = " ".join(paragraph.astext().split())
            if len(words) <= LONGEST:
                return words
            cut = words[:LONGEST]
            return cut[: cut.rfind(". ") + 1] or cut[: cut.rfind(" ")] + " …"
    return ""


def add_tags(app: Sphinx, pagename: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Write the tags of one page."""
    if doctree is None:
        return
    tags = context.get("metatags", "")
    given = re.search(r'<meta content="([^"]*)" name="description"', tags)
    text = html.unescape(given[1]) if given else described(doctree)
    # The writer of the body has already turned the pictures' names into addresses below _images.
    found = [node["uri"].rpartition("/")[2] for node in doctree.findall(nodes.image) if "_images/" in node["uri"]]
    image = f"_images/{found[0]}" if found else DEFAULT
    title = html.unescape(re.sub(r"<[^>]*>", "", context.get("title", "")))
    wanted = {} if given else {'name="description"': text}
    wanted |= {
        'property="og:title"': title,
        'property="og:description"': text,
        'property="og:image"': f"{settings().address}/{image}".lstrip("/"),
        'property="og:type"': "article",
        'name="twitter:card"': "summary_large_image",
    }
    context["metatags"] = tags + "".join(
        f'\n<meta {key} content="{html.escape(value)}" />' for key, value in wanted.items()
    )


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("html-page-context", add_tags)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
