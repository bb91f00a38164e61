"""What a reader downloads is small, and what he sees is what was there before: pixels, and scripts in order."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bookkit import book
from bookkit.formulas.drawing import mathml
from bookkit.light.pictures import Picture, lightened, place_pictures
from tests.tiny_book import make_book, write

# --- pictures -------------------------------------------------------------------------------------------------------


def draw(path: Path, width: int, height: int, alpha: int | None = 255, seed: int = 0) -> np.ndarray:
    """A picture like those of the book, flat areas and a few fine details; returns its pixels."""
    rng = np.random.default_rng(seed)
    pixels = np.full((height, width, 4), 255, dtype=np.uint8)
    pixels[height // 4 : height // 2, :, 0] = np.linspace(0, 250, width, dtype=np.uint8)
    pixels[rng.integers(0, height, 40), rng.integers(0, width, 40), :3] = rng.integers(0, 255, (40, 3))
    if alpha is not None:
        pixels[0, 0, 3] = alpha
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels if alpha is not None else pixels[..., :3]).save(path)
    return pixels


@pytest.mark.parametrize("alpha", [255, 7, None], ids=["opaque", "transparent", "no alpha"])
def test_same_pixels_in_fewer_bytes(tmp_path: Path, alpha: int | None) -> None:
    pixels = draw(tmp_path / "one.png", 301, 170, alpha)
    before = (tmp_path / "one.png").stat().st_size
    assert lightened(tmp_path) == {"one.png": Picture("one.webp", 301, 170), "one.webp": Picture("one.webp", 301, 170)}
    assert not (tmp_path / "one.png").exists()
    assert (tmp_path / "one.webp").stat().st_size < before
    with Image.open(tmp_path / "one.webp") as image:
        assert np.array_equal(np.asarray(image.convert("RGBA")), pixels)


def test_a_picture_that_would_grow_stays_and_the_cache_is_taken(tmp_path: Path) -> None:
    folder, cache = tmp_path / "images", tmp_path / "cache"
    draw(folder / "one.png", 90, 40)
    png = (folder / "one.png").read_bytes()
    lightened(folder, cache)
    (kept,) = cache.iterdir()
    draw(tmp_path / "mark.png", 90, 40, seed=1)
    Image.open(tmp_path / "mark.png").save(kept, "WEBP", lossless=True)
    (folder / "one.png").write_bytes(png)
    lightened(folder, cache)
    assert (folder / "one.webp").read_bytes() == kept.read_bytes()
    kept.write_bytes(b"x" * 10 * len(png))
    (folder / "one.png").write_bytes(png)
    assert lightened(folder, cache)["one.png"] == Picture("one.png", 90, 40)
    assert (folder / "one.png").read_bytes() == png


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    write(tmp_path / "torn.png", "not a picture")
    with pytest.raises(ValueError, match=r"torn\.png is not a picture that can be read"):
        lightened(tmp_path)


def test_place_is_kept_and_later_pictures_wait() -> None:
    pictures = {"a.png": Picture("a.webp", 1200, 500), "b.png": Picture("b.png", 30, 90)}
    page = (
        '<img src="../_static/logo.png"><img alt="a &gt; b" src="../_images/a.png" style="width: 480px; height: 7px;" />'
        '<a href="../_images/a.png"><img alt="" src="../_images/b.png" /></a><img src="_images/a.png" width="12">'
        '<img src="_images/missing.png">'
    )
    assert place_pictures(page, pictures) == (
        '<img src="../_static/logo.png" loading="lazy" decoding="async">'
        '<img alt="a &gt; b" src="../_images/a.webp" style="width: 480px; height: 7px;" width="480" height="200"'
        ' fetchpriority="high" decoding="async" />'
        '<a href="../_images/a.webp"><img alt="" src="../_images/b.png" width="30" height="90" loading="lazy"'
        ' decoding="async" /></a><img src="_images/a.webp" width="12" loading="lazy" decoding="async">'
        '<img src="_images/missing.png" loading="lazy" decoding="async">'
    )


# --- a book ---------------------------------------------------------------------------------------------------------

PROSE = {
    "preface": "# Preface\n\n```{image} wide.png\n:alt: wide\n:width: 640px\n```\n\n![high](high.png)\n",
    "sub/maths": "# Maths\n\nSo $x^2$.\n",
    "code": "# Code\n\n```\ncopy me\n```\n\n:::{admonition} Folded\n:class: dropdown\nText.\n:::\n",
    "sources": "# Sources\n\n{cite:t}`one`\n\n```{bibliography}\n```\n",
}


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML of a small book with the theme and the settings of the real one."""
    root = make_book(tmp_path_factory.mktemp("light") / "a book", {}, PROSE)
    (root / "notebooks").mkdir(exist_ok=True)
    draw(root / "book" / "wide.png", 1280, 530)
    draw(root / "book" / "high.png", 250, 410)
    assert book.main(["--root", str(root), "--stored"]) == 0
    return root / "_build" / "html"


def head(html: Path, name: str) -> str:
    return (html / name).read_text(encoding="utf-8").partition("</head>")[0]


def test_no_script_stops_a_page_and_none_is_unused(html: Path) -> None:
    names = [path.relative_to(html).as_posix() for path in html.rglob("*.html")]
    assert {"book/preface.html", "book/sub/maths.html", "search.html", "genindex.html"} <= set(names)
    for name in set(names) - {"index.html"}:  # which only sends on
        page = (html / name).read_text(encoding="utf-8")
        if name.startswith("_static/"):
            continue
        for tag in re.findall(r"<script[^>]*\bsrc=[^>]*>", page):
            assert re.search(r"\b(defer|async)\b", tag), (name, tag)
        for word in ("fontawesome", "thebe", "kernelName", "preload", "mathjax/"):
            assert word not in page, (name, word)
        # An inline script that sets an option comes after the options.
        assert page.index("const DOCUMENTATION_OPTIONS") < page.index("DOCUMENTATION_OPTIONS.pagename")
        assert page.count("/light.js") == 1, name
        assert page.count("formulas/formulas.css") == page.count("icons.css") == 1, name
    for script in ("copybutton.js", "clipboard.min.js", "togglebutton.js", "togglebuttonSelector"):
        assert script in head(html, "book/code.html"), script
    search = head(html, "search.html")
    assert search.index("searchtools.js") < search.index("language_data.js") < search.index("searchindex.js")
    assert "sphinx_highlight.js" in search  # its marks are used by excerpts; on other pages words keep their looks
    assert "sphinx_highlight.js" not in head(html, "book/preface.html")
    assert mathml("x^2") in (html / "book/sub/maths.html").read_text(encoding="utf-8")


def test_pictures_of_the_book(html: Path) -> None:
    page = (html / "book/preface.html").read_text(encoding="utf-8")
    wide, high = re.findall(r"<img[^>]*_images/[^>]*>", page)
    assert 'src="../_images/wide.webp"' in wide
    assert 'width="640" height="265" fetchpriority="high" decoding="async"' in wide
    assert 'width="250" height="410" loading="lazy" decoding="async"' in high
    assert not list(html.rglob("_images/*.png"))
    with Image.open(html / "_images/wide.webp") as image:
        assert image.size == (1280, 530)  # sharp at two pixels to one
