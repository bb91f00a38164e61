"""Prose quotes a page's figures and numbers, and an explorer one as its still picture.

In a built book: test_reference; what does not exist stops it: test_book_build.
"""

import base64
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from bookkit.results import RESULTS_TYPE
from bookkit.sphinx.notebook_quotes import find_figure, format_result
from tests.test_sphinx_extension import METADATA, PIXEL, drawn
from tests.tiny_book import rendered, write

RESULTS = {"error": -80.324, "error_low": -91.5, "error_high": -72.04, "fits": "all"}


def notebook() -> nbformat.NotebookNode:
    picture = drawn("fig-dots", "Dots *everywhere*")
    picture.outputs[0].metadata = {"image/png": {"width": 321, "height": 123}}
    numbers = nbformat.v4.new_output("display_data", {RESULTS_TYPE: RESULTS, "text/plain": "error"})
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        picture,
        nbformat.v4.new_code_cell("record()", outputs=[numbers]),
    ]
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def test_figures_are_found_by_name() -> None:
    found = find_figure(notebook(), "fig-dots")
    assert found == (base64.b64decode(PIXEL), "Dots *everywhere*", "What fig-dots shows", 321)
    with pytest.raises(LookupError, match="no figure called 'fig-lines'"):
        find_figure(notebook(), "fig-lines")


def test_results_are_formatted() -> None:
    assert format_result(notebook(), "error", ".1f") == "-80.3"
    assert format_result(notebook(), "fits", "") == "all"
    assert format_result(notebook(), "error", ".1f", interval=True) == "-80.3 [-91.5, -72.0]"
    with pytest.raises(LookupError, match="no result called 'fits_low'; there are error"):
        format_result(notebook(), "fits", "", interval=True)
    with pytest.raises(LookupError, match="no result called 'loss'; there are error, error_low, error_high, fits"):
        format_result(notebook(), "loss", "")
    with pytest.raises(ValueError, match="format"):
        format_result(notebook(), "fits", ".1f")


# --- explorers: picture, sentence, scripts on their own page only; what is missing is a warning ----------------------

GOOD = """# Two steps

```{explorer} two_steps
:figure: notebooks/01_a fig-dots
Dots: the *still* picture.
```
"""
FAULTS = {
    "explorer two_stepz: no explorer of this name in book/assets/explorers; there are bare, two_steps": GOOD.replace(
        "two_steps\n:", "two_stepz\n:"
    ),
    "explorer ../book: no explorer of this name": GOOD.replace("two_steps\n:", "../book\n:"),
    "explorer two_steps: no figure called 'fig-lines' with a picture": GOOD.replace("fig-dots", "fig-lines"),
    "explorer two_steps: the option `figure` must name a notebook": GOOD.replace(
        ":figure: notebooks/01_a fig-dots\n", ""
    ),
    "explorer two_steps: a sentence must say what the still picture shows": GOOD.replace(
        "Dots: the *still* picture.\n", ""
    ),
    "No such file": GOOD.replace("01_a", "02_b"),
}

AT = "https://attention-checked.github.io/attention-checked"
EMBEDDED = f"""# A page

[![Dots: what is seen.]({AT}/_static/explorers/two_steps.png)]({AT}/book/explorers/two_steps.html)

A sentence with [![a picture]({AT}/_static/explorers/two_steps.png)]({AT}/book/explorers/two_steps.html) stays one.
"""
FAULTS |= {
    "explorer book/explorers/two_stepz: [Errno 2] No such file": EMBEDDED.replace("two_steps.html", "two_stepz.html"),
    "explorer book/explorers/two_steps: the words of the picture must say": EMBEDDED.replace("Dots: what is seen.", ""),
}


def build(root: Path, pages: dict[str, str]) -> tuple[Path, str]:
    """Pages with the directive alone, as HTML; returns the folder and the warnings."""
    for name, text in {"explorers/two_steps": "1;", "explorers/data/two_steps": "2;", "explorers/bare": "3;"}.items():
        write(root / "book" / "assets" / f"{name}.js", text)
    write(root / "notebooks" / "01_a.ipynb", nbformat.writes(notebook()))
    return rendered(root, pages, "bookkit.sphinx.explorer_pages", html_static_path=["book/assets"])


def read(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def deferred(page: BeautifulSoup) -> list[str]:
    """Addresses of deferred scripts, in order."""
    return [script["src"].split("?")[0] for script in page.select("script[defer]")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    other = GOOD.replace("two_steps", "bare")
    pages = {"index": "# Start\n\n```{toctree}\nbook/explorers/two_steps\nbare\nnotebooks/02_b\n```\n"}
    pages |= {"book/explorers/two_steps": GOOD, "bare": other, "notebooks/02_b": EMBEDDED}
    html, found = build(tmp_path_factory.mktemp("pages"), pages)
    assert found == ""
    return html


def test_the_page_has_the_still_picture_and_its_words_without_any_script(built: Path) -> None:
    text = (built / "book/explorers/two_steps.html").read_text(encoding="utf-8")
    (place,) = read(built / "book/explorers/two_steps.html").select("[data-explorer]")
    assert (place["data-explorer"], place["class"]) == ("two_steps", ["explorer"])
    (image,) = place.select("img")
    assert image["alt"] == "What fig-dots shows"
    assert "321" in f"{image.get('width', '')}{image.get('style', '')}"
    assert (built / "book/explorers" / image["src"]).resolve().read_bytes() == base64.b64decode(PIXEL)
    assert "Dots: the <em>still</em> picture." in text
    assert "Where scripts run, this picture moves" in text
    still = text.index('class="explorer-still')
    assert text.index("data-explorer") < still < text.index("What fig-dots shows") < text.index("this picture moves")


def test_scripts_are_on_their_own_page_only_data_first(built: Path) -> None:
    scripts = {name: deferred(read(built / f"{name}.html")) for name in ("book/explorers/two_steps", "bare", "index")}
    assert scripts == {
        "book/explorers/two_steps": [
            "../../_static/explorers/data/two_steps.js",
            "../../_static/explorers/two_steps.js",
        ],
        "bare": ["_static/explorers/bare.js"],  # it has no data
        "index": [],
    }
    assert (built / "_static/explorers/data/two_steps.js").read_text() == "2;"


def test_a_picture_that_leads_to_an_explorer_becomes_one_whose_scripts_wait(built: Path) -> None:
    page = read(built / "notebooks/02_b.html")
    (place,) = page.select("[data-explorer]")
    assert [image["alt"] for image in place.select("img")] == ["What fig-dots shows"]
    assert place.figcaption.text == "Dots: what is seen."
    files = ["../_static/explorers/data/two_steps.js", "../_static/explorers/two_steps.js"]
    assert place["data-scripts"].split() == files
    assert deferred(page) == []
    links = [place["data-page"], place.select_one(".explorer-more a")["href"]]
    assert links == ["../book/explorers/two_steps.html"] * 2
    assert [image["alt"] for image in page.select("p img")] == ["a picture"]
    assert (built / "_static/explorers/two_steps.png").read_bytes() == base64.b64decode(PIXEL)  # what Colab shows


def test_what_is_missing_is_a_warning_and_leaves_no_blank_box(tmp_path: Path) -> None:
    pages = {f"page{i}": text for i, text in enumerate(FAULTS.values())}
    toc = "# Start\n\n```{toctree}\n" + "\n".join(pages) + "\n```\n"
    html, found = build(tmp_path, {"index": toc, **pages})
    warnings = found.strip().splitlines()
    assert len(warnings) == len(FAULTS)
    for i, expected in enumerate(FAULTS):
        (warning,) = [line for line in warnings if f"page{i}.md:3" in line]
        assert expected in warning
        page = read(html / f"page{i}.html")
        assert (page.select("[data-explorer]"), deferred(page)) == ([], [])
