"""A lecture's slides: what the directive shows and refuses."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from tests.test_story_page import build

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


def test_the_lecture_takes_45_minutes() -> None:
    text = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
    minutes = [int(line.split()[1]) for line in text.splitlines() if line.startswith(":minutes:")]
    assert (len(minutes), sum(minutes)) == (text.count("```{slide}"), 45)
