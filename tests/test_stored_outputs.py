"""The rule by which stored and fresh outputs are the same, and nbval applying it to a page."""

import base64
import io
import os
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbformat.v4 import new_output
from PIL import Image

from bookkit.pages.notebooks import renew
from bookkit.pages.stored_outputs import compare_outputs, json_differences, same_text
from bookkit.pages.tolerances import Tolerance, Tolerances
from tests import page_checks
from tests.house import ROOT
from tests.tiny_book import write
from tests.tiny_page import make_book

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

RESULTS, CLAIMS = (f"application/vnd.attnlib.{kind}+json" for kind in ("results", "claims"))
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
        ({"numbers": NUMBERS | {"at": [1.0, 1.0]}}, "$[0].numbers.at[1] is new"),
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


ROOM = {"rule": "share", "holds": True, "draws": 20, "room": 0.25}
PARTS = CLAIM | {
    "numbers": {"slope": 0.5, "zero": 1e-13},
    "parts": [ROOM, {"rule": "mean", "holds": True, "centre": 0.5}],
}


def with_part(number: int, **changes: object) -> dict:
    parts = [part | (changes if place == number else {}) for place, part in enumerate(PARTS["parts"])]
    return PARTS | {"parts": parts}


@pytest.mark.parametrize(
    ("fresh", "told"),
    [
        (with_part(1, centre=0.5009), None),  # it repeats the slope
        (with_part(1, centre=0.5011), "$[0].parts[1].centre: stored 0.5, now 0.5011 (tolerance 0.001)"),
        (with_part(0, room=0.25 * 1.019), None),  # follows from the slope, whose relative tolerance is 2e-3
        (with_part(0, room=0.25 * 1.021), "$[0].parts[0].room: stored 0.25, now 0.25525 (tolerance 0.005)"),
        (with_part(0, room=float("nan")), "$[0].parts[0].room: stored 0.25, now nan (tolerance 0.005)"),
        (with_part(0, draws=21), "$[0].parts[0].draws: stored 20, now 21"),
        (with_part(0, holds=False), "$[0].parts[0].holds: stored True, now False"),
        (with_part(0, own=0.1), "$[0].parts[0].own is new"),
    ],
)
def test_parts_of_a_claim_are_as_near_as_its_numbers(fresh: dict, told: str | None) -> None:
    known = Tolerances(numbers={"C8:slope": Tolerance(1e-3, "rounding"), "C8:zero": Tolerance(1e-12, "exact")})
    assert json_differences([PARTS], [fresh], known, CLAIMS) == ([told] if told else [])
    assert json_differences([PARTS], [with_part(0, room=0.25 * (1 + 9e-5))], kind=CLAIMS) == []
    assert len(json_differences([PARTS], [with_part(0, room=0.25 * (1 + 1.1e-4))], kind=CLAIMS)) == 1


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


def plain(colour: str) -> str:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), colour).save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


def test_a_picture_must_be_there_and_show_the_same() -> None:
    one, near, other, none = (
        shown({"image/png": data, "text/plain": "<Figure>"})
        for data in (plain("#808080"), plain("#848484"), plain("#a0a0a0"), "AAAA")
    )
    told = "output 1, image/png: another picture: 0.13 from the stored one, 0.1 are allowed"
    assert compare_outputs([one], [one]) == compare_outputs([one], [near]) == []
    assert compare_outputs([one], [other]) == [told]
    assert compare_outputs([none], [one]) == ["output 1, image/png: the stored one is no picture"]
    assert compare_outputs([one], [shown({"text/plain": "<Figure>"})]) == ["output 1, image/png: missing"]


def test_a_difference_far_along_a_line_is_quoted_where_it_is() -> None:
    (found,) = compare_outputs(
        [shown({"text/html": "<b>0.3</b>" * 50 + "1.5"})], [shown({"text/html": "<b>0.3</b>" * 50 + "2.5"})]
    )
    assert found.endswith("2.5'")
    assert "1.5', now" in found


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


# --- nbval on copies of a page


def data(notebook, key: str) -> dict:
    """What the one output that has something of type `key` shows."""
    (found,) = [o.data for c in page_checks.code_cells(notebook) for o in c.outputs if key in o.get("data", {})]
    return found


def reprint(notebook, new: str) -> None:
    text = next(o for c in page_checks.code_cells(notebook) for o in c.outputs if o.output_type == "stream")
    assert "0.001250" in text.text
    text.text = text.text.replace("0.001250", new)


def nudge_within_the_tolerance(notebook) -> None:
    reprint(notebook, "0.0012505")
    data(notebook, RESULTS)[RESULTS]["flipped"] *= 1 + 1e-8


def change_three_outputs(notebook) -> None:
    reprint(notebook, "0.001260")
    data(notebook, CLAIMS)[CLAIMS][0]["verdict"] = "fails"
    del data(notebook, "image/png")["image/png"]


def put_in_another_picture(notebook) -> None:
    data(notebook, "image/png")["image/png"] = "AAAA"


def put_in_a_flat_line(notebook) -> None:
    """What the page would show at a step of 0: the curve lies on its axis."""
    shown = data(notebook, "image/png")
    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, 0])
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    plt.close(figure)
    size = Image.open(io.BytesIO(base64.b64decode(shown["image/png"]))).size
    resized = io.BytesIO()
    Image.open(file).resize(size).save(resized, "png")
    shown["image/png"] = base64.b64encode(resized.getvalue()).decode()


def clear_everything(notebook) -> None:
    for cell in page_checks.code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def change_the_source(notebook) -> None:
    cell = next(c for c in page_checks.code_cells(notebook) if "parameters" in c.metadata.get("tags", []))
    cell.source = cell.source.replace("n: int = 200", "n: int = 201")


EDITS = [
    (nudge_within_the_tolerance, []),
    (change_three_outputs, ["0.001260", "image/png: new", "$[0].verdict: stored 'fails', now 'holds'"]),
    (put_in_another_picture, ["image/png: the stored one is no picture"]),
    (put_in_a_flat_line, ["image/png: another picture: "]),
    (clear_everything, ["this cell was never executed: run `make notebooks`"] * 6),
    (change_the_source, ["stdout: line 1: stored '200 samples", ""]),
]


def test_nbval_fails_a_page_that_is_not_as_stored(tmp_path) -> None:
    """In one run on a worker, as in `make test`, on copies of a page that were edited."""
    root = make_book(tmp_path)
    renew(root)
    write(root / "conftest.py", (ROOT / "conftest.py").read_text())
    write(root / "pyproject.toml", '[tool.pytest.ini_options]\ntimeout = 600\nfilterwarnings = ["error"]\n')
    page = root / "notebooks/part/01_tiny.ipynb"
    for edit, _ in EDITS:
        notebook = nbformat.read(page, as_version=4)
        edit(notebook)
        nbformat.write(notebook, page.with_name(f"{edit.__name__}.ipynb"))
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider", "-n", "1"]
    command += ["--dist", "loadscope", "--junitxml=report.xml"]
    copies = [f"notebooks/part/{edit.__name__}.ipynb" for edit, _ in EDITS]
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}  # of the run around this one
    assert subprocess.run([*command, *copies], cwd=root, check=False, env=env).returncode == 1
    report = ElementTree.parse(root / "report.xml").getroot()
    for edit, messages in EDITS:
        cells = [case for case in report.iter("testcase") if case.get("classname").endswith(f"{edit.__name__}.ipynb")]
        assert len(cells) == 6
        told = [case.find("failure").text for case in cells if case.find("failure") is not None]
        assert len(told) == len(messages)
        assert all(message in each for message, each in zip(messages, told, strict=True)), told
        if edit is put_in_a_flat_line:
            assert f"notebooks part/{edit.__name__}` stores what is shown now" in told[0]
