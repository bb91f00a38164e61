"""A lecture's slides: what the directive shows and refuses, and what the printer refuses before it prints."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from bookkit.pdf import slides
from tests.test_story_page import build
from tests.tiny_book import write

ROOT = Path(__file__).parents[1]
PAGE = """---
myst:
  enable_extensions: [dollarmath]
---

# Lecture

```{{slide}} {picture}
{options}
Say *this*.
```
"""
OPTIONS = ":title: A title with $x$\n:minutes: 4\n:line: A line"


def lecture(tmp_path: Path, picture: str = "story/panel-one.svg", options: str = OPTIONS) -> tuple[BeautifulSoup, str]:
    page = {"lecture": PAGE.format(picture=picture, options=options)}
    folder, warnings = build(tmp_path, page, extensions=("bookkit.formulas.pages", "bookkit.sphinx.slides"))
    return BeautifulSoup((folder / "lecture.html").read_text(encoding="utf-8"), "html.parser"), warnings


def test_a_slide_shows_title_picture_and_line_and_not_what_is_said(tmp_path: Path) -> None:
    page, warnings = lecture(tmp_path)
    assert warnings == ""
    (slide,) = page.select(".slide")
    shown, spoken = slide.select_one(".slide-shown"), slide.select_one(".slide-spoken")
    assert [p.get_text() for p in shown.select("p")] == ["A title with x", "A line"]
    assert shown.svg["aria-label"] == "panel-one.svg"
    assert [p.get_text() for p in spoken.select("p")] == ["4 minutes", "Say this."]
    page, warnings = lecture(tmp_path / "again", picture="")
    assert (warnings, page.select(".slide-shown svg"), len(page.select(".slide-shown p"))) == ("", [], 2)


def test_printed_files_are_linked_where_they_are(tmp_path: Path) -> None:
    page = {"book/lecture": "# Lecture\n\n```{slide-files}\n```\n"}
    for folder, files in ((tmp_path / "none", []), (tmp_path / "both", ["slides.pdf", "handout.pdf"])):
        for name in files:
            write(folder / "book" / "assets" / "slides" / name, "%PDF")
        built, warnings = build(folder, page, extensions=("bookkit.sphinx.slides",))
        links = BeautifulSoup((built / "book" / "lecture.html").read_text(encoding="utf-8"), "html.parser").select(
            "a.external"
        )
        assert [link["href"] for link in links] == [f"../_static/slides/{name}" for name in files]
        assert warnings == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"picture": "story/two.svg"}, "slide: no picture story/two.svg in book/assets"),
        ({"picture": "story/run.json"}, "slide: no picture story/run.json in book/assets"),  # there, and no picture
        ({"options": ":title: A title\n:line: A line"}, "slide: option minutes is missing"),
        ({"options": ":title: A title\n:minutes: -1\n:line: A line"}, "Invalid option value"),
    ],
)
def test_what_is_missing_is_a_warning(tmp_path: Path, change: dict, said: str) -> None:
    page, warnings = lecture(tmp_path, **change)
    assert said in warnings
    assert page.select(".slide .slide-shown svg") == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "the built book has no page book/teaching"),
        ("<section id='handout'></section>", "it has 0 slides"),
        ("<div class='slide'><div class='slide-shown'></div></div>", "it has 1 slides"),
    ],
)
def test_a_page_that_is_no_lecture_is_refused(tmp_path: Path, monkeypatch, capsys, body: str | None, said: str) -> None:
    monkeypatch.setattr(slides, "chromium", lambda: "chromium")
    if body is not None:
        write(tmp_path / "html" / "book" / "teaching.html", f"<article>{body}</article>")
    output = tmp_path / "slides"
    arguments = ["--root", str(tmp_path), "--html", str(tmp_path / "html"), "-o", str(output)]
    assert slides.main(arguments) == 1
    assert said in capsys.readouterr().err
    assert not output.exists()


def test_the_lecture_takes_45_minutes() -> None:
    text = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
    minutes = [int(line.split()[1]) for line in text.splitlines() if line.startswith(":minutes:")]
    assert (len(minutes), sum(minutes)) == (text.count("```{slide}"), 45)
