"""Where generated code is kept, two processes at once, and life without numba."""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from attnlib.kernels import _build

PROBE = """
import math
from numba import njit


@njit(cache=True)
def probe(x):
    return math.sqrt(x) + 1.0
"""

RUN = """
import json, sys
from attnlib.kernels import _build
made = [_build.module("probe", text) for text in sys.argv[1:]]
print(json.dumps([[m.probe(4.0), sum(m.probe.stats.cache_hits.values()), m.__file__] for m in made]))
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ | environment
    )


def answer(process: subprocess.Popen) -> str:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.strip()


def test_two_processes_compile_at_once_and_a_third_loads(tmp_path: Path) -> None:
    both = [python(RUN, PROBE, ATTNLIB_CACHE=str(tmp_path)) for _ in range(2)]
    for process in both:
        assert json.loads(answer(process))[0][0] == 3.0
    third = python(RUN, PROBE, PROBE.replace("+ 1.0", "+ 2.0"), ATTNLIB_CACHE=str(tmp_path))
    (value, hits, file), changed = json.loads(answer(third))
    assert (value, hits) == (3.0, 1)
    assert Path(file).parent == tmp_path / "kernels"
    assert list((tmp_path / "kernels").glob("*.partial")) == []
    assert changed[:2] == [4.0, 0]
    assert changed[2] != file


def test_the_folder_is_the_named_one_or_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "named"))
    assert _build.cache_folder() == tmp_path / "named" / "kernels"
    monkeypatch.delenv("ATTNLIB_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    folder = _build.cache_folder()
    assert folder == tmp_path / "users" / "attnlib" / "kernels"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_or_that_cannot_be_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_build, "_temporary", [])
    open_to_all = tmp_path / "open" / "kernels"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    monkeypatch.setenv("ATTNLIB_CACHE", str(open_to_all.parent))
    folder = _build.cache_folder()
    assert folder.parent == Path(tempfile.gettempdir())
    assert _build.cache_folder() == folder  # one for the whole process
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "file"))
    assert _build.cache_folder() == folder
    _build._temporary[0].cleanup()


ABSENT = """
import sys
sys.modules["numba"] = None
from attnlib.kernels import dispatch
dispatch._installed = lambda *modules: False
"""
WITHOUT = """
import attnlib.kernels
import torch
from attnlib.kernels import _build, gaussian_tail, in_context
print(in_context.implementation_for(1, 1, torch.device("cpu"), torch.float32))
print(gaussian_tail.log_error(*torch.ones(5, 1, dtype=torch.float64)).isfinite().all())
try:
    in_context.implementation_for(1, 1, torch.device("cpu"), torch.float32, implementation="compiled")
except ValueError as error:
    print(error)
try:
    _build.module("x", "")
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("before", "switch", "says"),
    [
        (ABSENT, "0", "numba is not installed: pip install 'attnlib[kernels] @ git+https"),
        ("", "1", "numba is switched off by NUMBA_DISABLE_JIT"),
        ("import numba", "1", "numba is switched off by NUMBA_DISABLE_JIT"),
    ],
)
def test_without_numba_the_readable_form_runs_and_the_other_says_why_not(before: str, switch: str, says: str) -> None:
    ran, finite, refused, no_module = answer(python(before + WITHOUT, NUMBA_DISABLE_JIT=switch)).splitlines()
    assert (ran, finite) == ("reference", "tensor(True)")
    assert f"cannot be used: {says}" in refused
    assert f"compiled loops need numba: {says}" in no_module


def _cut(content: bytes, place: int) -> bytes:
    return content[:place]


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def _zeros(content: bytes, place: int) -> bytes:
    return content[:place] + bytes(len(content) - place)


@pytest.mark.parametrize("kind", ["*.py", "*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", [_cut, _flip, _zeros])
def test_a_damaged_file_is_made_again(damage, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))

    def hits() -> int:
        function = _build.module.__wrapped__("probe", PROBE).probe
        assert function(4.0) == 3.0
        return sum(function.stats.cache_hits.values())

    assert (hits(), hits()) == (0, 1)
    (file,) = (tmp_path / "kernels").rglob(kind)
    for share in (0, 0.5, 1):
        whole = file.read_bytes()
        file.write_bytes(damage(whole, int(share * (len(whole) - 1))))
        # A source that is written again in the same instant is the one whose machine code is kept.
        assert hits() == 0 or kind == "*.py", share
        assert hits() == 1


def test_a_disk_that_is_full_keeps_nobody_from_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    function = _build.module.__wrapped__("probe", PROBE).probe

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(function._cache._cache_file, "_save_data", full)
    assert function(4.0) == 3.0
    assert list((tmp_path / "kernels").rglob("*.nbc")) == []
    assert _build.module.__wrapped__("probe", PROBE).probe(4.0) == 3.0


def test_numba_is_loaded_only_when_something_is_compiled() -> None:
    code = """
import sys
from attnlib.kernels import dispatch, gaussian_tail, heads, in_context, token_selection
print(dispatch.has_numba(), "numba" in sys.modules, "triton" in sys.modules)
"""
    assert answer(python(code)) == "True False False"


def test_machine_code_is_made_again_when_a_shared_module_changes() -> None:
    """numba's key does not see what a source imports from elsewhere: every such module is in the name of the source's file."""
    folder = Path(_build.__file__).parent
    imported = {
        name
        for path in [*folder.glob("*/_loops.py"), *folder.glob("*/_source.py")]
        for name in re.findall(r"from attnlib\.kernels\.(_\w+) import", path.read_text(encoding="utf-8"))
    }
    assert "_exponential" in imported
    assert imported <= set(_build.SHARED)
    assert all((folder / f"{name}.py").exists() for name in _build.SHARED)


@pytest.mark.parametrize("switch", _build.SWITCHES)
def test_a_switch_of_numba_makes_other_machine_code(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numba, before = pytest.importorskip("numba", reason="compiled loops need it"), _build._versions()
    monkeypatch.setattr(numba.config, switch, "other")
    assert _build._versions() != before
