"""README and front page: five findings, each with its number, held to what the pages store; what the snippet prints; the picture."""

import contextlib
import io
import json
import re

import nbformat
import pytest

from attnbook.story import run
from bookkit.ledger.records import checks_of
from bookkit.results import read_results
from bookkit.settings import settings
from tests.explorers.node import evaluate
from tests.house import ROOT

README, FRONT = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "book/preface.md"))
STORY = ROOT / "book" / "assets" / "story"
HEAD, ALL = (json.loads((STORY / name).read_text(encoding="utf-8")) for name in ("run.json", "front.json"))
HEAD = HEAD["head"]
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])|\{ref\}`([^<]*) <[^>]*>`")


def findings(text: str) -> list[str]:
    """The five sentences and what follows on real data, as they are read: without links and line ends."""
    section = text.partition("## Five findings\n")[2].partition("\n\n**[")[0].partition("\n\n## ")[0]
    items = re.split(r"\n\d\. |\n\n", "\n" + section.strip())
    return [LINK.sub(r"\1\2", " ".join(item.split())) for item in items if item.strip()]


def page(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def numbers(sentence: str) -> list[float]:
    """As they stand; 40 000 is one, and so is ten to a power: its exponent."""
    sentence = re.sub(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda found: found[1].translate(SUPERSCRIPTS), sentence)
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d) (?=000\b)", "", sentence))]


def printed(notebook: nbformat.NotebookNode, begins: str) -> str:
    """What stands behind these words in what a page prints."""
    texts = [text for cell in notebook.cells for output in cell.get("outputs", []) for text in _texts(output)]
    (found,) = {line for text in texts for line in text.splitlines() if line.strip().startswith(begins)}
    return found.strip().removeprefix(begins)


def _texts(output: nbformat.NotebookNode) -> list[str]:
    return [output.get("text", ""), output.get("data", {}).get("text/plain", "")]


def test_both_pages_say_the_same_five_findings() -> None:
    said = findings(README)
    assert len(said) == 6
    assert said == findings(FRONT)
    assert len(README.splitlines()) <= 90


def test_each_finding_leads_to_a_figure_of_the_page_that_holds_its_number() -> None:
    linked = re.findall(r"/notebooks/(\S+)\.html#(fig-\S+)", README)
    assert [name for _, name in linked] == re.findall(r"<(fig-[^>]*)>", FRONT)
    assert [name for page_name, name in linked if f"name: {name}\n" not in page_source(page_name)] == []
    assert len(linked) == 5  # and the story's, which `make html` follows


def test_two_steps_fit_every_label() -> None:
    results, text = read_results(page("single_head/02_two_steps")), findings(README)[0]
    law = dict(re.findall(r"^(n|d|label_noise|draws): \w+ = ([\d.]+)", page_source("single_head/02_two_steps"), re.M))
    fitted, draws, n, flips, d, error = numbers(text)
    assert (n, d, draws) == tuple(float(law[name]) for name in ("n", "d", "draws"))
    assert flips == 100 * float(law["label_noise"])
    assert fitted == draws * results["interpolating_fraction"]
    assert error == round(results["log10_clean_error_median"])


def page_source(name: str) -> str:
    return (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")


def test_the_error_is_smaller_after_the_first_step() -> None:
    first, second = numbers(findings(README)[1])
    assert [first, second] == [round(HEAD["log10_error"][step]) for step in (1, 2)]
    assert HEAD["wrong"] == 6
    assert HEAD["fitted"][1:3] == [HEAD["n"] - 6, HEAD["n"]]


def test_the_published_accuracy_counts_memorised_samples() -> None:
    notebook, text = page("token_selection/02_dynamics"), findings(README)[2]
    published, paper, one, wrong, points = numbers(text)
    assert published == one - wrong / points
    assert f"{paper:.5f}" == settings(ROOT).parts["token_selection"].paper
    seed = printed(notebook, "42  ")
    assert len(re.findall(r"\d+,|\d+ ", seed.partition("0.996")[0])) == wrong
    assert seed.split()[-2:] == [f"{published:.3f}", "1.000"]
    (claim,) = [each for each in checks_of(notebook) if each["id"] == "TS29"]
    assert claim["verdict"] == "holds"
    assert len(printed(notebook, "flipped training samples:").split()) == wrong


def test_gradient_descent_stays_in_the_trap() -> None:
    (path,) = [
        path for path in (ROOT / "notebooks/single_head").glob("*.ipynb") if "the same 20 classes" in path.read_text()
    ]
    notebook = nbformat.read(path, as_version=4)
    margin, classes, descent = numbers(findings(README)[3])
    told = printed(notebook, "the same 20 classes, ")
    assert "eta = 0.2" in told  # a fifth
    assert [margin, descent] == [
        float(printed(notebook, f"on the signal by {name}:")) for name in ("the exact SVM", "gradient descent")
    ]
    assert classes == 20


def test_two_heads_compute_one_step() -> None:
    results = read_results(page("in_context/04_what_the_heads_compute"))
    d, length, above = numbers(findings(README)[4])
    assert (d, length) == (5, 40)
    assert above == round(100 * (results["risk_model"] / results["risk_debiased"] - 1), 1)
    assert results["runs_kept"] > results["runs_of_one_sign"] > 0


def test_what_is_left_on_real_data() -> None:
    results = read_results(page("token_selection/09_a_fair_trial"))
    rows = {
        name: value
        for name, value in results.items()
        if re.fullmatch(r"fraction_.*_(efficientnet_lite0|mpnet)_ours_200", name)
    }
    assert len(rows) == 6
    n, low, high = numbers(findings(README)[5])
    assert n == 200
    assert [low, high] == [round(min(rows.values()), 2), round(max(rows.values()), 2)]
    (claim,) = [each for each in checks_of(page("token_selection/09_a_fair_trial")) if each["id"] == "TS91"]
    assert claim["verdict"] == "fails"  # "benign on one of six sets at least"


def test_the_snippet_prints_what_the_readme_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    told = re.findall(r"#\s*(-?[\d.]+):", code)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert out.getvalue().split() == told
    assert len(told) == 3


# --- the picture ------------------------------------------------------------------------------------------------------


def test_the_drawn_points_are_those_of_the_run_and_stand_where_the_axes_say() -> None:
    sample = run.LAW.draw(seed=run.SEED)
    made = run.front(sample)
    assert made["attention"] == pytest.approx(ALL["attention"], rel=1e-4)
    for ours, stored, step in zip(made["margins"], ALL["margins"], (1, 2), strict=True):
        assert ours == pytest.approx(stored, rel=1e-4)
        assert sum(margin > 0 for margin in stored) == HEAD["fitted"][step]
        followed = [stored[i] for i in HEAD["followed"]]
        assert followed == pytest.approx(HEAD["margins"][step], rel=1e-4)
    data = {"data": {"head": HEAD}, "front": ALL}
    frames = evaluate("story", [("frontPage", data | {"step": step}) for step in (0, 1, 2)])
    for frame, title, step in zip(frames, ("before training", "after step 1", "after step 2"), (0, 1, 2), strict=True):
        texts = {mark["key"]: mark["text"] for mark in frame["marks"] if mark["tag"] == "text"}
        assert texts["title"] == title
        assert {"margin", "attention"} <= set(texts.values())
        assert f"{HEAD['fitted'][step]} of 200" in texts["count"]
        assert all(mark["at"]["font-size"] >= 18.75 for mark in frame["marks"] if mark["tag"] == "text")
    marks = {mark["key"]: mark["at"] for mark in frames[2]["marks"]}
    ticks = {name: marks[name]["y"] for name in ("tick0", "tick1")}
    ys = [float(y) for _, y in re.findall(r"M([\d.]+) ([\d.]+)h0", marks["dotsFlipped"]["d"])]
    margins = [1 + (ticks["tick1"] - (y + 6)) / (ticks["tick0"] - ticks["tick1"]) for y in ys]
    assert margins == pytest.approx([ALL["margins"][1][i] for i in HEAD["flipped"]], abs=1e-3)
    assert 10 ** HEAD["log10_error"][0] == pytest.approx(0.5, rel=1e-4)  # "1 in 2"
