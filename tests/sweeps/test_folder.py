"""The folder of a sweep: what is written, what is read again, what counts as missing. Trouble: `test_folder_trouble`."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bookkit.sweeps import reading
from bookkit.sweeps.folder import Status, SweepFolder, open_sweep
from bookkit.sweeps.identity import point_id
from tests.sweeps.sample_rows import begin, done, failed, fill, grid, job, points_of, refused, tree

THREE = grid({"n": [1, 2, 3]})
POINTS = points_of(THREE)


# --- what is written ------------------------------------------------------------------------------------------------


def test_layout(tmp_path):
    out = tmp_path / "out"
    with SweepFolder.begin(out, job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[0], {"accuracy": 0.5}, notebook="{}"), 1)
        folder.write(failed(POINTS[1], "ValueError: n"), 2)
        folder.publish()
    rows = [f"rows/{point.id}.json" for point in POINTS[:2]]
    files = [
        ".lock",
        "notebooks",
        f"notebooks/{POINTS[0].id}.ipynb",
        "results.nc",
        "results.parquet",
        "rows",
        *rows,
        "sweep.json",
    ]
    assert sorted(tree(out)) == sorted(files)
    row = json.loads((out / rows[0]).read_text())
    assert (row["id"], row["status"], row["attempts"], row["results"]) == (POINTS[0].id, "done", 1, {"accuracy": 0.5})
    assert row["parameters"] == POINTS[0].parameters
    row = json.loads((out / rows[1]).read_text())
    assert (row["status"], row["attempts"], row["results"], row["error"]) == ("failed", 2, None, "ValueError: n")
    content = json.loads((out / "sweep.json").read_text())
    assert content["page"] == "wing/01_tiny"
    assert content["page_hash"] == "a" * 64
    assert content["package_hash"] == "b" * 64
    assert [point["id"] for point in content["points"]] == [point.id for point in POINTS]
    assert content["help"]["label_noise"] == "probability that a label is flipped, eta"


def test_a_page_that_cannot_be_read_has_no_help(tmp_path):
    begin(tmp_path / "out", THREE, of_job=replace(job(), source="no page"))
    assert open_sweep(tmp_path / "out").help == {}


def test_two_grids_one_folder(tmp_path):
    out = tmp_path / "out"
    small, large = grid({"n": [1, 2]}), grid({"n": [0, 2, 1, 5]})
    fill(out, small, lambda p: {"x": p["n"]})
    with SweepFolder.begin(out, job(), large, points_of(large)) as folder:
        assert [row["results"]["x"] for row in folder.rows().values()] == [1, 2]
        folder.write(done(points_of(large)[3], {"x": 5}), 1)
    sweep = open_sweep(out)
    assert [point.parameters["n"] for point in sweep.points] == [1, 2, 0, 5]  # the order of asking, no point twice
    assert sweep.grid == large
    assert [row["results"]["x"] for row in sweep.rows.values()] == [1, 2, 5]
    assert sweep.status == Status(total=4, done=3, failed=0, missing=1)


def test_a_smaller_grid_forgets_nothing(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: "no" if p["n"] == 2 else {"x": 1})
    begin(out, grid({"n": [3]}))
    assert open_sweep(out).status == Status(total=3, done=2, failed=1, missing=0)


def test_a_row_is_replaced_with_its_notebook(tmp_path):
    notebook = tmp_path / "out" / "notebooks" / f"{POINTS[0].id}.ipynb"
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(failed(POINTS[0], notebook="half"), 2)
        assert notebook.read_text() == "half"
        folder.write(done(POINTS[0], {"x": 1}), 1)  # retried, and only notebooks of failed points are kept
        assert not notebook.exists()
        assert [row["status"] for row in folder.rows().values()] == ["done"]


def test_any_text_can_be_written(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(failed(POINTS[0], "é \udc80 \x00\n漢字", notebook="\udc80"), 1)
        assert folder.rows()[POINTS[0].id]["error"] == "é ? \x00\n漢字"
        folder.publish()


def test_results_are_made_plain_or_refused(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.write(done(POINTS[0], {"x": np.float64("inf"), "y": np.arange(2)}), 1)
        assert folder.rows()[POINTS[0].id]["results"] == {"x": None, "y": [0, 1]}
        with pytest.raises(ValueError, match="result x must be a number"):
            folder.write(done(POINTS[1], {"x": {}}), 1)
        stranger = points_of(grid({"n": [77]}))[0]
        with pytest.raises(ValueError, match=stranger.id):
            folder.write(done(stranger, {"x": 1}), 1)
        assert list(folder.rows()) == [POINTS[0].id]


def test_nothing_is_published_where_nothing_finished(tmp_path):
    with SweepFolder.begin(tmp_path / "out", job(), THREE, POINTS) as folder:
        folder.publish()
    assert sorted(tree(tmp_path / "out")) == [".lock", "notebooks", "rows", "sweep.json"]
    assert open_sweep(tmp_path / "out").table.empty


# --- what is read ---------------------------------------------------------------------------------------------------

BROKEN = {
    "empty": lambda text: b"",
    "cut off": lambda text: text[: len(text) // 2],
    "without its last byte": lambda text: text[:-1],
    "zeros, as after a power cut": lambda text: bytes(len(text)),
    "not UTF-8": lambda text: text.replace(b"local", b"loc\xff"),
    "a list": lambda text: b"[" + text + b"]",
    "a number": lambda text: b"3",
    "of another point": lambda text: text.replace(POINTS[0].id.encode(), POINTS[1].id.encode()),
    "with other parameters": lambda text: text.replace(b'"n": 1,', b'"n": 7,'),
    "of no status": lambda text: text.replace(b'"done"', b'"running"'),
    "done without results": lambda text: text.replace(b'{"x": 1}', b"null"),
    "failed without error": lambda text: text.replace(b'"done"', b'"failed"'),
    "without versions": lambda text: text.replace(b'"versions"', b'"words"'),
    "with odd seconds": lambda text: text.replace(b'"seconds": 1.5', b'"seconds": "long"'),
    "nested too deep": lambda text: b"[" * 100_000,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_row_that_is_not_whole_is_missing_and_runs_again(tmp_path, how):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]} if p["n"] < 3 else None)
    path = out / "rows" / f"{POINTS[0].id}.json"
    broken = BROKEN[how](path.read_bytes())
    assert broken != path.read_bytes()
    path.write_bytes(broken)
    sweep = open_sweep(out)
    assert sweep.status == Status(total=3, done=1, failed=0, missing=2)
    assert list(sweep.table["x"]) == [2]
    assert sweep.array["x"].isnull().values.tolist() == [True, False, True]
    with SweepFolder.begin(out, job(), THREE, POINTS) as folder:
        assert list(folder.rows()) == [POINTS[1].id]
        folder.write(done(POINTS[0], {"x": 1}), 1)
        assert list(folder.rows()) == [POINTS[0].id, POINTS[1].id]


def test_files_that_are_no_rows_are_not_read(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]})
    text = (out / "rows" / f"{POINTS[0].id}.json").read_bytes()
    (out / "rows" / "0123456789abcdef.json").write_bytes(text)
    (out / "rows" / f"{POINTS[0].id}.json.1.part").write_bytes(text[:9])
    (out / "rows" / f"{POINTS[1].id}.json").unlink()
    (out / "rows" / f"{POINTS[1].id}.json").mkdir()
    assert list(open_sweep(out).rows) == [POINTS[0].id, POINTS[2].id]


def test_leftovers_of_killed_writes_go_at_the_next_begin(tmp_path):
    out = tmp_path / "out"
    fill(out, THREE, lambda p: {"x": p["n"]}, publish=True)
    before = tree(out)
    for name in (
        f"rows/{POINTS[0].id}.json.77.part",
        "notebooks/a.ipynb.77.part",
        "results.nc.77.part",
        "sweep.json.77.part",
    ):
        (out / name).write_text("half")
    begin(out, THREE)
    assert tree(out) == before


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", "rows/", "notebooks/", "sweep.json.77.part"]])
def test_a_folder_left_by_a_kill_at_the_start_is_new(tmp_path, left):
    out = tmp_path / "out"
    out.mkdir()
    for name in left:
        (out / name).mkdir() if name.endswith("/") else (out / name).touch()
    begin(out, THREE)
    assert sorted(tree(out)) == [".lock", "notebooks", "rows", "sweep.json"]


def test_open_refuses_what_is_no_sweep(tmp_path):
    assert "does not exist" in refused(open_sweep, tmp_path / "nowhere")
    assert "holds no sweep" in refused(open_sweep, tmp_path)
    begin(tmp_path / "out", THREE)
    path = tmp_path / "out" / "sweep.json"
    whole = json.loads(path.read_text())
    broken = [
        ("", "Expecting value"),
        (path.read_text()[:-5], "Expecting"),
        ("[]", "no mapping"),
        (json.dumps({**whole, "format": 2}), "format 2, this version reads 1"),
        (json.dumps({**whole, "page_hash": 3}), "no page_hash"),
        (json.dumps({**whole, "points": [1]}), "cannot be read"),
        (json.dumps({**whole, "grid": {}}), "not a grid"),
    ]
    for text, word in broken:
        path.write_text(text)
        message = refused(open_sweep, tmp_path / "out")
        assert word in message
        assert "sweep.json cannot be read" in message
        assert "out-2" in message


# --- many rows ----------------------------------------------------------------------------------------------------------


def test_ten_thousand_rows(tmp_path, monkeypatch):
    """Each row is read once, for table and array together. The bound of two seconds is the benchmarks': `open-10000`."""
    of = grid(
        {"n": list(range(100))}, {"step_size": [k / 7 for k in range(10)]}, {"label_noise": [k / 30 for k in range(10)]}
    )
    out = tmp_path / "out"
    points = points_of(of)
    with SweepFolder.begin(out, job(), of, points):
        pass
    row = json.loads(
        json.dumps({"status": "done", "attempts": 1, "seconds": 1.0, "engine": "local", "finished": "", "versions": {}})
    )
    for number, point in enumerate(points):
        whole = {
            **row,
            "id": point.id,
            "parameters": point.parameters,
            "results": {f"r{k}": number / (k + 1) for k in range(8)},
        }
        (out / "rows" / f"{point.id}.json").write_text(json.dumps(whole))
    reads = []
    loads = SimpleNamespace(
        loads=lambda text: reads.append(1) or json.loads(text), JSONDecodeError=json.JSONDecodeError
    )
    monkeypatch.setattr(reading, "json", loads)
    sweep = open_sweep(out)
    assert sweep.table.shape == (10_000, 5 + 8 + 17)
    assert sweep.array.sizes == {"n": 100, "step_size": 10, "label_noise": 10}
    assert len(reads) == 10_000 + 1  # and sweep.json
    assert float(sweep.array["r1"].sel(n=57, step_size=3 / 7, label_noise=0.1)) == 5733 / 2
    assert point_id("a" * 64, "b" * 64, points[5733].parameters) == sweep.table["run_id"][5733]
