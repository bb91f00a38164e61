"""Explorers: pictures that compute in the reader's browser, with a still one wherever no script runs.

    ```{explorer} two_steps
    :figure: notebooks/single_head/05_phase_diagram fig-phase-snr-step
    One sentence: what the still picture shows.
    ```

The still picture is quoted from a notebook (see `notebook_quotes`). The scripts lie in `book/assets/explorers/`; they are loaded
by the page that asks for them and by no other: the data first, where there are any, then the explorer. Both are classic
scripts, because pages are also opened from disk. An explorer, figure or sentence that is missing is a Sphinx warning.

On another page a paragraph that is nothing but a picture with a link to the explorer's page, as Colab shows it, becomes the explorer:

    [![What to do with it.](https://BOOK/_static/explorers/two_steps.png)](https://BOOK/book/explorers/two_steps.html)

Its scripts are loaded when it comes near. The picture is the still one of the explorer's page; every build puts it under this address.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from bookkit.settings import settings
from bookkit.sphinx.html_elements import element
from bookkit.sphinx.notebook_quotes import find_figure, kept_image, page_notebook, quoted_figure
from bookkit.sphinx.public_links import inside

logger = logging.getLogger(__name__)

SCRIPTS = "explorers"  # below the static folder
STILL = "Where scripts run, this picture moves: sliders, a point to drag, values computed as you look."

# Loads the scripts one after the other when the reader is within a screen of the place. In the oldest syntax.
NEAR = (
    "\n<script>(function(e){function load(){var all=e.getAttribute('data-scripts').split(' ');e.className+=' is-coming';"
    "all.forEach(function(name,i){var s=document.createElement('script');s.async=false;s.src=name;"
    "if(i===all.length-1)s.onload=s.onerror=function(){e.className=e.className.replace(' is-coming','')};"
    "document.head.appendChild(s)})}"
    "if(!window.IntersectionObserver)return window.addEventListener('load',load);"
    "var o=new IntersectionObserver(function(seen){if(seen.some(function(one){return one.isIntersecting}))"
    "{o.disconnect();load()}},{rootMargin:'100% 0px'});o.observe(e)})(document.currentScript.parentNode)</script>\n"
)

# Keeps room while the scripts load; where they cannot be read, the room is given back. In the oldest syntax.
COMING = (
    "\n<script>(function(e){e.className+=' is-coming';window.addEventListener('load',function(){"
    "e.className=e.className.replace(' is-coming','')})})(document.currentScript.parentNode)</script>\n"
)


class Explorer(SphinxDirective):
    """Put an explorer and its still picture on the page."""

    required_arguments = 1
    has_content = True
    option_spec = {"figure": directives.unchanged_required}  # noqa: RUF012 (docutils reads it from the class)

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        caption = " ".join(self.content)
        page, _, figure = self.options.get("figure", "").partition(" ")
        try:
            there = sorted(path.stem for path in Path(self.env.srcdir, "book/assets", SCRIPTS).glob("*.js"))
            if name not in there:
                raise LookupError(
                    f"no explorer of this name in book/assets/explorers; there are {', '.join(there) or 'none'}"
                )
            if not figure:
                raise LookupError("the option `figure` must name a notebook and one of its figures")
            if not caption:
                raise LookupError("a sentence must say what the still picture shows")
            still = quoted_figure(self, page, figure.strip(), caption)
        except (OSError, LookupError) as error:
            logger.warning("explorer %s: %s", name, error, location=self.get_location())
            return []
        own = self.env.metadata[self.env.docname]
        own.setdefault("explorers", []).append(name)
        own["explorer_still"] = str(Path(self.env.doc2path(self.env.docname)).parent / still[0]["uri"])
        own["html_theme.sidebar_secondary.remove"] = True  # the picture takes the room beside the text
        return [element("div", *_content(still, COMING), class_="explorer", data_explorer=name)]


class EmbeddedExplorers(SphinxTransform):
    """Explorers in the place of pictures that lead to their pages."""

    default_priority = 400

    def apply(self, **options: object) -> None:
        """Raise a Sphinx warning for an explorer that is not there, or a picture without words."""
        for image in list(self.document.findall(nodes.image)):
            paragraph = image.parent.parent
            document, _ = inside(image.parent.get("refuri", ""), settings().address) or ("", "")
            if document.startswith("book/explorers/") and len(paragraph) == len(image.parent) == 1:
                try:
                    paragraph.replace_self(self._explorer(document, image["alt"]))
                except (OSError, LookupError) as error:
                    logger.warning("explorer %s: %s", document, error, location=paragraph)

    def _explorer(self, document: str, caption: str) -> nodes.Node:
        if not caption:
            raise LookupError("the words of the picture must say what it shows")
        name = document.rpartition("/")[2]
        source = Path(self.env.srcdir, f"{document}.md").read_text(encoding="utf-8")
        asked = re.search(rf"^```\{{explorer\}} {name}\n:figure: (\S+) (\S+)$", source, flags=re.M)
        if asked is None:
            raise LookupError("its page has no explorer of this name")
        png, _, alt, width = find_figure(page_notebook(self.env, asked[1]), asked[2])
        image = nodes.image(uri=kept_image(self.env, "notebook_figures", ".png", png), alt=alt, width=f"{width}px")
        still = element(
            "figure", image, element("figcaption", caption), class_="still"
        )  # without a number: it is not the page's own
        to = self.app.builder.get_relative_uri(self.env.docname, document)
        static = "../" * self.env.docname.count("/") + "_static/"
        scripts = " ".join(static + file for file in _files(Path(self.app.srcdir), name))
        more = element(
            "p",
            element("a", "This explorer on a page of its own, with what each line means", href=to),
            class_="explorer-more",
        )
        return element(
            "div",
            *_content(still, NEAR),
            more,
            class_="explorer",
            data_explorer=name,
            data_page=to,
            data_scripts=scripts,
        )


def _content(still: nodes.Node, script: str) -> tuple[nodes.Node, nodes.Node]:
    note = nodes.paragraph(STILL, STILL, classes=["explorer-still-note"])
    return nodes.raw("", script, format="html"), nodes.container("", still, note, classes=["explorer-still"])


def _files(root: Path, name: str) -> list[str]:
    """The scripts of an explorer below the static folder, in order: the data first, where there are any."""
    files = f"{SCRIPTS}/data/{name}.js", f"{SCRIPTS}/{name}.js"
    return [file for file in files if (root / "book" / "assets" / file).is_file()]


def _load_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Load the scripts of a page's own explorers, after the text is there."""
    for name in dict.fromkeys(app.env.metadata.get(pagename, {}).get("explorers", [])):
        for file in _files(Path(app.srcdir), name):
            app.add_js_file(file, loading_method="defer")


def _write_stills(app: Sphinx, exception: Exception | None) -> None:
    """Each explorer's still picture under the address that Colab asks for."""
    for own in app.env.metadata.values() if exception is None and app.builder.format == "html" else ():
        for name in own.get("explorers", []):
            shutil.copyfile(own["explorer_still"], Path(app.outdir) / "_static" / SCRIPTS / f"{name}.png")


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.setup_extension("bookkit.sphinx.html_elements")
    app.add_directive("explorer", Explorer)
    app.add_transform(EmbeddedExplorers)
    app.connect("html-page-context", _load_scripts)
    app.connect("build-finished", _write_stills)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
