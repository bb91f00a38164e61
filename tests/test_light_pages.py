"""What a reader downloads is small, and what he sees is what was there before: pixels, rules, icons, scripts in order."""

import re
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from PIL import Image

from bookkit import book
from bookkit.light.pages import Book, remove_unused
from bookkit.light.pictures import Picture, lightened, place_pictures
from bookkit.light.styles import icon_styles, merged, words_of
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


def test_a_first_picture_far_down_is_not_in_a_hurry() -> None:
    tag, picture = '<img alt="" src="_images/a.png">', {"a.png": Picture("a.webp", 20, 10)}
    assert "fetchpriority" in place_pictures(f"{'x' * 5000}<article>{tag}", picture)
    far = place_pictures(f"<article>{'x' * 5000}{tag}", picture)
    assert far.endswith('width="20" height="10" decoding="async">')


# --- styles ---------------------------------------------------------------------------------------------------------

SHEETS = {
    "a/base.css": "@charset 'utf-8';\n.used, .unused { color: red }\n/* a remark */\n.unused:hover { top: 0 }",
    "a/theme.css": """@import "base.css";
/*! A licence */
:root { --read: var(--through); --through: 1px; --unread: var(--only-there); --only-there: 2px; --named: 3px }
p:not(.gone) { width: var(--read) }
.used > :is(.gone, .also-gone) { height: 0 }
#there a, #gone a { content: "a, .b  {c}; /*d*/" }
@media print { .unused { left: 0 } }
@media (max-width: 9px) { .made-by-script { left: 1px } .unused { left: 0 } }
@font-face { font-family: "Font Awesome 6 Free"; src: url(icons.woff2) }
@keyframes turn { from { top: 0 } }""",
    "b.css": 'i { background: url("pictures/x.png") } b { background: url(y.png) } u { background: url(data:image/x;base64,AA==) }',
}


def sheets(root: Path, *names: str) -> list[Path]:
    for name, text in SHEETS.items():
        write(root / name, text)
    return [root / name for name in names]


def test_merged_sheet_has_every_rule_that_can_apply_in_order(tmp_path: Path) -> None:
    words = words_of(["used there", "el.className = 'made-by-script'; get('--named')"])
    css = merged(sheets(tmp_path, "a/theme.css", "b.css"), PurePosixPath("a/deep/book.css"), tmp_path, words)
    assert css.splitlines() == [
        ".used{color:red;}",
        "/*! A licence */",
        ":root{--read:var(--through);--through:1px;--named:3px;}",
        "p:not(.gone){width:var(--read);}",
        ".used > :is(.gone,.also-gone){height:0;}",
        '#there a{content:"a, .b  {c}; /*d*/";}',
        "@media (max-width:9px){.made-by-script{left:1px;}}",
        "@keyframes turn{from{top:0}}",
        'i{background:url("../../pictures/x.png");}',
        'b{background:url("../../y.png");}',
        "u{background:url(data:image/x;base64,AA==);}",
    ]


def test_an_import_that_cannot_be_merged_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "c.css", '@import url("https://example.org/x.css");')
    with pytest.raises(ValueError, match=r"c\.css has an import that cannot be merged.*example\.org"):
        merged([path], PurePosixPath("book.css"), tmp_path, frozenset())


def icon_script() -> str:
    """Icons in the form of the theme's fontawesome.js: a block per style, its name behind it."""
    far = '{file:[384,512,[128196],"f15b","M1z"],sun:[512,512,[],"f185","M2z"]};a((function(){d("far",p),d("fa-regular",p)}))'
    fas = (
        '{file:[400,512,[128196],"f15b","M3z"],"magnifying-glass":[512,480,[128269,"search"],"f002","M4z"],'
        'bars:[448,512,["navicon"],"f0c9","M5z"],toad:[1,2,[],"f0",["M6z","M7z"]]};a((function(){d("fas",p),d("fa-solid",p)}))'
    )
    return f"var p={far};var p={fas}"


def test_icons_named_are_drawn_and_no_other() -> None:
    css = icon_styles(icon_script(), words_of(["fa-solid fa-search", "fas fa-file"]))
    drawn = dict(re.findall(r'^([^{]+)\{--icon:url\("data:image/svg\+xml,([^"]+)"\)\}$', css, re.MULTILINE))
    svg = "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}'%3E%3Cpath d='{}'/%3E%3C/svg%3E"
    assert drawn == {
        ".fa-solid.fa-file,.fas.fa-file": svg.format(400, 512, "M3z"),
        ".fa-solid.fa-search,.fas.fa-search": svg.format(512, 480, "M4z"),
    }
    assert "CC BY 4.0" in css
    regular = icon_styles(icon_script(), words_of(["fa-regular fa-file"]))
    assert "M1z" in regular
    assert "M3z" not in regular
    assert icon_styles(icon_script(), words_of(["fa-file"])) == ""


def test_an_icon_script_of_another_form_is_told() -> None:
    with pytest.raises(ValueError, match="holds no icons in the form known"):
        icon_styles("export const icons = {}", words_of(["fas fa-file"]))


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
    write(root / "book" / "assets" / "data" / "kept.js", "// asked for by nobody yet, but the book's own\n")
    assert book.main(["--root", str(root), "--stored"]) == 0
    return root / "_build" / "html"


def head(html: Path, name: str) -> str:
    return (html / name).read_text(encoding="utf-8").partition("</head>")[0]


def test_every_page_has_one_sheet_and_no_script_that_stops_it(html: Path) -> None:
    names = [path.relative_to(html).as_posix() for path in html.rglob("*.html")]
    assert {"book/preface.html", "book/sub/maths.html", "search.html", "genindex.html"} <= set(names)
    styles = set()
    for name in set(names) - {"index.html"}:  # which only sends on
        page = (html / name).read_text(encoding="utf-8")
        found = re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', page)
        assert len(found) == 1, (name, found)
        (sheet,) = found
        styles.add((html / name).parent.joinpath(sheet).resolve())
        for tag in re.findall(r"<script[^>]*\bsrc=[^>]*>", page):
            assert re.search(r"\b(defer|async)\b", tag), (name, tag)
        for word in ("fontawesome", "thebe", "kernelName", "preload"):
            assert word not in page, (name, word)
        # An inline script that sets an option comes after the options.
        assert page.index("const DOCUMENTATION_OPTIONS") < page.index("DOCUMENTATION_OPTIONS.pagename")
        assert page.count("/light.js") == 1, name
    (style,) = styles
    css = style.read_text(encoding="utf-8")
    assert 30_000 < len(css) < 200_000
    for icon in ("bars", "magnifying-glass", "github", "circle-half-stroke", "angle-left"):
        assert re.search(rf"\.fa-{icon}(,[^{{]*)?\{{--icon:url", css), icon
    assert ".bd-article" in css  # the book's own rules
    assert ".carousel-dark" not in css  # of the theme's framework, used by no page
    assert "Bootstrap" in css  # its licence


def test_scripts_only_where_they_are_used(html: Path) -> None:
    assert "data-mathjax" not in head(html, "book/preface.html")
    assert 'src="../../_static/light.js" data-mathjax="../../_static/mathjax/tex-chtml.js' in head(
        html, "book/sub/maths.html"
    )
    for script in ("copybutton.js", "clipboard.min.js", "togglebutton.js"):
        assert script in head(html, "book/code.html"), script
        assert script not in head(html, "book/preface.html"), script
    assert "togglebuttonSelector" in head(html, "book/code.html")
    assert "togglebuttonSelector" not in head(html, "book/preface.html")
    search = head(html, "search.html")
    assert search.index("searchtools.js") < search.index("language_data.js") < search.index("searchindex.js")
    assert "sphinx_highlight.js" in search  # its marks are used by excerpts; on other pages words keep their looks
    assert "sphinx_highlight.js" not in head(html, "book/preface.html")


def test_pictures_of_the_book(html: Path) -> None:
    page = (html / "book/preface.html").read_text(encoding="utf-8")
    wide, high = re.findall(r"<img[^>]*_images/[^>]*>", page)
    assert 'src="../_images/wide.webp"' in wide
    assert 'width="640" height="265" fetchpriority="high" decoding="async"' in wide
    assert 'width="250" height="410" loading="lazy" decoding="async"' in high
    assert not list(html.rglob("_images/*.png"))
    with Image.open(html / "_images/wide.webp") as image:
        assert image.size == (1280, 530)  # sharp at two pixels to one


def test_files_nobody_asks_for_are_gone_and_the_book_s_own_stay(html: Path) -> None:
    left = {path.relative_to(html / "_static").as_posix() for path in (html / "_static").rglob("*") if path.is_file()}
    assert {"light.js", "favicon.svg", "mathjax/tex-chtml.js", "data/kept.js"} <= left
    assert {"scripts/bootstrap.js", "doctools.js", "searchtools.js", "clipboard.min.js"} <= left
    gone = [name for name in left if name.endswith((".map", ".mo", ".po", ".ttf", ".woff2")) or "fontawesome" in name]
    assert gone == []
    assert not left & {"basic.css", "book.css", "sphinx-thebe.js", "design-tabs.js", "styles/pydata-sphinx-theme.css"}
    for name in left:
        if name.endswith((".js", ".css")):
            assert "sourceMappingURL" not in (html / "_static" / name).read_text(encoding="utf-8"), name


def test_light_pages_stay_as_they_are(html: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in html.rglob("*") if path.is_file()}

    before = content()
    again = Book(html)
    again.lighten()
    remove_unused(html, again.pages, {"light.js", "favicon.svg", "mathjax/tex-chtml.js", "data/kept.js"})
    assert content() == before


def test_a_book_without_the_script_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.html", "<html><head><title>A</title></head><body></body></html>")
    with pytest.raises(ValueError, match=r"_static/light\.js is missing: it is book/assets/light\.js"):
        Book(tmp_path).lighten()
