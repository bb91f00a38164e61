"""The book draws what `make bench` measured: rates, ratios and limits are right, and what is missing is said, not invented."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit.sphinx.benchmark_results import KERNELS, NOT_MEASURED, Row, newest, thousands
from bookkit.sphinx.benchmark_roofline import describe, roofline
from tests.sample_benchmarks import ROOFS, sample, write_sample
from tests.tiny_book import REPOSITORY, make_book

EXTENSION = "bookkit.sphinx.benchmark_figures"


def results(folder: Path, content: dict | None = None):
    write_sample(folder, content=content)
    return newest(folder, "kernels")["cpu"]


def row(found, case: str) -> Row:
    return next(row for row in found.rows if row.case == case)


def without(*words: str) -> dict:
    """The sample without the cases whose names begin so."""
    made = sample()
    made["cases"] = [case for case in made["cases"] if not case["case"].startswith(words)]
    return made


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_rate_is_units_over_the_median(tmp_path: Path):
    content = sample()
    case = next(case for case in content["cases"] if case["case"] == "single_head-float32")
    case |= {"median_s": 0.25, "iqr_s": 0.01}
    case["work"]["units"] = 64_000
    found = row(results(tmp_path, content), "single_head-float32")
    assert found.rate == 256_000
    assert found.spread == 0.04
    assert (found.unit, found.kernel, found.dtype, found.threads) == ("run-step", "single_head", "float32", 1)
    assert found.intensity == 1.0


def test_the_newest_file_of_each_device_is_taken(tmp_path: Path):
    for name, date in (
        ("kernels-cpu-2026-02-03.json", "2026-02-03"),
        ("kernels-cpu-2025-12-31.json", "2025-12-31"),
        ("kernels-nvidia-h200-2026-01-01.json", "2026-01-01"),
        ("kernels_old-cpu-2027-01-01.json", "2027-01-01"),
        ("in_context-cpu-2027-01-01.json", "2027-01-01"),
    ):
        write_sample(tmp_path, name, sample() | {"date": date})
    (tmp_path / "kernels-cpu-2028-01-01.partial").write_text("")
    assert {device: found.date for device, found in newest(tmp_path, "kernels").items()} == {
        "cpu": "2026-02-03",
        "nvidia-h200": "2026-01-01",
    }
    assert newest(tmp_path, "single_head") == {}
    assert newest(tmp_path / "absent", "kernels") == {}


def test_rows_without_work_and_files_of_older_kinds_are_passed_over(tmp_path: Path):
    assert "without-work" not in {row.case for row in results(tmp_path).rows}
    older = sample()
    for case in older["cases"]:
        case.pop("work", None)
        case.pop("threads")
    assert results(tmp_path, older).rows == ()


def test_the_results_in_the_repository_can_be_read():
    folder = REPOSITORY / "benchmarks" / "results"
    groups = {path.name.split("-")[0] for path in folder.glob("*.json")} - {"pages"}  # `make times`: another form
    assert groups
    assert all(
        found.date in str(list(folder.iterdir())) for group in groups for found in newest(folder, group).values()
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.pop("cases"), "cases"),
        (lambda content: content["cases"][0].pop("median_s"), "median_s"),
        (lambda content: content["cases"][0]["work"].pop("units"), "units"),
        (lambda content: content["cases"][0].update(median_s=0.0), "ZeroDivisionError"),
        (lambda content: content["cases"][0].update(work=[1]), "TypeError"),
        (
            lambda content: content["cases"][0]["work"].update(kernel="knots"),
            "peak-float32: kernel must be one of single_head",
        ),
    ],
)
def test_a_file_of_another_make_is_named_with_what_is_wrong(tmp_path: Path, change, words: str):
    content = sample()
    change(content)
    with pytest.raises(ValueError, match=rf"kernels-cpu-2026-02-03\.json: not a result of `make bench`.*{words}"):
        results(tmp_path, content)


# --- limits and ratios ----------------------------------------------------------------------------------------------


def test_the_limit_is_the_lower_of_the_two_roofs(tmp_path: Path):
    found = results(tmp_path)
    limited = found.limit(row(found, "single_head-float32"))
    assert limited.by == "reads from L2"
    assert limited.rate == pytest.approx(ROOFS["L2"] / 160e3)
    assert row(found, "single_head-float32").rate / limited.rate == pytest.approx(600e3 * 160e3 / 190e9)
    double = found.limit(row(found, "token_selection-float64"))
    assert double.rate == pytest.approx(ROOFS["L2"] / 614e3)
    naive = found.limit(row(found, "naive-single_head-float32"))
    assert (naive.by, naive.rate) == ("reads from memory", pytest.approx(ROOFS["memory"] / 160e3))
    inside = found.limit(row(found, "in-context-h2"))
    assert (inside.by, inside.rate) == ("multiply-adds", pytest.approx(ROOFS["float32"] / 1.8e6))
    assert found.limit(row(found, "gaussian-tail")).rate == pytest.approx(ROOFS["float64"] / (8192 * 80))


def test_many_operations_on_few_bytes_are_limited_by_the_peak(tmp_path: Path):
    content = sample()
    case = next(case for case in content["cases"] if case["case"] == "single_head-float64")
    case["work"]["operations"] = 1e9
    found = results(tmp_path, content)
    limit = found.limit(row(found, "single_head-float64"))
    assert (limit.by, limit.rate) == ("multiply-adds", pytest.approx(ROOFS["float64"] / 1e9))


def test_a_computed_ceiling_is_the_limit_where_there_are_no_probes(tmp_path: Path):
    """52 % of the lower of two: 0.26 M of 0.5 M units a second."""
    content = without("peak", "read", "naive")
    case = next(case for case in content["cases"] if case["case"] == "single_head-float32")
    case |= {"median_s": 2.0, "ceilings": {"instructions": 1e6, "second cache": 5e5}}
    case["work"]["units"] = 520_000
    found = results(tmp_path, content)
    limited = found.limit(row(found, "single_head-float32"))
    assert (limited.rate, limited.by) == (5e5, "second cache (computed)")
    assert row(found, "single_head-float32").rate / limited.rate == pytest.approx(0.52)
    assert found.limit(row(found, "single_head-float64")) is None


def test_two_threads_are_held_against_the_roofs_of_two(tmp_path: Path):
    found = results(tmp_path)
    assert found.limit(row(found, "single_head-float32-2threads")).rate == pytest.approx(2 * ROOFS["L2"] / 160e3)
    alone = results(tmp_path, without("read-L2-2threads"))
    assert alone.limit(row(alone, "single_head-float32-2threads")) is None


def test_without_the_roof_of_its_memory_a_case_has_no_limit(tmp_path: Path):
    found = results(tmp_path, without("read-"))
    assert found.limit(row(found, "single_head-float32")) is None
    assert found.limit(row(found, "in-context-h1")).by == "multiply-adds"
    assert results(tmp_path, without("read-", "peak-")).roof("float32") is None


def test_the_baseline_is_of_the_same_loop_unit_and_precision_with_the_nearest_name(tmp_path: Path):
    found = results(tmp_path)
    pairs = {
        "single_head-float32": "naive-single_head-float32",
        "single_head-float64": "naive-single_head-float64",
        "single_head-float32-2threads": "naive-single_head-float32",
        "in-context-h1": "naive-h1",
        "in-context-h8": "naive-h8",
        "gaussian-tail": "naive-gaussian-tail",
    }
    assert {case: found.baseline(row(found, case)).case for case in pairs} == pairs
    renamed = sample()
    next(case for case in renamed["cases"] if case["case"] == "naive-single_head-float64")["case"] = "naive-double"
    double = results(tmp_path, renamed)
    assert double.baseline(row(double, "single_head-float64")).case == "naive-double"  # precision before the name
    other = sample()
    for case in other["cases"]:
        case["case"] = case["case"].replace("naive-single_head", "a-torch")
        if case["case"] == "naive-h2":
            case["case"] = "numpy-gaussian-tail-float64"
            case["work"] |= {"kernel": "gaussian tail", "unit": "error", "dtype": "float64"}
    found = results(tmp_path, other)
    assert found.baseline(row(found, "single_head-float64")).case == "a-torch-float64"
    assert (
        found.baseline(row(found, "gaussian-tail")).case == "naive-gaussian-tail"
    )  # numpy only if there is nothing else
    more = sample()
    for case in more["cases"]:
        case["case"] = {"naive-h1": "naive-h2-extra"}.get(case["case"], case["case"])
    extra = results(tmp_path, more)
    assert extra.baseline(row(extra, "in-context-h2")).case == "naive-h2"  # not the one with more words beside
    lonely = results(tmp_path, without("naive-single"))
    assert lonely.baseline(row(lonely, "single_head-float32")) is None
    other = sample()
    next(case for case in other["cases"] if case["case"] == "naive-gaussian-tail")["work"]["unit"] = "run-step"
    counted = results(tmp_path, other)
    assert counted.baseline(row(counted, "gaussian-tail")) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (628_900, "629 k"),
        (1.21e6, "1.21 M"),
        (999_700, "1 M"),
        (999_400, "999 k"),
        (62_890, "62.9 k"),
        (240.1e9, "240 G"),
        (890.4, "890"),
        (12.345, "12.3"),
        (0.5, "0.5"),
        (0.0, "0"),
    ],
)
def test_numbers_keep_three_digits(value: float, text: str):
    assert thousands(value) == text


# --- the picture ----------------------------------------------------------------------------------------------------


def test_the_picture_is_the_same_bytes_for_the_same_results(tmp_path: Path):
    found = results(tmp_path)
    first = roofline(found)
    assert first == roofline(found)
    assert first.startswith(b"<?xml")
    assert b"<dc:date>" not in first
    faster = sample()
    faster["cases"][-2]["work"]["units"] *= 2
    assert roofline(results(tmp_path, faster)) != first


def test_the_picture_leaves_the_style_of_others_alone(tmp_path: Path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    roofline(results(tmp_path))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("left_out", ["peak-", "read-", "naive-", "in-context", "single_head", "gaussian", "token"])
def test_the_picture_is_drawn_with_what_there_is(tmp_path: Path, left_out: str):
    assert roofline(results(tmp_path, without(left_out))).startswith(b"<?xml")


def test_the_picture_can_be_heard(tmp_path: Path):
    text = describe(results(tmp_path))
    assert "Roofs of one core: L2 190 GB/s, L3 30 GB/s, memory 17 GB/s, float32 240 G operations/s" in text
    assert (
        "Single head, float32: 96 G operations/s at 1 operations per byte, 51% of the limit set by reads from L2"
        in text
    )
    assert "In-context training, float32: 158 G operations/s in registers and L1, 66% of the limit" in text
    assert NOT_MEASURED in describe(results(tmp_path, without("peak-", "read-")))
    assert math.isinf(row(results(tmp_path), "in-context-h1").intensity)


# --- the book -------------------------------------------------------------------------------------------------------

PAGE = """# Speed

```{benchmark-roofline} GROUP
A *caption* with $x$.
```

```{benchmark-table} GROUP
```

```{benchmark-table} GROUP
:kernel: gaussian_tail
```

Ratio {benchmark-ratio}`GROUP naive / compiled, one step, H = 2 | .0f`, rate {benchmark-rate}`GROUP single_head-float32`;
{benchmark-ratio}`GROUP no such ratio`, {benchmark-rate}`GROUP no-such-case`.
"""


def render(root: Path, pages: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """Exit status, log and HTML of a book with these pages, warnings as errors. All of them are told: one build is enough."""
    make_book(root, {}, {"preface": "# Title\n"} | pages)
    config = (root / "_config.yml").read_text(encoding="utf-8")
    if EXTENSION not in config:
        config = config.replace("bookkit.sphinx.notebook_quotes]", f"bookkit.sphinx.notebook_quotes, {EXTENSION}]")
        (root / "_config.yml").write_text(config, encoding="utf-8")
    assert EXTENSION in config
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(root), "-W", "-n"]
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "PYTHONWARNINGS": "", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [*command, "--keep-going"],
        cwd=root,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    made = {name: root / "_build" / "html" / "book" / f"{name}.html" for name in pages}
    html = {name: path.read_text(encoding="utf-8") for name, path in made.items() if path.exists()}
    return done.returncode, done.stdout, html


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A book and the HTML of its pages: each quotes a group of results of its own, that of `absent` does not exist."""
    root = tmp_path_factory.mktemp("whole")
    folder = root / "benchmarks" / "results"
    write_sample(folder)
    write_sample(folder, "gaps-cpu-2026-02-03.json", without("token_selection", "naive-token", "read-L2"))
    gpu = without("in-context", "naive", "token", "gaussian", "peak", "read") | {"device": "A made-up GPU"}
    next(case for case in gpu["cases"] if case["case"] == "single_head-float64")["ceilings"] = {"instructions": 1e6}
    write_sample(folder, "both-cpu-2026-02-03.json")
    write_sample(folder, "both-a-made-up-gpu-2026-02-01.json", gpu)
    pages = {name: PAGE.replace("GROUP", name) for name in ("kernels", "absent", "gaps")}
    pages["both"] = "# A\n\n```{benchmark-table} both\n:kernel: single_head\n```\n"
    status, log, html = render(root, pages)
    assert status == 0, log[-3000:]
    return root, html


def words(html: str) -> str:
    """Text of a page."""
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def table_rows(html: str) -> list[str]:
    """Text of the rows of all tables."""
    rows = re.findall(r"<tr.*?</tr>", html, flags=re.S)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


def test_the_picture_is_in_the_page_with_its_words(whole):
    root, html = whole[0], whole[1]["kernels"]
    image = re.search(r'<img alt="(Operations per second[^"]*)"[^>]*src="\.\./(_images/\w+\.svg)"', html)
    assert image
    assert "51% of the limit set by reads from L2" in image[1]
    assert (root / "_build" / "html" / image[2]).read_bytes().startswith(b"<?xml")
    assert "A <em>caption</em>" in html
    assert "Measured on 2026-02-03: A made-up processor, CPU, python 3.11.0, torch 2.13.0." in html


def test_the_table_tells_rate_ratio_limit_and_share(whole):
    rows = table_rows(whole[1]["kernels"])
    assert (
        "the made-up case single_head-float32 float32 · 1 thread · 160 k operations, 160 kB from L2 "
        "600 k ± 2.0% 19.4 1.19 M from L2 51%"
    ) in rows
    assert (
        "the made-up case naive-single_head-float32 float32 · 1 thread · 160 k operations, 160 kB from memory "
        "31 k ± 2.0% 1 106 k from memory 29%"
    ) in rows
    assert (
        "the made-up case single_head-float32-2threads float32 · 2 threads · 160 k operations, 160 kB from L2 "
        "1.14 M ± 2.0% 36.8 2.38 M from L2 48%"
    ) in rows
    assert (
        "the made-up case in-context-h2 float32 · 1 thread · 1.8 M operations 73 k ± 2.0% 128 133 k multiply-adds 55%"
    ) in rows
    assert (
        "the made-up case naive-h8 float32 · 1 thread · 4.5 M operations 220 ± 2.0% 1 53.3 k multiply-adds 0.4%" in rows
    )
    for title in KERNELS.values():
        assert sum(row.startswith(f"{title}: ") for row in rows) == (2 if title == "Population error" else 1)
    assert "Population error: errors per second" in rows
    assert not any("peak-float32" in row or "read-L2" in row for row in rows)
    assert f"On a GPU: {NOT_MEASURED}." in whole[1]["kernels"]


def test_numbers_in_sentences_come_from_the_file(whole):
    text = words(whole[1]["kernels"])
    assert f"Ratio 128, rate 600 k run-steps/s; {NOT_MEASURED}, {NOT_MEASURED}." in text


def test_without_results_the_page_says_so_and_is_built(whole):
    text = words(whole[1]["absent"])
    assert f"The roofline of the CPU: {NOT_MEASURED}." in text
    assert text.count(f"On a CPU: {NOT_MEASURED}.") == 2
    assert f"Ratio {NOT_MEASURED}, rate {NOT_MEASURED}; {NOT_MEASURED}, {NOT_MEASURED}." in text


def test_a_loop_that_was_not_measured_keeps_its_place(whole):
    rows = table_rows(whole[1]["gaps"])
    assert f"Token selection: {NOT_MEASURED}" in rows
    line = next(row for row in rows if row.startswith("the made-up case single_head-float32 "))
    assert f"600 k ± 2.0% 19.4 {NOT_MEASURED} –" in line  # the rate and its ratio stand, the limit is not known


def test_a_gpu_has_a_table_of_its_own(whole):
    html = whole[1]["both"]
    text = words(html)
    assert "Measured on 2026-02-03: A made-up GPU, python 3.11.0, torch 2.13.0." in text
    assert "Measured on 2026-02-03: A made-up processor, CPU, python" in text
    assert "On a GPU" not in text
    assert f"600 k ± 2.0% – {NOT_MEASURED} –" in " ".join(table_rows(html))
    assert "310 k ± 2.0% – 1 M instructions (computed) 31%" in " ".join(table_rows(html))


def test_a_broken_file_and_a_wrong_format_stop_the_build(tmp_path: Path):
    folder = tmp_path / "benchmarks" / "results"
    write_sample(folder, "broken-cpu-2026-02-03.json", {"cases": 3})
    write_sample(folder)
    pages = {
        "first": "# A\n\n```{benchmark-table} broken\n```\n",
        "second": "# A\n\n{benchmark-ratio}`kernels naive / compiled, one step, H = 2 | .0q`\n",
    }
    status, log, _ = render(tmp_path, pages)
    assert status != 0
    # Each is a warning, and a warning stops the build.
    broken, wrong = (line for line in log.splitlines() if "WARNING" in line)
    assert "first.md" in broken
    assert "broken-cpu-2026-02-03.json: not a result of `make bench`" in broken
    assert "second.md" in wrong
    assert "Unknown format code 'q'" in wrong
