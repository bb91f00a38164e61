"""A book with a page that counts, for every test of sweeps."""

import pytest

from tests.sweeps.counting import CountingBook
from tests.tiny_book import ODD


@pytest.fixture
def book(tmp_path, monkeypatch) -> CountingBook:
    """A book whose package this process imports; we stand in it."""
    book = CountingBook(tmp_path / ODD)
    monkeypatch.syspath_prepend(book.root)
    for name, value in book.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(book.root)
    return book
