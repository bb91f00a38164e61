"""What docs/style.md promises and a machine can check: one palette everywhere, colours told apart by everybody, figures described."""

import ast
import itertools
import re
from collections.abc import Iterator

import nbformat
import numpy as np
import pytest

from bookkit import figures
from bookkit.figures import COLOURS, PHASES, SHADES
from bookkit.pages.catalogue import find_pages
from tests.colours import VISIONS, contrast, distance, least_distance, sheet_colours, simulated
from tests.house import ROOT, files

SHEET = ROOT / "book" / "assets" / "book.css"
THEMES = ("light", "dark")
PAGES = find_pages(ROOT)
SEEN_AT_A_GLANCE = 10

HEX = re.compile(r"#(?:[0-9a-fA-F]{3}){1,2}")
# matplotlib's own colours; "white" and "black" are named in notebooks where a marker is hollow or a rim is drawn.
DEFAULT = re.compile(r"C\d|tab:\w+|[bgrcmyk]|red|green|blue|orange|purple|brown|pink|cyan|magenta|yellow|olive|gr[ae]y")
COLOUR_WORDS = {
    "color", "c", "colour", "colors", "ec", "fc", "mec", "mfc", "edgecolor", "facecolor", "edgecolors", "facecolors",
    "markeredgecolor", "markerfacecolor", "foreground", "ecolor",
}  # fmt: skip
# Values, not names, of the page's own: lighter and darker steps of greys. To be replaced when the page is next run.
GREYS = {"token_selection/05_existence": {"#ededed"}}


def test_style_sheet_paper_and_explorers_repeat_the_palette() -> None:
    light = sheet_colours(SHEET, "light")
    assert {name: light[name] for name in COLOURS} == {name: value.lower() for name, value in COLOURS.items()}
    assert set(COLOURS) <= set(sheet_colours(SHEET, "dark"))
    script = (ROOT / "book" / "scripts" / "shared" / "colours.js").read_text(encoding="utf-8")
    said = re.findall(r"(\w+): \"var\(--book-([\w-]+), (#\w{6})\)\"", script)
    assert {name: (variable, value) for name, variable, value in said} == {k: (k, v) for k, v in COLOURS.items()}
    printed = re.search(r"@media print \{(.*)", SHEET.read_text(encoding="utf-8"), flags=re.S)[1]
    assert [n for n, value in COLOURS.items() if not re.search(rf"--book-{n}: {value};", printed, flags=re.I)] == []
    with pytest.raises(ValueError, match=r'book\.css must hold a block html\[data-theme="night"\]'):
        sheet_colours(SHEET, "night")


def colours_written(source: str) -> Iterator[str]:
    """Colours that Python code writes as values: hex anywhere, matplotlib's names where a colour is meant."""
    for node in ast.walk(ast.parse(source)):
        pairs = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg, word.value) for word in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values, strict=True)]
        for leaf in (leaf for key, value in pairs if key in COLOUR_WORDS for leaf in ast.walk(value)):
            if DEFAULT.fullmatch(str(getattr(leaf, "value", ""))):
                yield leaf.value
        if HEX.fullmatch(str(getattr(node, "value", ""))):
            yield node.value


def test_code_names_its_colours() -> None:
    code = 'plot(x, color="red", c=["C0", "k"], label="C1")\nstyle = {"mec": "tab:blue", "id": "C2"}\nx = "#ABC"\ny = "#3 of 7"'
    assert sorted(colours_written(code)) == ["#ABC", "C0", "k", "red", "tab:blue"]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files()}
    drawing = {name: list(colours_written(text)) for name, text in texts.items() if "matplotlib" in text}
    assert len(drawing) > 5
    assert [name for name, colours in drawing.items() if colours] == ["book/bookkit/figures.py"]


def test_nothing_sets_another_font() -> None:
    sheet = SHEET.read_text(encoding="utf-8")
    named = re.findall(r"url\(\"([^\"]*)\"\)", sheet)
    assert set(named) == {
        f"fonts/{path.name}" for path in (SHEET.parent / "fonts").glob("*.woff2")
    }  # all the book's own
    assert sum((SHEET.parent / name).stat().st_size for name in named) < 100_000
    assert "@import" not in sheet
    assert sheet.count("url(") == sheet.count("@font-face") == len(named)
    sheet = re.sub(r"@font-face \{.*?\}", "", sheet, flags=re.S)
    families = set(re.findall(r"^\s*(?:--[\w-]*font[\w-]*|font-family|font):\s*([^;]+);", sheet, flags=re.M))
    assert all("var(--" in family or family.endswith(("serif", "sans-serif")) for family in families), families
    code = [*files(), *(page.source for page in PAGES)]
    assert not [p.name for p in code if re.search(r"fontname|font\.family|fontfamily", p.read_text(encoding="utf-8"))]


# --- told apart, and legible ------------------------------------------------------------------------------------------


def test_colours_are_told_apart_by_everybody_and_text_stands_out() -> None:
    for theme in THEMES:
        colour = sheet_colours(SHEET, theme)
        for vision in VISIONS:
            assert least_distance([colour[name] for name in COLOURS], vision) >= SEEN_AT_A_GLANCE, (theme, vision)
            assert least_distance(PHASES.values(), vision) >= SEEN_AT_A_GLANCE, vision
        pairs = {"ink": "paper", "quiet": "paper"} | {each: f"{each}-back" for each in ("holds", "fails", "outside")}
        for text, back in pairs.items():
            assert contrast(colour[text], colour[back]) >= 4.5, (theme, text)
        for name in COLOURS:
            # What is not text needs 3. Measured points are lighter on paper: large, and never told by colour alone.
            assert contrast(colour[name], colour["paper"]) >= (2.3 if name == "measured" else 3), (theme, name)
    lightness = sorted(contrast(colour, "#000000") for colour in PHASES.values())  # phases in grey, too
    assert min(b / a for a, b in itertools.pairwise(lightness)) > 1.08


def test_simulation_and_distance_against_known_values() -> None:
    for vision, matrix in VISIONS.items():
        assert (np.sum(matrix, axis=1).round(5) == 1).all()  # greys stay grey, to the digits given
        np.testing.assert_allclose(simulated("#808080", vision), ((0x80 / 255 + 0.055) / 1.055) ** 2.4, rtol=1e-5)
    for vision in ("protanopia", "deuteranopia"):  # two kinds of cones span two dimensions
        assert np.linalg.det(VISIONS[vision]) == pytest.approx(0, abs=1e-5)
    assert distance("#000000", "#ffffff") == pytest.approx(100, abs=0.01)
    assert distance("#000000", "#ff0000") == pytest.approx(np.linalg.norm([53.24, 80.09, 67.20]), abs=0.05)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    # matplotlib's own green and red are what the palette is there to avoid.
    assert least_distance(["#2ca02c", "#d62728", "#1f77b4"]) > 70
    assert distance("#2ca02c", "#d62728", "deuteranopia") < 40
    with pytest.raises(ValueError, match="colour must be written #rrggbb; got 'red'"):
        contrast("red", "#ffffff")


# --- pages ------------------------------------------------------------------------------------------------------------


SHADE = re.compile(
    r"\b(?:black|white(?! Gaussian)|paler?|dark(?:er)?|light(?:er)?)\b", re.IGNORECASE
)  # the dark theme turns it round


def faults_of_figure(cell: nbformat.NotebookNode) -> Iterator[str]:
    """Sentences, and labels (or ticks with names) where a cell draws on axes itself; functions of the packages label what they draw."""
    shown = cell.metadata["mystnb"]
    caption, alt = shown["figure"]["caption"].strip(), shown["image"]["alt"].strip()
    if min(len(caption), len(alt)) < 40 or not all(text.endswith((".", "?", "!")) for text in (caption, alt)):
        yield f"sentences, please, that say something: {caption!r}, {alt!r}"
    if SHADE.search(caption):
        yield f"on a dark page it is another shade: {caption!r}"
    words = [set(re.findall(r"\w+", text.lower())) for text in (caption, alt)]
    if len(words[0] & words[1]) >= 0.9 * len(words[1]):
        yield f"the alternative text only repeats the caption: {alt!r}"
    own = re.sub(r"\.plot\(|plt\.show\(", "", cell.source)
    if not re.search(r"\b(?:draw|show|plot|lines|heat_map|portrait|picture)\w*\(", own):
        for axis in "xy":
            if not re.search(rf"{axis}label|{axis}ticks|label_outer|set_axes", cell.source):
                yield f"{shown['figure']['name']}: no label of {axis}"


def test_figures_of_pages_are_described_and_drawn_in_the_palette() -> None:
    """By the names of bookkit.figures, not in colours of their own."""
    palette = {value.lower() for value in (*COLOURS.values(), *PHASES.values(), *SHADES.values())}
    for page in PAGES:
        cells = [cell for cell in nbformat.read(page.stored, as_version=4).cells if cell.cell_type == "code"]
        drawing = [cell for cell in cells if "figure" in cell.metadata.get("mystnb", {})]
        assert [fault for cell in drawing for fault in faults_of_figure(cell)] == [], page.name
        code = [cell.source for cell in cells if not re.search(r"^\s*[%!]", cell.source, re.M)]
        written = {colour.lower() for source in code for colour in colours_written(source)}
        assert written <= palette | GREYS.get(page.name, set()), page.name


COLUMN, SMALLEST, WIDEST = 671, 11, 7.2  # pixels of the text's column, of letters in it; inches of a figure


def test_letters_of_figures_are_eleven_pixels_high_as_shown() -> None:
    """A figure fills the column at most: its points are pixels by the ratio of the two widths, 72 points an inch."""
    least = SMALLEST * 72 * WIDEST / COLUMN
    assert least <= 8.5
    assert figures._STYLE["figure.figsize"][0] <= WIDEST
    assert min(value for name, value in figures._STYLE.items() if re.search(r"font\.?size|titlesize", name)) >= 8.5
    faults = []
    for path in [*(page.source for page in PAGES), *(ROOT / "book" / "attnbook").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        wide = [found for found in re.findall(r"figsize=\(([\d.]+)", text) if float(found) > WIDEST]
        small = [found for found in re.findall(r"""font_?size["']?[=:] ?([\d.]+)""", text) if float(found) < least]
        faults += [(path.name, *wide, *small)] if wide or small else []
    assert faults == []


def test_the_style_of_figures_is_what_the_page_says() -> None:
    text = (ROOT / "docs" / "style.md").read_text(encoding="utf-8")
    width, height = figures._STYLE["figure.figsize"]
    assert f"{width} × {height} inches" in text
    themes = [sheet_colours(SHEET, theme) for theme in THEMES]
    for name in COLOURS:
        shown = [f"{colour[name]}, contrast {contrast(colour[name], colour['paper']):.1f}" for colour in themes]
        assert re.search(rf"\| \*\*{name}\*\* `--book-{name}` \| .*{shown[0]} \| .*{shown[1]} \| \w", text), name
    for vision in VISIONS:
        least = [least_distance([colour[name] for name in COLOURS], vision) for colour in themes]
        assert "| {} | {:.0f} in light, {:.0f} in dark |".format(vision, *least) in text
