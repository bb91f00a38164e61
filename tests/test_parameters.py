"""Names of pages, and parameters: what a parameters cell says, and which values it lets through."""

import math
from pathlib import Path

import pytest

from attnbook.room import require_room
from attnlib import limits
from bookkit.pages.catalogue import UserError, find_pages, find_root, resolve_page, write_atomically
from bookkit.pages.parameters import check_parameters, number_from_text, page_parameters, parse_parameters, parse_range
from tests.house import ROOT
from tests.tiny_page import PAGE, make_book


@pytest.fixture
def page(tmp_path: Path):
    return resolve_page("tiny", make_book(tmp_path))


# --- names of pages


@pytest.mark.parametrize(
    "given",
    ["part/01_tiny", "01_tiny", "tiny", "part/tiny", "notebooks/part/01_tiny.md", "notebooks/part/01_tiny.ipynb",
     "part/../part/01_tiny.md"],  # seen from where one stands
)  # fmt: skip
def test_a_page_answers_to_its_short_names_and_to_both_its_files(tmp_path: Path, monkeypatch, given: str) -> None:
    make_book(tmp_path)
    monkeypatch.chdir(tmp_path / "notebooks")
    assert resolve_page(given, tmp_path).name == "part/01_tiny"
    assert resolve_page(str(tmp_path / "notebooks/part/01_tiny.ipynb"), tmp_path).name == "part/01_tiny"
    assert find_root() == find_root(tmp_path / "notebooks/part") == tmp_path.resolve()


def test_an_unknown_or_ambiguous_page_is_told_the_nearest_and_all_or_the_candidates(tmp_path: Path) -> None:
    make_book(make_book(tmp_path), name="part/02_other")
    with pytest.raises(UserError, match=r"no page 'tinny'; did you mean 'tiny'\? pages: part/01_tiny, part/02_other$"):
        resolve_page("tinny", tmp_path)
    make_book(tmp_path, name="other/01_tiny")
    with pytest.raises(UserError, match=r"'tiny' names several pages.*: other/01_tiny, part/01_tiny$"):
        resolve_page("tiny", tmp_path)
    assert resolve_page("part/tiny", tmp_path).name == "part/01_tiny"


def test_prose_and_hidden_folders_are_no_pages(tmp_path: Path) -> None:
    make_book(tmp_path)
    (tmp_path / "notebooks/part/README.md").write_text("# Prose\n\njupytext: not a header\n")
    (tmp_path / "notebooks/part/front.md").write_text("---\ntitle: Front matter\n---\n# Prose\n")
    make_book(tmp_path, name="part/.ipynb_checkpoints/01_tiny-checkpoint")
    assert [page.name for page in find_pages(tmp_path)] == ["part/01_tiny"]


def test_a_page_with_a_byte_order_mark_is_refused_not_passed_over(tmp_path: Path) -> None:
    page = make_book(tmp_path) / "notebooks/part/01_tiny.md"
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert [found.name for found in find_pages(tmp_path)] == ["part/01_tiny"]
    page.write_bytes("\ufeff".encode() + page.read_bytes())
    with pytest.raises(
        UserError, match=r"page 01_tiny\.md begins with a byte order mark: save it as UTF-8 without one"
    ):
        find_pages(tmp_path)


# --- the parameters cell


def test_a_parameters_cell_is_read_with_types_defaults_help_and_ranges(page) -> None:
    found = [(p.name, p.type, p.default, p.help, p.expectation) for p in page_parameters(page)]
    assert found == [
        ("n", int, 200, "training samples", "an integer >= 1"),
        ("label_noise", float, 0.05, "probability that a label is flipped, eta", "a number in [0, 0.5]"),
        ("step_size", float, 0.025, "beta of gradient descent", "a number > 0"),
        ("mode", str, "reduced", "law to draw from", "one of reduced | dense"),
        ("verbose", bool, False, "whether to say more", "true or false"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("n = 3  # samples [>= 1]", "expected `name: type = value"),
        ("import os", "expected `name: type = value"),
        ("n: list = 3  # samples [>= 1]", "type must be one of int, float, str, bool; got list"),
        ("n: int = 2 * 3  # samples [>= 1]", r"value must be a literal; got 2 \* 3"),
        ("n: int = 3", "a comment must say what the parameter means"),
        ("n: int = 3  # samples", "must end with the range in brackets"),
        ("n: int = 3  # samples [1 - 5]", r"range \[1 - 5\] is none of"),
        ("n: int = 3  # samples [5, 1]", r"range \[5, 1\] is empty"),
        ("n: int = 3  # samples [>= inf]", "a bound of a range must be a finite number; got 'inf'"),
        ("n: int = 0  # samples [>= 1]", "n must be an integer >= 1; got 0"),
        ("n: int = 0.5  # samples [>= 0]", "n must be an integer >= 0; got 0.5"),
        ("m: str = 'a'  # law [>= 1]", "must list its choices"),
        ("m: str = 'a'  # law [a | ]", "empty or a repeated choice"),
        ("n: int = (", "parameters cell is not Python"),
        ("n: int = 3  # samples [>= 1]\nn: int = 4  # samples [>= 1]", "the name is taken"),
    ],
)
def test_a_malformed_parameters_cell_is_refused_with_its_line(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error:
        parse_parameters(line)
    assert "\n" not in str(error.value)


def test_a_page_needs_exactly_one_parameters_cell(tmp_path: Path) -> None:
    page = resolve_page("tiny", make_book(tmp_path, text=PAGE.replace(":tags: [parameters]", ":tags: [other]")))
    with pytest.raises(UserError, match=r"page part/01_tiny must have exactly one .* 'parameters'; it has 0$"):
        page_parameters(page)


@pytest.mark.parametrize(
    ("text", "kind", "inside", "outside"),
    [
        ("0, 0.5", float, [0, 0.25, 0.5], [-1e-9, 0.5000001]),
        (">= 1", int, [1, 10**400], [0, -5]),
        ("> 0", float, [1e-300, 1e300], [0, -1e-300]),
        ("a | b | c", str, ["a", "c"], ["d", "a | b", ""]),
        ("1 | 2 | 4", int, [1, 4], [3, 0]),
    ],
)
def test_a_range_holds_what_it_says(text: str, kind: type, inside: list, outside: list) -> None:
    allowed = parse_range(text, kind)
    assert [value in allowed for value in inside] == [True] * len(inside)
    assert [value in allowed for value in outside] == [False] * len(outside)


# --- values


def test_good_values_come_back_with_their_declared_types(page) -> None:
    checked = check_parameters(page, {"n": 1, "label_noise": 0, "step_size": 3, "mode": "dense", "verbose": True})
    assert checked == {"n": 1, "label_noise": 0.0, "step_size": 3.0, "mode": "dense", "verbose": True}
    assert [type(value) for value in checked.values()] == [int, float, float, str, bool]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("n", "200", "parameter n must be an integer >= 1; got '200'"),
        ("n", True, "parameter n must be an integer >= 1; got True"),
        ("n", 3.0, "parameter n must be an integer >= 1; got 3.0: write 3"),
        ("n", 2**63, "parameter n must be an integer >= 1; got 9223372036854775808, which is too large"),
        ("n", None, "parameter n must be an integer >= 1; got None"),
        ("n", [1, 2], "parameter n must be an integer >= 1; got [1, 2]"),
        ("n", float("nan"), "parameter n must be an integer >= 1; got nan, which is not finite"),
        ("step_size", 10**400, "which is too large"),
        pytest.param("step_size", 10**5000, "got a int too long to show, which is too large", id="endless"),
        ("mode", 1, "parameter mode must be one of reduced | dense; got 1"),
        ("verbose", 1, "parameter verbose must be true or false; got 1"),
        ("samples", 3, "has no parameter 'samples'; it takes: n, label_noise, step_size, mode, verbose"),
        ("stepsize", 3, "has no parameter 'stepsize'; did you mean 'step_size'? it takes: n, "),
        (3, 3, "has no parameter 3; it takes: n, "),
    ],
)
def test_a_bad_value_is_refused_by_name_expectation_and_value(page, name, value, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"^page part/01_tiny") as error:
        check_parameters(page, {name: value})
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


NUMBERS = {
    "200": 200,
    "1e9": 10**9,
    "2.5e1": 25,
    "1e-3": 0.001,
    "200.0": 200.0,
    "-3": -3,
    "-0": 0,
    ".5": 0.5,
    "5.": 5.0,
}
NUMBERS |= dict.fromkeys(["1e999999999", "9" * 400], float("inf"))
NUMBERS |= dict.fromkeys(["ten", "", "1,5", "0x10", "snan", "1e", "--1", "0100", "1_000", "1:30", "\u0661", "3\n"])


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_numbers_are_read_as_people_write_them(text: str, value: float | None) -> None:
    found = number_from_text(text)
    assert (type(found), found) == (type(value), value)


# --- more than can be done

FREE = {
    "seed",
    "smallest_d",
    "largest_d",
}  # and d, where tokens of any dimension are drawn by way of their inner products


def sizes(page) -> dict[str, int]:
    """The page's whole numbers without an upper bound, with their defaults."""
    whole = (p for p in page_parameters(page) if p.type is int and p.range is not None and not p.range.choices)
    return {p.name: p.default for p in whole if math.isinf(p.range.high)}


@pytest.mark.parametrize("page", find_pages(ROOT), ids=lambda page: page.name)
def test_each_size_of_a_page_is_asked_about_before_its_kernel_starts(page, monkeypatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda device: float(1 << 31))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    own, given = {p.name: p.default for p in page_parameters(page)}, sizes(page)
    reduced = {"d"} if "tokens" in given or ("n" in given and "points" not in given) else set()
    for name in given:
        require_room(own | {name: 10 * given[name]})  # two gigabytes suffice
        if name not in FREE | reduced:
            with pytest.raises(ValueError, match=rf"{name} = 10+\b.* needs? .*\b{name} = \d+ .*would fit$"):
                require_room(own | {name: 10**15})


# --- writing


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new, and then a lone surrogate \ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
