"""Two links of every page in words: *Run in Colab* in its header, where the theme has a menu of one entry behind an icon, and *How to
cite* at its foot, where the book has a page of that name.
"""

from sphinx.application import Sphinx

COLAB = {"type": "link", "text": "Run in Colab", "label": "colab"}
TOOLTIP = "Opens this page in Google Colab; the set-up takes about a minute"
CITE = "book/cite"


def name_links(app: Sphinx, pagename: str, template: str, context: dict, doctree: object) -> None:
    """Put the link of the theme's menu in the place of the menu, and the other one into the theme's footer."""
    buttons = context.get("header_buttons", [])
    for place, group in enumerate(buttons):
        if group.get("label") == "launch-buttons" and group["buttons"]:
            buttons[place] = COLAB | {"url": group["buttons"][0]["url"], "tooltip": TOOLTIP}
    if CITE in app.env.found_docs:
        context["theme_extra_footer"] = f'<a href="{context["pathto"](CITE)}">How to cite</a>'


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.connect("html-page-context", name_links, priority=600)  # the theme adds its buttons at 501
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
