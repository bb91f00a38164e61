"""A book with a page that counts, for every test of sweeps."""

import sys

import pytest

from tests.sweeps.counting import PAGE, SQUARES, CountingBook
from tests.tiny_book import ODD


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a `CountingBook` whose package this process imports; we stand in it."""

    def made(squares: str = SQUARES, page: str = PAGE) -> CountingBook:
        book = CountingBook(tmp_path / ODD, squares, page)
        for name in [name for name in sys.modules if name.split(".")[0] == "counted"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.syspath_prepend(book.root)
        monkeypatch.setenv("BOOKKIT_PAGE_LOG", str(book.log))
        monkeypatch.setenv("PYTHONPATH", str(book.root))
        monkeypatch.chdir(book.root)
        return book

    return made


@pytest.fixture
def book(make) -> CountingBook:
    """The book as it is made where nothing else is said."""
    return make()
