"""The trainer: equal to autograd on the model as written, step by step; interrupted anywhere it ends the same; nothing is lost."""

import errno
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from attnbook.in_context import resumable
from attnbook.in_context.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from attnbook.in_context.resumable import load_history, train_resumable
from attnlib.in_context import training
from attnlib.in_context.circuits import circuits_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.model import HeadWeights, attend, initial_weights
from attnlib.in_context.training import TrainingDiverged, train
from attnlib.kernels import dispatch, prompt_stream
from attnlib.kernels.dispatch import has_numba
from tests.bad_input import refusing

IMPLEMENTATIONS = [
    "reference",
    pytest.param("compiled", marks=pytest.mark.skipif(not has_numba(), reason="needs numba")),
]
SMALL = Experiment(
    heads=2, d=3, length=7, noise_std=0.1, batch=16, steps=50, records=8, runs=2, seed=3, learning_rate=0.01
)


def by_autograd(e: Experiment, dtype: torch.dtype) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Every run by itself with torch.optim on the four matrices of the model as written: flat weights and losses per step."""
    weights, losses = [], []
    for run in range(e.runs):
        start = initial_weights(e.d, e.heads, e.start, seed=e.seed, first_run=e.first_run + run)
        tensors = [getattr(start, name).to(dtype).requires_grad_() for name in ("query", "key", "value", "output")]
        heads = HeadWeights(*tensors)
        options = {"lr": e.learning_rate, "weight_decay": e.weight_decay}
        if e.optimiser != "SGD":
            options |= {"betas": e.betas, "eps": e.eps}
        optimiser = getattr(torch.optim, e.optimiser)(tensors, **options)
        count = e.law.normals_per_prompt
        normals = prompt_stream.normals(e.seed, e.streams[run : run + 1], 0, e.steps, e.batch, count)
        mine = []
        for step in range(e.steps):
            prompts = e.law.from_normals(normals[0, step])
            loss = (attend(heads, prompts)[0] - prompts.target.to(dtype)).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            mine.append(loss.item())
        weights.append(heads.flat().detach())
        losses.append(mine)
    return torch.cat(weights), torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("optimiser", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize(("implementation", "dtype", "tolerance"), [("reference", "float64", 1e-10), *(
    (pytest.param("compiled", "float32", 1e-5, marks=pytest.mark.skipif(not has_numba(), reason="needs numba")),)
)])  # fmt: skip
def test_fifty_steps_are_those_of_autograd(optimiser: str, implementation: str, dtype: str, tolerance: float) -> None:
    e = SMALL.replace(
        optimiser=optimiser, convention="repository", weight_decay=0.05, betas=(0.85, 0.99), eps=1e-6, heads=3, d=2
    )
    expected, losses = by_autograd(e, torch.float64)
    history = train(e, dtype=dtype, implementation=implementation)
    got = torch.from_numpy(history.state["weights"]).double()
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)
    start = initial_weights(e.d, e.heads, seed=e.seed, runs=e.runs).flat()
    assert (got - start).abs().max() > 0.01
    for k in range(1, len(history.steps)):
        window = losses[:, history.steps[k - 1] : history.steps[k]]
        torch.testing.assert_close(history.loss[:, k], window.mean(1).double(), rtol=100 * tolerance, atol=0)


def test_adamw_without_decay_is_adam() -> None:
    adam, without, decayed = (
        train(SMALL.replace(optimiser=name, weight_decay=decay), dtype="float64", implementation="reference").weights
        for name, decay in (("Adam", 0.0), ("AdamW", 0.0), ("AdamW", 0.01))
    )
    torch.testing.assert_close(without.flat(), adam.flat(), rtol=0, atol=1e-12)
    assert (decayed.flat() - adam.flat()).abs().max() > 1e-5


@pytest.mark.parametrize("start", ["small_id", "small_id_qk", "oppo_small_id"])
def test_other_starts_too(start: str) -> None:
    e = SMALL.replace(start=start, runs=1, steps=20)
    got = torch.from_numpy(train(e, dtype="float64", implementation="reference").state["weights"])
    torch.testing.assert_close(got, by_autograd(e, torch.float64)[0], rtol=0, atol=1e-10)


def test_records_are_circuits_of_the_state_at_their_steps() -> None:
    history = train(SMALL, dtype="float64", implementation="reference")
    assert history.steps.tolist() == list(SMALL.recorded_steps)
    assert history.steps[0] == 0
    assert history.steps[-1] == SMALL.steps
    first = circuits_of(initial_weights(SMALL.d, 2, seed=SMALL.seed, runs=2))
    torch.testing.assert_close(history.circuits[:, 0].key_query, first.key_query)
    middle = int(history.steps[4])
    shorter = train(SMALL.replace(steps=middle), dtype="float64", implementation="reference")
    torch.testing.assert_close(history.mu[:, 4], shorter.final.mu, rtol=1e-12, atol=0)
    torch.testing.assert_close(history.final.key_query, circuits_of(history.weights).key_query)
    assert history.at(middle) == 4
    assert history.at(middle + 1) in (4, 5)
    assert history.loss[:, 0].isnan().all()
    assert history.effective_step.shape == (2, len(history.steps))


def test_standard_error_of_a_window() -> None:
    e = SMALL.replace(steps=40, records=2)
    history, losses = train(e, dtype="float64", implementation="reference"), by_autograd(e, torch.float64)[1]
    assert history.steps.tolist() == [0, 40]
    torch.testing.assert_close(history.loss_se[:, -1], losses.std(1) / 40**0.5)


class Stop(Exception):
    pass


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_interrupted_at_a_random_step_it_ends_the_same(implementation: str, tmp_path, monkeypatch) -> None:
    """The interruption comes in the middle of a piece of work, after its arrays were changed."""
    monkeypatch.setattr(training.Training, "grid", 9)
    whole = train(SMALL, implementation=implementation)
    monkeypatch.setattr(resumable, "_STEPS", 2)
    monkeypatch.setattr(resumable, "_SECONDS", 0.0)  # a whole state every two steps or every step
    path = tmp_path / "run.safetensors"
    real, pieces = training.Training.make_steps, np.random.default_rng(5).integers(2, 12, 3)
    for count in pieces:
        calls = []

        def breaks(self, moments, *options, calls=calls, count=count):
            losses = real(self, moments, *options)
            calls.append(options)
            if len(calls) == count:
                moments["weights"][:] = 17.0
                raise Stop
            return losses

        monkeypatch.setattr(training.Training, "make_steps", breaks)
        with pytest.raises(Stop):
            train_resumable(SMALL.replace(), path, implementation=implementation)
        with pytest.raises(CheckpointError, match=r"holds \d+ of 50 steps"):
            load_history(path)
        monkeypatch.setattr(training.Training, "make_steps", real)
        if count == pieces[-1]:
            break
        path.unlink()
    resumed = train_resumable(SMALL, path, implementation=implementation)
    for one in (resumed, load_history(path)):
        for name, value in whole.state.items():
            np.testing.assert_array_equal(one.state[name], value)
        for name in ("loss", "loss_se"):
            torch.testing.assert_close(getattr(one, name), getattr(whole, name), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(one.circuits.key_query, whole.circuits.key_query, rtol=0, atol=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.safetensors"]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_runs_can_be_cut_anywhere(implementation: str) -> None:
    e = SMALL.replace(runs=3)
    together, alone = (
        train(e, implementation=implementation),
        train(e.replace(runs=1, first_run=2), implementation=implementation),
    )
    np.testing.assert_array_equal(together.state["weights"][2:], alone.state["weights"])
    assert (together.loss[0, 1:] - together.loss[2, 1:]).abs().min() > 0


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_shared_data_and_own_rates(implementation: str) -> None:
    """With one stream and one start the runs differ by their learning rates only; without a rate they would be equal."""
    assert SMALL.replace(runs=3, first_run=4).streams.tolist() == [4, 5, 6]
    assert SMALL.replace(runs=3, first_run=4, shared_data=True).streams.tolist() == [4, 4, 4]
    e = SMALL.replace(runs=2, shared_data=True, learning_rate=(0.01, 0.003))
    both = train(e, implementation=implementation)
    single = train(e.replace(runs=1, learning_rate=0.01), implementation=implementation)
    np.testing.assert_allclose(both.state["weights"][0], single.state["weights"][0], rtol=0, atol=1e-6)
    second = train(e.replace(runs=2, learning_rate=0.003), implementation=implementation)
    np.testing.assert_allclose(both.state["weights"][1], second.state["weights"][1], rtol=0, atol=1e-6)


def test_a_watch_is_told_how_far_it_is(monkeypatch) -> None:
    monkeypatch.setattr(training.Training, "grid", 20)
    seen: list[int] = []
    train(SMALL, implementation="reference", watch=seen.append)
    assert seen == sorted({*SMALL.recorded_steps, 20, 40} - {SMALL.steps})


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_diverging_training_stops_and_keeps_the_last_good_state(implementation: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(training.Training, "grid", 5)
    wild = SMALL.replace(optimiser="SGD", learning_rate=300.0, runs=2, records=2)
    path = tmp_path / "run.safetensors"
    with pytest.raises(TrainingDiverged, match=r"the loss of run \d at step \d+ is not a finite number") as caught:
        train_resumable(wild, path, implementation=implementation)
    step = caught.value.step
    assert caught.value.last_good <= step < 50
    with pytest.raises(CheckpointError, match=f"holds {caught.value.last_good} of 50 steps"):
        load_history(path)
    if caught.value.last_good:
        short = train(wild.replace(steps=caught.value.last_good, records=2), implementation=implementation)
        assert np.isfinite(short.state["weights"]).all()


def test_checkpoints_that_cannot_be_used(tmp_path) -> None:
    path = tmp_path / "run.safetensors"
    train_resumable(SMALL.replace(steps=5), path, implementation="reference")
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"another experiment \(heads: 2 there, 4 here\)"):
        train_resumable(SMALL.replace(steps=5, heads=4), path, implementation="reference")
    with pytest.raises(CheckpointError, match=r"weights must be float64 .* got float32"):
        train_resumable(SMALL.replace(steps=5), path, dtype="float64", implementation="reference")
    damaged = bytearray(content)
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="does not match its checksum"):
        load_history(path)
    path.write_bytes(content[:-20])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_history(path)
    path.write_bytes(content.replace(b'\\"version\\": 2', b'\\"version\\": 7'))
    with pytest.raises(CheckpointError, match="has version 7, this package reads 2"):
        load_history(path)
    path.write_bytes(content.replace(b"attnlib in-context training", b"something else of same len"[:27].ljust(27)))
    with pytest.raises(CheckpointError, match="was not written by a training"):
        load_history(path)
    with pytest.raises(CheckpointError, match=r"existing file; got 'none.safetensors'"):
        load_history(tmp_path / "none.safetensors")
    for wrong in (tmp_path / "run.pth", tmp_path / "nowhere" / "run.safetensors"):
        with pytest.raises(ValueError, match=r"checkpoint must be a .safetensors file in a folder that exists"):
            train_resumable(SMALL, wrong, implementation="reference")


@pytest.mark.parametrize("change", [lambda byte: byte ^ 1, lambda byte: byte ^ 32, lambda byte: 255 - byte])
def test_no_byte_of_a_checkpoint_can_change_a_result(tmp_path, change) -> None:
    path = tmp_path / "run.safetensors"
    tensors = {"loss": np.array([0.5, np.nan]), "weights": np.arange(3, dtype=np.float32)}
    write_checkpoint(path, tensors, {"step": 20, "engine": "compiled", "about": {"step": "5"}})
    whole, content = read_checkpoint(path), path.read_bytes()
    assert whole[1]["step"] == 20
    refused = 0
    for place, byte in enumerate(content):
        path.write_bytes(content[:place] + bytes([change(byte)]) + content[place + 1 :])
        try:
            found = read_checkpoint(path)
        except CheckpointError:
            refused += 1
            continue
        assert found[1] == whole[1]  # a space became another white space
        assert all(np.array_equal(found[0][name], value, equal_nan=True) for name, value in tensors.items())
    assert len(content) - refused < 10


@pytest.mark.parametrize("wrong", [{"step": 7}, {"step": -1}, {"step": 3.0}, {"step": None}, {"engine": 3}])
def test_a_sealed_file_that_says_the_impossible_is_refused(tmp_path, wrong: dict) -> None:
    path = tmp_path / "run.safetensors"
    train_resumable(SMALL.replace(steps=5), path, implementation="reference")
    tensors, settings = read_checkpoint(path)
    write_checkpoint(path, tensors, settings | wrong)
    for use in (
        lambda: load_history(path),
        lambda: train_resumable(SMALL.replace(steps=5), path, implementation="reference"),
    ):
        with pytest.raises(CheckpointError, match=r"and a step of 0 \.\.\. 5; got engine"):
            use()


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch) -> None:
    path = tmp_path / "run.safetensors"
    train_resumable(SMALL.replace(steps=5), path, implementation="reference")
    before = path.read_bytes()

    def fails(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("attnbook.in_context.checkpoints.os.replace", fails)
    with pytest.raises(
        CheckpointError, match=r"^checkpoint 'run\.safetensors' cannot be written: No space left on device$"
    ):
        write_checkpoint(path, {"a": np.zeros(2)}, {})
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.safetensors"]


test_bad_settings = refusing(
    (SMALL.replace, (), {"heads": 0, "betas": (0.9, 1.0), "steps": 2**31, "records": 1}),
    (lambda: SMALL.replace(noise_std=1e130), "noise_std must be at most 1e\\+15 in a training, .* got 1e"),
    (lambda: SMALL.replace(heads=3, start="oppo_small_id"), "heads must be even for start='oppo_small_id'; got 3"),
    (lambda: SMALL.replace(d=0, length=None), "d must be a whole number >= 1; got 0"),
    (lambda: SMALL.replace(d=None, length=None), "d must be a whole number >= 1; got None"),
    (lambda: SMALL.replace(learning_rate=(0.1, 0.2, 0.3)), "one number or one for each of the 2 runs; got 3"),
)


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="one layer and one output; got layers=2"):
        train(SMALL.replace(layers=2))
    with pytest.raises(
        ValueError,
        match="implementation 'compiled' cannot be used: it computes in float32, not float64",
    ):
        train(SMALL, implementation="compiled", dtype="float64")


test_bad_calls_of_what_a_training_makes = refusing(
    (lambda step: train(SMALL.replace(steps=2)).at(step), {"step": 0}, {"step": [-1, 1.5, "2", None]}),
    (lambda: HeadWeights.from_flat([1.0]), "values must be a torch tensor; got list"),
    (lambda: SMALL.law.draw(3, 0).map("x"), "change must be a function; got str"),
)


def test_without_numba_the_readable_implementation_trains(monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    assert train(SMALL.replace(steps=3)).implementation == "reference"
    with pytest.raises(ValueError, match="numba is not installed"):
        train(SMALL, implementation="compiled")


MEMORY = """
import re
from pathlib import Path
from attnlib import limits
from attnlib.in_context import Experiment, train
# Not getrusage, whose peak a child takes over from its parent.
grown = lambda: 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text()).group(1))
run = lambda d: train(Experiment(d=d, heads=8, length=2, batch=16, steps=2, records=2, runs=1), threads=1)
run(13)  # loads what every size needs
asked, before, ask = [], grown(), limits.require_memory
limits.require_memory = lambda bytes_of, **sizes: asked.append(bytes_of(**{k: v for k, v in sizes.items() if k != "device"}))
run(400)
print(max(asked), grown() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in units of Linux")
def test_the_memory_that_is_asked_for_is_below_what_a_training_takes_but_not_far_below() -> None:
    asked, taken = map(float, subprocess.check_output([sys.executable, "-c", MEMORY], text=True).split())
    assert asked <= taken < 2.5 * asked


def test_settings_survive_json() -> None:
    e = SMALL.replace(learning_rate=(0.1, 0.2))
    assert Experiment.from_record(e.as_record()) == e
    with pytest.raises(ValueError, match="got also colour"):
        Experiment.from_record({"colour": 1})
    assert Experiment().length == 40
    assert Experiment(optimiser="AdamW").weight_decay == 0.01
    assert Experiment().weight_decay == 0.0
    assert re.search(r"Adam, learning rate 0.001, batches of 128, 500001 steps", str(Experiment()))
    recorded = Experiment().recorded_steps
    assert 80 <= len(recorded) <= 101
    assert recorded[:4] == (0, 1, 2, 3)
    assert recorded[-1] == 500_001
