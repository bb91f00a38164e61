"""What a reader downloads is small, and what he sees is what was there before: pixels, and scripts in order."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bookkit.light.pages import lighten
from bookkit.light.pictures import Picture, lightened, place_pictures, remember
from tests.tiny_book import write

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
    write(folder / "torn.png", "not a picture")  # is told when the pages are mended
    remember(tmp_path, cache)
    (kept,) = cache.iterdir()
    assert (folder / "one.png").read_bytes() == png
    (folder / "torn.png").unlink()
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


# --- scripts: tests/browser/test_built_pages.py looks at every page of the real book -----------------------------------

HEAD = """<head>
<link rel="preload" as="script" href="_static/scripts/bootstrap.js">
<script src="_static/vendor/fontawesome.js?digest=1"></script>
<script data-url_root="./" src="_static/documentation_options.js"></script>
<script>DOCUMENTATION_OPTIONS.pagename = 'a';</script>
<script src="_static/sphinx_highlight.js"></script>
<script async src="_static/copybutton.js"></script>
<script src="_static/searchtools.js"></script>
<script src="_static/sphinx-thebe.js"></script>
<script>const thebe_selector = ".thebe"</script>
<script src="https://elsewhere.org/a.js"></script>
</head>
"""


def test_no_script_stops_a_page_and_none_is_unused(tmp_path: Path) -> None:
    write(tmp_path / "_static/documentation_options.js", "const DOCUMENTATION_OPTIONS = {\n  LANGUAGE: 'en'\n};\n")
    write(tmp_path / "search.html", HEAD)
    write(tmp_path / "a.html", HEAD.replace('<script src="_static/searchtools.js"></script>\n', ""))
    lighten(tmp_path)
    kept = """<head>
    <script>const DOCUMENTATION_OPTIONS = { LANGUAGE: 'en' };</script>
<script>DOCUMENTATION_OPTIONS.pagename = 'a';</script>
HIGHLIGHT<script async src="_static/copybutton.js"></script>
SEARCH<script src="https://elsewhere.org/a.js"></script>
</head>
"""
    highlight, search = (
        f'<script defer src="_static/{name}.js"></script>\n' for name in ("sphinx_highlight", "searchtools")
    )
    assert (tmp_path / "a.html").read_text() == kept.replace("HIGHLIGHT", "").replace("SEARCH", "")
    # The marks of words are used by excerpts; on other pages words keep their looks.
    assert (tmp_path / "search.html").read_text() == kept.replace("HIGHLIGHT", highlight).replace("SEARCH", search)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.html")}
    lighten(tmp_path)  # light pages stay as they are
    assert {path: path.read_bytes() for path in before} == before
