"""How far numbers are determined: tolerances derived, kept, read; what they let pass and what they do not."""

import math
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookkit.pages import tolerances
from bookkit.pages.catalogue import Page, UserError, find_pages
from bookkit.pages.stability import Measurement, measure, prune, stored_numbers
from bookkit.pages.stored_outputs import compare_outputs, json_leaves, units_apart
from bookkit.pages.tolerances import Tolerance, Tolerances, derive, path_beside, read, standing, too_wide
from bookkit.results import CLAIMS_TYPE, RESULTS_TYPE
from tests.house import ROOT

PAGES = find_pages(ROOT)


def results(**values) -> dict:
    text = "\n".join(f"{name} = {value}" for name, value in values.items())
    return new_output("display_data", data={RESULTS_TYPE: values, "text/plain": text})


def claim(measured: str, **numbers) -> dict:
    record = {"id": "C8", "verdict": "holds", "draws": 20, "measured": measured, "numbers": numbers}
    return new_output("display_data", data={CLAIMS_TYPE: [record], "text/plain": f"C8 holds {measured}"})


def printed(text: str) -> dict:
    return new_output("stream", name="stdout", text=text)


def page(*outputs: dict):
    return new_notebook(cells=[new_code_cell("", outputs=[output]) for output in outputs])


# --- what a tolerance is


@pytest.mark.parametrize(
    ("value", "changes", "hard", "allowed", "reason"),
    [
        (7, [0.0, 0.0], [], 0.0, "exact"),
        (2.0, [0.0, 0.0], [], 2e-9, "exact"),  # nothing moved it: a few million roundings are let pass
        (2.0, [1e-15, 4e-15], [], 2e-9, "rounding"),
        (2.0, [1e-9, 4e-9, 2e-9], [], 1.2e-7, "rounding"),  # thirty times the largest
        (-2.0, [4e-9], [], 1.2e-7, "rounding"),
        (2.0, [1e-3, 2.001e-3], [], 0.06, "chance"),  # above one part in a thousand
        (2.0, [0.1], [], 0.4, "chance"),
        (3e-16, [2e-16], [], 1e-12, "exact"),  # zero, but for rounding
        (0.0, [0.0], [], 1e-12, "exact"),
        (0.0, [1e-3], [], 4e-3, "chance"),
        (1.0, [0.0, 0.0], [1e-3], 4e-3, "jump"),  # nothing moved it, then it falls over an edge
        (1.0, [1e-12], [4e-9], 1e-9, "rounding"),  # in proportion
        (1.0, [1e-3], [1e-3], 3e-2, "rounding"),  # chaos: as far as it goes
        (1.0, [0.0], [1e-12], 1e-9, "exact"),
    ],
)
def test_a_tolerance_is_derived_from_the_largest_change(value, changes, hard, allowed: float, reason: str) -> None:
    found = derive(value, changes, hard)
    assert (found.allowed, found.reason) == (pytest.approx(allowed, rel=1e-12), reason)
    assert derive(4.0, [0.0, 4.0 * 1000 * 2.0**-52]).amplification == pytest.approx(1000)


@pytest.mark.parametrize(
    ("value", "allowed", "digits"),
    [(1.00007, 1e-4, 4), (1.00007, 2e-5, 4), (1.00007, 1e-5, 5), (123.0, 1.0, 2), (-0.5, 0.2, 1), (0.5, 0.25, 0), (1.0, 3.0, 0),
     (1.0, 0.0, 15), (1.0, 1e-20, 15), (1e-17, 1e-12, 15)],
)  # fmt: skip
def test_standing_digits(value: float, allowed: float, digits: int) -> None:
    assert standing(value, allowed) == digits
    told = list(too_wide({"a": value}, Tolerances(numbers={"a": Tolerance(allowed, "chance")})))
    assert [each[:3] for each in told] == ["a ="] * (digits == 0)


# --- what is compared


def test_each_number_has_its_own_tolerance() -> None:
    known = Tolerances(numbers={"a": Tolerance(1e-3, "rounding"), "b": Tolerance(1e-9, "exact")})
    stored = [results(a=1.0, b=1.0)]
    assert compare_outputs(stored, [results(a=1.0009, b=1.0 + 9e-10)], known) == []
    assert (
        "a: stored 1.0, now 1.0011 (tolerance 0.001)" in compare_outputs(stored, [results(a=1.0011, b=1.0)], known)[0]
    )
    assert compare_outputs([results(a=1.0)], [results(a=1 + 9e-7)]) == []  # what was not measured has a common one
    assert compare_outputs([results(a=1.0)], [results(a=1 + 2e-6)]) != []
    changed = results(a=1.0)
    changed.data["text/plain"] = "b = 1.0"  # of a table that repeats numbers, the words
    assert compare_outputs([results(a=1.0)], [changed], known) != []
    assert "b: stored" in compare_outputs(stored, [results(a=1.0, b=1.000000002)], known)[0]


def test_entries_of_lists_and_numbers_of_claims_have_addresses() -> None:
    known = Tolerances(numbers={"mu[1]": Tolerance(1e-2, "rounding"), "C8:slope": Tolerance(1e-2, "rounding")})
    assert compare_outputs([results(mu=[1.0, 2.0])], [results(mu=[1.0, 2.009])], known) == []
    assert compare_outputs([results(mu=[1.0, 2.0])], [results(mu=[1.009, 2.0])], known) != []
    assert compare_outputs([claim("1", slope=0.5)], [claim("1", slope=0.505)], known) == []
    assert compare_outputs([claim("1", start=0.5)], [claim("1", start=0.505)], known) != []
    leaves = dict(json_leaves([results(mu=[1.0, 2.0]), claim("3.1 of 4", slope=0.5)]))
    assert leaves == {
        "mu[0]": 1.0, "mu[1]": 2.0, "C8.id": "C8", "C8.verdict": "holds", "C8.draws": 20, "C8.measured": "3.1 of 4", "C8:slope": 0.5,
    }  # fmt: skip


def test_a_printed_number_that_moves_may_differ_in_its_last_digit_only() -> None:
    known = Tolerances(moving=frozenset({"cell 3 stdout 1#1", "C8.measured 0#0"}))
    stored, near, far = "a\n1.5 and 2.5\n", "a\n1.5 and 2.6\n", "a\n1.5 and 2.7\n"
    assert compare_outputs([printed(stored)], [printed(near)], known, 3) == []
    assert compare_outputs([printed(stored)], [printed(far)], known, 3) != []
    assert compare_outputs([printed(stored)], [printed(near)], known, 4) != []
    assert compare_outputs([printed(stored)], [printed("a\n1.6 and 2.5\n")], known, 3) != []
    assert compare_outputs([claim("1.5 of 9")], [claim("1.6 of 9")], known) == []
    assert compare_outputs([claim("1.5 of 9")], [claim("1.5 of 8")], known) != []


@pytest.mark.parametrize(
    ("one", "two", "units"),
    [("1.25", "1.26", 1), ("1.25", "1.28", 3), ("1e-05", "2e-05", 1), ("1.5e3", "1.7e3", 2), ("−1.5", "-1.6", 1), ("0.99", "1.0", 0.1),
     ("3", "3", 0), ("3", "4", math.inf)],
)  # fmt: skip
def test_units_of_the_last_digit(one: str, two: str, units: float) -> None:
    assert units_apart(one, two) == pytest.approx(units)


# --- what is measured


def test_numbers_words_and_digits_are_measured_by_machine() -> None:
    stored = page(results(a=1.0, n=3), claim("1.50 of 9", slope=2.0), printed("x 1.25\ny 7.1\n"))
    near = page(results(a=1.0 + 1e-7, n=3), claim("1.51 of 9", slope=2.0), printed("x 1.28\ny 7.1\n"))
    hard = page(results(a=1.0001, n=4), claim("1.50 of 8", slope=2.1), printed("x 1.25\ny 7.2\n"))
    found = measure(stored, {"old": near, "hard-1": hard})
    known = found.tolerances("nehalem")
    assert known.numbers["a"].allowed == pytest.approx(3e-6)  # the hard shake is in proportion
    assert known.numbers["a"].reason == "rounding"
    assert known.numbers["C8:slope"] == Tolerance(pytest.approx(0.4), "jump", pytest.approx(0.05 * 2**52))
    assert known.numbers["n"] == Tolerance(0.0, "exact")
    assert known.moving == {"C8.measured 0#0", "cell 3 stdout 0#0", "cell 3 stdout 1#0"}
    assert known.machines == ("old", "hard-1")
    (fault,) = found.faults()
    assert fault.startswith("cell 3 stdout 0#0: the printed number moves by 3 units of its last digit")
    found = measure(page(results(a=-0.91433350, b=0.5)), {"old": page(results(a=-0.91357855, b=0.5 + 1e-9))})
    assert found.faults() == ["a = -0.9143335 moves by 0.0008, and its table shows -0.91433: round it to 3 digits"]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (page(results(a=1.0, n=4)), "old: code cell 1, n: stored 3, there 4"),
        (page(results(a=None, n=3)), "old: code cell 1, a: stored 1.0, there None"),
        (page(results(b=1.0, n=3)), "old: code cell 1, a: stored 1.0, there None"),
    ],
)
def test_a_changed_count_name_or_word_is_a_fault(other, told: str) -> None:
    assert told in measure(page(results(a=1.0, n=3)), {"old": other}).faults()
    words = measure(page(claim("holds in 9 draws")), {"old": page(claim("holds in 8 draws"))})
    assert "holds in 8 draws" in words.faults()[0]


def test_another_picture_is_a_fault() -> None:
    one, other = (new_output("display_data", data={"image/png": text}) for text in ("AAAA", "BBBB"))
    told = "old: code cell 1, image/png: the stored one is no picture"
    assert measure(page(one), {"same": page(one), "old": page(other), "hard-1": page(other)}).faults() == [told]


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    notebook = tmp_path / "01_page.ipynb"
    assert read(notebook) == tolerances.NONE
    known = Tolerances(
        "nehalem", ("native", "shake-1"), {"a": Tolerance(1e-3, "rounding", 2e9)}, frozenset({"cell 3 stdout 1#0"})
    )
    path_beside(notebook).write_text(known.as_json())
    assert path_beside(notebook).name == "01_page.tolerances.json"
    assert read(notebook) == known
    assert Measurement().tolerances("x").as_json() == Tolerances("x").as_json()


SLOPE = Tolerances(
    "nehalem",
    ("native",),
    {"C8:slope": Tolerance(1.2e-7, "rounding", 9e6), "n": Tolerance(0.0, "exact")},
    frozenset({"C8.measured 0#1"}),
)
EDITS = {
    "wider": ("1.2e-07", "1.2e-02"),
    "another reason": ('"rounding"', '"chance"'),
    "another amplification": ("9000000.0", "90000000.0"),
    "another printed number": ("0#1", "0#2"),
    "another machine": ("native", "zen"),
    "a number gone": (',\n  "n": [0.0, "exact", 0.0]', ""),
    "the hash gone": ('"sha256"', '"sha"'),
}


@pytest.mark.parametrize(("old", "new"), EDITS.values(), ids=EDITS)
def test_a_file_that_was_edited_is_refused_and_says_how_it_is_made_again(tmp_path: Path, old: str, new: str) -> None:
    path = path_beside(tmp_path / "01_page.ipynb")
    assert old in SLOPE.as_json()
    path.write_text(SLOPE.as_json().replace(old, new))
    said = r"^01_page.tolerances.json was edited: `python -m attnlib stability .*/01_page --write` measures again \(`--prune`"
    with pytest.raises(UserError, match=said):
        read(tmp_path / "01_page.ipynb")
    path.write_text(read(tmp_path / "01_page.ipynb", edited=True).as_json())
    read(tmp_path / "01_page.ipynb")


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (7, Tolerance(0.4, "exact")),
        (2.0, Tolerance(8e-9, "exact")),
        (2.0, Tolerance(1e-7, "rounding", 1e6)),  # 30 * 1e6 * 2^-52 * 2 = 1.3e-8
        (2.0, Tolerance(0.3, "chance", 1e12)),
        (2.0, Tolerance(0.1, "jump", 1e12)),
        (1e-15, Tolerance(1e-11, "exact")),
        (0.0, Tolerance(1e-3, "chance")),
    ],
)
def test_a_tolerance_wider_than_its_measurement_is_found_and_pruning_makes_it_narrow(value, known: Tolerance) -> None:
    kept = Tolerances(numbers={"a": known, "gone": Tolerance(1.0, "exact")})
    (told,) = tolerances.unexplained({"a": value}, kept)
    assert told.startswith(f"a = {value:.6g} has the tolerance {known.allowed:.1e}, and its measured amplification")
    left = tolerances.pruned({"a": value, "new": 1.0}, kept)
    assert left.numbers.keys() == {"a"}
    assert left.numbers["a"].allowed < known.allowed / 3
    assert list(tolerances.unexplained({"a": value}, left)) == []


@pytest.mark.parametrize(
    ("value", "changes", "hard"),
    [
        (2.0, [], []),
        (2.0, [4e-9], []),
        (-3e7, [0.7], []),
        (2.0, [0.1], []),
        (1.0, [1e-13], [1e-3]),
        (3e-16, [], []),
        (7, [1], []),
    ],
)
def test_what_was_measured_and_kept_explains_itself(value, changes: list, hard: list, tmp_path: Path) -> None:
    notebook = tmp_path / "01_page.ipynb"
    path_beside(notebook).write_text(Tolerances(numbers={"a": derive(value, changes, hard)}).as_json())
    assert list(tolerances.unexplained({"a": value}, read(notebook))) == []
    assert tolerances.pruned({"a": value}, read(notebook)) == read(notebook)


def test_a_number_of_the_book_made_wider_is_found_though_the_file_is_sealed_again() -> None:
    one = next(page for page in PAGES if page.name == "single_head/02_two_steps")
    stored, known = stored_numbers(nbformat.read(one.stored, as_version=4)), read(one.stored)
    for name, tolerance in known.numbers.items():
        wide = replace(known, numbers=known.numbers | {name: replace(tolerance, allowed=1e5 * tolerance.allowed)})
        assert len(list(tolerances.unexplained(stored, wide))) == (tolerance.allowed > 0), name


def test_numbers_that_went_are_forgotten_without_a_run(tmp_path: Path, capsys) -> None:
    one = Page("part/01_page", tmp_path / "01_page.md", tmp_path / "01_page.ipynb")
    nbformat.write(page(results(fresh=2.5), claim("1", slope=2.0)), one.stored)
    path_beside(one.stored).write_text(SLOPE.as_json())
    prune(one)
    assert capsys.readouterr().out == (
        "part/01_page: 1 forgotten, 0 made narrower, 1 kept\n"
        "  not measured: C8.draws, fresh: `bookkit stability part/01_page --write`\n"
    )
    assert read(one.stored).numbers == {"C8:slope": SLOPE.numbers["C8:slope"]}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"stored_on": "x", "machines": [], "numbers": {"a": [1]}, "moving": []}',
     '{"stored_on": "x", "machines": [], "numbers": {"a": [-1, "exact", 0]}, "moving": []}',
     '{"stored_on": "x", "machines": [], "numbers": {"a": [NaN, "exact", 0]}, "moving": []}',
     '{"stored_on": "x", "machines": [], "numbers": {"a": [1, "guess", 0]}, "moving": []}'],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path_beside(tmp_path / "01_page.ipynb").write_text(text)
    with pytest.raises(UserError, match=r"01_page.tolerances.json"):
        read(tmp_path / "01_page.ipynb")


# --- the pages of the book


@pytest.mark.parametrize("one", PAGES, ids=[p.name for p in PAGES])
def test_every_stored_number_of_the_book_was_measured_and_stands_to_one_digit(one) -> None:
    notebook = nbformat.read(one.stored, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    cells = [cell for cell in code if "nbval-ignore-output" not in cell.metadata.get("tags", [])]
    leaves = [leaf for cell in cells for leaf in json_leaves(cell.outputs)]
    stored = {name: value for name, value in leaves if type(value) in (int, float)}
    known = read(one.stored)
    assert sorted(set(stored) ^ set(known.numbers)) == [], (
        "attnlib stability PAGE --write measures new numbers, --prune forgets old ones"
    )
    assert list(too_wide(stored, known)) == []
    assert list(tolerances.unexplained(stored, known)) == []
    assert {"native", "hard-1"} <= set(known.machines)
    assert {"haswell", "zen"} & set(known.machines)  # most were measured when haswell could still be emulated
