"""From pages to HTML: run the pages (or take their stored outputs), stage the sources, render, publish by a swap.

    python -m bookkit book             pages executed on this machine (`make book`)
    python -m bookkit html             the outputs stored in the repository (`make html`)
    ... --edition student              without solutions, with student notebooks (`make student`)

Everything is made below `_build/`: `cache/` (executed pages), `source/` (what Sphinx reads), `sphinx-*/` (its
working folder), `render.log`, and `html/`, which only ever holds a book that rendered without a warning. The student
edition (`editions`) has the same folders, and `notebooks/`, below `_build/student/`.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import nbformat
from filelock import FileLock, Timeout

from bookkit.code import Code, code_of, tree_hash
from bookkit.editions import leaks as edition_leaks
from bookkit.editions import student as editions
from bookkit.pages import tolerances
from bookkit.pages.catalogue import UserError, find_pages, write_atomically
from bookkit.pages.environment import page_environment
from bookkit.pages.execution import PagesFailed, execute_pages, pins_hash
from bookkit.pages.notebooks import stale
from bookkit.pages.rerun import LARGEST_NOTEBOOK, read_text
from bookkit.pages.times import RESULTS
from bookkit.parser import Parser, complain, program, say
from bookkit.settings import settings
from bookkit.toc import way

STAGED = ("_config.yml", "_toc.yml", "book")
PRESS = Path(__file__).parent  # no number depends on it, what is rendered does
SCRIPTS = "scripts"  # sources of the explorers, below book/


class BuildError(Exception):
    """The book was not built. The message says why and what to do; the last good HTML is untouched."""


def build(root: Path, fresh: bool, jobs: int = 1, edition: str = "teacher", branch: str = "", pin: str = "") -> Path:
    """Build the book whose `_config.yml` lies in `root`; return the path of its first page, `_build/html/index.html`.

    `edition`: ``student`` leaves the solutions out, in `_build/student/`; its Colab links lead to `branch` (default:
    ``student``). `pin`: a tag or commit that pages install in Colab, opened from `branch` (default: ``colab``); the notebooks for
    that branch are written to `_build/notebooks/`.

    `fresh`: execute the pages (`jobs` at a time, see `execution`); otherwise take the stored notebooks. Nothing is
    rendered where pages, prose, assets, code, press and pins are what they were at the last success. A book that is there stays
    until the fresh one is whole.

    Raises `BuildError` for a missing file, a page that fails, a Sphinx warning, or a build already running here.
    """
    root = root.resolve()
    needed = (*STAGED, "notebooks", "requirements.txt")
    if missing := [name for name in needed if not (root / name).exists()]:
        raise BuildError(
            f"root must be the folder of the book, holding {', '.join(needed)}; "
            f"{root} lacks {', '.join(missing)}: run this in the repository"
        )
    try:
        code = code_of(root)
    except UserError as error:
        raise BuildError(str(error)) from None
    work = root / "_build" / "student" if edition == "student" else root / "_build"
    work.mkdir(parents=True, exist_ok=True)
    html = work / "html"

    make = partial(_make, root, work, code, edition, branch, pin)
    try:  # the system lets go of it when the process ends, however it ends
        alone = FileLock(work / ".lock").acquire(timeout=0)
    except Timeout:
        raise BuildError(f"another build is running in {work}: wait for it to end") from None
    with alone:
        _clear_up(work, html)
        if not fresh:
            make("stored", *_stored(root))
            return html / "index.html"
        if there := _what_is_there(html):
            say(f"{there}\nThe fresh book takes its place when every page has run.")
        try:
            make("fresh", *_executed(root, code, jobs))
        except BuildError as error:
            raise BuildError("\n".join(filter(None, [str(error), _what_is_there(html)]))) from None
    return html / "index.html"


def _make(
    root: Path,
    work: Path,
    code: Code,
    edition: str,
    branch: str,
    pin: str,
    source: str,
    notebooks: dict[str, str],
    times: dict[str, dict],
) -> None:
    """Stage, render and publish the book of `notebooks` (name -> JSON) in `work`; nothing where that book is there."""
    staged, html = work / "source", work / "html"
    _stage(root, staged, notebooks)
    removed = None
    try:
        if edition == "student":
            removed = editions.make_student(staged, branch or editions.BRANCH)
        if pin:
            editions.pin(staged, pin, branch or (editions.BRANCH if removed else editions.PINNED))
    except UserError as error:
        raise BuildError(f"the {edition} edition was not built: {error}") from None
    parts = f"{tree_hash(staged)}{code.hash()}{tree_hash(PRESS)}{pins_hash(root)}{settings(root)}"
    record = {"source": source, "pages": times, "content": hashlib.sha256(parts.encode()).hexdigest()}
    if _recorded(html, "content") == record["content"] and _recorded(html, "rendered") == _rendered(html):
        say("Nothing changed since the last build: the HTML is kept.")
        _write_record(html, record)
    else:
        built = _render(root, work, code)
        if removed:
            _refuse_leaks(built, removed, staged)
        _publish(built, html, record)
    if pin and not removed:
        count = editions.write_notebooks(staged, work / "notebooks", outputs=True)
        say(f"Pinned to {pin}: {count} notebooks in {work / 'notebooks'}")
    if removed:
        count = editions.write_notebooks(staged, work / "notebooks")
        _refuse_leaks(work / "notebooks", removed, staged)
        say(f"Student edition: {removed.count} solutions left out; {count} notebooks in {work / 'notebooks'}")


def _what_is_there(html: Path) -> str:
    """A sentence on the book published in `html`: where to open it and whose outputs it shows. Empty if there is none."""
    words = {"fresh": "pages run on this machine by an earlier build", "stored": "outputs stored in the repository"}
    source = _recorded(html, "source")
    return f"A book to read is there: {words.get(source, source)}. Open {html / 'index.html'}" if source else ""


def _refuse_leaks(folder: Path, removed: edition_leaks.Removed, source: Path) -> None:
    """Raise `BuildError` where a sentence that the student edition leaves out stands in what was made of it."""
    if leaks := edition_leaks.find_leaks(folder, removed, source):
        told = "\n".join(leaks[:10])
        raise BuildError(
            f"the student edition was not published: {len(leaks)} sentences of solutions are in it:\n{told}"
        )


# --- pages ----------------------------------------------------------------------------------------------------------


def _executed(root: Path, code: Code, jobs: int) -> tuple[dict[str, str], dict[str, dict]]:
    pages = [page.source for page in find_pages(root)]
    say(f"Pages to run or to recall: {len(pages)}; processes: {jobs}")
    try:
        results = execute_pages(pages, jobs, root / "_build" / "cache", root, code)
    except PagesFailed as error:
        raise BuildError(f"pages failed, the HTML was not touched:\n{error}") from None
    notebooks, times = {}, {}
    for page, result in results.items():
        name = page.relative_to(root).with_suffix(".ipynb").as_posix()
        notebooks[name] = result.notebook
        times[name] = {"seconds": round(result.seconds, 2), "cached": result.cached}
    return notebooks, times


def _stored(root: Path) -> tuple[dict[str, str], dict[str, dict]]:
    pages = {page.stored.relative_to(root).as_posix(): page for page in find_pages(root)}
    if missing := [name for name, page in pages.items() if not page.stored.is_file()]:
        raise BuildError(f"every page needs its stored notebook; missing: {', '.join(missing)}: run `make notebooks`")
    notebooks = {name: read_text(page.stored, "notebook", LARGEST_NOTEBOOK) for name, page in pages.items()}
    for name, text in notebooks.items():
        if fault := _unfinished(text):
            raise BuildError(f"{name} {fault}: run `make notebooks`")
    read = {page.name: nbformat.reads(notebooks[name], as_version=4) for name, page in pages.items()}
    if faults := [fault for page, notebook in read.items() if (fault := stale(notebook, page, root))]:
        raise BuildError("\n".join(faults))
    try:
        for page in pages.values():
            tolerances.read(page.stored)
    except UserError as error:
        raise BuildError(str(error)) from None
    return notebooks, {name: {"seconds": None, "cached": None} for name in notebooks}


def _unfinished(notebook: str) -> str:
    """Why a stored notebook is no page with its outputs: cut short, emptied as git filters do it, or ended by an error. Else empty."""
    try:
        cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
        if cells and not any(cell["execution_count"] or cell["outputs"] for cell in cells):
            return "has no outputs: none of its cells was run"
        for number, cell in enumerate(cells, start=1):
            if any(output["output_type"] == "error" for output in cell["outputs"]):
                return f"holds an error, in code cell {number}"
    except (ValueError, KeyError, TypeError):
        return "is not a whole notebook"
    return ""


# --- staging and rendering ------------------------------------------------------------------------------------------


def _stage(root: Path, source: Path, notebooks: dict[str, str]) -> None:
    """Fill `source` anew with all that Sphinx reads."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for name in STAGED:
        if (root / name).is_dir():
            shutil.copytree(root / name, source / name, ignore=_not_read)
        else:
            shutil.copy(root / name, source / name)
    for path in sorted((root / RESULTS).glob("pages-*.json")):  # how long pages take; a book may not have measured it
        (source / RESULTS).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, source / RESULTS / path.name)
    for name, text in notebooks.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        # The ledger shows no more digits than stand.
        if (known := tolerances.path_beside(root / name)).is_file():
            shutil.copy(known, tolerances.path_beside(path))


def _not_read(folder: str, names: list[str]) -> list[str]:
    """What Sphinx does not read of a folder: hidden files, Python packages, and the scripts that bundles are made of."""
    packages = [name for name in names if Path(folder, name, "__init__.py").is_file()]
    return [*packages, *(name for name in names if name.startswith(".") or name in ("__pycache__", SCRIPTS))]


def _render(root: Path, work: Path, code: Code) -> Path:
    """Run jupyter-book on `work/source`, warnings as errors, and return the folder with the HTML.

    Raises `BuildError` with the warnings if there are any.
    """
    # Always from nothing. Sphinx tells a warning only when it reads the page: with a kept working folder the next run
    # would pass over it in silence, and titles changed elsewhere would stay old in the menus.
    # In a folder of its own: a build that was killed may have left a Sphinx that still writes into the last one.
    sphinx = Path(tempfile.mkdtemp(prefix="sphinx-", dir=work))
    say("Rendering")
    start = time.perf_counter()
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(work / "source")]
    command += ["--path-output", str(sphinx), "-W", "-n", "--keep-going"]
    # As for pages: what is read off docstrings is not for PYTHONOPTIMIZE to drop.
    environment = page_environment(sphinx, code) | {"NO_COLOR": "1"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    quiet |= {"encoding": "utf-8", "errors": "replace"}
    # The working directory is on the import path of `python -c`: it must hold nothing that can be imported by mistake.
    done = subprocess.run(command, cwd=sphinx, env=environment, check=False, **quiet)
    log = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    write_atomically(work / "render.log", log)
    if done.returncode != 0:
        shutil.rmtree(sphinx, ignore_errors=True)
        told = "\n".join(_complaints(log))
        raise BuildError(
            "rendering failed, the last good HTML was not touched; "
            f"the whole log is in {(work / 'render.log').relative_to(root)}:\n"
            # Named as the reader knows them, not by the copy that Sphinx reads.
            + told.replace(f"{work / 'source'}{os.sep}", "")
        )
    say(f"Rendered in {time.perf_counter() - start:.1f} s")
    if (path := way(work / "source", settings(root).path)).pages:
        say(path)
    return sphinx / "_build" / "html"


def _complaints(log: str) -> list[str]:
    """The lines of a Sphinx log that say what is wrong, each once; the end of the log where none is known as such."""
    lines = log.splitlines()
    found = [line for line in lines if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
    # "Sphinx error:", "Extension error (name):": what was wrong is on the next line.
    found += [after for line, after in pairwise(lines) if re.fullmatch(r"\w+ error.*:", line)]
    return list(dict.fromkeys(found or lines[-15:]))


# --- publishing -----------------------------------------------------------------------------------------------------


def _publish(built: Path, html: Path, record: dict) -> None:
    """Put the folder `built` in the place of `html`. At every moment one complete book is there or beside it."""
    _write_record(built, record)
    old = html.with_name("html.old")
    shutil.rmtree(old, ignore_errors=True)
    if html.exists():
        os.replace(html, old)
    os.replace(built, html)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(built.parents[1], ignore_errors=True)


def _clear_up(work: Path, html: Path) -> None:
    """Remove what a killed build left, and finish a swap that was killed between its two renames."""
    for left in work.glob("sphinx-*"):
        shutil.rmtree(left, ignore_errors=True)
    old = html.with_name("html.old")
    if old.exists() and not html.exists():
        os.replace(old, html)


def _recorded(html: Path, name: str) -> str | None:
    """What the record of a published book says; None where there is no complete book or no readable record."""
    try:
        record = json.loads((html / "build.json").read_text(encoding="utf-8"))
        return record[name] if (html / "index.html").is_file() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_record(html: Path, record: dict) -> None:
    whole = record | {"rendered": _rendered(html)}
    write_atomically(html / "build.json", json.dumps(whole, indent=1, sort_keys=True) + "\n")


def _rendered(html: Path) -> str:
    """Hash of all rendered pages: `jupyter-book build .` writes into the same folder, and leaves the record as it is."""
    digest = hashlib.sha256()
    for path in sorted(html.rglob("*.html")):
        digest.update(f"{path.relative_to(html)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


# --- command line ---------------------------------------------------------------------------------------------------


def stored(argv: Sequence[str]) -> int:
    """The command `html`."""
    return main(["--stored", *argv], "html")


def main(argv: Sequence[str] | None = None, command: str = "book") -> int:
    """Entry of the commands `book` and `html`; returns the exit status."""
    parser = Parser(prog=f"{program()} {command}", description="Build the book's HTML.")
    parser.add_argument("--stored", action="store_true", help="take the stored outputs; execute nothing")
    parser.add_jobs("pages run", 2)
    parser.add_argument(
        "--edition", choices=editions.EDITIONS, default="teacher", help="student: without solutions (default: teacher)"
    )
    parser.add_argument(
        "--branch",
        default="",
        help=f"branch of the notebooks that Colab opens (default: {editions.BRANCH}; {editions.PINNED} with --pin)",
    )
    parser.add_argument(
        "--pin", default="", metavar="TAG", help="tag or commit that pages install in Colab (default: none)"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the book (default: the current one)")
    options = parser.parse_args(argv)
    try:
        index = build(options.root, not options.stored, options.jobs, options.edition, options.branch, options.pin)
    except (BuildError, UserError) as error:
        return complain(error, 1)
    say(f"The book is ready. Open {index}")
    return 0
