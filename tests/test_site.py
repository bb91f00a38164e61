"""What stands beside the pages for readers who come from elsewhere, and two links of each page in words."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bookkit.settings import settings
from bookkit.sphinx.said_in_words import name_links
from tests.house import ROOT
from tests.tiny_book import rendered, write

ADDRESS = "https://a.github.io/b"
PAGES = {"book/first": "# First & last\n\nWhat it is.\n\n```{toctree}\ntwo\n```\n", "book/two": "# Two\n\nMore.\n"}


def test_the_root_the_missing_page_and_the_map_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "pyproject.toml", f'[tool.bookkit]\naddress = "{ADDRESS}"\n')
    write(tmp_path / "_toc.yml", "")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    extensions = ("bookkit.sphinx.descriptions", "bookkit.sphinx.site")
    layout = "{% extends '!layout.html' %}{% block extrahead %}{{ metatags }}{% endblock %}"  # as the theme does
    write(tmp_path / "templates" / "layout.html", layout)
    start = {"html_title": "A & B", "html_baseurl": f"{ADDRESS}/", "templates_path": ["templates"]}
    html, told = rendered(tmp_path, PAGES, *extensions, **start)
    assert told == ""
    root, missing = ((html / name).read_text(encoding="utf-8") for name in ("index.html", "404.html"))
    assert '<meta http-equiv="Refresh" content="0; url=book/first.html">' in root
    assert f'<link rel="canonical" href="{ADDRESS}/book/first.html" />' in root
    said = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', root))
    assert said["description"] == said["og:description"] == "What it is."
    assert said["og:title"] == "First &amp; last"
    assert said["og:image"] == f"{ADDRESS}/_static/preview.png"
    assert said["twitter:card"] == "summary_large_image"
    assert "<title>First &amp; last" in root
    # At whatever depth it is shown, its links hold.
    assert set(re.findall(r'(?:href|action)="([^"]*)"', missing)) == {f"{ADDRESS}/", f"{ADDRESS}/search.html"}
    places = [place.text for place in ET.parse(html / "sitemap.xml").getroot().findall(".//{*}loc")]
    assert places == [f"{ADDRESS}/{name}.html" for name in PAGES]


def test_canonical_links_lead_to_where_the_book_is_published() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["html"]["baseurl"] == f"{settings(ROOT).address}/"


@pytest.mark.parametrize("cite", [True, False])
def test_colab_and_how_to_cite_are_words(cite: bool) -> None:
    download = {"type": "group", "label": "download-buttons", "buttons": [{"url": "x.md"}]}
    launch = {
        "type": "group",
        "label": "launch-buttons",
        "buttons": [{"type": "link", "text": "Colab", "url": "https://c/x"}],
    }
    context = {"header_buttons": [launch, download], "pathto": lambda name: f"../{name}.html"}
    app = SimpleNamespace(env=SimpleNamespace(found_docs={"book/cite"} if cite else set()))
    name_links(app, "notebooks/x", "page.html", context, None)  # type: ignore[arg-type]
    first, second = context["header_buttons"]  # type: ignore[misc]
    assert (first["type"], first["text"], first["url"]) == ("link", "Run in Colab", "https://c/x")
    assert "about a minute" in first["tooltip"]
    assert second is download
    assert context.get("theme_extra_footer") == ('<a href="../book/cite.html">How to cite</a>' if cite else None)
