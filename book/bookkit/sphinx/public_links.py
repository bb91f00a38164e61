"""Links to the published book lead to the built one, wherever that lies.

A page is also read in Colab and on GitHub, where a chapter's file is no readable neighbour. So it names chapters by the public address,
`[the proof](https://owner.github.io/name/book/theory.html#thm-one)`, and other pages as files, `[next](02_page.ipynb)`. The address is
`address` in `[tool.bookkit]`. Here the built book takes such a link for its own: it works
from disk and without a network. A file that the book does not have is a Sphinx warning; fragments are tested on the built pages.
"""

from urllib.parse import unquote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from bookkit.settings import settings

logger = logging.getLogger(__name__)


def inside(link: str, address: str) -> tuple[str, str] | None:
    """Document and fragment that `link` names in the book published at `address`; None for a link to anywhere else.

    The first page, which is published under the address itself, is the document "index".
    """
    path, mark, fragment = link.partition("#")
    if not address or not (path == address or path.startswith(f"{address}/")):
        return None
    name = unquote(path.removeprefix(address).strip("/")).removesuffix(".html")
    return name or "index", mark + fragment


class PublicLinks(SphinxPostTransform):
    """Turn links to the published book into links within it."""

    default_priority = 200

    def run(self, **options: object) -> None:
        address = settings().address
        for node in self.document.findall(nodes.reference):
            found = inside(node.get("refuri", ""), address)
            if found is None:
                continue
            document, fragment = found
            if document == "index":
                document = self.config.root_doc
            if document not in self.env.found_docs:
                logger.warning("the book has no %s.html; got %s", document, node["refuri"], location=node)
                continue
            node["refuri"] = self.app.builder.get_relative_uri(self.env.docname, document) + fragment
            node["internal"] = True


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_post_transform(PublicLinks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
