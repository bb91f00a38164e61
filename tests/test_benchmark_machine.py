"""Probes of the machine measure what they say: right arrays, right sums, right counts."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import machine

pytest.importorskip("numba", reason="the probes are compiled by numba: pip install 'attnlib[kernels]'")

MB = 2**20


def caches(folder: Path, *entries: tuple[str, str, str]) -> Path:
    """A folder as Linux keeps it, one entry (level, type, size) per cache."""
    for number, entry in enumerate(entries):
        place = folder / f"index{number}"
        place.mkdir(parents=True)
        for name, text in zip(("level", "type", "size"), entry, strict=True):
            (place / name).write_text(f"{text}\n")
    return folder


def test_arrays_follow_from_the_caches(tmp_path: Path):
    told = caches(
        tmp_path / "a",
        ("1", "Data", "48K"),
        ("1", "Instruction", "64K"),
        ("2", "Unified", "2048K"),
        ("3", "Unified", "480M"),
        ("2", "Instruction", "9999K"),
    )
    assert machine.working_sets(told) == {"L2": MB, "L3": 16 * MB, "memory": 960 * MB}
    small = caches(tmp_path / "b", ("2", "Unified", "256K"), ("3", "Unified", "2M"))
    assert machine.working_sets(small) == {"L2": MB // 8, "L3": MB, "memory": 512 * MB}
    huge = caches(tmp_path / "c", ("2", "Unified", "1M"), ("3", "Unified", "2000M"))
    assert machine.working_sets(huge)["memory"] == 1536 * MB


@pytest.mark.parametrize("size", ["", "unknown", "12", "K"])
def test_caches_that_are_not_told_are_taken_as_common(tmp_path: Path, size: str):
    common = {"L2": MB // 2, "L3": 8 * MB, "memory": 512 * MB}
    assert machine.working_sets(tmp_path / "absent") == common
    assert machine.working_sets(caches(tmp_path, ("2", "Unified", size))) == common


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chains_and_sums_are_numpys(dtype: str):
    machine._gate(dtype)
    chains, sums, lanes = machine._loops(dtype)
    out = np.empty(lanes, dtype)
    chains(3, 2.0, 1.0, out)  # x -> 2 x + 1, three times: 8 x + 7
    assert out.tolist() == [sum(8 * i + 7 for i in range(machine._shape()[1]))] * lanes
    data = machine._array(64 * 1024, dtype)
    data[-1] = 1000
    sums(data, 1, out)
    assert out.sum() == data.sum()


def test_a_wrong_sum_stops_the_benchmark(monkeypatch: pytest.MonkeyPatch):
    chains, sums, lanes = machine._loops("float64")
    for wrong, words in (
        ((lambda *a: a[-1].fill(1.0), sums, lanes), "chains in float64"),
        ((chains, lambda *a: a[-1].fill(1.0), lanes), "sum of what is read in float64"),
    ):
        machine._gate.cache_clear()
        monkeypatch.setattr(machine, "_loops", lambda dtype, wrong=wrong: wrong)
        with pytest.raises(AssertionError, match=words):
            machine._gate("float64")


@pytest.mark.parametrize("size", [64 * 1024, 100_000, 3 * MB])
def test_arrays_start_on_a_vector_and_hold_whole_groups(size: int):
    data = machine._array(size)
    width = machine._shape()[0]
    assert data.ctypes.data % width == 0
    assert data.nbytes % (8 * width) == 0
    assert size - 8 * width < data.nbytes <= size
    assert set(np.unique(data)) == {1.0, 3.0}


def test_cases_count_what_a_call_does():
    cases = {case.name: case for case in machine.cases("cpu")}
    assert list(cases)[:5] == ["peak-float32", "peak-float64", "read-L2", "read-L3", "read-memory"]
    assert all(cases[f"{name}-2threads"].threads == 2 for name in list(cases)[:5])
    assert all(case.work.kernel == "" for case in cases.values())
    assert machine.cases("cuda") == ()
    width, chains = machine._shape()
    assert cases["peak-float64"].work.units == 2 * machine._TURNS * chains * width / 8
    assert cases["peak-float32"].work.units == 2 * cases["peak-float64"].work.units
    for name, case in cases.items():
        assert case.work.unit == ("operation" if name.startswith("peak") else "byte")
        assert case.work.level == (name.split("-")[1] if name.startswith("read") else "")
        if case.threads == 2:
            assert case.work.units == 2 * cases[name.removesuffix("-2threads")].work.units


@pytest.mark.parametrize("name", ["peak-float32", "read-L2", "peak-float64-2threads", "read-L2-2threads"])
def test_a_case_runs(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(machine, "_TURNS", 1000)
    monkeypatch.setattr(machine, "_READ", 2**22)
    machine._gate.cache_clear()
    call = next(case for case in machine.cases("cpu") if case.name == name).prepare()
    call()
    assert call() is None or len(call()) == 2


def test_ratios_are_left_out_where_a_case_is_missing():
    found = machine.ratios({"read-L2": 2.0, "read-L2-2threads": 2.5, "peak-float32": 1.0, "other": 3.0})
    assert found == {"read-L2: two cores / one": 1.6}
