"""What is missing is named together with the extra that brings it."""

import re
import runpy
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from attnbook.in_context.checkpoints import write_checkpoint
from attnbook.single_head.svm import hard_margin
from attnlib.extras import extra, progress_bar
from tests.house import PACKAGES, REPOSITORY, ROOT
from tests.test_packaging import EXTRAS


def test_what_is_missing_is_named_with_its_extra_which_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = re.escape(f"no_such_package is not installed: pip install 'attnlib[some] @ git+{REPOSITORY}'")
    with pytest.raises(ModuleNotFoundError, match=message) as met, extra("some"):
        import no_such_package  # noqa: F401
    assert met.value.name == "no_such_package"
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ModuleNotFoundError, match=r"attnlib\[training\]"):
        write_checkpoint(tmp_path / "run.safetensors", {}, {})
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ModuleNotFoundError, match=r"clarabel .*attnlib\[margin\]"):
        hard_margin(np.ones((2, 1)), np.array([1.0, -1.0]))  # a contradiction: no answer without the solver
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGES["attnlib"].rglob("*.py"))
    named = {
        name for pair in re.findall(r"with extra\(\"(\w+)\"\)|how_to_install\('(\w+)'\)", code) for name in pair if name
    }
    assert len(named) >= 3
    assert named <= EXTRAS.keys()
    every = [path for folder in PACKAGES.values() for path in folder.rglob("*.py")] + [*(ROOT / "book").rglob("*.md")]
    by_name_alone = r"pip install ['\"]?(?:attnlib|attnbook|bookkit)\b(?!\[\{?\w+\}?\] @ git)"
    assert [path.name for path in every if re.search(by_name_alone, path.read_text(encoding="utf-8"))] == []


def test_a_bar_counts_cells_and_no_bar_imports_nothing(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with progress_bar(True, 3, "map") as bar:
        bar.update(2)
        assert bar.n == 2
    assert "map:" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)  # importing it would fail
    with progress_bar(False, 3, "map") as bar:
        bar.update(2)
    assert capsys.readouterr() == ("", "")


def test_attnlib_alone_says_how_its_commands_come(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = EntryPoint("attnlib", "no_such_package:main", "console_scripts")
    for found in ([], [alone]):
        monkeypatch.setattr("importlib.metadata.entry_points", lambda found=found, **_: found)
        with pytest.raises(SystemExit, match=r"attnlib: error: the commands come with .*attnlib\[rerun\] @ git"):
            runpy.run_module("attnlib", run_name="__main__")
