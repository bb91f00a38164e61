"""What a first visit costs, on small pages made to have a fault each."""

from pathlib import Path

import pytest

from tests.browser.weights import BLOCKING, LIMIT, REQUESTS, blocking, fetched, weight

pytestmark = pytest.mark.browser

HEAD = '<link rel="stylesheet" href="a.css"><script defer src="a.js"></script><script async src="b.js"></script>'


def page(folder: Path, head: str = HEAD, body: str = "<p>Text.</p>") -> str:
    for name in ("a.css", "b.css", "a.js", "b.js", "module.js"):
        (folder / name).write_text("/* nothing */", encoding="utf-8")
    (folder / "page.html").write_text(f"<html><head>{head}</head><body>{body}</body></html>", encoding="utf-8")
    return "page.html"


def test_a_heavy_picture_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "heavy.webp").write_bytes(bytes(LIMIT))
    name = page(tmp_path, body='<img src="heavy.webp" alt="heavy">')
    plain = sum(
        path.stat().st_size for path in tmp_path.iterdir() if path.name in ("page.html", "a.css", "a.js", "b.js")
    )
    assert weight(tmp_path, name)[0] == LIMIT + plain
    assert weight(tmp_path, name)[1] > LIMIT


def test_many_pictures_are_too_many_requests(tmp_path: Path) -> None:
    pictures = [f"{k}.webp" for k in range(REQUESTS)]
    for picture in pictures:
        (tmp_path / picture).write_bytes(b"x")
    name = page(tmp_path, body="".join(f'<img src="{picture}" alt="x">' for picture in pictures))
    assert len(fetched(tmp_path, name)) == REQUESTS + 4  # page, style sheet, two scripts


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (HEAD, ["a.css"]),
        (HEAD + '<script src="late.js?v=1"></script>', ["a.css", "late.js?v=1"]),
        (HEAD + '<link rel="stylesheet" href="b.css">', ["a.css", "b.css"]),
        (
            HEAD + '<link rel="stylesheet" media="print" href="b.css"><script type="module" src="module.js"></script>',
            ["a.css"],
        ),
        (HEAD + "<script>document.title = 'inline';</script>", ["a.css"]),
    ],
    ids=["as it should be", "a script that blocks", "a second style sheet", "print and module", "inline"],
)
def test_what_the_first_picture_waits_for(tmp_path: Path, head: str, expected: list[str]) -> None:
    found = blocking(tmp_path, page(tmp_path, head))
    assert found == expected
    assert (len(found) > BLOCKING) == (len(expected) > 1)
