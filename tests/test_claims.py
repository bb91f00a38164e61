"""Tolerance rules, verdicts and records: each rule accepts what it should and refuses the wrong constant."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook, new_output

from attnbook.single_head.max_margin.claims import CLAIMS as margin
from attnbook.token_selection.time_laws.claims import CLAIMS as time_laws
from bookkit import claims
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.ledger.records import checks_of, problems
from bookkit.ledger.words import coarse_words
from bookkit.results import CLAIMS_TYPE
from bookkit.rules import agrees, both, exactly, within
from bookkit.sharpness import NoNumber, of_record
from bookkit.verdicts import by_number, shortened


def _not_positive(study):
    return "" if (study > 0).all() else f"needs x > 0; here {study.min():.1f}"


@pytest.fixture
def family():
    family = ClaimSet("test part")

    @family.claim("X1", wrong=1.1, source=Source.PAPER)
    def ones(study, constant):
        """ones
        $x = 1$
        wrong: 1.1"""
        return exactly(study, constant * torch.ones_like(study))

    @family.claim("X2", wrong=0.5, expected=Verdict.FAILS, box="a-box", uses="X1 b-box", violation=_not_positive)
    def twos(study, constant):
        r"""twos
        $x = 2$, in a statement that is longer
        than a line: a regime is not said in it
        regime: $x > 0$,
        strictly
        wrong: half of it"""
        return exactly(study, 2 * constant * torch.ones_like(study))

    return family


def test_verdicts_controls_and_expectations(family):
    first, second = family.check(torch.ones(3))
    assert (first.verdict, first.has_power, first.as_expected) == (Verdict.HOLDS, True, True)
    assert (second.verdict, second.has_power, second.as_expected) == (Verdict.FAILS, True, True)
    first, second = family.check(2 * torch.ones(3))
    assert (first.verdict, first.as_expected) == (Verdict.FAILS, False)
    assert not first.has_power  # both the claim and its negative control fail: the check says nothing
    assert (second.verdict, second.as_expected) == (Verdict.HOLDS, False)
    outside = family["X2"].check(-torch.ones(3))
    assert outside.verdict == Verdict.OUTSIDE
    assert outside.as_record()["violated"] == "needs x > 0; here -1.0"


def test_nothing_to_measure_is_outside_not_a_crash(family):
    family.claim("X3", "mean\nthe mean is 1\nwrong: 2", wrong=2.0)(lambda study, constant: agrees(study, constant))
    result = family["X3"].check(torch.ones(1))
    assert result.verdict == Verdict.OUTSIDE
    assert "two draws or more" in result.violated


def test_a_docstring_says_title_statement_regime_and_control(family):
    twos = family["X2"]
    assert (twos.title, twos.regime, twos.wrong_text) == ("twos", "$x > 0$, strictly", "half of it")
    assert twos.statement == "$x = 2$, in a statement that is longer than a line: a regime is not said in it"
    assert (twos.box, twos.uses, twos.source) == (("a-box",), ("X1", "b-box"), Source.DERIVED)
    many = family.claim("X3", "made for many\nso\nwrong: otherwise", wrong=2.0, regime="shared")(lambda s, c: None)
    assert many.__doc__ is None
    assert (family["X3"].title, family["X3"].statement, family["X3"].regime) == ("made for many", "so", "shared")


def test_a_docstring_gives_each_part_its_reason(family):
    words = "t\ns\nwrong: w\ncoarse 1, 3: proved, with\nits constant\ncoarse 2: five draws: an hour"
    family.claim("X3", words, wrong=2.0)(lambda study, constant: both(*[exactly(study, constant * study)] * 3))
    reasons = {"1": "proved, with its constant", "3": "proved, with its constant", "2": "five draws: an hour"}
    record = family["X3"].check(torch.ones(3)).as_record()
    assert record["coarse"] == reasons
    assert coarse_words(record) == "part 1 and 3: proved, with its constant; part 2: five draws: an hour"
    family.claim("X4", "t\ns\nwrong: w\ncoarse: proved.", wrong=2.0)(lambda study, constant: exactly(study, constant))
    assert coarse_words(family["X4"].check(torch.ones(3)).as_record()) == "proved"
    with pytest.raises(ValueError, match="coarse must name its part in each line, or in none"):
        family.claim("X5", f"{words}\ncoarse: all", wrong=2.0)(lambda study, constant: None)


def test_nan_refuses_and_tells_nothing_apart(family):
    """A diverged draw refuses the claim; a control that makes nan of good draws has refused nothing."""
    low = ClaimSet("test part")

    @low.claim("N1", wrong=(-1.0, 2.0))
    def roots(study, constant):
        """roots
        $\\sqrt{x} = 1$
        wrong: minus x; twice it"""
        return both(agrees((constant * study).sqrt(), 1.0, allowance=0.1), within(study, low=constant))

    good = low["N1"].check(torch.ones(5))
    assert (good.verdict, good.has_power, good.told) == (Verdict.HOLDS, False, [True, True])
    assert good.as_record()["negative_control"]["no_number"]  # minus x: part 1 is no number, part 2 holds
    lost = low["N1"].check(torch.tensor([1.0, 1.0, 1.0, math.nan, math.nan]))
    assert (lost.verdict, lost.has_power, lost.told) == (Verdict.FAILS, False, [False, False])
    assert lost.evidence.measured == "2 of 5 values are no number"
    record = {**lost.as_record(), "page": "p", "expected": "fails"}
    in_own_words = replace(lost, evidence=replace(lost.evidence, measured="all is well"))
    assert in_own_words.as_record()["measured"] == "2 of 5 values are no number; all is well"
    assert any("2 of 5 values are no number" in problem for problem in problems([record]))


def test_nan_refuses_the_judges_of_the_book():
    """Three of five searches that found no number; errors that 60 of 100 trainings did not give."""
    found = {
        name: torch.full((5, 3), value, dtype=torch.float64)
        for name, value in (("margin", 5.0), ("log10_at_most", -50.0), ("best", 1.0))
    }
    assert margin["T2"].seen(SimpleNamespace(above=SimpleNamespace(**found))).holds
    for name, missing in (("margin", "9 of 15"), ("log10_at_most", "3 of 5")):  # the bound is judged at one size of p
        lost = found[name].clone()
        lost[:3] = math.nan
        seen = margin["T2"].seen(SimpleNamespace(above=SimpleNamespace(**{**found, name: lost})))
        assert (seen.holds, f"{missing} values are no number" in seen.measured) == (False, True)
    columns = {"clean_fitted": 1.0, "noisy_fitted": 0.0, "error": 1e-9, "fresh_attention": 0.5}
    found = SimpleNamespace(**{name: np.full((20, 5), value) for name, value in columns.items()})
    study = SimpleNamespace(at_half=found)
    assert time_laws["TS36"].seen(study).holds
    found.error[:12] = math.nan
    refused = time_laws["TS36"].seen(study)
    assert [part.words for part in refused.parts if isinstance(part, NoNumber)] == ["60 of 100 values are no number"]
    assert not refused.holds


@pytest.mark.parametrize(
    ("id", "words", "told"),
    [
        ("X1", "again\nx\nwrong: y", "'X1' twice"),
        ("X9", "", "docstring of the judge of X9 must hold .*; got no title"),
        ("X9", "a title\nwrong: w", "got no statement"),
        ("X9", "a title\na statement", "got no wrong"),
        ("X9", "a title\ns\nwrong: ", "got no wrong"),
    ],
)
def test_an_id_in_use_and_words_that_lack_a_line_are_refused(family, id, words, told):
    with pytest.raises(ValueError, match=told):
        family.claim(id, words, wrong=1.0)(lambda s, c: None)
    assert list(family) == ["X1", "X2"]


def test_claims_without_docstrings_say_who_dropped_them():
    command = [sys.executable, "-OO", "-c", "import attnbook.one_token.claims"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.rstrip().endswith("got no title: python -OO and PYTHONOPTIMIZE=2 drop docstrings")


def test_records_survive_json_and_a_notebook(family, monkeypatch):
    shown = {}
    monkeypatch.setattr(
        claims, "publish", lambda *parts: shown.update(zip(("payload", "text", "table"), parts[1:], strict=True))
    )
    claims.verdict_table(family.check(torch.ones(3)))
    payload = json.loads(json.dumps(shown["payload"], allow_nan=False))
    output = new_output("display_data", data={CLAIMS_TYPE: payload, "text/plain": shown["text"]})
    records = checks_of(new_notebook(cells=[new_code_cell("1"), new_code_cell("2", outputs=[output])]))
    assert [record["id"] for record in records] == ["X1", "X2"]
    assert records[0]["source"] == "paper"
    control = records[0]["negative_control"]
    assert (control["wrong"], control["verdict"], control["told"]) == ("1.1", "fails", [True])
    assert of_record(records[0])[0].holds
    assert records[1]["expected"] == "fails"
    assert records[1]["function"].endswith("twos")
    assert "<span class='verdict verdict-fails'>fails as expected</span>" in shown["table"]
    assert shown["table"].count("<details>") == shown["table"].count("<dt>Negative control</dt><dd>") == 2
    assert "half of it: holds, told apart" in shown["table"]
    assert "as expected" in shown["text"]


def test_a_page_shows_twelve_claims_and_folds_the_rest(monkeypatch):
    many, shown = ClaimSet("test part"), []
    for i in range(14):
        many.claim(f"X{i}", f"title {i}\n$x = 1$\nwrong: 1.1", wrong=1.1)(
            lambda x, c: exactly(x, c * torch.ones_like(x))
        )
    checks = many.check(torch.ones(3))
    monkeypatch.setattr(claims, "publish", lambda kind, *parts: shown.append(parts))
    claims.verdict_table([*checks[3:], checks[0]], further=checks[1:3])
    claims.verdict_table(checks[:7], further=checks[7:])
    (records, text, table), (same, same_text, _) = shown
    assert (records, text) == (same, same_text)  # what is stored does not depend on what is folded
    assert [record["id"] for record in records] == list(many)
    seen, folded = table.split("<details class='verdict-further'><summary><span>Further claims (2)</span></summary>")
    assert [re.findall(r"<b>(X\d+)</b>", part) for part in (seen, folded)] == [["X0", *list(many)[3:]], ["X1", "X2"]]
    assert table.count("<details") == table.count("</details>") == 15
    for refused in ([], checks[:13]):
        with pytest.raises(ValueError, match=f"1 to 12 checks to show openly; got {len(refused)}: put the rest"):
            claims.verdict_table(refused, further=checks)


def test_claims_stand_in_the_order_in_which_people_count():
    ids = [record["id"] for record in by_number([{"id": name} for name in "Q96 Q1 Q10 C10 Q2b Q2".split()])]
    assert ids == "C10 Q1 Q2 Q2b Q10 Q96".split()


@pytest.mark.parametrize(("measured", "short"), [
    ("0.1716 +- 0.004; difference -0.004 +- 0.004", "0.1716 ± 0.004"),
    ("0.97 +- 0.006; difference 0.003 +- 0.006; [1, 1]; inside in 20 of 20 draws", "0.97 ± 0.006; [1, 1]"),
    ("a; b; c", "a; b; …"),
    ("1, 2, 3, 4", "1, 2, …"),
    ("[1, 2]; [3, 4]", "[1, 2]; [3, 4]"),
    ("no bit differs", "no bit differs"),
])  # fmt: skip
def test_what_was_measured_in_short(measured, short):
    assert shortened(measured) == short
