"""Exercises that check themselves: right answers pass, wrong ones do not, and nothing that students get shows an answer."""

import hashlib
import json
import math
import re
import subprocess
import sys
import tomllib
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from nbformat import v4, writes
from setuptools import find_packages

from attnbook.answers import __main__ as command
from attnbook.answers import crossing, exercises
from attnbook.exercises import TABLE, check
from attnbook.single_head.mean_field import mean_field
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.summary import summarise
from bookkit.editions.leaks import words
from bookkit.exercises import checking, pages, table
from bookkit.pages.catalogue import find_pages
from bookkit.settings import settings
from bookkit.toc import groups
from tests.tiny_book import rendered, write

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = exercises()
CHEAP = [name for name, one in EXERCISES.items() if not one.slow]
FAST = 2  # scrypt's N in most tests: a hash in microseconds
STORED, COST = table.read(TABLE)


@pytest.fixture(scope="module")
def answers() -> dict[str, float]:
    return {name: EXERCISES[name].answer() for name in CHEAP}


@pytest.fixture(scope="module")
def entries(answers) -> dict[str, table.Entry]:
    asked = {name: EXERCISES[name] for name in answers}
    return {n: table.entry(n, one.asks, answers[n], one.digits, one.tolerance, FAST) for n, one in asked.items()}


def say(entries, name: str, answer: object):
    return checking.check(name, answer, entries, FAST)


# --- right and wrong ------------------------------------------------------------------------------------------------


def test_right_answers_pass_and_wrong_ones_do_not(answers, entries) -> None:
    for name, value in answers.items():
        one = EXERCISES[name]
        text = table.rounded(Decimal(value), one.digits)
        step = float(table.unit(Decimal(value), one.digits))
        right = [value, float(text), np.float64(value), torch.tensor(value, dtype=torch.float64), Fraction(value)]
        # On the way to zero the last digit is worth a tenth below a power of ten.
        inward = step / 10 if one.digits and re.match(r"-?1(\.0+)?e", text) else step
        towards = math.copysign(1, value)
        right += [float(text) + towards * step * one.tolerance, float(text) - towards * inward * one.tolerance]
        for given in right:
            reply = say(entries, name, given)
            assert reply, f"{name}: {given!r} refused: {reply}"
            assert str(reply).startswith("Right")
        beyond = one.tolerance + 1
        wrong = [1.5 * value, -value, value / 2, 10 * value, 0, 1e300]
        wrong += [float(text) + towards * step * beyond, float(text) - towards * inward * beyond]
        for given in wrong:
            reply = say(entries, name, given)
            assert not reply, f"{name}: {given!r} accepted"
            assert re.match(r"Not yet[:,] .*\.$", str(reply))


def test_hints_are_for_who_is_all_but_right(entries) -> None:
    name = "02-two-steps/2"  # 21.08, three digits
    assert "sign" in str(say(entries, name, -21.1))
    assert "power of ten" in str(say(entries, name, 2.11))
    assert "power of ten" in str(say(entries, name, 21100))
    assert "close" in str(say(entries, name, 21.4))
    for far in (22.5, 19.5, 25, 3):
        assert str(say(entries, name, far)).startswith("Not yet: this is not the number")
    for given in (-21.1, 2.11, 21100, 21.4, 25):
        assert not re.search(r"\d", str(say(entries, name, given)))  # no number at all, so not the answer
    # Nothing is said of a whole number but right or not: it could be counted to.
    assert str(say(entries, "03-rotations-are-free/1", 611)).startswith("Not yet: this is not the number")
    assert "whole number" in str(say(entries, "03-rotations-are-free/1", 610.5))


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        (9.99, (9.98, 9.99, 10.0, 10.04), (9.97, 10.1)),
        (0.0995, (0.0994, 0.0996), (0.0993, 0.0997, 0.995)),
        (99950.0, (99900, 100000, 101000), (99800, 102000)),
        (1.0, (0.999, 1.004, 1.01), (0.99, 0.998, 1.02)),
        (-4.996, (-4.99, -5.01), (-4.98, -5.02, 5.0)),
        (1e-30, (9.99e-31, 1.01e-30), (1.02e-30, 9.98e-31, 0.0)),
    ],
)
def test_neighbours_cross_powers_of_ten(value: float, right: tuple, wrong: tuple) -> None:
    entries = {"a/1": table.entry("a/1", "", value, 3, 1, FAST)}
    assert all(say(entries, "a/1", given) for given in (value, *right))
    assert not any(say(entries, "a/1", given) for given in wrong)


# --- the answers, a second way --------------------------------------------------------------------------------------

# What the solutions on the pages say, word for word, and the number that is in it.
PRINTED = {
    "01-signal-and-noise/2": ("5.5", 5.5), "02-two-steps/1": ("0.23", 0.23), "02-two-steps/2": ("21.1", 21.1),
    "08-finite-dimension/1": ("5.2", 5.2), "15-error-from-both-sides/1": ("-0.6", -0.6),
    "07-assumptions-under-stress/4": ("0.75", 0.75), "01-setting/2": ("0.69", 0.69), "02-dynamics/4": ("0.7 per cent", 0.007),
    "02-dynamics/5": ("10.7", 10.7), "03-time-laws/3": ("=101", 101), "08-the-delay/1": ("0.44", 0.44), "04-heat-map/1": ("0.446", 0.446),
    "04-heat-map/4": ("0.651", 0.651), "05-existence/1": ("2.7", 2.7), "05-existence/2": ("0.61", 0.61),
    "05-existence/3": ("1.13", 1.13), "09-a-fair-trial/1": ("0.036", 0.036), "09-a-fair-trial/2": ("0.185", 0.185),
    "02-training/1": ("1400", 1400), "04-what-the-heads-compute/3": ("0.723", 0.723),
    "04-what-the-heads-compute/4": ("0.8", 0.8), "06-how-many-heads/1": ("0.40", 0.40), "07-deeper-and-wider/2": ("0.857", 0.857),
    "07-deeper-and-wider/4": ("0.55", 0.55), "06-random-starts/2": ("1.05", 1.05), "04-noise-laws/1": ("6.4", 6.4),
    "01-finite-data/1": ("7.16", 7.16), "01-finite-data/2": ("0.95", 0.95), "01-finite-data/3": ("0.270", 0.270),
    "01-staircase/1": ("0.467", 0.467), "01-staircase/2": ("306.5", 306.5), "01-staircase/3": ("64", 64),
}  # fmt: skip


def points(page, folded: bool) -> dict[int, str]:
    """The numbered exercises of a page, or its solutions."""
    return pages.points(page.source.read_text(encoding="utf-8"), folded)


PAGES = {table.page_prefix(page.name).rstrip("/"): page for page in find_pages(ROOT)}


def test_answers_are_those_of_the_printed_solutions(answers) -> None:
    for name, (text, value) in PRINTED.items():
        page, _, number = name.partition("/")
        assert text in points(PAGES[page], folded=True)[int(number)]
        last_digit = 10.0 ** -len(text.split()[0].partition(".")[2]) * (0.01 if "per cent" in text else 1)
        if text.isdigit():
            last_digit = 10.0 ** (len(text) - len(text.rstrip("0")))
        assert abs(answers[name] - value) < last_digit, name


def test_answers_by_formulas_of_their_own(answers) -> None:
    e, pi, sqrt = math.e, math.pi, math.sqrt
    mu, z = 0.2 / (0.8 * 2), 0.8 / 19
    a, b = 1.25, 0.025 * 900 * 90 / 800  # beta d / 4n, beta rho^2 (|C| - |N|) / 4n
    slope = {kind: 1 / (1 + e ** ((a + sign * b) / 2)) for kind, sign in (("clean", 1), ("flipped", -1))}
    logit = 0.025 * 900 / 800 * b * (95 * slope["clean"] - 5 * slope["flipped"]) - a**2 * slope["flipped"]
    expected = {
        "01-signal-and-noise/1": 1 - 30, "01-signal-and-noise/3": 0.025 * 40000, "03-rotations-are-free/1": 20 * 21 // 2 + 20 * 20,
        "03-rotations-are-free/2": 40 + 2 + 2, "04-max-margin/2": sqrt(40000 / 50),
        "05-phase-diagram/4": math.log(100) / -math.log1p(-0.05 / 2),
        "05-phase-diagram/2": sqrt(2 / (0.9 * sqrt(200 * 40000))), "13-where-attention-begins/1": 201 * 200 * 0.81 / (2 - 0.81),
        "14-the-trap/3": 20**2 * 50 * 0.95 / 20000,
        "14-the-trap/1": max(np.roots([(8 / 9) ** 2, -2 / 9, -1])), "07-assumptions-under-stress/1": 1 + 100 * 0.9 * 900 / 40000,
        "07-assumptions-under-stress/2": 1 + 4.5 / 2, "01-data-and-model/3": 3 * 2 / 5, "01-data-and-model/5": (1 - 1e-5) ** 2000,
        "03-circuits/1": 1 / 18, "04-what-the-heads-compute/2": 5 * 6.0005 * (1 / 45.0005 - 1 / 46.0005),
        "05-two-numbers-per-head/2": 5 + 0.25 * 10, "05-two-numbers-per-head/3": 2 * 5 * 5 * 39 * 45.0005 / 1600,
        "07-deeper-and-wider/3": 6, "08-what-holds-the-pattern/1": 1 - 5**-0.5,
        "01-many-heads/1": 3 / 2, "07-margin-and-descent/1": 1 / (1024 + 16000 / 38),
        "02-optimisers/1": 1 + 2 * 4999 / pi,
        "02-optimisers/2": 3.090232306167813 * sqrt(4998), "08-out-of-the-trap/1": sqrt(2 * (2 + e**2 - 1)), "09-thresholds/2": sqrt(6),
        "09-thresholds/3": sqrt(20000 / 45), "03-attention-maps/1": 1 / sqrt(2), "10-noise-in-the-long-run/1": 3 / 5,
        "10-noise-in-the-long-run/2": 1999 * 100 / 99 - 100,
        "05-more-classes-and-layers/1": max(np.roots([(1 - mu) ** 2, -3 * mu, -1])), "05-more-classes-and-layers/2": 7 / 8,
        "11-second-layer/1": math.ceil(60 * (2.3263478740408408 * sqrt(0.9 * (1 - z) ** 2 + 0.1 * (1 + z) ** 2) / z) ** 2),
        "09-a-fair-trial/2": 0.021 / (0.2 * (2 * 0.784 - 1)),
        "09-a-fair-trial/1": sqrt(0.79 * 0.21 / 126),
        "01-finite-data/2": 0.2 + 0.75, "01-one-token/1": 2 * math.log(999),
        "03-time-laws/3": 4 * sqrt(2) / (1 - 2 * 0.2) * (2 * math.log(7) + 7 - 1 / 7),
        "01-staircase/1": 7 / 15, "01-staircase/3": 8**2, "09-a-public-script/1": 1 / (1 + e**-logit),
        "10-bound-by-bound/1": 2.42 * 200**2 * math.log(200**2 / 0.01),
        "04-max-margin/3": math.log(199), "12-hard-attention/1": 1 / (2500 + 3 * 40000 / 45),
        "01-certified/1": math.exp(math.lgamma(81) - 40 * math.log(2) - math.lgamma(41) - 80 * math.log(12)),
        "02-winning-selection/1": 9 / 52, "03-best-scale/1": 10 / 3, "04-printed-constants/1": 7 / 2,
        "05-boundary/1": 30 * sqrt(1.6211 / 1.8), "06-whole-ranges/1": sqrt(500 * max(np.roots([(3 / 4) ** 2, -1 / 2, -1]))),
    }  # fmt: skip
    for name, value in expected.items():
        assert answers[name] == pytest.approx(value, rel=1e-6), name


def mean_over_spectrum(ratio: float, function) -> float:
    """Mean of a function over Marchenko and Pastur's law, ratio < 1, by the Chebyshev rule of the second kind."""
    nodes = np.cos(np.pi * np.arange(1, 401) / 401)
    spectrum = 1 + ratio + 2 * np.sqrt(ratio) * nodes
    weights = (1 - nodes**2) / spectrum
    return float((weights * function(spectrum)).sum() / weights.sum())


def test_answers_by_another_program(answers) -> None:
    law = SignalNoiseLaw(200, 40000, 30.0, 0.0)
    measured = summarise(law, 0.025, draws=40, seed=0).log10_clean_error.mean().item()
    assert answers["02-two-steps/4"] == pytest.approx(measured, rel=1e-9)
    # The spectrum of many tasks, and of the examples of a long prompt, by quadrature of Marchenko and Pastur's density.
    trace = partial(mean_over_spectrum, 0.5)  # 1 / kappa
    resolvent, square = trace(lambda s: 1 / (s + 1.1)), trace(lambda s: 1 / (s + 1.1) ** 2)
    seen = 0.1 + 1.1 - 1.1**2 * resolvent
    end = seen - 1.1**2 * resolvent + 2.1 * 1.1**2 * square
    assert answers["01-finite-data/1"] == pytest.approx(1 + 2.1 * resolvent * seen / (0.8 - end), rel=1e-6)
    ridge = 0.1 + 0.1 * mean_over_spectrum(0.5, lambda s: 1 / (2 * s + 0.1))  # alpha = 2
    assert answers["01-finite-data/3"] == pytest.approx(1.1 - 1 / 1.55 - ridge, rel=1e-6)
    # In a billion dimensions attention is that of the mean field; 20 draws of counts are averaged over by their mean.
    counts = torch.full((1, 2), 100.0, dtype=torch.float64)
    limit = mean_field(SignalNoiseLaw(200, 10**9, 4743.4165), 1e-6, 0.95 * counts, 0.05 * counts)
    assert answers["02-two-steps/3"] == pytest.approx(limit.attention_noisy[0, 0].item(), rel=0.1)
    # Two tokens: E sigmoid(-nu - sqrt(2 nu) z) by Gauss-Hermite quadrature is one tenth at the answer.
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    nu = answers["01-one-token/2"]
    logistic = 1 / (1 + np.exp(nu + math.sqrt(2 * nu) * nodes))
    assert (weights @ logistic) / math.sqrt(2 * math.pi) == pytest.approx(0.1, rel=1e-8)


def test_every_answer_was_found_a_second_way() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in CHEAP if source.count(f'"{name}"') == 0] == []


# --- the stored table -----------------------------------------------------------------------------------------------


def test_the_stored_table_is_that_of_the_answers(answers) -> None:
    assert list(STORED) == list(EXERCISES)
    for name, one in EXERCISES.items():
        assert (STORED[name]["asks"], STORED[name]["digits"]) == (one.asks, one.digits)
        assert len(STORED[name]["accepted"]) == 2 * one.tolerance + 1
    for name, value in answers.items():
        text = table.rounded(Decimal(value), EXERCISES[name].digits)
        assert table.digest(name, text, COST) in STORED[name]["accepted"], f"{name}: run python -m attnbook.answers"
    name = "02-two-steps/2"
    assert EXERCISES[name].entry() == STORED[name]
    assert check(name, 21.1)
    assert not check(name, 31.6)


def test_remaking_the_table_changes_no_byte(tmp_path: Path, monkeypatch, capsys) -> None:
    assert table.as_text(STORED, COST) == command.STORED.read_text(encoding="utf-8")
    few = {name: EXERCISES[name] for name in ("02-two-steps/1", "03-rotations-are-free/2")}
    monkeypatch.setattr(command, "exercises", lambda: few)
    monkeypatch.setattr(command, "STORED", tmp_path / "table.json")
    assert command.main(["--check"]) == 1
    assert "run python -m attnbook.answers" in capsys.readouterr().err
    assert command.main([]) == 0
    first = (tmp_path / "table.json").read_text(encoding="utf-8")
    assert json.loads(first)["exercises"] == {name: STORED[name] for name in few}
    assert command.main([]) == 0
    assert (tmp_path / "table.json").read_text(encoding="utf-8") == first
    assert "up to date" in capsys.readouterr().out
    assert command.main(["--check"]) == 0


def test_answers_are_shown_to_teachers(capsys) -> None:
    assert command.main(["--show", "02-two-steps/2"]) == 0
    assert "21.08" in capsys.readouterr().out
    assert command.main(["--show", "02-two-step"]) == 2
    assert "did you mean '02-two-steps'" in capsys.readouterr().err


def test_the_table_reveals_nothing(answers) -> None:
    text = command.STORED.read_text(encoding="utf-8")
    hashes = [digest for entry in STORED.values() for digest in entry["accepted"]]
    assert all(re.fullmatch(r"[0-9a-f]{32}", digest) for digest in hashes)
    assert len(set(hashes)) == len(hashes)  # equal answers of two exercises have different hashes, as these two show:
    assert round(answers["02-two-steps/2"], 6) == round(answers["09-thresholds/3"], 6)
    assert all(entry["accepted"] == sorted(entry["accepted"]) for entry in STORED.values())
    assert COST >= 2**14
    for name, value in answers.items():
        one = EXERCISES[name]
        canonical = table.rounded(Decimal(value), one.digits)
        digits = one.digits or len(canonical)
        forms = {canonical, f"{value:.{digits}g}", f"{value:.{digits - 1}e}", f"{float(canonical):g}"}
        for form in forms:
            assert not re.search(rf"(?<![\d.]){re.escape(form)}(?![\d.]*\d)", one.asks), f"{name} asks with its answer"
            for plain in (hashlib.md5, hashlib.sha1, hashlib.sha256):
                assert plain(form.encode()).hexdigest()[:16] not in text
        assert set(STORED[name]) == {"asks", "digits", "accepted"}


# --- pages ----------------------------------------------------------------------------------------------------------


def test_every_page_with_exercises_has_one_that_is_checked_and_checked_ones_are_there() -> None:
    checked = {name.partition("/")[0] for name in EXERCISES}
    assert checked == {name for name, page in PAGES.items() if points(page, folded=False)}
    assert len(PAGES) == len(find_pages(ROOT))
    for page, _, number in (name.partition("/") for name in EXERCISES):
        assert int(number) in points(PAGES[page], folded=False).keys() & points(PAGES[page], folded=True).keys()


def test_what_is_asked_for_does_not_tell_how() -> None:
    def runs(text: str) -> set[str]:
        said = words(re.sub(r"`[^`]*`", " ", text)).split()
        return {" ".join(said[k : k + 4]) for k in range(len(said) - 3)}

    for name, one in EXERCISES.items():
        page, _, number = name.partition("/")
        given, solved = (points(PAGES[page], folded)[int(number)] for folded in (False, True))
        assert runs(one.asks) & runs(solved) - runs(given) == set(), name


# --- gathered on another page ---------------------------------------------------------------------------------------


def test_the_short_book_ends_with_twenty_exercises_of_its_own_pages_that_are_checked() -> None:
    text = (ROOT / "book" / "short_book.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(notebooks/\S+)((?: \d+)+)$", text, re.M)
    named = [f"{table.page_prefix(page)}{number}" for page, numbers in rows for number in numbers.split()]
    assert len(set(named)) == len(named) == 20
    assert set(named) <= set(EXERCISES)
    path = dict(groups(ROOT))[settings(ROOT).path]
    assert [page for page, _ in rows] == [page for page in path if page in dict(rows)]
    assert len(rows) >= len(path) - 2  # neither the story nor the last page has exercises


def test_an_exercise_is_told_with_its_solution_where_there_is_one(tmp_path: Path, monkeypatch) -> None:
    entry = {"asks": "This number.", "digits": 2, "accepted": []}
    write(tmp_path / "table.json", json.dumps({"scrypt_n": FAST, "exercises": {"01-p/1": entry, "01-p/2": entry}}))
    write(tmp_path / "pyproject.toml", '[tool.bookkit]\nexercises = "table.json"\n')
    write(tmp_path / "_toc.yml", "")
    text = "\n## Exercises\n\n1. First,\n   see [b](02_q.ipynb).\n2. Second $x$.\n3. Third.\n\n"
    folded = "<details>\n<summary>Solutions</summary>\n\n1. One.\n2. Two.\n\n</details>\n"
    rows = "notebooks/w/01_p 2 1 3\nnotebooks/w/09_x 1"
    monkeypatch.chdir(tmp_path)
    for solutions, found in ((folded, ["Two.", "One."]), ("**Check your answers.** Not this.\n", [])):
        cells = [v4.new_markdown_cell("# P.1 A page\n"), v4.new_markdown_cell(text + solutions + "\n## Where to go\n")]
        write(tmp_path / "notebooks/w/01_p.ipynb", writes(v4.new_notebook(cells=cells)))
        write(tmp_path / "notebooks/w/02_q.ipynb", "{}")
        start = {"book/all": f"# All\n\n```{{gathered-exercises}}\n{rows}\n```\n"}
        html, told = rendered(tmp_path, start, "bookkit.exercises.pages", myst_enable_extensions=["dollarmath"])
        shown = (html / "book" / "all.html").read_text(encoding="utf-8")
        items = re.findall(r"<li>(.*?)</li>", re.split("gathered-exercises|</ol>", shown)[1], re.S)
        assert [re.sub("<[^>]*>", "", item).strip().split("\n")[0] for item in items] == ["Second \\(x\\).", "First,"]
        assert all("This number (two digits), exercise" in item for item in items)
        assert re.findall(r"<summary>Solution</summary>\s*<p>(.*?)</p>", shown, re.S) == found
        assert "Not this" not in shown
        assert [line for line in told.splitlines() if "that can be checked" in line] != []
        assert re.findall(r"(\S+) has no exercise (\d)", told) == [("notebooks/w/01_p", "3"), ("notebooks/w/09_x", "1")]


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "Not answered yet: put your number in place of None"),
        ("21.1", "without quotes; got the text '21.1'"),
        (True, "must be a number; got True"),
        (math.nan, "must be a finite number; got nan"),
        (-math.inf, "must be a finite number; got -inf"),
        (Decimal("NaN"), "must be a finite number; got NaN"),
        (21.1 + 0j, "must be a real number; got the complex number (21.1+0j)"),
        (np.array([21.1, 3.0]), "must be one number; got an array of shape (2,)"),
        (torch.ones(2, 3), "must be one number; got an array of shape (2, 3)"),
        (torch.tensor(math.nan), "must be a finite number; got nan"),
        ([21.1], "must be one number; got a list of 1"),
        ({"a": 1, "b": 2}, "must be one number; got a dict of 2"),
        (check, "must be a number; got an object of type function"),
    ],
)
def test_what_is_no_number_gets_a_sentence(entries, given: object, told: str) -> None:
    reply = say(entries, "02-two-steps/2", given)
    assert not reply
    assert told in str(reply) == repr(reply)
    assert re.fullmatch(r"[^\n]+\.", str(reply))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("02-two-steps/9", "on that page only 02-two-steps/1, 02-two-steps/2"),
        ("02_two_steps/2", "did you mean '02-two-steps/2'?"),
        ("two-steps/2", "did you mean '02-two-steps/2'?"),
        ("single_head/02_two_steps/2", "did you mean '02-two-steps/2'?"),
        ("zzz", "the student notebooks hold the names"),
        (7, "got 7"),
    ],
)
def test_an_unknown_exercise_is_refused_in_one_sentence(entries, name: object, told: str) -> None:
    with pytest.raises(ValueError, match="exercise must be the name of a page and a number") as error:
        say(entries, name, 1)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_the_check_needs_neither_torch_nor_what_colab_may_lack() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, *rest):
        ours = {"attnlib", "attnbook", "bookkit"}
        if name.partition(".")[0] not in sys.stdlib_module_names | ours or name.startswith("attnbook.answers"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
from attnbook.exercises import check
print(check("02-two-steps/2", 21.1), check("02-two-steps/2", None))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    right = "Right, up to rounding at three digits."
    assert done.stdout.startswith(f"{right} Not answered yet: put your number in place of None"), done.stderr


def test_crossing_finds_a_root() -> None:
    assert crossing(lambda x: x**3 - 2, 0, 2) == pytest.approx(2 ** (1 / 3), rel=1e-12)


def test_students_install_the_table_and_no_answers() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert setuptools["package-data"]["attnbook.exercises"] == [TABLE.name]
    rule = setuptools["packages"]["find"]
    named = {"include": rule["include"], "exclude": rule["exclude"]}
    installed = [name for folder in rule["where"] for name in find_packages(str(ROOT / folder), **named)]
    assert {"attnbook.exercises", "bookkit.exercises"} <= set(installed)
    assert [name for name in installed if "answers" in name] == []
