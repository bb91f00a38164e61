"""Ctrl-C and SIGTERM in every compiled loop: between two calls of machine code Python hears the signal, in threads too."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from attnbook.in_context.checkpoints import read_checkpoint
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import Training, train
from attnlib.kernels import batches, dispatch, gaussian_tail, heads, token_selection
from attnlib.single_head.maps import SOFTMAX

pytestmark = pytest.mark.skipif(not dispatch.has_numba(), reason="numba is not installed")


def _in_context(threads: int) -> None:
    train(Experiment(heads=8, d=5, batch=512, steps=500_000, records=2, runs=threads), threads=threads)


def _in_context_many(threads: int) -> None:
    each = [Experiment(heads=h, d=5, batch=512, steps=500_000, records=2) for h in range(6, 9)]
    batches.on_threads(train, each, threads)


def _normals(_: int) -> None:
    from attnlib.kernels.in_context.compiled import normals

    for _ in range(1000):  # the memory of one call has room for seconds only
        normals(0, [0], 0, 2000, 128, d=5, length=40)


def _heads(threads: int) -> None:
    gram = torch.eye(202, dtype=torch.float64).repeat(3, 1, 1)
    labels, classes = torch.ones(3, 200, dtype=torch.float64), torch.zeros(3, 200, dtype=torch.int64)
    call = heads.Call(
        gram, torch.zeros(3, 2, 202, dtype=torch.float64), labels, classes, torch.full((3, 2), 0.1, dtype=torch.float64),
        torch.ones(1_000_000, dtype=torch.float64), heads=1, signals=2, attention_map=SOFTMAX,
    )  # fmt: skip
    heads.advance(call, threads=threads)


def _token_selection(threads: int) -> None:
    size, state = 40, {"dtype": torch.float64}
    kernel = torch.eye(size, **state).repeat(20, 1, 1)
    weighted = torch.zeros(20, 3 * size + 1, size, **state)
    weighted[:, :size] = torch.eye(size)
    call = token_selection.Call(
        torch.zeros(20, 3 * size + 1, **state), weighted, torch.zeros(20, **state), kernel, torch.ones(20, 20, 2, **state),
        torch.ones(20, 20, **state), torch.full((1_000_000,), 0.01, **state),
    )  # fmt: skip
    token_selection.advance(call, threads=threads)


def _exact_error(threads: int) -> None:
    one = torch.ones(4_000_000, dtype=torch.float64)
    gaussian_tail.log_error(one, one, one, one, one, threads=threads)


CASES = [
    (_in_context, 1), (_in_context, 2), (_in_context_many, 2), (_normals, 1), (_heads, 1), (_heads, 2), (_token_selection, 1),
    (_token_selection, 2), (_exact_error, 1), (_exact_error, 2),
]  # fmt: skip


@pytest.mark.parametrize(("loop", "threads"), CASES)
def test_ctrl_c_is_heard(loop, threads: int, monkeypatch) -> None:
    """Each would run for a minute or more; the signal comes when its first call of machine code is done."""
    real, sent, before = batches.in_calls, [], set(threading.enumerate())

    def with_a_signal(*arguments):
        for call in real(*arguments):
            yield call
            if not sent:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

    for name in ("in_context", "heads", "token_selection", "gaussian_tail"):
        monkeypatch.setattr(f"attnlib.kernels.{name}.compiled.in_calls", with_a_signal)
    with pytest.raises(KeyboardInterrupt):
        loop(threads)
    assert time.monotonic() - sent[0] < 10  # measured: a fifth of a second
    for thread in set(threading.enumerate()) - before:
        if thread.ident is not None:  # the signal may come before a thread was started: it will run nothing
            thread.join(10)
        assert not thread.is_alive()


def test_a_task_that_fails_is_the_error_and_ends_the_others() -> None:
    ends = []

    def work(i: int) -> None:
        if i == 3:
            raise ValueError("the third")
        try:
            for _ in batches.in_calls(10**9, 1):
                time.sleep(0.01)
        except KeyboardInterrupt:
            ends.append(i)
            raise

    with pytest.raises(ValueError, match="the third"):
        batches.on_threads(work, range(6), 4)
    assert {0, 1, 2} <= set(ends)  # where the thread of the third is quick, it takes one more, which ends at once


@pytest.mark.parametrize(("total", "guess"), [(0, 5), (1, 5), (1000, 0), (1000, 1), (1000, 17), (1000, 5000)])
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_calls_cover_all_once_and_grow_with_their_time(total: int, guess: int, seconds: float) -> None:
    calls = list(batches.in_calls(total, guess, seconds))
    assert [first for first, _ in calls] == [0, *(last for _, last in calls[:-1])]
    assert calls[-1][1] == total
    lengths, size = [last - first for first, last in calls], max(1, guess)
    for length in lengths[:-1]:  # a quarter or four times the one before, as the time says
        assert length == size
        size = 4 * size if seconds else max(1, size // 4)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_command_keeps_what_was_trained_and_is_on_the_way_of_a_whole_one(tmp_path) -> None:
    """Stopped anywhere: to go on from there to the same end is `test_training`'s part."""
    words = "-m attnlib train heads_1 --threads 2 --runs 2 -o".split()
    command = [sys.executable, *words, str(tmp_path)]
    file = tmp_path / "heads_1.safetensors"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while process.poll() is None and not (file.exists() and read_checkpoint(file)[1]["step"]):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == (
        "attnlib: error: interrupted; the files hold what was done, the same command goes on from there"
    )
    tensors, settings = read_checkpoint(file)
    told = Experiment.from_record(settings["experiment"])
    begun = max(
        settings["step"] // Training.grid * Training.grid, *(s for s in told.recorded_steps if s <= settings["step"])
    )
    assert tensors.get("losses", np.empty((2, 0))).shape == (2, settings["step"] - begun)
    # The weights of a training that was not stopped, after as many steps: `records` changes no step.
    straight = train(told.replace(steps=settings["step"], records=2))
    for name, array in straight.state.items():
        np.testing.assert_array_equal(tensors[name], array)
