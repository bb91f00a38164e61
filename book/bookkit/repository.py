"""The repository's address and the published book's: written once, in pyproject.toml, and changed everywhere by one command.

Colab's first cell, Colab links, the README and the citation file must hold the first as text, links of the pages to chapters the
second (see `sphinx.public_links`). `change` and `move_book` rewrite them all, and tests find copies that disagree.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from bookkit.pages.catalogue import UserError, find_pages, write_atomically
from bookkit.settings import check_address, settings

URL = re.compile(r"https://github\.com/(?P<owner>[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38})/(?P<name>[A-Za-z0-9._-]{1,100})")
# What stands before owner/name in the addresses of a repository: its page, a clone over ssh, Colab, raw files.
BEFORE = r"(?:github\.com[/:]|/github/|raw\.githubusercontent\.com/)"
ADDRESS = re.compile(BEFORE + r"(?P<owner>[A-Za-z0-9-]+)/(?P<name>[A-Za-z0-9._-]*[A-Za-z0-9_-])")
IGNORED = {".git", ".venv", "_build", "__pycache__", "node_modules"}


def current_url(root: Path) -> str:
    """The address in pyproject.toml, ``[project.urls] Repository``."""
    try:
        url = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{root / 'pyproject.toml'} must hold [project.urls] Repository; got {error!r}") from error
    return check_url(url)


def check_url(url: str) -> str:
    """`url` without a final slash or .git. Raises `UserError` unless it is ``https://github.com/owner/name``."""
    plain = url.strip().removesuffix("/").removesuffix(".git")
    match = URL.fullmatch(plain)
    if not match or match["name"] in (".", ".."):
        raise UserError(f"URL must be https://github.com/owner/name; got {url!r}")
    return plain


def change(root: Path, url: str) -> list[Path]:
    """Make `url` the repository's address in every text file of the repository; returns the files rewritten.

    pyproject.toml comes last: until then it holds the old address, and an interrupted change can simply be repeated.
    """
    new = URL.fullmatch(check_url(url))
    old = URL.fullmatch(current_url(root))
    if not new or not old or new.group() == old.group():
        return []
    changed = []
    files = sorted(text_files(root), key=lambda path: path == root / "pyproject.toml")
    for path in files:
        text = path.read_text(encoding="utf-8")
        moved = replace_address(text, (old["owner"], old["name"]), (new["owner"], new["name"]))
        if moved != text:
            write_atomically(path, moved)
            changed.append(path.relative_to(root))
    _renew_cell_ids(root, changed)
    return changed


def move_book(root: Path, address: str) -> list[Path]:
    """Make `address` the one under which the HTML is published, in every text file; returns the files rewritten."""
    old, new = settings(root).address, check_address(address)
    if not old:
        raise UserError(f"{root / 'pyproject.toml'} must hold the present address, [tool.bookkit] address")
    link = re.compile(rf"{re.escape(old)}(?![\w.~-]*[\w~-])")  # a longer name is another place
    changed = []
    for path in sorted(text_files(root), key=lambda path: path == root / "pyproject.toml"):
        text = path.read_text(encoding="utf-8")
        if (moved := link.sub(new, text)) != text:
            write_atomically(path, moved)
            changed.append(path.relative_to(root))
    _renew_cell_ids(root, changed)
    return changed


def replace_address(text: str, old: tuple[str, str], new: tuple[str, str]) -> str:
    """Put (owner, name) `new` where `old` stands as an address, the published book (owner.github.io/name) included."""
    owner, name = (re.escape(part) for part in old)
    end = r"(?![A-Za-z0-9_-]|\.(?!git\b)[A-Za-z0-9])"  # "name.git" is ours, "name-2" and "name.js" are not
    text = re.sub(rf"({BEFORE}){owner}/{name}{end}", lambda match: f"{match[1]}{new[0]}/{new[1]}", text)
    return re.sub(rf"(?<![\w.-]){owner}\.github\.io/{name}{end}", f"{new[0]}.github.io/{new[1]}", text)


def addresses(text: str) -> set[tuple[str, str]]:
    """All (owner, name) that stand in `text` as addresses of repositories."""
    return {(match["owner"], match["name"].removesuffix(".git")) for match in ADDRESS.finditer(text)}


def text_files(root: Path) -> Iterator[Path]:
    """Text files of the repository: known to git or about to be; where there is no git, all but build folders."""
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if git.returncode == 0:
        found = {root / name for name in git.stdout.decode().split("\0") if name}
    else:
        found = {path for path in root.rglob("*") if not IGNORED & set(path.relative_to(root).parts)}
    for path in sorted(found):
        if path.is_file() and not path.is_symlink():
            try:
                path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            yield path


def _renew_cell_ids(root: Path, changed: list[Path]) -> None:
    """Cell ids are hashes of the cells: give the changed first cells the ids that `make notebooks` would."""
    if not any(path.suffix == ".ipynb" for path in changed):
        return
    import nbformat

    from bookkit.pages.execution import as_text, read_source

    for page in find_pages(root):
        if page.stored.is_file() and page.stored.relative_to(root) in changed:
            stored = nbformat.read(page.stored, as_version=4)
            source = read_source(page.source.read_text(encoding="utf-8"))
            if len(stored.cells) == len(source.cells):
                for cell, twin in zip(stored.cells, source.cells, strict=True):
                    if cell.source == twin.source:  # a cell edited in the .md only waits for `make notebooks`
                        cell["id"] = twin["id"]
                write_atomically(page.stored, as_text(stored))
