"""No stored table is read but as its program wrote it: each is edited in a copy, and refused by whoever reads it."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attnbook import stored
from attnbook.token_selection.real_data import tables
from bookkit.files import written_aside
from tests.house import ROOT

HOME = ROOT / "book" / "attnbook"
FILES = sorted(
    path.relative_to(HOME).as_posix()
    for path in [*HOME.rglob("tables/**/*"), *HOME.rglob("effective.json")]
    if path.is_file()
)
ASSETS = sorted(
    f"../{path.relative_to(HOME.parent).as_posix()}"
    for path in [*(HOME.parent / "assets").glob("story/*.json"), *(HOME.parent / "assets").rglob("data/*.js")]
)


def test_the_list_is_of_all_stored_files_as_they_are_and_as_sha256sum_writes_it() -> None:
    lines = [f"{hashlib.sha256((HOME / name).read_bytes()).hexdigest()}  {name}\n" for name in [*ASSETS, *FILES]]
    assert stored.LIST.read_text(encoding="utf-8") == "".join(lines)
    assert len(lines) > 90
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", stored.LIST.name], cwd=HOME, check=True)


@pytest.mark.parametrize("name", [*ASSETS, *FILES])
def test_every_table_has_a_program_that_seals_it(name: str) -> None:
    command = stored.maker(name)
    if (module := re.match(r"python -m (\S+)", command)) is None:
        assert re.match(rf"attnlib (train heads_\d|train rates|certify --full|real {Path(name).stem})$", command)
        # The door of real data calls `tables.add_cell`, as `end_to_end` does.
        makers = {
            "train": "in_context.full_runs",
            "certify": "certified.full_run",
            "real": "token_selection.real_data.tables",
        }
        module = f"attnbook.{makers[command.split()[1]]}"
    else:
        module = module[1]
    text = Path(find_spec(module).origin).read_text(encoding="utf-8")
    if module in ("attnbook.explorers", "attnbook.story"):
        text = Path(find_spec(f"{module}.__main__").origin).read_text(encoding="utf-8")
    assert re.search(r"\b(seal|add_cell)\(", text)


# What each process of a copy of the package does: edit a table, read it as pages do, put it back, read it again.
EDITED = """
import json, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from attnbook import stored
from attnbook.certified import boundary_range, full_run, hard_heads
from attnbook.in_context import full_runs, trap_study
from attnbook.in_context.deeper_and_wider import training as wider
from attnbook.single_head.phase_diagram import proved
from attnbook.token_selection.heat_map import study as heat
from attnbook.token_selection.real_data import attention_maps, digits, effective, end_to_end, tables

assert stored.HOME == Path(sys.argv[1], "attnbook").resolve()
READERS = {
    "boundary_cells.json": boundary_range.stored, "hard_heads.json": hard_heads.stored,
    "full_run.json": lambda: full_run.Table("a", 0, 0, 0, (), str, "attnlib").missing,
    "wider.npz": lambda: wider._read(wider.TABLE), "trap.npz": trap_study.stored_table,
    "rates.safetensors": full_runs.load_rates, "proved.npz": proved.table,
    "heat_map_39x39.npz": lambda: heat.read_map(heat.TABLE, heat.published_plan()),
    "attention_maps.npz": attention_maps.stored_maps,
    "effective.json": effective.read_effective, "digits_study.npz": lambda: digits._table(digits.STORED),
    **{f"heads_{k}.safetensors": lambda k=k: full_runs.load(k) for k in full_runs.HEADS},
    **{f"{name}.json": lambda name=name: tables.read_table(name) for name in tables.stored_tables()},
    **{end_to_end.table_of(name).name: lambda name=name: end_to_end.read_end_to_end(name) for name in end_to_end.NAMES},
}

def moved(value):
    # The first number of a JSON value, a twentieth larger.
    if isinstance(value, float):
        return value + 0.05
    for key in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
        if (other := moved(value[key])) is not None:
            return {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1:]]

def edited(path, content):
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = dict(file)
        largest = max((name for name in arrays if arrays[name].dtype.kind in "fi"), key=lambda name: arrays[name].size)
        arrays[largest].flat[7] += 1
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)
    elif path.suffix == ".json" and (document := moved(json.loads(content))) is not None:
        path.write_text(json.dumps(document))
    else:
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert path.read_bytes() != content

said = {}
for name in stored.seals():
    path, read = stored.HOME / name, READERS.get(Path(name).name)
    if read is None:
        continue
    content = path.read_bytes()
    edited(path, content)
    try:
        read()
    except ValueError as error:
        said[name] = [str(error)]
    path.write_bytes(content[: len(content) // 2])
    try:
        read()
    except ValueError as error:
        said[name].append(str(error))
    path.write_bytes(content)
    assert name not in stored.tables_read()
    read()
    said[name].append(stored.tables_read()[name])
print(json.dumps(said))
"""


def test_an_edited_or_shortened_table_is_refused_by_its_reader_in_a_sentence(tmp_path: Path) -> None:
    shutil.copytree(HOME, tmp_path / "attnbook", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", EDITED, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    copies = re.compile(
        r"in_context/tables/(heads_\d|rates)\.json"
    )  # for people: a training is read from the other file
    assert sorted(said) == [name for name in FILES if not copies.fullmatch(name)]
    for name, (edited, shortened, kept) in said.items():
        assert edited == shortened
        assert edited.startswith(
            f"the stored table {name} is not as its program wrote it (stored.sha256 has another SHA-256"
        )
        assert edited.endswith(f"or remove it and run {stored.maker(name)}")
        assert kept == stored.seals()[name]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two tables, one of them sealed."""
    monkeypatch.setattr(stored, "HOME", tmp_path / "home")
    monkeypatch.setattr(stored, "ASSETS", tmp_path / "assets")
    monkeypatch.setattr(stored, "LIST", tmp_path / "home" / "stored.sha256")
    monkeypatch.setattr(stored, "MAKERS", {"": "python -m maker {}"})
    monkeypatch.setattr(stored, "_read", {})
    (tmp_path / "home").mkdir()
    stored.LIST.write_text("")
    for name in ("a", "b"):
        (tmp_path / "home" / f"{name}.json").write_text(name)
    stored.seal(tmp_path / "home" / "a.json")
    return tmp_path / "home"


def test_a_page_is_told_once_which_tables_it_read(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOKKIT_TABLES", str(tmp_path / "note"))
    for _ in range(2):
        stored.sealed(home / "a.json")
        stored.sealed(tmp_path / "elsewhere.json")
    assert (tmp_path / "note").read_text() == f"{hashlib.sha256(b'a').hexdigest()}  a.json\n"


def test_a_program_seals_what_it_made_and_what_is_gone_leaves_the_list(home: Path, tmp_path: Path) -> None:
    assert stored.sealed(home / "a.json") == home / "a.json"
    with pytest.raises(ValueError, match=r"table b\.json is not as .* remove it and run python -m maker b$"):
        stored.sealed(home / "b.json")
    stored.seal(home / "b.json")
    stored.sealed(str(home / "b.json"))
    assert stored.tables_read() == {f"{x}.json": hashlib.sha256(x.encode()).hexdigest() for x in "ab"} == stored.seals()
    (home / "b.json").write_text("made again")
    stored.seal(home / "b.json")
    assert stored.tables_read()["b.json"] == hashlib.sha256(b"made again").hexdigest()
    (home / "b.json").unlink()
    stored.seal(home / "a.json")
    assert list(stored.seals()) == ["a.json"]


def test_a_table_that_lies_elsewhere_has_no_seal(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text("mine")
    stored.seal(own)
    assert stored.sealed(own) == own
    assert stored.sealed(home / "none.json") == home / "none.json"  # its reader says that it is missing
    assert (list(stored.seals()), stored.tables_read()) == (["a.json"], {})


def test_a_list_with_a_conflict_of_git_is_refused(home: Path) -> None:
    with written_aside(stored.LIST) as aside:
        aside.write_text("<<<<<<< HEAD\n" + stored.LIST.read_text())
    with pytest.raises(ValueError, match=r"must hold lines of sha256sum; got '<<<<<<< HEAD'"):
        stored.sealed(home / "a.json")


# --- two copies of one number ---------------------------------------------------------------------------------------------


def test_hits_give_the_test_accuracy_in_every_table_that_has_both(tmp_path: Path) -> None:
    counted = 0
    for path in tables.TABLES.glob("*.json"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if "hits" in cell:
                size = bin(int(cell["tested"], 16)).count("1")
                for row, accuracies in zip(cell["hits"], cell["test_accuracy"], strict=True):
                    assert bin(int(row, 16)).count("1") / size == pytest.approx(
                        accuracies[-1], abs=2e-5
                    )  # five decimals; a hit is 1e-4
                    counted += 1
    assert counted > 1000
    document = json.loads((tables.TABLES / "mnist_lite0.json").read_text(encoding="utf-8"))
    document["cells"][3]["test_accuracy"][2][-1] += 0.001
    (tmp_path / "mnist_lite0.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"hits of seed \d, n \d+ give another test accuracy"):
        tables.read_table("mnist_lite0", tmp_path)
    assert np.isfinite(tables.read_table("mnist_lite0").values("test_accuracy", 200)).all()
