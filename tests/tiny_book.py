"""Small books and pages for the tests of the machinery: real jupytext pages, a real package, a second each."""

import io
import re
import shutil
from pathlib import Path

import nbformat

from bookkit.pages.notebooks import as_it_ran
from bookkit.pages.one_page import as_text

HEADER = """---
jupytext:
  formats: ipynb,md:myst
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""


ODD = "a [b]ook's 50% #1 & \u00fc"  # of a folder: shells, addresses, patterns and configuration files could misread it


def page_text(*cells: str, title: str = "A page") -> str:
    """MyST source of a page: a heading, then one code cell per text in `cells`."""
    code = "".join(f"```{{code-cell}} ipython3\n{cell}\n```\n\n" for cell in cells)
    return f"{HEADER}# {title}\n\n{code}"


def write(path: Path, text: str) -> Path:
    """Write `text` to `path`, making folders as needed, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def as_renewed(notebook: nbformat.NotebookNode) -> str:
    """A notebook as `notebooks` would store it, with what it keeps of its run; the metadata of `notebook` change."""
    notebook.metadata["ran"] = as_it_ran(notebook)
    return as_text(notebook)


def make_package(root: Path, value: int) -> Path:
    """A package `attnlib` with one constant, pins and settings beside it; stands for the real one in the kernels of the test."""
    write(root / "requirements.txt", "numpy==2.0.0\n")
    write(root / "pyproject.toml", '[tool.bookkit]\npackages = ["attnlib"]\n')
    return write(root / "attnlib" / "__init__.py", f"VALUE = {value}\n").parent


REPOSITORY = Path(__file__).parents[1]
# A small book has none.
LACKING = re.compile(r'^exercises = .*\n|^\[tool\.bookkit\.redirects\]\n(?:".*\n)*', re.M)


def make_book(root: Path, pages: dict[str, str], prose: dict[str, str]) -> Path:
    """A book with the settings and the look of the real one: notebooks (name -> source) and prose (name -> Markdown).

    The first of `prose` is the title page. Returns `root`.
    """
    for name in ("_config.yml", "pyproject.toml", "requirements.txt"):
        write(root / name, LACKING.sub("", (REPOSITORY / name).read_text(encoding="utf-8")))
    sheets = ("icons.css", "book.css", "explorers.css", "ledger.css", "story.css", "formulas/formulas.css")
    for name in (*sheets, "favicon.svg", "light.js"):
        write(root / "book" / "assets" / name, (REPOSITORY / "book" / "assets" / name).read_text(encoding="utf-8"))
    shutil.copy(REPOSITORY / "book/assets/formulas/BookMath.woff2", root / "book" / "assets" / "formulas")
    write(root / "book" / "references.bib", "@misc{one, author={A. Author}, title={A title}, year={2020}}\n")
    first, *others = prose
    for name, text in prose.items():
        write(root / "book" / f"{name}.md", text)
    for name, text in pages.items():
        write(root / "notebooks" / f"{name}.md", text)
    chapters = [f"notebooks/{name}" for name in pages] + [f"book/{name}" for name in others]
    toc = "\n".join(["format: jb-book", f"root: book/{first}", "chapters:", *(f"  - file: {c}" for c in chapters)])
    write(root / "_toc.yml", toc + "\n")
    return root


def rendered(root: Path, pages: dict[str, str], *extensions: str, **settings: object) -> tuple[Path, str]:
    """Pages (name -> Markdown; the first is the start) as HTML by Sphinx with a few extensions: the folder, and the warnings."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    for name, text in pages.items():
        write(root / f"{name}.md", text)
    start = {"extensions": ["myst_parser", *extensions], "html_theme": "basic", "root_doc": next(iter(pages))}
    folders, told = (root, None, root / "out" / "html", root / "out" / "trees"), io.StringIO()
    with docutils_namespace():
        Sphinx(*folders, "html", start | settings, None, told, freshenv=True).build()
    return folders[2], re.sub(r"\x1b\[[\d;]*m", "", told.getvalue())
