"""What a reader of a page sees first: the question, a picture, and no code."""

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import page_names, visited

pytestmark = pytest.mark.browser

WINDOW = {"width": 1300, "height": 900}
LOWEST = 1200  # pixels, where the first picture may begin
FIRST = """() => {
  const article = document.querySelector('.bd-article');
  const figure = article.querySelector('figure');
  const top = element => element.getBoundingClientRect().top + scrollY;
  const code = [...article.querySelectorAll('div.cell_input')].filter(cell => cell.checkVisibility() && cell.offsetHeight);
  const link = figure?.querySelector('figcaption a[href^="#"]');
  return {
    picture: figure && figure.querySelector('img').getBoundingClientRect().height > 100 ? top(figure) : null,
    codeAbove: code.filter(cell => figure && top(cell) < top(figure)).length,
    target: link ? document.querySelector(link.getAttribute('href'))?.querySelector('img')?.getAttribute('src') : null,
    source: figure?.querySelector('img').getAttribute('src'),
    setUp: [...article.querySelectorAll('div.cell')].slice(0, 3).filter(cell => cell.querySelector(':scope > .cell_input')).length,
  };
}"""


def test_the_first_picture_of_every_page_is_near_its_top(browser: Browser, address: str) -> None:
    """And it is one of the page's own, which its link leads to; the cells that set the page up are folded."""
    pages = [name for name in page_names() if name.startswith("notebooks/")]
    assert len(pages) > 20
    seen = {}
    for name in pages:
        with visited(browser, address, name, WINDOW, drawn=False) as visit:
            seen[name] = visit.page.evaluate(FIRST)
    assert {name: found for name, found in seen.items() if not found["picture"] or found["picture"] > LOWEST} == {}
    assert {name: found for name, found in seen.items() if found["codeAbove"] or found["setUp"]} == {}
    assert {name: found for name, found in seen.items() if found["target"] != found["source"]} == {}
