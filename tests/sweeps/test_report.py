"""What a sweep says: counts, pace, the spread of results, failures; a bar that is fed with states."""

import pandas as pd
import pytest

from bookkit.sweeps.bar import Bar
from bookkit.sweeps.dispatch import Progress
from bookkit.sweeps.folder import SweepFolder, open_sweep
from bookkit.sweeps.report import pace, setting, summary
from tests.sweeps.sample_rows import done, failed, fill, grid, job, points_of


def test_a_summary_counts_spreads_and_names_failures(tmp_path) -> None:
    def answer(parameters):
        if parameters["n"] == 7:
            return "ValueError: seven"
        return (
            {"square": parameters["n"] ** 2, "word": parameters["mode"], "none": None} if parameters["n"] < 9 else None
        )

    fill(tmp_path / "out", grid({"n": [3, 4, 5, 7, 9]}, {"label_noise": [0.1, 0.3]}), answer)
    lines = summary(open_sweep(tmp_path / "out")).splitlines()
    assert lines[0] == "wing/01_tiny: 10 points, 6 done, 2 failed, 2 missing"
    assert lines[1] == "per point: median 1.5 s, longest 1.5 s; memory at most 1 MB"
    (square,) = (line.split() for line in lines if line.startswith("square"))
    assert square == ["square", "16.667", "9", "25", "6"]  # of 9, 16 and 25, twice each
    assert not any(line.startswith(("word", "none")) for line in lines)
    assert "  n=7, label_noise=0.1: ValueError: seven (tries: 1)" in lines
    assert "  n=7, label_noise=0.3: ValueError: seven (tries: 1)" in lines


def test_of_many_failures_the_first_are_shown(tmp_path) -> None:
    fill(tmp_path / "out", grid({"n": range(1, 9)}), lambda parameters: "ValueError: no")
    text = summary(open_sweep(tmp_path / "out"))
    assert text.count("ValueError: no") == 5
    assert "and 3 more: column run_error of the table" in text


def test_an_empty_folder_has_a_summary_too(tmp_path) -> None:
    fill(tmp_path / "out", grid({"n": [1, 2]}), lambda parameters: None)
    assert summary(open_sweep(tmp_path / "out")) == "wing/01_tiny: 2 points, 0 done, 0 failed, 2 missing"
    of = grid({"n": [1, 2]})
    with SweepFolder.begin(tmp_path / "out", job(), of, points_of(of)):
        text = summary(open_sweep(tmp_path / "out"))
    assert text == "wing/01_tiny: 2 points, 0 done, 0 failed, 2 missing; running"


def test_a_running_sweep_says_how_fast_and_how_long(tmp_path) -> None:
    """Rows 10 s apart: six a minute; 3 missing take half a minute."""
    of = grid({"n": [1, 2, 3, 4, 5, 6]})
    points = points_of(of)
    with SweepFolder.begin(tmp_path / "out", job(), of, points) as folder:
        for second, point in zip(("10", "20", "30"), points, strict=False):
            folder.write(done(point, {"x": 1}, finished=f"2026-01-02T03:04:{second}+00:00"), 1)
        first = summary(open_sweep(tmp_path / "out")).splitlines()[0]
    assert first == "wing/01_tiny: 6 points, 3 done, 0 failed, 3 missing; running, 6 points a minute, about 00:30 left"


@pytest.mark.parametrize("finished", [[], ["2026-01-02T03:04:05+00:00"], ["2026-01-02T03:04:05+00:00"] * 3])
def test_no_pace_is_made_up(finished) -> None:
    assert pace(pd.Series(finished, dtype="str"), 5) == ""


def test_only_the_last_rows_tell_the_pace() -> None:
    """A night between two calls does not count: of 40 rows, the last 21 are a second apart."""
    late = [f"2026-01-02T03:04:{second:02d}+00:00" for second in range(21)]
    early = [f"2026-01-01T03:04:{second:02d}+00:00" for second in range(19)]
    assert pace(pd.Series(late + early), 120) == ", 60 points a minute, about 02:00 left"


def test_a_setting_names_what_varies() -> None:
    assert setting({"n": 3, "mode": "dense", "d": 7}, ("mode", "n")) == "mode='dense', n=3"


def test_the_bar_shows_done_failures_and_messages(capsys) -> None:
    with Bar() as bar:
        bar(Progress(total=10, skipped=4))
        bar(Progress(total=10, skipped=4, done=2, failed=1, running=2, retrying=1, message="lost 1 worker"))
        assert bar.left == "7 of 10 points are safe; the same command runs the others"
    out, err = capsys.readouterr()
    assert out == ""
    assert "7/10" in err
    assert "failed=1" in err
    assert "again=1" in err
    assert err.count("lost 1 worker") == 1


def test_a_bar_that_was_never_fed_says_so(capsys) -> None:
    with Bar() as bar:
        assert bar.left == "nothing was run"
    assert capsys.readouterr().err == ""


def test_failed_points_count_in_the_pace(tmp_path) -> None:
    of = grid({"n": [1, 2, 3]})
    points = points_of(of)
    with SweepFolder.begin(tmp_path / "out", job(), of, points) as folder:
        folder.write(done(points[0], {"x": 1}, finished="2026-01-02T03:04:00+00:00"), 1)
        folder.write(failed(points[1], finished="2026-01-02T03:05:00+00:00"), 2)
        first = summary(open_sweep(tmp_path / "out")).splitlines()[0]
    assert first.endswith("; running, 1 points a minute, about 01:00 left")
