"""`python -m benchmarks --device cuda --all`: what its steps let pass, what its files hold, and a dry run of all of it."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnbook.extensions.benchmarks import limit, newest
from attnlib.kernels.dispatch import has_triton
from benchmarks import card, card_launches, kernels
from benchmarks.card import judge_pages, judge_sanitizer, judge_tests, run_all
from benchmarks.ceilings import _INSTRUCTIONS, CHIP, ceilings, holds_for, reached
from benchmarks.registry import Wing
from benchmarks.steps import TOTAL, Failed, Step, run_steps
from tests.pretend_card import NAME, PROCESSORS, pretended

ROOT = Path(__file__).resolve().parents[1]
needs_triton = pytest.mark.skipif(not has_triton(), reason="Triton is not installed: pip install 'attnlib[gpu]'")


def step(name: str, code: str, budget: float = 30.0, **more) -> Step:
    """A step that runs this Python."""
    return Step(name, f"the step {name}", (sys.executable, "-c", code), budget, **more)


def status(rows: list[dict]) -> dict[str, str]:
    return {row["step"]: row["status"] for row in rows}


# --- running steps ----------------------------------------------------------------------------------------------------


def test_steps_are_judged_and_what_they_found_is_kept(tmp_path: Path) -> None:
    def judge(folder: Path, text: str) -> dict:
        return {"said": text.strip(), "wrote": (folder / "x").read_text()}

    write = "import sys, pathlib; pathlib.Path(sys.argv[1], 'x').write_text('y'); print('hello')"
    works = Step("works", "a step", (sys.executable, "-c", write, "{folder}"), 30, judge)
    absent = step("absent", "raise SystemExit(3)", left_out=lambda: "it is not installed")
    rows = run_steps([works, absent], tmp_path)
    assert status(rows) == {"works": "ok", "absent": "left out"}
    assert rows[0]["found"] == {"said": "hello", "wrote": "y"}
    assert rows[1]["reason"] == "it is not installed"
    assert json.loads((tmp_path / "steps.json").read_text()) == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps.json", "works.log", "x"]


def test_a_step_that_fails_is_told_with_its_words_and_no_folder_of_the_machine(tmp_path: Path, capsys) -> None:
    falls = step("falls", f"raise ValueError('not this: {ROOT}/benchmarks')")
    after = step("after", "print('never')", after=("falls",))
    found = step("found", "print('3')", judge=lambda folder, text: (_ for _ in ()).throw(Failed("three is not two")))
    rows = run_steps([falls, after, found], tmp_path)
    assert status(rows) == {"falls": "failed", "after": "not begun", "found": "failed"}
    assert "exit status 1" in rows[0]["reason"]
    assert "not this: ./benchmarks" in rows[0]["reason"]
    assert str(ROOT) not in json.dumps(rows)
    assert rows[2]["reason"] == "three is not two"
    assert not (tmp_path / "after.log").exists()
    assert "failed after" in capsys.readouterr().out


def test_a_step_over_its_budget_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', \"import time; time.sleep(4); open('{tmp_path}/late', 'w')\"])"
    begun = time.monotonic()
    rows = run_steps([step("slow", code, 1.0), step("quick", "print(1)")], tmp_path)
    assert status(rows) == {"slow": "stopped", "quick": "ok"}
    assert rows[0]["reason"] == "not done within 1 s"
    time.sleep(max(0.0, 6 - (time.monotonic() - begun)))
    assert not (tmp_path / "late").exists()


def test_the_time_of_all_steps_ends_too(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(ValueError, match="must sum to 600 s at most; got 700 s"):
        run_steps([step("long", "", 700)], tmp_path)
    rows = run_steps(
        [step("a", "import time; time.sleep(1.2)", 0.9), step("b", "import time; time.sleep(9)", 0.6)],
        tmp_path,
        total=1.5,
    )
    assert status(rows) == {"a": "stopped", "b": "stopped"}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Steps that are ok are not repeated; a file is whole at every moment."""
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    interrupted = Step(
        "second",
        "interrupted",
        (sys.executable, "-c", ""),
        9,
        lambda folder, text: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    with pytest.raises(KeyboardInterrupt):
        run_steps([step("first", count), interrupted], tmp_path)
    assert status(json.loads((tmp_path / "steps.json").read_text())) == {"first": "ok"}
    assert run_all(tmp_path, dry=False, steps=[step("first", count), interrupted], folder=tmp_path) == 130
    rows = run_steps([step("first", count), step("second", "print(1)")], tmp_path)
    assert status(rows) == {"first": "ok", "second": "ok"}
    assert (tmp_path / "count").read_text() == "x"
    assert not list(tmp_path.glob("*.part"))


def test_only_a_run_without_a_failure_leaves_figures(tmp_path: Path, capsys) -> None:
    made = {"cases": [], "date": "2000-01-01"}
    place, text = str(tmp_path / "run" / "timings"), json.dumps(made)
    write = f"import pathlib; p = pathlib.Path({place!r}); p.mkdir(); (p / 'kernels-x-2000-01-01.json').write_text({text!r})"
    timings, falls = step("timings", write), step("falls", "raise SystemExit(1)")
    output = tmp_path / "results"
    assert run_all(output, dry=False, steps=[timings, falls], folder=tmp_path / "run") == 1
    assert not output.exists()
    assert "failed: the step falls" in capsys.readouterr().err
    left_out = step("absent", "", left_out=lambda: "it is not installed")
    assert run_all(output, dry=False, steps=[timings, left_out], folder=tmp_path / "run") == 0
    found = json.loads((output / "kernels-x-2000-01-01.json").read_text())
    assert found["date"] == "2000-01-01"
    assert status(found["steps"]) == {"timings": "ok", "absent": "left out"}
    assert run_all(tmp_path / "no", dry=True, steps=[falls]) == 1


# --- what a step must have found --------------------------------------------------------------------------------------


def report(folder: Path, **modes: str) -> Path:
    """A report of the GPU tests, one in every file: "compiled" unless `modes` says otherwise for this file."""
    cases = []
    for path in card.TESTS:
        where = path.split(".py")[0].replace("/", ".")
        mode = modes.get(where.rsplit(".", 1)[1], "compiled")
        inside = (
            f'<skipped message="{mode}"/>'
            if "skip" in mode or "GPU" in mode
            else f'<properties><property name="triton" value="{mode}"/></properties>'
        )
        cases.append(f'<testcase classname="{where}" name="test_it">{inside}</testcase>')
    (folder / "tests.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return folder


def test_gpu_tests_must_have_run_compiled(tmp_path: Path) -> None:
    everything = len(card.TESTS)
    assert judge_tests(report(tmp_path), "") == {"passed": everything, "with compiled programs": everything}
    assert (
        judge_tests(report(tmp_path, test_device="a GPU is here, so asking for one is no error"), "")["passed"]
        == everything - 1
    )
    with pytest.raises(Failed, match="1 tests ran in Triton's interpreter"):
        judge_tests(report(tmp_path, test_heads_gpu="interpreted"), "")
    with pytest.raises(Failed, match=r"1 tests were skipped, such as tests\.kernels\.test_heads_gpu\.test_it"):
        judge_tests(report(tmp_path, test_heads_gpu="skip: Triton is not installed"), "")
    with pytest.raises(Failed, match=r"no test of tests\.kernels\.test_in_context_gpu ran a compiled program"):
        judge_tests(report(tmp_path, test_in_context_gpu="neither"), "")


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here, and its programs are compiled, not interpreted")
def test_a_run_in_the_interpreter_or_of_nothing_fails_on_a_card(tmp_path: Path) -> None:
    """Real reports of a real test: interpreted here, and by a process that takes itself for one with a card and does not interpret."""
    one = "tests/kernels/test_token_selection_gpu.py::test_nothing_to_do"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *card._REPORT,
        str(tmp_path / "tests.xml"),
    ]
    subprocess.run([*command, one], cwd=ROOT, check=True, capture_output=True)
    with pytest.raises(Failed, match="1 tests ran in Triton's interpreter"):
        judge_tests(tmp_path, "")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    subprocess.run(
        [*command, "-p", "tests.pretend_card", one], cwd=ROOT, capture_output=True, check=False, env=environment
    )
    assert 'value="compiled"' in (tmp_path / "tests.xml").read_text()  # and failed: there is no driver
    subprocess.run([*command, one, "-k", "no_such_test"], cwd=ROOT, capture_output=True, check=False)
    with pytest.raises(Failed, match="no test of"):
        judge_tests(tmp_path, "")


def test_every_file_with_tests_for_a_card_is_among_them() -> None:
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"\btriton_device: |\btriton_device\)|skipif\(not torch\.cuda", path.read_text(encoding="utf-8"))
    } - {"tests/test_benchmarks_card.py"}  # this line
    assert wanted == {path.split("::")[0] for path in card.TESTS}


def test_the_sanitizer_must_say_that_it_found_nothing(tmp_path: Path) -> None:
    clean = "launched: a\nlaunched: b\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert judge_sanitizer(tmp_path, clean)["launches"] == 2
    assert judge_sanitizer(tmp_path, "========= ERROR SUMMARY: 0 errors\n")["launches"] == 0
    for text, words in (
        ("launched: a\n", "no summary"),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n", "found something"),
        ("========= ERROR SUMMARY: 1 error\n", "found something"),
    ):
        with pytest.raises(Failed, match=words):
            judge_sanitizer(tmp_path, text)


def test_cells_must_have_been_compared(tmp_path: Path) -> None:
    assert judge_pages(tmp_path, "====\n72 passed in 30.1s\n") == {"pages": len(card.PAGES), "cells": 72}
    for text in ("no tests ran in 0.1s", "70 passed, 2 skipped in 3s"):
        with pytest.raises(Failed, match="skipped"):
            judge_pages(tmp_path, text)


def test_the_budgets_fit_in_ten_minutes_and_what_is_named_exists() -> None:
    for steps in (card.card_steps(), card.dry_steps()):
        assert sum(one.budget for one in steps) <= TOTAL == 600
        assert len({one.name for one in steps}) == len(steps)
        for place, one in enumerate(steps):
            assert set(one.after) <= {other.name for other in steps[:place]}
    assert all((ROOT / path.split("::")[0]).is_file() for path in (*card.TESTS, *card.PAGES))


# --- ceilings ---------------------------------------------------------------------------------------------------------


def test_ceilings_are_those_of_the_chapter() -> None:
    """The chapter's table, row by row: a count that changes in one place must change in the other."""
    text = (ROOT / "book" / "kernels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| ([\d ]+)(?: for 32 errors)? \| (\d+) M \S+ \| (\d+|–)", text, flags=re.M)
    names = (
        "a-gpu-float32", "a-gpu-float64", "token-selection-triton-f32", "token-selection-triton-f64", "gpu-h1-r528", "gpu-h2-r1",
        "gpu-h4-r396", "gpu-h8-r264", "d-gpu",
    )  # fmt: skip
    assert len(rows) == len(names)
    cases = {case.name: case for case in kernels.wing("cuda").cases}
    for name, (_, _, counted, instructions, second) in zip(names, rows, strict=True):
        found = ceilings(cases[name])
        assert counted.replace(" ", "") == str(_INSTRUCTIONS[name.rpartition("-r")[0] or name].instructions)
        assert found["instructions"] / 1e6 == pytest.approx(int(instructions), rel=0.03), name
        assert round(found.get("second cache", 0) / 1e6) == (0 if second == "–" else int(second)), name


def test_a_fraction_is_the_rate_over_the_ceiling() -> None:
    """528 replicas, 20 000 steps, two heads, in one second: 10.56 M of 26.4 M model-steps."""
    cases = {case.name: case for case in kernels.wing("cuda").cases}
    assert reached(cases["gpu-h2-r528"], 1.0)["instructions"] == pytest.approx(10.56e6 * 9900 * 4 / (132 * 4 * 1.98e9))
    assert reached(cases["a-gpu-float64"], 2.0)["second cache"] == pytest.approx(
        1056 * 20_000 / 2 * 202**2 * 8 / 5.5e12
    )
    assert ceilings(cases["gpu-naive-h2"]) == ceilings(cases["a-torch-float32"]) == {}
    assert not any(ceilings(case) for case in kernels.wing("cpu").cases)
    assert holds_for(CHIP.processors, (9, 0))
    assert not holds_for(108, (8, 0))
    assert not holds_for(132, (10, 0))


def test_that_figures_are_missing_is_said_once_and_as_long_as_it_is_true() -> None:
    measured = [
        path.name for path in (ROOT / "benchmarks" / "results").glob("kernels-*.json") if "-cpu-" not in path.name
    ]
    texts = [path.read_text(encoding="utf-8") for path in (*(ROOT / "book").glob("*.md"), ROOT / "README.md")]
    said = sum(text.count("No GPU was at hand") for text in texts)
    assert said == (0 if measured else 1), measured


@needs_triton
def test_files_of_a_card_hold_its_name_and_the_ceilings(tmp_path: Path, monkeypatch, capsys) -> None:
    """On a pretended card: the environment, then timings of a case that has the name of a GPU program's and does something else."""
    from benchmarks import __main__ as bench

    monkeypatch.setattr(card_launches, "LAUNCHES", {"none": lambda: None})
    real = next(case for case in kernels.wing("cuda").cases if case.name == "gpu-h2-r528")
    toy = Wing("kernels", (replace(real, prepare=lambda: lambda: None),), lambda median: {})
    monkeypatch.setattr(kernels, "wing", lambda device: toy)
    monkeypatch.setattr(
        sys, "argv", ["benchmarks", "--device", "cuda", "--seconds", "0.01", "--output", str(tmp_path / "timings")]
    )
    with pretended():
        card.write_environment(tmp_path)
        assert bench.main() == 0
    found = card._environment(tmp_path, "")
    assert (found["device"], found["compute capability"], found["multiprocessors"]) == (NAME, "9.0", PROCESSORS)
    assert card._timings(tmp_path, "") == {"cases": 1, "of them with a ceiling": 1}
    (made,) = newest(tmp_path / "timings", "kernels").values()
    assert made["device"] == NAME
    assert limit(made, made["cases"][0])[0] == pytest.approx(26.4e6)
    assert "of the ceiling by instructions" in capsys.readouterr().out


# --- the dry run ------------------------------------------------------------------------------------------------------


@needs_triton
def test_the_dry_run_goes_as_far_as_the_first_launch() -> None:
    command = [sys.executable, "-m", "benchmarks", "--device", "cuda", "--all", "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book")])}
    before = sorted((ROOT / "benchmarks" / "results").iterdir())
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"programs compiled {len(card_launches.LAUNCHES)}," in done.stdout
    assert "nothing was measured" in done.stdout
    assert sorted((ROOT / "benchmarks" / "results").iterdir()) == before


BROKEN = """
import triton, triton.language as tl, torch
from benchmarks import card_launches

@triton.jit
def broken(x, SIZE: tl.constexpr):
    tl.store(x + tl.arange(0, SIZE), 1.0)

card_launches.LAUNCHES = {"broken": lambda: broken[(1,)](torch.zeros(100, device="cuda"), SIZE=SIZE_HERE)}
card_launches.compile_launches()
"""


@needs_triton
@pytest.mark.parametrize(("size", "compiles"), [(128, True), (100, False)])
def test_a_program_that_cannot_be_compiled_stops_the_dry_run(size: int, compiles: bool, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.replace("SIZE_HERE", str(size)))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "book")])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "broken.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == compiles, done.stderr
    assert ("compiled for sm_90" in done.stdout) == compiles
    assert compiles or "power of 2" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--all"], "add --device cuda"),
        (["--device", "cuda", "--dry-run"], "add --all"),
        (["--device", "cuda", "--all", "--wing", "kernels"], "leave out --wing"),
        (["--device", "cuda", "--all"], "torch sees no GPU"),
        (["--device", "cuda"], "--dry-run goes as far as one gets without one"),
    ],
)
def test_options_that_do_not_fit_end_before_any_work(options: list[str], words: str, monkeypatch, capsys) -> None:
    from benchmarks import __main__ as bench

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", *options])
    monkeypatch.setattr(card, "run_steps", None)
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
