"""What `make lighthouse` makes of Lighthouse's runs: the best of at most three, kept with a date, told where it falls short."""

import json
from contextlib import contextmanager

import pytest

from benchmarks import lighthouse


def run(score: int) -> dict:
    return {"scores": {"performance": score}, "metrics": {"speed-index": 1000.0 + score}}


def test_what_falls_short_is_measured_again_and_the_best_counts() -> None:
    answers = {"a": [95], "b": [80, 91], "c": [70, 85, 60], "d": [89, 90]}
    asked: list[list[str]] = []

    def measure(urls):
        asked.append(list(urls))
        return [run(answers[url].pop(0)) for url in urls]

    best = lighthouse.best_runs({name: name for name in answers}, measure)
    assert {name: lighthouse.score(found) for name, found in best.items()} == {"a": 95, "b": 91, "c": 85, "d": 90}
    assert asked == [["a", "b", "c", "d"], ["b", "c", "d"], ["c"]]


@pytest.mark.parametrize(("scores", "status"), [((90, 95, 100, 99), 0), ((90, 95, 89, 99), 1)])
def test_the_figures_are_kept_and_the_status_tells(tmp_path, monkeypatch, capsys, scores, status: int) -> None:
    @contextmanager
    def served():
        yield "http://book"

    found = dict(zip((f"http://book/{page}" for page in lighthouse.PAGES.values()), scores, strict=True))
    monkeypatch.setattr(lighthouse, "trouble", lambda: None)
    monkeypatch.setattr(lighthouse.browsing, "served", served)
    monkeypatch.setattr(lighthouse, "measured", lambda urls, kind: [run(found[url]) for url in urls])
    assert lighthouse.main(["--output", str(tmp_path)]) == status
    (kept,) = tmp_path.glob("lighthouse-cpu-20??-??-??.json")
    rows = json.loads(kept.read_text(encoding="utf-8"))["pages"]
    assert [row["score"] for row in rows] == list(scores)
    assert [row["page"] for row in rows] == list(lighthouse.PAGES.values())
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert ("BELOW 90" in capsys.readouterr().out) == bool(status)


def test_without_what_it_needs_it_says_so(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(lighthouse.browsing, "chromium", lambda: "chromium")
    monkeypatch.setattr(lighthouse, "machine_can", lambda: True)
    monkeypatch.setattr(lighthouse.browsing, "HTML", tmp_path)
    assert lighthouse.main(["--output", str(tmp_path / "out")]) == 2
    assert "not in the built book: book/preface.html" in capsys.readouterr().err
    monkeypatch.setattr(lighthouse, "machine_can", lambda: False)
    assert "npm ci" in lighthouse.trouble()
    monkeypatch.setattr(lighthouse.browsing, "chromium", lambda: None)
    assert "no Chromium" in lighthouse.trouble()
    assert not (tmp_path / "out").exists()
