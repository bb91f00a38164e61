"""What a reader downloads is small, and what he sees is what was there before: the same pixels, and their places."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from bookkit.figures import png
from bookkit.sphinx.light import Picture, as_webp, place_pictures
from tests.tiny_book import rendered


def draw(path: Path, width: int, height: int, alpha: int | None = 255) -> np.ndarray:
    """A picture like those of the book, flat areas and a few fine details; returns its pixels."""
    rng = np.random.default_rng(0)
    pixels = np.full((height, width, 4), 255, dtype=np.uint8)
    pixels[height // 4 : height // 2, :, 0] = np.linspace(0, 250, width, dtype=np.uint8)
    pixels[rng.integers(0, height, 40), rng.integers(0, width, 40), :3] = rng.integers(0, 255, (40, 3))
    if alpha is not None:
        pixels[0, 0, 3] = alpha
    Image.fromarray(pixels if alpha is not None else pixels[..., :3]).save(path)
    return pixels


@pytest.mark.parametrize("alpha", [255, 7, None], ids=["opaque", "transparent", "no alpha"])
def test_same_pixels_in_fewer_bytes_also_from_the_cache(tmp_path: Path, alpha: int | None) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for _ in range(2):
        pixels = draw(tmp_path / "one.png", 301, 170, alpha)
        before = (tmp_path / "one.png").stat().st_size
        assert as_webp(cache, tmp_path / "one.png") == Picture("one.webp", 301, 170)
        assert not (tmp_path / "one.png").exists()
        assert (tmp_path / "one.webp").stat().st_size < before
        with Image.open(tmp_path / "one.webp") as image:
            assert np.array_equal(np.asarray(image.convert("RGBA")), pixels)
        (kept,) = cache.iterdir()
    Image.new("RGB", (301, 170)).save(kept, "WEBP")  # what is kept is taken
    draw(tmp_path / "one.png", 301, 170, alpha)
    as_webp(cache, tmp_path / "one.png")
    assert (tmp_path / "one.webp").read_bytes() == kept.read_bytes()


def test_equal_pictures_of_one_book_are_made_beside_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(40)]
    for path in paths:
        draw(path, 301, 170)
    (tmp_path / "cache").mkdir()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(partial(as_webp, tmp_path / "cache"), paths))
    assert [one.name for one in made] == [f"{number}.webp" for number in range(40)]
    assert len({path.with_suffix(".webp").read_bytes() for path in paths}) == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".webp"]


@pytest.mark.parametrize("panels", [1, 2])
def test_a_figure_says_whether_it_has_panels(tmp_path: Path, panels: int) -> None:
    figure, _ = plt.subplots(1, panels)
    (tmp_path / "a.png").write_bytes(png(figure)[0])
    plt.close(figure)
    assert as_webp(tmp_path, tmp_path / "a.png").panels == (panels > 1)


def test_place_is_kept_later_pictures_wait_and_panels_scroll() -> None:
    pictures = {
        "a.png": Picture("a.webp", 1200, 500, panels=True),
        "b.png": Picture("b.webp", 30, 90),
        "c.png": Picture("c.webp", 800, 300),
    }
    page = (
        '<img src="../_static/logo.png"><img alt="a &gt; b" src="../_images/a.png" style="width: 480px; height: 7px;" />'
        '<a href="../_images/a.png"><img alt="" src="../_images/b.png" /></a><img src="_images/a.png" width="720">'
        '<img src="_images/a.png" width="600"><img src="_images/c.png">'
    )
    assert place_pictures(page, pictures) == (
        '<img src="../_static/logo.png" loading="lazy">'
        '<img alt="a &gt; b" src="../_images/a.png" style="width: 480px; height: 7px;" width="480" height="200"'
        ' fetchpriority="high">'
        '<a href="../_images/a.webp"><img alt="" src="../_images/b.webp" width="30" height="90" loading="lazy"></a>'
        '<span class="wide-picture"><img src="_images/a.webp" width="720" height="300" loading="lazy"></span>'
        '<img src="_images/a.webp" width="600" height="250" loading="lazy">'
        '<span class="wide-picture"><img src="_images/c.webp" width="800" height="300" loading="lazy"></span>'
    ).replace("a.png", "a.webp")


def test_a_built_page_shows_its_picture_and_loads_what_it_uses(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", 300, 100)
    pages = {"index": "# One\n\n![what it shows](a.png)\n"}
    html, told = rendered(tmp_path, pages, "bookkit.sphinx.light")
    assert told == ""
    page, search = ((html / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "search"))
    assert 'src="_images/a.webp" width="300" height="100"' in page
    assert [path.name for path in (html / "_images").iterdir()] == ["a.webp"]
    # The marks of words serve the search page alone; on other pages the words keep their looks.
    assert ("sphinx_highlight.js" in page, "sphinx_highlight.js" in search) == (False, True)
    assert "doctools.js" in page
