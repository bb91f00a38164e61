"""The palette on the page about style: drawn from `bookkit.figures` and the style sheet, so that it cannot be out of date.

```{palette}                     a row per colour: swatches for light and dark, meaning, contrast with the paper
```

{palette-distance}`deuteranopia`           the least distance of two colours as seen so, light and dark
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from bookkit.figures import COLOURS
from bookkit.sphinx.colour_vision import VISIONS, contrast, least_distance

logger = logging.getLogger(__name__)

# What a colour stands for, on every page.
MEANINGS = {
    "clean": "samples whose label is right; what becomes of them",
    "noisy": "samples whose label was flipped; harm",
    "signal": "the signal, and what learns it",
    "noise": "a sample's own noise token, and what memorises it",
    "theory": "a formula: always a line",
    "measured": "a measurement: always points, with error bars",
    "bound": "thresholds, bounds, quantities for comparison: dashed or dotted",
}
COLUMNS = {"Colour": 20, "Light": 20, "Dark": 20, "Stands for": 40}  # relative widths


def sheet_colours(sheet: Path, theme: str) -> dict[str, str]:
    """Name -> `#rrggbb` of the variables `--book-NAME` of a theme (light or dark) in book.css, comments left out.

    Raises ValueError where the sheet has no such block.
    """
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.S)
    block = re.search(rf'html\[data-theme="{theme}"\]\s*\{{(.*?)\}}', text, flags=re.S)
    if block is None:
        raise ValueError(f'{sheet.name} must hold a block html[data-theme="{theme}"]; it has none')
    return {name: value.lower() for name, value in re.findall(r"--book-([\w-]+):\s*(#[0-9a-fA-F]{6})\s*;", block[1])}


class Palette(SphinxDirective):
    """The table of colours."""

    def run(self) -> list[nodes.Node]:
        """A warning of Sphinx for a colour without meaning or without its dark form."""
        sheet = _sheet(self.env.srcdir)
        self.env.note_dependency(str(sheet))
        light, dark = (sheet_colours(sheet, theme) for theme in ("light", "dark"))
        group = nodes.tgroup(cols=len(COLUMNS))
        group += [nodes.colspec(colwidth=width) for width in COLUMNS.values()]
        head = [nodes.entry("", nodes.paragraph(name, name)) for name in COLUMNS]
        body = nodes.tbody()
        for name in COLOURS:
            if missing := [
                where
                for where, known in (("a meaning", MEANINGS), ("light", light), ("dark", dark))
                if name not in known
            ]:
                logger.warning("palette: %s lacks %s", name, ", ".join(missing), location=self.get_location())
                continue
            variable = f"--book-{name}"
            cells = [
                nodes.entry(
                    "",
                    nodes.paragraph("", "", nodes.strong(name, name)),
                    nodes.paragraph("", "", nodes.literal(variable, variable)),
                ),
                *(nodes.entry("", _swatch(colours[name], colours["paper"])) for colours in (light, dark)),
                nodes.entry("", nodes.paragraph("", MEANINGS[name])),
            ]
            body += nodes.row("", *cells)
        group += nodes.thead("", nodes.row("", *head))
        group += body
        return [nodes.table("", group, classes=["palette", "colwidths-given"])]


def _swatch(colour: str, paper: str) -> nodes.paragraph:
    text = f" {colour}, contrast {contrast(colour, paper):.1f}"
    # Both themes are shown beside each other, so the paper is part of the swatch.
    spot = f'<span class="swatch" style="background:{colour};border-color:{paper}" aria-hidden="true"></span>'
    return nodes.paragraph("", "", nodes.raw("", spot, format="html"), nodes.Text(text))


class PaletteDistance(SphinxRole):
    """The least distance between two colours of the palette, as seen with a kind of colour vision."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A warning of Sphinx for an unknown kind."""
        vision = self.text.strip()
        if vision not in VISIONS:
            known = ", ".join(VISIONS)
            logger.warning("palette-distance must be one of %s; got %r", known, vision, location=self.get_location())
            return [nodes.inline("?", "?")], []
        sheet = _sheet(self.env.srcdir)
        least = [
            least_distance([sheet_colours(sheet, theme)[name] for name in COLOURS], vision)
            for theme in ("light", "dark")
        ]
        text = "{:.0f} in light, {:.0f} in dark".format(*least)
        return [nodes.inline(text, text, classes=["named-result"])], []


def _sheet(source: str | Path) -> Path:
    return Path(source) / "book" / "assets" / "book.css"


def setup(app: Sphinx) -> dict:
    """Register with Sphinx."""
    app.add_directive("palette", Palette)
    app.add_role("palette-distance", PaletteDistance())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
