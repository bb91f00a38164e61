"""docs/kernels.md shows what `make bench` measured: rates, ratios and limits are right, and what is missing is said, not invented."""

from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.report import NOT_MEASURED, baseline, limit, newest, rate, table, thousands, written
from tests.sample_benchmarks import ROOFS, sample, write_sample


def results(folder: Path, content: dict | None = None) -> dict:
    write_sample(folder, content=content)
    return newest(folder)["cpu"]


def row(found: dict, case: str) -> dict:
    return next(each for each in found["cases"] if each["case"] == case)


def without(*words: str) -> dict:
    """The sample without the cases whose names begin so."""
    made = sample()
    made["cases"] = [case for case in made["cases"] if not case["case"].startswith(words)]
    return made


def test_a_rate_is_units_over_the_median(tmp_path: Path) -> None:
    content = sample()
    case = row(content, "single_head-float32")
    case |= {"median_s": 0.25}
    case["work"]["units"] = 64_000
    assert rate(row(results(tmp_path, content), "single_head-float32")) == 256_000


def test_the_newest_file_of_each_device_is_taken(tmp_path: Path) -> None:
    names = {"kernels-cpu-2026-02-03": "2026-02-03", "kernels-cpu-2025-12-31": "old", "kernels_old-cpu-2027-01-01": "x"}
    for name, date in (names | {"kernels-nvidia-h200-2026-01-01": "2026-01-01"}).items():
        write_sample(tmp_path, f"{name}.json", sample() | {"date": date})
    (tmp_path / "kernels-cpu-2028-01-01.partial").write_text("")
    found = {device: each["date"] for device, each in newest(tmp_path).items()}
    assert found == {"cpu": "2026-02-03", "nvidia-h200": "2026-01-01"}
    assert newest(tmp_path / "absent") == {}


def test_the_limit_is_the_lower_of_the_two_roofs(tmp_path: Path) -> None:
    found = results(tmp_path)
    # 160 kB from L2 and 160 k operations: the memory is the lower roof; for two threads, of two cores.
    assert limit(found, row(found, "single_head-float32")) == pytest.approx((ROOFS["L2"] / 160e3, "L2"))
    assert limit(found, row(found, "single_head-float32-2threads"))[0] == pytest.approx(2 * ROOFS["L2"] / 160e3)
    assert limit(found, row(found, "in-context-h2")) == pytest.approx((ROOFS["float32"] / 1.8e6, "multiply-adds"))
    few = results(tmp_path / "few", without("read-L2"))
    assert limit(few, row(few, "single_head-float32")) is None  # the roof that may be the lower one is not known


def test_the_baseline_is_of_the_same_loop_unit_and_precision_with_the_nearest_name(tmp_path: Path) -> None:
    found = results(tmp_path)
    pairs = {
        "single_head-float32": "naive-single_head-float32", "single_head-float64": "naive-single_head-float64",
        "single_head-float32-2threads": "naive-single_head-float32", "in-context-h1": "naive-h1",
        "in-context-h8": "naive-h8", "gaussian-tail": "naive-gaussian-tail",
    }  # fmt: skip
    assert {case: baseline(found, row(found, case))["case"] for case in pairs} == pairs
    other = sample()
    row(other, "naive-h2").update(case="numpy-gaussian-tail-float64")
    row(other, "numpy-gaussian-tail-float64")["work"] |= {
        "kernel": "gaussian tail",
        "unit": "error",
        "dtype": "float64",
    }
    row(other, "naive-single_head-float64")["case"] = "naive-double"
    found = results(tmp_path, other)
    assert baseline(found, row(found, "gaussian-tail"))["case"] == "naive-gaussian-tail"  # numpy only if nothing else
    assert baseline(found, row(found, "single_head-float64"))["case"] == "naive-double"  # precision before the name
    lonely = results(tmp_path, without("naive-single"))
    assert baseline(lonely, row(lonely, "single_head-float32")) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(628_900, "629 k"), (1.21e6, "1.21 M"), (999_700, "1 M"), (999_400, "999 k"), (240.1e9, "240 G"), (0.0, "0")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert thousands(value) == text


def test_the_table_tells_rate_ratio_limit_and_share(tmp_path: Path) -> None:
    text = table(results(tmp_path))
    for line in (
        "| the made-up case single_head-float32 (float32, 1 thread) | 600 k ± 2.0% | 19.4 | 1.19 M, L2 | 51% |",
        "| the made-up case single_head-float32-2threads (float32, 2 threads) | 1.14 M ± 2.0% | 36.8 | 2.38 M, L2 | 48% |",
        "| the made-up case naive-h8 (float32, 1 thread) | 220 ± 2.0% | 1 | 53.3 k, multiply-adds | 0.4% |",
        "**Population error:** errors per second",
        f"**Attention heads:** {NOT_MEASURED}",
    ):
        assert line in text.splitlines()
    assert "peak-float32" not in text
    gaps = table(results(tmp_path, without("read-L2")))
    line = f"single_head-float32 (float32, 1 thread) | 600 k ± 2.0% | 19.4 | {NOT_MEASURED} | – |"
    assert line in gaps  # the rate and its ratio stand, the limit is not known


def test_the_chapter_shows_the_newest_results() -> None:
    text, found = report.CHAPTER.read_text(encoding="utf-8"), newest(report.RESULTS)
    assert written(text, found) == text, "run python -m benchmarks.report"
    assert written(text.replace("| rate |", "| speed |"), found) == text
    # Numbers in sentences, by the names of their ratios.
    ratios = found["cpu"]["ratios"]
    for said, ratio in {
        "code takes {:.0f} times as long": "in context, H = 2: eager torch / compiled, one step",
        "{:.0f} times for a step of the single head": "(a) torch.bmm / compiled, one run-step, float32",
        "{:.0f} times for one of token selection": "compiled / batched torch, token selection, f32-coordinates",
        "compiled loop is {:.1f} times faster": "heads, batched torch / compiled, one run-step, h1",
        "{:.1f} times for four": "heads, batched torch / compiled, one run-step, h4",
    }.items():
        assert said.format(ratios[ratio]) in " ".join(text.split())
