"""What readers load is what the sources give: bundles and data of the explorers, their sizes, and what they must not hold."""

import json
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from attnbook.explorers import __main__ as writer
from tests.explorers.node import ROOT, need_node
from tests.page_checks import toc_files

ASSETS = ROOT / "book" / "assets" / "explorers"
NAMES = sorted(path.parent.name for path in (ROOT / "book" / "scripts").glob("*/view.js"))
DATA = sorted(writer.sources())
# Names of XML's vocabularies: never fetched.
VOCABULARIES = re.compile(r"http://www\.w3\.org/(1999/xhtml|1999/xlink|2000/svg|2000/xmlns/|XML/1998/namespace)")


SHARES = {"story": ("long_run", "two_steps")}  # whose formulas a bundle takes over


def source_hash(name: str, root: Path = ROOT) -> str:
    """The hash that book/scripts/build.mjs writes into a bundle's first line."""
    scripts = [
        path
        for folder in ("shared", name, *SHARES.get(name, ()))
        for path in (root / "book" / "scripts" / folder).glob("*.js")
    ]
    paths = sorted(["book/scripts/build.mjs", "package-lock.json", *(p.relative_to(root).as_posix() for p in scripts)])
    return sha256(b"".join(p.encode() + b"\0" + (root / p).read_bytes() + b"\0" for p in paths)).hexdigest()[:16]


def test_every_explorer_has_its_bundle_its_page_and_its_row_in_the_list() -> None:
    pages = [path.rpartition("/")[2] for path in toc_files(ROOT / "_toc.yml") if path.startswith("book/explorers/")]
    assert NAMES == sorted(set(pages) - {"index"})
    assert sorted(path.stem for path in (ASSETS / "data").glob("*")) == DATA
    assert set(DATA) <= set(NAMES)
    assert sorted(path.stem for path in ASSETS.glob("*.js")) == NAMES
    listed = (ROOT / "book" / "explorers" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"^:caption: \*\*\[.*?\]\((\w+)\.md\)", listed, re.M) == [
        name for name in pages if name != "index"
    ]
    for name in NAMES:
        page = (ROOT / "book" / "explorers" / f"{name}.md").read_text(encoding="utf-8")
        assert re.findall(r"^```\{explorer\} (\w+)$", page, re.M) == [name]


@pytest.mark.parametrize("name", [*NAMES, "story"])
def test_a_bundle_is_fresh_small_and_a_classic_script(name: str) -> None:
    folder = ASSETS.parent / "story" if name == "story" else ASSETS
    text = (folder / f"{name}.js").read_text(encoding="ascii")
    assert text.startswith(f"/* explorer {name}; sources {source_hash(name)};"), (
        f"{name}.js is stale: run `npm ci` and `node book/scripts/build.mjs {name}`"
    )
    assert len(text) <= 150_000
    assert re.findall(r"https?://[^\s\"'`)]+", VOCABULARIES.sub("", text)) == []
    assert re.findall(r"\beval\(|new Function|\bimport\(|\bfetch\(|^(?:import|export)\b", text, re.M) == []


def test_building_again_gives_the_same_bytes_and_an_unknown_explorer_is_one_sentence() -> None:
    unknown = f"error: no explorer called no_such; there are {', '.join([*NAMES, 'story'])}\n"
    for asked, expected in (("--check", (0, "")), ("no_such", (2, unknown))):
        command = [need_node(), "book/scripts/build.mjs", asked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize("name", DATA)
def test_data_are_small_and_set_one_name(name: str) -> None:
    text = (ASSETS / "data" / f"{name}.js").read_text(encoding="utf-8")
    head = f'(window.attentionCheckedData = window.attentionCheckedData || {{}})["{name}"] = '
    assert text.startswith(head)
    assert text.endswith(";\n")
    assert isinstance(json.loads(text.removeprefix(head)[:-2]), dict)
    assert len(text.encode()) <= 500_000


def test_the_writer_writes_once_and_refuses_what_browsers_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    given = {"values": np.array([[0.1, 2.0, 3.0]]), "count": np.int64(3), "none": None}
    monkeypatch.setattr(writer, "sources", lambda: {"one": lambda: given, "two": lambda: {"x": [float("nan")]}})
    assert writer.main(["one"], tmp_path) == 0
    path = tmp_path / "one.js"
    assert path.read_text() == (
        '(window.attentionCheckedData = window.attentionCheckedData || {})["one"] = '
        '{"count":3,"none":null,"values":[[0.1,2.0,3.0]]};\n'
    )
    written = path.stat().st_mtime_ns
    assert writer.main(["one"], tmp_path) == 0
    assert path.stat().st_mtime_ns == written
    first, second = capsys.readouterr().out.splitlines()
    said = rf"one\.js  {path.stat().st_size} bytes, made in \d+\.\d s"
    assert re.fullmatch(said, first)
    assert re.fullmatch(f"{said}, unchanged", second)
    assert writer.main(["two"], tmp_path) == 1
    assert capsys.readouterr().err.startswith("error: data of two: ")
    assert not (tmp_path / "two.js").exists()
    assert writer.main(["three"], tmp_path) == 2
    assert capsys.readouterr().err == "error: no data for three; there are one, two\n"
    with pytest.raises(ValueError, match=r"data of big have \d+ bytes; at most 500000 are allowed"):
        writer.script("big", {"x": "a" * 500_000})


def test_packages_are_pinned_and_no_host_is_named() -> None:
    text = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    lock = json.loads(text)
    assert [path for path, package in lock["packages"].items() if "resolved" in package] == []
    assert not re.search(r"registry|npmjs|https?://(?!github\.com/)", text)
    manifest = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    assert manifest["private"] is True
    assert "dependencies" not in manifest  # the book needs none
    for name, wanted in manifest["devDependencies"].items():
        assert wanted == lock["packages"][f"node_modules/{name}"]["version"]
    if shutil.which("git"):
        ignored = subprocess.run(["git", "check-ignore", "node_modules"], cwd=ROOT, capture_output=True, check=False)
        assert ignored.returncode in (0, 128)  # 128: not a repository
