"""Where generated code is kept, two processes at once, and life without numba."""

import json
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from attnlib.kernels import _build, _reads
from attnlib.kernels.in_context._source import source as in_context_source
from bookkit.pages.environment import page_environment

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


HIDDEN = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        readable = "kernels heads token_selection in_context gaussian_tail batches dispatch prompt_stream reference".split()
        if name.startswith("attnlib.kernels") and name.rpartition(".")[2] not in readable:
            raise ImportError(name)
sys.meta_path.insert(0, Hide())
import attnlib
from attnlib.in_context import train as train_heads_in_context
from attnlib.token_selection import train as train_tokens
law = attnlib.SignalNoiseLaw(n=6, d=90, signal_norm=5.0)
print(attnlib.summarise(law, 0.1, draws=2).log10_clean_error.isfinite().all().item())
print(attnlib.train_heads(law.draw(0), 0.1, 3, heads=2).loss.shape)
print(train_tokens(attnlib.draw_gram(attnlib.TokenLaw(n=4, d=50, tokens=4, signal_norm=5.0, label_noise=0.5), 0), 0.1, 3).loss.shape)
print(train_heads_in_context(attnlib.Experiment(d=2, steps=5, records=3, runs=1, batch=4)).loss.shape)
print(sorted({line.partition(" on")[0].partition(": ")[2] for line in attnlib.ran()}))
"""


def test_everything_runs_when_the_fast_forms_are_hidden() -> None:
    """Neither numba nor a module of machine code is needed: the readable loops do it."""
    found = answer(python(ABSENT + HIDDEN)).splitlines()
    assert found[:4] == ["True", "torch.Size([4, 1])", "torch.Size([4, 1])", "torch.Size([1, 3])"]
    assert found[4] == "['reference, float32', 'reference, float64']"


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


@pytest.mark.parametrize(("quiet", "level"), [("", "WARNING"), ("1", "INFO")])
def test_that_something_is_compiled_is_said_once_before_and_in_no_page(
    quiet: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="attnlib.kernels")
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    monkeypatch.setenv(_build.QUIET, quiet)
    for _ in range(2):  # the second time it is in the cache
        function = _build.module.__wrapped__("probe", PROBE).probe
        for _ in range(2):
            function(4.0)
            (said,) = caplog.records
    assert said.levelname == level
    assert said.message.startswith("compiling the loop probe for this processor: some seconds")
    assert page_environment(tmp_path)[_build.QUIET]


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


ROOT = Path(__file__).parents[2]
SOURCES = {
    **{
        str(path.parent.relative_to(ROOT)): path.read_text()
        for path in sorted([*ROOT.glob("attnlib/**/_loops.py"), *ROOT.glob("book/**/*_loops.py")])
    },
    "in_context, d = 3": in_context_source(3),
}
PAIRS = [(source, module) for source, text in SOURCES.items() for module in _reads.reads(text)]


def test_what_a_source_reads_is_what_python_imports_for_it(tmp_path: Path) -> None:
    code = """
import json, sys
from attnlib.kernels import _build
own = lambda: {name for name in sys.modules if name.split(".")[0] in ("attnlib", "attnbook")}
imported = {}
for source, text in json.loads(sys.argv[1]).items():
    for name in own():
        del sys.modules[name]
    import attnlib.kernels
    before = own()
    _build.module("x", text)
    imported[source] = sorted(own() - before)
print(json.dumps(imported))
"""
    imported = json.loads(answer(python(code, json.dumps(SOURCES), ATTNLIB_CACHE=str(tmp_path))))
    assert imported == {source: list(_reads.reads(text)) for source, text in SOURCES.items()}
    assert len(imported) == 8
    assert "attnlib.quadrature" in imported["attnlib/kernels/gaussian_tail"]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("numba", reason="compiled loops need it")
    shutil.copytree(ROOT / "attnlib", tmp_path / "attnlib", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(_reads, "_home", lambda top: tmp_path / top)
    return tmp_path


@pytest.mark.parametrize(("source", "module"), PAIRS)
def test_a_change_of_any_module_that_a_source_reads_makes_other_machine_code(
    source: str, module: str, copied: Path
) -> None:
    file, before = copied / f"{module.replace('.', '/')}.py", _build._name("x", SOURCES[source])
    file.write_text(file.read_text() + "changed = 1\n")
    assert _build._name("x", SOURCES[source]) != before


def test_a_module_that_no_source_reads_changes_no_machine_code(copied: Path) -> None:
    before = [_build._name("x", text) for text in SOURCES.values()]
    (copied / "attnlib" / "limits.py").write_text("changed = 1")
    assert [_build._name("x", text) for text in SOURCES.values()] == before


def test_imports_of_all_forms_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "__init__": "from attnlib.a import x",
        "a": "def later():\n    import attnlib.b as short, math",
        "b": "from .deep import c, value",
        "deep/__init__": "from ..d import *",
        "deep/c": "from attnlib import deep, no_module",
        "d": "import attnlibrary, attnlib.missing",
        "alone": "",
    }
    for name, text in files.items():
        path = tmp_path / "attnlib" / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    monkeypatch.setattr(_reads, "_home", lambda top: tmp_path / top)
    found = {
        "attnlib",
        *(f"attnlib.{name}" for name in ("a", "alone", "b", "d", "deep", "deep.c")),
    }  # a face: all beside it
    assert set(_reads.reads("if True:\n    from attnlib.a import x")) == found
    assert set(_reads.reads("from ..d import y", "attnlib.deep")) == {"attnlib.d"}
    assert set(_reads.reads("import attnlib.b", own=("attnlib.b", "attnlib.d"))) == {"attnlib.b"}
    assert _reads.reads("import numpy") == {}


def test_weights_that_are_compiled_in_are_never_old(copied: Path) -> None:
    """The rule's weights five per cent too large make each error five per cent too large, from a warm cache as well."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from attnlib.single_head import SignalNoiseLaw, summarise
law = SignalNoiseLaw(n=60, d=4000, signal_norm=12.0, label_noise=0.05)
print(summarise(law, step_size=0.05, draws=3).log10_clean_error[0].item())
"""
    cache = str(copied / "cache")
    before = float(answer(python(code, str(copied), ATTNLIB_CACHE=cache)))
    file = copied / "attnlib" / "quadrature.py"
    file.write_text(file.read_text().replace("weights = 2 /", "weights = 1.05 * 2 /"))
    assert float(answer(python(code, str(copied), ATTNLIB_CACHE=cache))) == pytest.approx(
        before + math.log10(1.05), abs=1e-10
    )


@pytest.mark.parametrize("switch", _build.SWITCHES)
def test_a_switch_of_numba_makes_other_machine_code(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba", reason="compiled loops need it")
    assert hasattr(numba.config, switch)
    before = _build._name("x", PROBE)
    monkeypatch.setattr(numba.config, switch, "other")
    assert _build._name("x", PROBE) != before
