"""What `make bench` measures: cases that are told apart, gates that let nothing wrong be timed, ratios of rates, honest probes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import kernel_heads, kernel_in_context, kernel_token_selection, machine
from benchmarks.registry import Case, Work

MB = 2**20


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_case_has_a_name_of_its_own_and_says_what_it_does(device: str) -> None:
    cases = bench.cases(device)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) > 5
    for case in cases:
        assert case.work.units > 0, case.name
        assert case.work.operations + case.work.bytes > 0, case.name
        assert case.work.level in ("", "L2", "L3", "memory"), case.name
        assert (case.work.bytes > 0) == (case.work.level != ""), case.name
        assert case.threads in (1, 2), case.name
    assert bench.ratios({}) == {}
    assert all(value > 0 for value in bench.ratios(dict.fromkeys(names, 1.0)).values())
    # What the chapter quotes is still measured.
    stored = json.loads(next(Path(bench.__file__).parent.glob("results/kernels-cpu-*.json")).read_text())
    quoted = (
        "eager torch / compiled, one step",
        "torch.bmm / compiled",
        "batched torch, token selection, f32-c",
        "run-step, h4",
    )
    found = bench.ratios(dict.fromkeys(names, 1.0))
    assert device == "cuda" or all(any(text in name for name in found if name in stored["ratios"]) for text in quoted)


def test_a_ratio_compares_one_step_with_one_step() -> None:
    """200 eager steps in 0.4 s against 10 000 compiled ones in 0.1 s: 2 ms against 10 microseconds."""
    found = bench.ratios({"naive-h2": 0.4, "compiled-h2": 0.1, "two-threads-h2": 0.11, "d-torch": 2.0,
                                        "d-compiled-1": 1.0, "read-L2": 2.0, "read-L2-2threads": 2.5})  # fmt: skip
    assert found["in context, H = 2: eager torch / compiled, one step"] == pytest.approx(200)
    assert found["in context, H = 2: two threads / one, steps per second"] == pytest.approx(2 * 0.1 / 0.11)
    assert found["(d) batched torch / compiled, one error"] == pytest.approx(20)  # 2000 against 20 000
    assert found["read-L2: two cores / one"] == 1.6
    assert len(found) == 4


def test_operations_of_a_step_grow_as_the_model_does() -> None:
    """At d = 5, L = 40, B = 128 a head adds about a third of a million operations to half a million for the data."""
    one, two, four = (kernel_in_context._operations(heads) for heads in (1, 2, 4))
    assert two - one == pytest.approx((four - two) / 2)
    assert 0.3e6 < two - one < 0.4e6
    assert 0.5e6 < one - (two - one) < 0.7e6


@pytest.mark.parametrize(
    ("module", "arguments", "wrong"),
    [
        (kernel_in_context, ("cpu",), lambda call: {"learning_rate": 1.1 * call.learning_rate}),
        (kernel_heads, ("cpu",), lambda call: {"output_scale": 1.1}),
        (kernel_token_selection, (torch.float64,), lambda call: {"step_sizes": 1.1 * call.step_sizes}),
    ],
)
def test_a_wrong_kernel_is_not_timed(module, arguments, wrong, monkeypatch) -> None:
    holder = module.in_context if module is kernel_in_context else module
    real = holder.advance
    module.gate(*arguments)

    def slightly_wrong(call, *state, **chosen):
        call = call if chosen.get("implementation") == "reference" else replace(call, **wrong(call))
        return real(call, *state, **chosen)

    monkeypatch.setattr(holder, "advance", slightly_wrong)
    module.gate.cache_clear()
    with pytest.raises(AssertionError, match="no speed is reported"):
        module.gate(*arguments)


def test_a_row_holds_what_the_chapter_draws(capsys, monkeypatch) -> None:
    calls, gates = [], []
    work = Work(10, "step", 2.0, 4.0, "L2", "float64", "toy")
    toy = Case("toy", "a toy", lambda: lambda: calls.append(1), work, gate=lambda: gates.append(1))
    monkeypatch.setattr(bench, "ratios", lambda median: {"one": median["toy"] / median["toy"]})
    result = bench.measure((toy,), 0.01, "cpu")
    (row,) = json.loads(json.dumps(result))["cases"]
    assert len(calls) >= 2  # warmed up, then timed
    assert gates == [1]
    assert row["median_s"] > 0
    assert row["iqr_s"] >= 0
    assert row["threads"] == 1
    assert row["work"] == {
        "units": 10, "unit": "step", "operations": 2.0, "bytes": 4.0, "level": "L2", "dtype": "float64", "kernel": "toy",
    }  # fmt: skip
    assert result["ratios"] == {"one": 1.0}
    assert result["device"] == "cpu"
    assert result["versions"]["torch"] == torch.__version__
    assert "steps/s" in capsys.readouterr().out
    assert (bench.slug("NVIDIA H200"), bench.slug("cpu")) == ("nvidia-h200", "cpu")


# --- probes of the machine ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caches", "expected"),
    [
        (
            "1 Data 48K, 1 Instruction 64K, 2 Unified 2048K, 3 Unified 480M, 2 Instruction 9999K",
            (MB, 16 * MB, 960 * MB),
        ),
        ("2 Unified 256K, 3 Unified 2M", (MB // 8, MB, 512 * MB)),
        ("2 Unified 1M, 3 Unified 2000M", (MB // 2, 8 * MB, 1536 * MB)),
        # What is not told is taken as common.
        ("", (MB // 2, 8 * MB, 512 * MB)),
        ("2 Unified unknown, 2 Unified 12, 2 Unified K", (MB // 2, 8 * MB, 512 * MB)),
    ],
)
def test_arrays_follow_from_the_caches(tmp_path: Path, caches: str, expected: tuple) -> None:
    for number, entry in enumerate(filter(None, caches.split(", "))):
        place = tmp_path / f"index{number}"
        place.mkdir()
        for name, text in zip(("level", "type", "size"), entry.split(), strict=True):
            (place / name).write_text(f"{text}\n")
    assert tuple(machine.working_sets(tmp_path).values()) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chains_and_sums_are_numpys_and_wrong_ones_stop_the_benchmark(dtype: str, monkeypatch) -> None:
    chain, read = machine._loops()
    data = machine._chain_data(dtype, 2.0, 1.0)
    chain(3, data)  # x -> 2 x + 1, three times: 8 x + 7
    lanes = 64 // data.itemsize
    assert data.reshape(-1, lanes)[2:].tolist() == [[8 * i + 7] * lanes for i in range(machine.chains())]
    numbers, out = machine._numbers(100_000, dtype), np.zeros(lanes, dtype)
    assert numbers.ctypes.data % 64 == numbers.nbytes % 512 == 0
    assert 100_000 - 512 < numbers.nbytes <= 100_000
    numbers[-1] = 1000
    read(1, numbers, out)
    assert out.sum() == numbers.sum()
    for wrong, words in (
        ((lambda *a: None, read), "the chains in"),
        ((chain, lambda *a: None), "the sum of what is read"),
    ):
        machine.gate.cache_clear()
        monkeypatch.setattr(machine, "_loops", lambda wrong=wrong: wrong)
        with pytest.raises(AssertionError, match=words):
            machine.gate(dtype)


def test_probes_count_what_a_call_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_TURNS", 1000)
    monkeypatch.setattr(machine, "_READ", 2**22)
    cases = {case.name: case for case in machine.cases("cpu")}
    assert list(cases)[:5] == ["peak-float32", "peak-float64", "read-L2", "read-L3", "read-memory"]
    assert machine.cases("cuda") == ()
    assert cases["peak-float64"].work.units == 2 * 1000 * machine.chains() * 8
    for name, case in cases.items():
        peak = name.startswith("peak")
        assert (case.work.kernel, case.work.unit) == ("", "operation" if peak else "byte")
        assert case.work.level == ("" if peak else name.split("-")[1])
        one = cases[name.removesuffix("-2threads")]
        assert case.work.units == case.threads * one.work.units
    for name in ("peak-float32", "read-L2", "peak-float64-2threads", "read-L2-2threads"):
        call = cases[name].prepare()
        assert call() is None or len(call()) == 2
