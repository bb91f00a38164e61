"""What book/style.md promises and a machine can check: one palette everywhere, colours told apart by everybody, figures described."""

import ast
import itertools
import re
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest

from bookkit import figures
from bookkit.figures import COLOURS, PHASES, SHADES
from bookkit.pages.catalogue import find_pages
from bookkit.sphinx.colour_vision import VISIONS, contrast, distance, least_distance, simulated
from bookkit.sphinx.style_page import MEANINGS, sheet_colours
from tests.house import files

ROOT = Path(__file__).parents[1]
SHEET = ROOT / "book" / "assets" / "book.css"
THEMES = ("light", "dark")
PAGES = {page.name: page for page in find_pages(ROOT)}
SEEN_AT_A_GLANCE = 10

HEX = re.compile(r"#(?:[0-9a-fA-F]{3}){1,2}")
# matplotlib's own colours; "white" and "black" are named in notebooks where a marker is hollow or a rim is drawn.
DEFAULT = re.compile(r"C\d|tab:\w+|[bgrcmyk]|red|green|blue|orange|purple|brown|pink|cyan|magenta|yellow|olive|gr[ae]y")
COLOUR_WORDS = {
    "color", "c", "colour", "colors", "ec", "fc", "mec", "mfc", "edgecolor", "facecolor", "edgecolors", "facecolors",
    "markeredgecolor", "markerfacecolor", "foreground", "ecolor",
}  # fmt: skip


@cache
def notebook(name: str) -> nbformat.NotebookNode:
    return nbformat.read(PAGES[name].stored, as_version=4)


def figure_cells(name: str) -> list[nbformat.NotebookNode]:
    cells = (cell for cell in notebook(name).cells if cell.cell_type == "code")
    return [cell for cell in cells if "figure" in cell.metadata.get("mystnb", {})]


# --- one palette ------------------------------------------------------------------------------------------------------


def test_style_sheet_paper_and_explorers_repeat_the_palette() -> None:
    light = sheet_colours(SHEET, "light")
    assert {name: light[name] for name in COLOURS} == {name: value.lower() for name, value in COLOURS.items()}
    assert set(COLOURS) == set(MEANINGS)
    assert set(COLOURS) <= set(sheet_colours(SHEET, "dark"))
    script = (ROOT / "book" / "scripts" / "shared" / "colours.js").read_text(encoding="utf-8")
    said = re.findall(r"(\w+): \"var\(--book-([\w-]+), (#\w{6})\)\"", script)
    assert {name: (variable, value) for name, variable, value in said} == {k: (k, v) for k, v in COLOURS.items()}
    printed = re.search(r"@media print \{(.*)", SHEET.read_text(encoding="utf-8"), flags=re.S)[1]
    assert [n for n, value in COLOURS.items() if not re.search(rf"--book-{n}: {value};", printed, flags=re.I)] == []


def test_what_lacks_a_block_is_named(tmp_path: Path) -> None:
    sheet = tmp_path / "a.css"
    sheet.write_text('/* html[data-theme="light"] { --book-clean: #000000; } */')
    with pytest.raises(ValueError, match=r'a\.css must hold a block html\[data-theme="light"\]'):
        sheet_colours(sheet, "light")


def colours_written(source: str) -> list[str]:
    """Colours that Python code writes as values: hex anywhere, matplotlib's names where a colour is meant."""
    found = []
    for node in ast.walk(ast.parse(source)):
        pairs = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg, word.value) for word in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        meant = [value for key, value in pairs if key in COLOUR_WORDS]
        inside = [leaf for value in meant for leaf in ast.walk(value) if isinstance(leaf, ast.Constant)]
        found += [leaf.value for leaf in inside if isinstance(leaf.value, str) and DEFAULT.fullmatch(leaf.value)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and HEX.fullmatch(node.value):
            found.append(node.value)
    return found


def test_the_search_finds_what_it_should() -> None:
    code = 'plot(x, color="red", c=["C0", "k"], label="C1")\nstyle = {"mec": "tab:blue", "id": "C2"}\nx = "#ABC"\ny = "#3 of 7"'
    assert sorted(colours_written(code)) == ["#ABC", "C0", "k", "red", "tab:blue"]


def test_code_names_its_colours() -> None:
    drawing = [path for path in files() if "matplotlib" in path.read_text(encoding="utf-8")]
    assert len(drawing) > 5
    found = {path.relative_to(ROOT).as_posix(): colours_written(path.read_text(encoding="utf-8")) for path in drawing}
    assert {name: colours for name, colours in found.items() if colours and name != "book/bookkit/figures.py"} == {}


# Values, not names, of the page's own: lighter and darker steps of greys. To be replaced when the page is next run.
GREYS = {"token_selection/05_existence": {"#ededed"}}


def test_pages_use_the_palette() -> None:
    """The names of bookkit.figures, not colours of their own."""
    known = {value.lower() for value in (*COLOURS.values(), *PHASES.values(), *SHADES.values())}
    for name in PAGES:
        cells = [cell.source for cell in notebook(name).cells if cell.cell_type == "code"]
        code = [source for source in cells if not re.search(r"^\s*[%!]", source, re.M)]
        written = {colour.lower() for source in code for colour in colours_written(source)}
        assert written <= known | GREYS.get(name, set()), name


def test_nothing_sets_another_font() -> None:
    sheet = SHEET.read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|@font-face", sheet)
    families = set(re.findall(r"^\s*(?:--[\w-]*font[\w-]*|font-family|font):\s*([^;]+);", sheet, flags=re.M))
    assert all("var(--" in family or family.endswith(("serif", "sans-serif")) for family in families), families
    code = [*files(), *(page.source for page in PAGES.values())]
    assert not [p.name for p in code if re.search(r"fontname|font\.family|fontfamily", p.read_text(encoding="utf-8"))]


# --- told apart, and legible ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_are_told_apart_by_everybody(vision: str) -> None:
    for theme in THEMES:
        palette = sheet_colours(SHEET, theme)
        assert least_distance([palette[name] for name in COLOURS], vision) >= SEEN_AT_A_GLANCE
    assert least_distance(PHASES.values(), vision) >= SEEN_AT_A_GLANCE
    lightness = sorted(contrast(colour, "#000000") for colour in PHASES.values())  # phases in grey, too
    assert min(b / a for a, b in itertools.pairwise(lightness)) > 1.08


def test_simulation_and_distance_against_known_values() -> None:
    for vision, matrix in VISIONS.items():
        np.testing.assert_allclose(np.sum(matrix, axis=1), 1, atol=2e-6)  # greys stay grey
        np.testing.assert_allclose(simulated("#808080", vision), ((0x80 / 255 + 0.055) / 1.055) ** 2.4, rtol=1e-5)
    for vision in ("protanopia", "deuteranopia"):  # two kinds of cones span two dimensions
        assert abs(np.linalg.det(VISIONS[vision])) < 1e-5
    assert distance("#000000", "#ffffff") == pytest.approx(100, abs=0.01)
    assert distance("#000000", "#ff0000") == pytest.approx(np.linalg.norm([53.24, 80.09, 67.20]), abs=0.05)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    # matplotlib's own green and red, and its red and brown, are what the palette is there to avoid.
    assert distance("#2ca02c", "#d62728") > 100
    assert distance("#2ca02c", "#d62728", "deuteranopia") < 40
    assert (
        least_distance(["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"], "deuteranopia")
        < SEEN_AT_A_GLANCE
    )
    with pytest.raises(ValueError, match="colour must be written #rrggbb; got 'red'"):
        contrast("red", "#ffffff")


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out(theme: str) -> None:
    colour = sheet_colours(SHEET, theme)
    for text, back in (
        ("ink", "paper"),
        ("quiet", "paper"),
        ("holds", "holds-back"),
        ("fails", "fails-back"),
        ("outside", "outside-back"),
    ):
        assert contrast(colour[text], colour[back]) >= 4.5, text
    for name in COLOURS:
        # What is not text needs 3. Measured points are lighter on paper: large, and never told by colour alone.
        assert contrast(colour[name], colour["paper"]) >= (2.3 if name == "measured" else 3), name


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_described_and_their_axes_labelled() -> None:
    """Labels, or ticks with names, where a cell draws on axes itself; functions of the packages label what they draw."""
    faults = []
    for name, cell in [(page, cell) for page in PAGES for cell in figure_cells(page)]:
        settings = cell.metadata["mystnb"]
        caption, alt = settings["figure"]["caption"].strip(), settings["image"]["alt"].strip()
        if min(len(caption), len(alt)) < 40 or not all(text.endswith((".", "?", "!")) for text in (caption, alt)):
            faults.append(f"{name}: sentences, please, that say something: {caption!r}, {alt!r}")
        words = [set(re.findall(r"\w+", text.lower())) for text in (caption, alt)]
        if len(words[0] & words[1]) >= 0.9 * len(words[1]):
            faults.append(f"{name}: the alternative text only repeats the caption: {alt!r}")
        own = re.sub(r"\.plot\(|plt\.show\(", "", cell.source)
        if not re.search(r"\b(?:draw|show|plot|lines|heat_map|portrait|picture)\w*\(", own):
            labels = [axis for axis in "xy" if re.search(rf"{axis}label|{axis}ticks|label_outer|set_axes", cell.source)]
            if labels != ["x", "y"]:
                faults.append(f"{name}: {settings['figure']['name']} labels only {labels}")
    assert faults == []


def test_the_style_of_figures_is_what_the_page_says() -> None:
    text = (ROOT / "book" / "style.md").read_text(encoding="utf-8")
    width, height = figures._STYLE["figure.figsize"]
    assert f"{width} × {height} inches" in text
    assert all(f"{{palette-distance}}`{vision}`" in text for vision in VISIONS)
