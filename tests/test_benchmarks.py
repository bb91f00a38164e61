"""What `make bench` measures: cases that are told apart, gates that let nothing wrong be timed, ratios of rates."""

import json
from dataclasses import replace

import pytest
import torch

from attnbook.certified.certify import certified
from attnbook.certified.certify import prove as prove_again
from attnlib.kernels.calls import changed
from benchmarks import __main__ as bench
from benchmarks import certificates, kernel_in_context, kernels
from benchmarks.registry import Case, Part, Work

LEVELS = ("", "L1", "L2", "L3", "memory")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_case_has_a_name_of_its_own_and_says_what_it_does(device: str) -> None:
    cases = kernels.part(device).cases
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) > 5
    for case in cases:
        assert case.work is not None, case.name
        assert case.work.units > 0, case.name
        assert case.work.operations + case.work.bytes > 0, case.name
        assert case.work.level in LEVELS, case.name
        assert (case.work.bytes > 0) == (case.work.level != ""), case.name
        assert case.threads in (1, 2), case.name


def test_ratios_leave_out_what_was_not_run() -> None:
    assert kernels.part("cpu").ratios({}) == {}
    everything = {case.name: 1.0 for case in kernels.part("cpu").cases}
    assert all(value > 0 for value in kernels.part("cpu").ratios(everything).values())


def test_a_ratio_compares_one_step_with_one_step() -> None:
    """200 eager steps in 0.4 s against 10 000 compiled ones in 0.1 s: 2 ms against 10 microseconds."""
    found = kernel_in_context.ratios({"naive-h2": 0.4, "compiled-h2": 0.1, "two-threads-h2": 0.11})
    assert found["in context, H = 2: eager torch / compiled, one step"] == pytest.approx(200)
    assert found["in context, H = 2: two threads / one, steps per second"] == pytest.approx(2 * 0.1 / 0.11)


def test_operations_of_a_step_grow_as_the_model_does() -> None:
    """At d = 5, L = 40, B = 128 a head adds about a third of a million operations to half a million for the data."""
    one, two, four = (kernel_in_context._operations(heads) for heads in (1, 2, 4))
    assert two - one == pytest.approx((four - two) / 2)
    assert 0.3e6 < two - one < 0.4e6
    assert 0.5e6 < one - (two - one) < 0.7e6


def test_a_wrong_kernel_is_not_timed(monkeypatch) -> None:
    kernel_in_context.gate.cache_clear()
    real = kernel_in_context.in_context.advance

    def slightly_wrong(call, *state, **chosen):
        return real(changed(call, learning_rate=1.1 * call.learning_rate), *state, **chosen)

    monkeypatch.setattr(kernel_in_context.in_context, "advance", slightly_wrong)
    with pytest.raises(AssertionError, match="no speed is reported"):
        kernel_in_context.gate()


def test_a_row_holds_what_the_chapter_draws(capsys, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(bench, "_memory", lambda part, case: 1.5)
    case = Case(
        "toy", "a toy", lambda: lambda: calls.append(1), work=Work(10, "step", 2.0, 4.0, "L2", "float64", "toy")
    )
    result = bench._measure(Part("toys", (case,), lambda median: {"one": median["toy"] / median["toy"]}), 0.01, "cpu")
    (row,) = json.loads(json.dumps(result))["cases"]
    assert len(calls) >= 2  # warmed up, then timed
    assert row["median_s"] > 0
    assert row["iqr_s"] >= 0
    assert row["threads"] == 1
    assert row["work"] == {
        "units": 10, "unit": "step", "operations": 2.0, "bytes": 4.0, "level": "L2", "dtype": "float64", "kernel": "toy",
    }  # fmt: skip
    assert result["ratios"] == {"one": 1.0}
    assert result["device"] == "cpu"
    assert result["versions"]["torch"] == torch.__version__
    assert "toy" in capsys.readouterr().out


def test_a_case_of_minutes_is_called_as_often_as_it_says(monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(bench, "_memory", lambda part, case: 0.0)
    case = Case("long", "takes minutes", lambda: lambda: calls.append(1), repeats=2)
    result = bench._measure(Part("toys", (case,), lambda median: {}), 0.01, "cpu")
    assert len(calls) == 2
    assert result["cases"][0]["median_s"] > 0


def test_names_of_devices_in_files() -> None:
    assert bench._slug("NVIDIA H200") == "nvidia-h200"
    assert bench._slug("cpu") == "cpu"


def test_each_certified_claim_is_a_case_and_one_without_power_stops_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {case.name for case in certificates.CASES} == set(certified())
    case = next(case for case in certificates.CASES if case.name == "V26")
    case.prepare()()

    def without_power(id: str):
        check, seconds = prove_again(id)
        return replace(check, control=check.evidence), seconds  # the control holds too

    monkeypatch.setattr(certificates, "prove", without_power)
    with pytest.raises(AssertionError, match="V26 is not proved"):
        case.prepare()()
