"""Batches fit the memory; one that does not after all is halved, and every run is done exactly once."""

import contextlib
import logging
import weakref

import pytest
import torch

from attnlib.kernels.batches import fitting, free_bytes, in_batches

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch):
    """A GPU with so many free bytes, of which a batch may take eight tenths; counts how often its cache is emptied."""
    emptied = []

    def make(free: int) -> list:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free, 10 * free))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: 0)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
        monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
        return emptied

    return make


class Work:
    """Adds one to every run of a slice, in the way batches are promised to: memory first, changes after."""

    def __init__(self, runs: int, holds: int):
        self.done, self.holds, self.tried = [0] * runs, holds, []

    def __call__(self, part: slice) -> None:
        self.tried.append((part.start, part.stop))
        if part.stop - part.start > self.holds:
            raise torch.OutOfMemoryError("CUDA out of memory (as if)")
        for run in range(part.start, part.stop):
            self.done[run] += 1


@pytest.mark.parametrize(
    ("runs", "each", "expected"),
    [(10, 100, 8), (10, 80, 10), (10, 81, 9), (10, 800, 1), (10, 801, 1), (10, 10**12, 1), (3, 1, 3)],
)
def test_as_many_runs_as_fit_and_at_least_one(memory, runs, each, expected):
    memory(1000)
    assert free_bytes(GPU) == 800
    assert fitting(runs, each, GPU) == expected


def test_programs_are_launched_on_the_device_of_the_tensors(memory, monkeypatch):
    """With two cards the current one is the first, whatever the tensors are on."""
    memory(1000)
    current = []

    @contextlib.contextmanager
    def device(which):
        current.append(which)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    seen = []
    second = torch.device("cuda", 1)
    in_batches(lambda part: seen.append([*current]), 3, bytes_per_run=500, device=second)
    assert seen == [[second]] * 3
    in_batches(lambda part: seen.append([*current]), 1, bytes_per_run=500, device=CPU)
    assert seen[-1] == current == []


def test_on_the_cpu_a_batch_takes_a_gigabyte():
    assert free_bytes(CPU) == 2**30
    assert fitting(5000, 2**20, CPU) == 1024


@pytest.mark.parametrize("runs", [1, 2, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("largest", [None, 1, 3, 8, 100])
def test_slices_are_consecutive_and_cover_every_run(memory, runs, largest):
    memory(1000)
    work = Work(runs, holds=runs)
    in_batches(work, runs, bytes_per_run=100, device=GPU, largest=largest)
    size = min(8, largest or 8)
    assert work.tried == [(start, min(start + size, runs)) for start in range(0, runs, size)]
    assert work.done == [1] * runs


@pytest.mark.parametrize("runs", [1, 2, 5, 13, 64, 100])
@pytest.mark.parametrize("holds", [1, 2, 3, 7, 40])
def test_out_of_memory_halves_and_loses_nothing(memory, caplog: pytest.LogCaptureFixture, runs, holds):
    caplog.set_level(logging.WARNING, logger="attnlib.kernels")
    emptied = memory(10**9)
    work = Work(runs, holds)
    in_batches(work, runs, bytes_per_run=1, device=GPU)
    assert work.done == [1] * runs
    failed = [stop - start for start, stop in work.tried if stop - start > holds]
    halved, size = [], runs
    while size > holds:
        halved.append(size)
        size //= 2
    assert failed == halved  # each size fails once, then the smaller one is kept
    assert len(emptied) == len(failed) == len(caplog.messages)
    for size, line in zip(failed, caplog.messages, strict=True):
        assert line == f"{size} runs do not fit in the memory of cuda: going on with batches of {size // 2}"


def test_memory_that_runs_short_later_is_met_too(memory):
    memory(1000)
    work = Work(24, holds=8)

    def shrinking(part: slice) -> None:
        if part.start >= 8:
            work.holds = 3
        work(part)

    in_batches(shrinking, 24, bytes_per_run=100, device=GPU)
    assert work.tried == [(0, 8), (8, 16), (8, 12), *((at, at + 2) for at in range(8, 24, 2))]
    assert work.done == [1] * 24


def test_a_short_last_batch_is_halved_by_its_own_size(memory):
    memory(1000)
    work = Work(11, holds=8)

    def shrinking(part: slice) -> None:
        if part.start >= 8:
            work.holds = 1
        work(part)

    in_batches(shrinking, 11, bytes_per_run=100, device=GPU)
    assert work.tried == [(0, 8), (8, 11), (8, 9), (9, 10), (10, 11)]
    assert work.done == [1] * 11


def test_one_run_too_large_says_what_it_needs_and_what_to_do(memory):
    memory(1000)
    work = Work(4, holds=0)
    with pytest.raises(
        MemoryError, match=r"one run does not fit in the memory of cuda: it needs about 2\.5 MB"
    ) as caught:
        in_batches(work, 4, bytes_per_run=2_500_000, device=GPU)
    assert "device='cpu'" in str(caught.value)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert work.done == [0] * 4


def test_what_was_done_before_one_run_too_large_stays_done(memory):
    memory(1000)
    work = Work(4, holds=1)

    def third_is_too_large(part: slice) -> None:
        if part.start == 2:
            work.holds = 0
        work(part)

    with pytest.raises(MemoryError):
        in_batches(third_is_too_large, 4, bytes_per_run=1000, device=GPU)
    assert work.done == [1, 1, 0, 0]


def test_other_errors_are_not_taken_for_a_lack_of_memory(memory):
    emptied = memory(1000)

    def broken(part: slice) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_batches(broken, 4, bytes_per_run=1, device=GPU)
    assert emptied == []


def test_on_the_cpu_no_gpu_is_touched(memory):
    emptied = memory(1)
    work = Work(6, holds=2)
    in_batches(work, 6, bytes_per_run=1, device=CPU)
    assert work.done == [1] * 6
    assert emptied == []


def test_batches_are_told_once_and_one_batch_is_not_worth_a_line(memory, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="attnlib.kernels")
    memory(1000)
    in_batches(Work(8, 8), 8, bytes_per_run=100, device=GPU)
    assert caplog.messages == []
    in_batches(Work(9, 9), 9, bytes_per_run=100, device=GPU)
    assert caplog.messages == ["9 runs in batches of 8: one needs 0.0001 MB on cuda"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"runs": 0}, "runs must be a whole number >= 1; got 0"),
        ({"runs": -3}, "runs must be a whole number >= 1; got -3"),
        ({"runs": 2.0}, "runs must be a whole number"),
        ({"bytes_per_run": 0}, "bytes_per_run must be a whole number >= 1; got 0"),
        ({"largest": 0}, "largest must be a whole number >= 1; got 0"),
    ],
)
def test_wrong_sizes_are_refused_before_any_work(wrong, words):
    work = Work(4, 4)
    arguments = {"runs": 4, "bytes_per_run": 8, "device": CPU} | wrong
    with pytest.raises(ValueError, match=words):
        in_batches(work, **arguments)
    assert work.tried == []


def test_memory_that_torch_keeps_for_reuse_counts_as_free(memory, monkeypatch: pytest.MonkeyPatch):
    memory(1000)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: 200)
    assert free_bytes(GPU) == 1200  # eight tenths of 1000 + 700 - 200


def test_the_tensors_of_a_failed_attempt_are_gone_when_the_cache_is_emptied(memory, monkeypatch: pytest.MonkeyPatch):
    memory(1000)
    alive, held = [], []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[-1]() is not None))

    def work(part: slice) -> None:
        scratch = torch.zeros(4)
        held.append(weakref.ref(scratch))
        if part.stop - part.start > 2:
            raise torch.OutOfMemoryError("as if")

    in_batches(work, 4, bytes_per_run=1, device=GPU)
    assert alive == [False]
