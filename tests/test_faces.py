"""What `attnlib` shows of itself: few names, each documented, none that hides a module."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import attnlib
from bookkit.settings import settings
from tests.house import ROOT

FACES = settings(ROOT).faces


@pytest.mark.parametrize("name", FACES)
def test_a_face_is_small_and_documented(name: str) -> None:
    face = importlib.import_module(name)
    assert 2 <= len(face.__all__) <= 15
    assert face.__all__ == sorted(face.__all__, key=lambda word: (not word.isupper(), not word[0].isupper(), word))
    for word in face.__all__:
        # `import attnlib.single_head.law` must not change what `attnlib.single_head.law` is.
        assert importlib.util.find_spec(f"{name}.{word}") is None, word
        thing = getattr(face, word)
        assert not isinstance(thing, ModuleType)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert len(inspect.getdoc(thing) or "") > 20, word
            assert thing.__module__.partition(".")[0] == name.partition(".")[0], word


def test_eleven_names_of_attnlib_open_every_part() -> None:
    parts = {
        name.removeprefix("attnlib."): importlib.import_module(name) for name in FACES if name.startswith("attnlib.")
    }
    assert len(attnlib.__all__) == 11
    assert attnlib.__all__ == sorted(attnlib.__all__, key=lambda word: (not word[0].isupper(), word))
    assert set(attnlib.__all__) | set(parts) <= set(dir(attnlib))
    opened = set()
    for word in attnlib.__all__:
        homes = [part for part, face in parts.items() if word in face.__all__]
        assert len(homes) == 1, f"{word} is in {homes}: a name of the face means one thing"
        assert getattr(attnlib, word) is getattr(parts[homes[0]], word)
        opened.add(homes[0])
    assert opened == set(parts)


def test_attnlib_is_loaded_lazily_and_knows_its_own_names_only() -> None:
    code = """
import sys, attnlib
before = {"torch", "attnlib.single_head"} & set(sys.modules)
attnlib.token_selection.TokenLaw
print(before, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set() True\n"
    with pytest.raises(AttributeError, match="module 'attnlib' has no attribute 'train_hats'"):
        attnlib.train_hats  # noqa: B018


def test_the_first_own_result_takes_five_lines() -> None:
    from attnlib import SignalNoiseLaw, summarise

    law = SignalNoiseLaw(n=60, d=12_000, signal_norm=30.0, label_noise=0.05)
    summary = summarise(law, step_size=0.025, steps=2, draws=6)
    assert summary.log10_clean_error.shape == (6,)
    assert summary.log10_clean_error.max() < -1.301
