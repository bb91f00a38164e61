"""A story beside a drawing: stage, panels, numbers and signs on their page; what is missing is a warning."""

import json
import re
from pathlib import Path

import pytest

from tests.tiny_book import rendered, write

GOOD = """# Story

It has {drawn}`head.many digits` parts, {drawn}`head.margins.1 .2f` and {drawn}`head.error power`. {glyph}`pull`

```{story-stage}
```

## One

Text.

```{story-panel} one
[Here](other.md), and {glyph}`pull` there.
```
"""
FAULTS = {
    "drawn head.none .2f: the run has no number 'head.none': nothing is called 'none'": "{drawn}`head.none .2f`",
    "drawn head.margins.7: the run has no number 'head.margins.7': nothing is called '7'": "{drawn}`head.margins.7`",
    "drawn head: 'head' is not a number": "{drawn}`head`",
    "drawn head.many .2q": "{drawn}`head.many .2q`",
    "glyph push: no file glyph-push.svg in book/assets/story": "{glyph}`push`",
    "glyph ../story/glyph-pull: no file": "{glyph}`../story/glyph-pull`",
    "story-panel two: no file panel-two.svg in book/assets/story": "```{story-panel} two\n```",
}
SVG = '<svg viewBox="0 0 9 9"\nrole="img" aria-label="{name}"></svg>\n'


def build(
    root: Path,
    pages: dict[str, str],
    *,
    without: str = "",
    extensions: tuple[str, ...] = ("attnbook.extensions.story",),
) -> tuple[Path, str]:
    """The pages as HTML; returns the folder and the warnings."""
    assets = {name: SVG.format(name=name) for name in ("panel-one.svg", "glyph-pull.svg")}
    assets["run.json"] = json.dumps({"head": {"many": 40000, "margins": [1.5, -0.614], "error": -185.2}})
    assets["story.js"] = "1;"
    for name, text in assets.items():
        if name != without:
            write(root / "book" / "assets" / "story" / name, text)
    return rendered(root, pages, *extensions, html_static_path=["book/assets"])


def test_a_page_has_its_drawing_its_numbers_and_its_script(tmp_path: Path) -> None:
    html, warnings = build(tmp_path, {"story": GOOD + "\n```{toctree}\nother\n```\n", "other": "# Other\n"})
    assert warnings == ""
    page = (html / "story.html").read_text(encoding="utf-8")
    assert re.findall(r'<span class="drawn">(.*?)</span>', page) == [
        "40\N{NO-BREAK SPACE}000",
        "\N{MINUS SIGN}0.61",
        "10<sup>\N{MINUS SIGN}185</sup>",
    ]
    assert page.count('<span class="glyph"><svg') == 2
    stage = re.search(r'data-story=""><script type="application/json">(.*?)</script>', page)
    assert stage
    assert json.loads(stage[1])["head"]["many"] == 40000
    assert re.findall(r'<div class="story-panel" data-panel="(\w+)"><svg', page) == ["one"]
    assert '<p class="story-links"><a' in page.replace("\n", "")
    assert re.search(r'<script defer="defer" src="_static/story/story\.js', page)
    assert "story.js" not in (html / "other.html").read_text(encoding="utf-8")


def test_what_is_missing_is_a_warning(tmp_path: Path) -> None:
    _, warnings = build(tmp_path, {"faults": "# Faults\n\n" + "\n\n".join(FAULTS.values()) + "\n"})
    told = [line for line in warnings.splitlines() if "WARNING" in line]
    assert len(told) == len(FAULTS)
    for expected, line in zip(sorted(FAULTS), sorted(told, key=lambda line: line.split("WARNING: ")[1]), strict=True):
        assert expected in line


@pytest.mark.parametrize("missing", ["run.json", "story.js"])
def test_without_numbers_or_script_there_is_no_stage(tmp_path: Path, missing: str) -> None:
    html, warnings = build(tmp_path, {"story": GOOD}, without=missing)
    assert f"story-stage: no file {missing} in book/assets/story" in warnings
    page = (html / "story.html").read_text(encoding="utf-8")
    assert "data-story" not in page
    assert 'data-panel="one"' in page
