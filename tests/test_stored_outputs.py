"""The rule by which stored and fresh outputs are the same, and nbval applying it to a page."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat.v4 import new_output

from bookkit.pages.notebooks import renew
from bookkit.pages.stored_outputs import compare_outputs, json_differences, same_text
from tests.tiny_page import make_book

HERE = Path(__file__).resolve().parents[1]

# --- texts


@pytest.mark.parametrize(
    ("stored", "fresh"),
    [
        ("error 0.12345 of 200", "error 0.12351 of 200"),  # 5e-4 relative
        ("1.0000e-05", "1.0009e-05"),
        ("-3.5", "-3.5021"),
        ("−3.5", "−3.5021"),  # typographic minus
        ("1e5", "100050.0"),
        ("[0.1, 0.2]", "[0.10001, 0.19999]"),
        ("off by 3.1e-17", "off by -2.0e-16"),  # rounding noise around zero
        ("<td>1.500</td>", "<td>1.501</td>"),
        ("10^{-16000.25}", "10^{-16000.31}"),
    ],
)
def test_near_numbers_are_the_same(stored: str, fresh: str) -> None:
    assert same_text(stored, fresh)
    assert same_text(fresh, stored)


@pytest.mark.parametrize(
    "pair",
    ["error 0.12345|error 0.12365", "200 samples|201 samples",  # 1.6e-3 relative; counts are exact, however near:
     "2000 samples|2001 samples", "We drew 2000.|We drew 2001.", "10^-16000|10^-16001",
     "0.5|-0.5", "+0.5|0.5", "1e-5|1e-6", "1e-11|2e-11",  # above the floor
     "1.0|1", "holds 1.5|fails 1.5", "1.5 2.5|1.5", "1.5|1.5 ", "nan|1.0", "C8.1|C8.2", "version 2.13.0|version 2.13.1",
     "#1e3a5f|#1e3b5f", "x1.0001|x1.0002", "1.5\n|1.5"],  # parts of words; line ends
)  # fmt: skip
def test_far_numbers_integers_words_and_signs_are_not(pair: str) -> None:
    stored, fresh = pair.split("|")
    assert not same_text(stored, fresh)
    assert not same_text(fresh, stored)


# --- JSON

NUMBERS = {"slope": 0.5, "at": [1.0]}
CLAIM = {"id": "C8", "verdict": "holds", "draws": 20, "measured": "0.500 +- 0.010", "numbers": NUMBERS}
SLOPE = "$[0].numbers.slope"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, None),
        ({"numbers": NUMBERS | {"slope": 0.5 * (1 + 5e-7)}}, None),
        ({"measured": "0.5004 +- 0.010"}, None),
        ({"numbers": {"at": [1.0], "slope": 0.5}}, None),  # the order of keys means nothing
        ({"numbers": NUMBERS | {"slope": 0.5 * (1 + 2e-6)}}, SLOPE),
        ({"numbers": NUMBERS | {"slope": -0.5}}, SLOPE),
        ({"numbers": NUMBERS | {"slope": None}}, SLOPE),
        ({"numbers": NUMBERS | {"slope": True}}, SLOPE),
        ({"numbers": NUMBERS | {"at": [1.0, 1.0]}}, "$[0].numbers.at had 1 entries, now 2"),
        ({"numbers": {"at": [1.0]}}, f"{SLOPE} is missing"),
        ({"numbers": NUMBERS | {"b": 1}}, "$[0].numbers.b is new"),
        ({"draws": 21}, "$[0].draws"),
        ({"draws": "20"}, "$[0].draws"),
        ({"verdict": "fails"}, "$[0].verdict"),
        ({"measured": "0.502 +- 0.010"}, "$[0].measured"),
    ],
)
def test_json_agrees_or_differs_and_says_where(changes: dict, where: str | None) -> None:
    found = json_differences([CLAIM], [CLAIM | changes])
    assert len(found) == (where is not None)
    assert all(difference.startswith(where) for difference in found)


def test_json_keeps_noise_around_zero_together_and_nan_with_nan_only() -> None:
    nan = float("nan")
    assert json_differences({"a": 0.0, "b": 1e-17, "c": nan}, {"a": 3e-16, "b": -1e-17, "c": nan}) == []
    assert len(json_differences({"a": nan}, {"a": 0.0})) == 1


# --- lists of outputs


def stream(text: str, name: str = "stdout") -> dict:
    return new_output("stream", name=name, text=text)


def shown(data: dict, kind: str = "display_data") -> dict:
    return new_output(kind, data=data)


def test_streams_may_be_cut_anywhere() -> None:
    assert compare_outputs([stream("a\nb\n")], [stream("a\n"), stream("b\n")]) == []


def test_pictures_are_compared_by_presence_only() -> None:
    one, other = (shown({"image/png": pixels, "text/plain": "<Figure>"}) for pixels in ("AAAA", "BBBB"))
    assert compare_outputs([one], [other]) == []
    assert compare_outputs([one], [shown({"text/plain": "<Figure>"})]) == ["output 1, image/png: missing"]


@pytest.mark.parametrize(
    ("stored", "fresh", "difference"),
    [
        ([stream("a")], [], "stdout: line 1 is missing: 'a'"),
        ([], [stream("a")], "stdout: line 1 is new: 'a'"),
        ([], [stream("a", "stderr")], "stderr: line 1 is new: 'a'"),
        ([stream("a\n1.5\n")], [stream("a\n1.6\n")], "stdout: line 2: stored '1.5', now '1.6'"),
        ([shown({"text/plain": "1"})], [], "output 1 is missing"),
        ([], [shown({"text/plain": "1"})], "output 1 is new"),
        ([shown({"text/plain": "1"})], [shown({"text/plain": "1"}, "execute_result")], "output 1, kind: stored display"),
        ([shown({"text/html": "<b>1.0</b>"})], [shown({"text/html": "<b>1.1</b>"})], "output 1, text/html: line 1"),
        ([shown({"application/json": {"x": 1}})], [shown({"application/json": {"x": 2}})], "output 1, application/json: $.x"),
        ([new_output("error", ename="A", evalue="b", traceback=[])],
         [new_output("error", ename="A", evalue="c", traceback=[])], "output 1, error: line 1: stored 'A: b'"),
    ],
)  # fmt: skip
def test_a_difference_is_named(stored: list, fresh: list, difference: str) -> None:
    (found,) = compare_outputs(stored, fresh)
    assert found.startswith(difference)


def test_a_difference_far_along_a_line_is_quoted_where_it_is() -> None:
    old = "<tr><td>0.30000</td></tr>" * 50 + "<td>1.5</td>"
    new = old.replace("0.30000", "0.30001").replace("1.5", "2.5")
    (found,) = compare_outputs([shown({"text/html": old})], [shown({"text/html": new})])
    assert "<td>1.5</td>" in found
    assert "<td>2.5</td>" in found


# --- nbval on a copy of a page


@pytest.fixture(scope="module")
def executed_page(tmp_path_factory) -> Path:
    """A book whose one page has its stored outputs, and this repository's conftest. Tests work on copies of the page."""
    root = make_book(tmp_path_factory.mktemp("book"))
    renew(root)
    (root / "conftest.py").write_text((HERE / "conftest.py").read_text())
    settings = '[tool.pytest.ini_options]\ntimeout = 600\nfilterwarnings = ["error"]\n'
    (root / "pyproject.toml").write_text(settings)
    return root / "notebooks/part/01_tiny.ipynb"


def nbval(twins: list[Path], *options: str) -> tuple[int, str]:
    """Run nbval, as `make test` does, on notebooks of one folder: exit status and what it printed."""
    root = twins[0].parents[2]
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider", *options]
    command += [str(twin.relative_to(root)) for twin in twins]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def edited(page: Path, edit: Callable) -> Path:
    """A copy of `page` changed by `edit`, with its name."""
    notebook = nbformat.read(page, as_version=4)
    edit(notebook)
    twin = page.with_name(f"{edit.__name__}.ipynb")
    nbformat.write(notebook, twin)
    return twin


RESULTS, CLAIMS = (f"application/vnd.attnlib.{kind}+json" for kind in ("results", "claims"))


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def data(notebook, key: str) -> dict:
    """What the one output that has something of type `key` shows."""
    (found,) = [o.data for c in code_cells(notebook) for o in c.outputs if key in o.get("data", {})]
    return found


def reprint(notebook, new: str) -> None:
    text = next(o for c in code_cells(notebook) for o in c.outputs if o.output_type == "stream")
    assert "0.001250" in text.text
    text.text = text.text.replace("0.001250", new)


def nothing(notebook) -> None:
    pass


def nudge_within_the_tolerance(notebook) -> None:
    reprint(notebook, "0.0012505")
    data(notebook, RESULTS)[RESULTS]["flipped"] *= 1 + 1e-8


def change_a_printed_number(notebook) -> None:
    reprint(notebook, "0.001260")


def change_a_claim(notebook) -> None:
    data(notebook, CLAIMS)[CLAIMS][0]["numbers"]["slope"] *= 1.0001


def change_a_verdict(notebook) -> None:
    data(notebook, CLAIMS)[CLAIMS][0]["verdict"] = "fails"


def drop_the_figure(notebook) -> None:
    del data(notebook, "image/png")["image/png"]


def clear_outputs_only(notebook) -> None:
    for cell in code_cells(notebook):
        cell.outputs = []


def clear_everything(notebook) -> None:
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def change_the_source(notebook) -> None:
    cell = next(c for c in code_cells(notebook) if "parameters" in c.metadata.get("tags", []))
    cell.source = cell.source.replace("n: int = 200", "n: int = 201")


FAILING = [
    (change_a_printed_number, 1, "0.001260"),
    (change_a_claim, 1, "$[0].numbers.slope"),
    (change_a_verdict, 1, "$[0].verdict: stored 'fails', now 'holds'"),
    (drop_the_figure, 1, "image/png: new"),
    (clear_outputs_only, 3, "is new"),
    (clear_everything, 6, "this cell was never executed: run `make notebooks`"),
    (change_the_source, 2, "stdout: line 1: stored '200 samples"),
]


def test_nbval_passes_a_page_that_is_as_stored_in_one_process_and_on_two_workers(executed_page: Path) -> None:
    twins = [edited(executed_page, edit) for edit in (nothing, nudge_within_the_tolerance)]
    for options in ([], ["-n", "2", "--dist", "loadscope"]):
        status, said = nbval(twins, *options)
        assert status == 0, said
        assert "12 passed" in said  # six cells each


@pytest.fixture(scope="module")
def failed(executed_page: Path) -> ElementTree.Element:
    """What nbval finds, in one run, in copies of the page that are not as stored: its report in XML."""
    report = executed_page.parent / "report.xml"
    twins = [edited(executed_page, edit) for edit, _, _ in FAILING]
    status, said = nbval(twins, f"--junitxml={report}")
    assert status == 1, said
    return ElementTree.parse(report).getroot()


@pytest.mark.parametrize(("edit", "failures", "message"), FAILING)
def test_nbval_fails_a_page_that_is_not(failed: ElementTree.Element, edit, failures: int, message: str) -> None:
    cells = [case for case in failed.iter("testcase") if case.get("classname").endswith(f"{edit.__name__}.ipynb")]
    assert len(cells) == 6
    told = [case.find("failure").text for case in cells if case.find("failure") is not None]
    assert len(told) == failures
    assert any(message in each for each in told), told
