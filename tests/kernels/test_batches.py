"""Batches fit the memory; one that does not after all is halved, and every run is done exactly once."""

import contextlib
import logging
import weakref

import pytest
import torch

from attnlib.kernels.batches import free_bytes, in_batches

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch):
    """A GPU with so many free bytes, of which a batch may take eight tenths; counts how often its cache is emptied."""
    emptied = []

    def make(free: int, kept: int = 0, used: int = 0) -> list:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free, 10 * free))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: kept)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: used)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
        monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
        return emptied

    return make


class Work:
    """Adds one to every run of a slice, in the way batches are promised to: memory first, changes after.

    `holds`: how many runs fit, from which run on.
    """

    def __init__(self, runs: int, holds: dict[int, int]):
        self.done, self.holds, self.tried = [0] * runs, holds, []

    def __call__(self, part: slice) -> None:
        self.tried.append((part.start, part.stop))
        if part.stop - part.start > [size for start, size in self.holds.items() if start <= part.start][-1]:
            raise torch.OutOfMemoryError("CUDA out of memory (as if)")
        for run in range(part.start, part.stop):
            self.done[run] += 1


@pytest.mark.parametrize(
    ("runs", "each", "expected"),
    [(10, 100, 8), (10, 80, 10), (10, 81, 9), (10, 800, 1), (10, 801, 1), (10, 10**12, 1), (3, 1, 3)],
)
def test_as_many_runs_as_fit_and_at_least_one(memory, runs, each, expected):
    memory(1000)
    work = Work(runs, {0: runs})
    in_batches(work, runs, bytes_per_run=each, device=GPU)
    assert work.tried[0] == (0, expected)
    memory(1000, kept=700, used=200)  # what torch keeps for reuse is free
    assert free_bytes(GPU) == 1200
    assert free_bytes(CPU) == 2**30


def test_programs_are_launched_on_the_device_of_the_tensors(memory, monkeypatch):
    """With two cards the current one is the first, whatever the tensors are on."""
    memory(1000)
    current, seen = [], []

    @contextlib.contextmanager
    def device(which):
        current.append(which)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    second = torch.device("cuda", 1)
    in_batches(lambda part: seen.append([*current]), 3, bytes_per_run=500, device=second)
    assert seen == [[second]] * 3
    in_batches(lambda part: seen.append([*current]), 1, bytes_per_run=500, device=CPU)
    assert seen[-1] == current == []


@pytest.mark.parametrize("runs", [1, 7, 8, 9, 17])
@pytest.mark.parametrize("largest", [None, 1, 3, 8, 100])
def test_slices_are_consecutive_and_cover_every_run(memory, caplog, runs, largest):
    caplog.set_level(logging.INFO, logger="attnlib.kernels")
    memory(1000)
    work, size = Work(runs, {0: runs}), min(8, largest or 8)
    in_batches(work, runs, bytes_per_run=100, device=GPU, largest=largest)
    assert work.tried == [(start, min(start + size, runs)) for start in range(0, runs, size)]
    assert work.done == [1] * runs
    said = f"{runs} runs in batches of {size}: one needs 0.0001 MB on cuda"
    assert caplog.messages == [said] * (size < runs)  # one batch is not worth a line


@pytest.mark.parametrize("runs", [1, 5, 13, 64])
@pytest.mark.parametrize("holds", [1, 3, 7, 40])
def test_out_of_memory_halves_and_loses_nothing(memory, caplog: pytest.LogCaptureFixture, runs, holds):
    caplog.set_level(logging.WARNING, logger="attnlib.kernels")
    emptied, work, halved, size = memory(10**9), Work(runs, {0: holds}), [], runs
    in_batches(work, runs, bytes_per_run=1, device=GPU)
    assert work.done == [1] * runs
    while size > holds:
        halved.append(size)
        size //= 2
    # Each size fails once, then the smaller one is kept.
    assert [stop - start for start, stop in work.tried if stop - start > holds] == halved
    words = "{} runs do not fit in the memory of cuda: going on with batches of {}"
    assert caplog.messages == [words.format(size, size // 2) for size in halved]
    assert len(emptied) == len(halved)


@pytest.mark.parametrize(
    ("runs", "later", "tried"),
    [
        (24, 3, [(0, 8), (8, 16), (8, 12), *((at, at + 2) for at in range(8, 24, 2))]),
        (11, 1, [(0, 8), (8, 11), (8, 9), (9, 10), (10, 11)]),  # a short last batch is halved by its own size
    ],
)
def test_memory_that_runs_short_later_is_met_too(memory, runs, later, tried):
    memory(1000)
    work = Work(runs, {0: 8, 8: later})
    in_batches(work, runs, bytes_per_run=100, device=GPU)
    assert work.tried == tried
    assert work.done == [1] * runs


def test_one_run_too_large_says_what_it_needs_and_what_to_do(memory):
    memory(1000)
    work = Work(4, {0: 1, 2: 0})
    words = r"one run does not fit in the memory of cuda: it needs about 2\.5 MB.*device='cpu'"
    with pytest.raises(MemoryError, match=words) as caught:
        in_batches(work, 4, bytes_per_run=2_500_000, device=GPU)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert work.done == [1, 1, 0, 0]  # what was done before stays done


def test_other_errors_are_not_taken_for_a_lack_of_memory_nor_the_cpu_for_a_gpu(memory):
    emptied = memory(1000)

    def broken(part: slice) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_batches(broken, 4, bytes_per_run=1, device=GPU)
    in_batches(Work(6, {0: 2}), 6, bytes_per_run=1, device=CPU)
    assert emptied == []


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
