"""What readers do with pages by the tools that they know: jupytext, papermill, nbconvert."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import papermill
import pytest
from jupytext.pairs import NotebookFile, PairedFilesDiffer
from jupytext.sync_pairs import read_pair

from bookkit.pages.catalogue import Page, find_pages
from bookkit.pages.parameters import page_parameters

ROOT = Path(__file__).resolve().parents[1]
PAGES = find_pages(ROOT)
NAMES = [page.name for page in PAGES]


@pytest.mark.parametrize("newer", [".md", ".ipynb"])
def test_jupytext_finds_the_two_files_of_every_page_in_step(tmp_path: Path, newer: str) -> None:
    """Whichever is newer: a page opened and saved in Jupyter Lab changes by what was typed, and loses nothing."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".md", ".ipynb")}
    assert len(before) >= 2 * len(PAGES)
    for path in before:
        os.utime(path, (10**9, 10**9 + 100 * (path.suffix == newer)))
    pages = [str(tmp_path / page.stored.relative_to(ROOT)) for page in PAGES]
    subprocess.run([sys.executable, "-m", "jupytext", "--sync", *pages], check=True, capture_output=True)
    assert [path.name for path, content in before.items() if path.read_bytes() != content] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_jupyter_opens_a_page_whose_ipynb_is_newer_and_refuses_one_that_was_edited_alone(page: Page) -> None:
    """As jupytext decides it in Jupyter's contents manager: an edit of VS Code or Colab is never overwritten unseen."""
    markdown = NotebookFile("page.md", {"extension": ".md", "format_name": "myst"}, 1)
    stored = NotebookFile("page.ipynb", {"extension": ".ipynb"}, 2)
    files = {"page.md": jupytext.read(page.source), "page.ipynb": nbformat.read(page.stored, as_version=4)}

    def read(path: str, _):
        return files[path]

    assert len(read_pair(markdown, stored, read, must_match=True).cells) == len(files["page.md"].cells)
    files["page.ipynb"].cells[-1].source += "!"
    with pytest.raises(PairedFilesDiffer, match=r"!"):
        read_pair(markdown, stored, read, must_match=True)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_papermill_reads_every_parameter_and_a_page_as_a_script_is_python(page: Page) -> None:
    found = papermill.inspect_notebook(str(page.stored))
    assert list(found) == [parameter.name for parameter in page_parameters(page)]
    for parameter in page_parameters(page):
        assert found[parameter.name]["inferred_type_name"] == parameter.type.__name__
        assert found[parameter.name]["help"].startswith(parameter.help)

    notebook = nbformat.read(page.stored, as_version=4)
    compile(jupytext.writes(notebook, fmt="py:percent"), page.name, "exec")
    language = notebook.metadata["language_info"]  # `jupyter nbconvert --to script` takes what it says
    assert (language["nbconvert_exporter"], language["file_extension"]) == ("python", ".py")
