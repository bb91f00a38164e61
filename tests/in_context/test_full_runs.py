"""The stored full-size trainings: what they say they are, that their numbers fit together, and that the command makes them."""

import json
import shutil
import threading

import pytest
import torch

from attnbook.in_context import full_runs
from attnbook.in_context.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from attnbook.in_context.full_runs import (
    HEADS,
    RATES,
    RUNS,
    STUDIES,
    experiment,
    load,
    load_rates,
    main,
    path_of,
    rates_experiment,
)
from attnbook.in_context.resumable import load_history
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import History, train
from attnlib.kernels.dispatch import has_numba
from bookkit.cli import main as attnlib_main


@pytest.mark.parametrize("heads", HEADS)
def test_stored_runs_are_the_authors_setting(heads: int) -> None:
    history = load(heads)
    assert history.experiment == experiment(heads)
    e = history.experiment
    assert (e.d, e.length, e.batch, e.optimiser, e.learning_rate, e.noise_std) == (5, 40, 128, "Adam", 1e-3, 0.01)
    assert e.steps == 500_001
    assert e.runs == RUNS >= 5
    assert history.omega.shape == (RUNS, len(history.steps), heads)
    assert torch.isfinite(history.circuits.key_query).all()
    settings = read_checkpoint(path_of(f"heads_{heads}"))[1]
    assert settings["about"]["command"] == f"python -m attnlib train heads_{heads}"
    assert {"attnlib", "numba", "numpy", "python", "torch"} <= set(settings["versions"])
    assert path_of(f"heads_{heads}").stat().st_size < 1_500_000


@pytest.mark.parametrize("heads", HEADS)
def test_stored_runs_begin_as_the_readable_trainer_does(heads: int) -> None:
    """Thirty steps in float64: anybody can check the first records of the stored files without the compiled loop."""
    history = load(heads)
    count = history.at(30) + 1
    steps = int(history.steps[count - 1])
    short = train(
        Experiment(heads=heads, runs=2, steps=steps, records=steps + 2), implementation="reference", dtype="float64"
    )
    for k in range(count):
        at = short.at(int(history.steps[k]))
        torch.testing.assert_close(history.mu[:2, k], short.mu[:, at], rtol=0, atol=2e-5)
        torch.testing.assert_close(history.omega[:2, k], short.omega[:, at], rtol=0, atol=2e-5)


@pytest.mark.parametrize("study", STUDIES)
def test_the_copy_for_people_says_what_the_file_says(study: str, tmp_path) -> None:
    """No program reads it, and its seal is made anew as easily as its numbers."""
    tensors, settings = read_checkpoint(path_of(study))
    write_checkpoint(tmp_path / "again.safetensors", tensors, settings)
    copies = [path.with_suffix(".json").read_text("utf-8") for path in (path_of(study), tmp_path / "again.safetensors")]
    assert json.loads(copies[0]) == json.loads(copies[1])


def again(history: History, run: int, steps: int, **tolerance: float) -> None:
    """The first steps of one stored run, trained again."""
    e, place = history.experiment, history.at(steps)
    rate = e.learning_rate if isinstance(e.learning_rate, float) else e.learning_rate[run]
    short = train(
        e.replace(runs=1, first_run=e.first_run + run, learning_rate=rate, steps=int(history.steps[place]), records=2)
    )
    for name in ("mu", "omega"):
        torch.testing.assert_close(getattr(history, name)[run, place], getattr(short, name)[0, -1], **tolerance)
    torch.testing.assert_close(history.circuits.key_query[run, place], short.circuits.key_query[0, -1], **tolerance)


@pytest.mark.parametrize(("study", "run"), [*(("heads", heads) for heads in HEADS), ("rates", 6), ("rates", 18)])
def test_the_first_thousands_of_steps_of_a_stored_run_are_trained_again(study: str, run: int) -> None:
    history = load_rates() if study == "rates" else load(run)
    again(history, 6 if study == "rates" else run, 7000, rtol=0, atol=1e-3)


@pytest.mark.weekly
@pytest.mark.parametrize("heads", [1, 2])
def test_a_stored_run_is_trained_again_to_its_end(heads: int) -> None:
    again(load(heads), 3, 500_001, rtol=0, atol=2e-2)


def test_the_other_rates_are_the_same_study() -> None:
    history = load_rates()
    assert history.experiment == rates_experiment()
    e = history.experiment
    assert [e.learning_rate.count(rate) for rate in RATES] == [5, 5, 5, 5]
    assert e.replace(learning_rate=1e-3, first_run=0, runs=RUNS) == experiment(2)
    assert not set(e.streams.tolist()) & set(experiment(2).streams.tolist())


def test_the_command_trains_and_resumes(tmp_path, capsys) -> None:
    assert attnlib_main(["train", "heads_1", "heads_2", "--runs", "2", "--steps", "12", "-o", str(tmp_path)]) == 0
    first = path_of("heads_2", tmp_path).read_bytes()
    history = load_history(path_of("heads_2", tmp_path))
    assert read_checkpoint(path_of("heads_2", tmp_path))[1]["about"]["command"] == "python -m attnlib train heads_2"
    assert history.experiment == experiment(2, 2, 12)
    assert main(["heads_2", "--runs", "2", "--steps", "12", "-o", str(tmp_path)]) == 0
    assert path_of("heads_2", tmp_path).read_bytes() == first
    assert "heads_2: 2 runs of 12 steps" in capsys.readouterr().err
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json", ".json", ".safetensors", ".safetensors"]


def test_the_command_refuses_what_it_cannot_do(tmp_path, capsys) -> None:
    shutil.copy(path_of("heads_1"), path_of("heads_2", tmp_path))
    assert main(["heads_2", "-o", str(tmp_path)]) == 2
    assert "belongs to another experiment (heads: 1 there, 2 here)" in capsys.readouterr().err
    assert main(["heads_3", "-o", str(tmp_path)]) == 2
    assert (
        "STUDY must be one of 'heads_1', 'heads_2', 'heads_4', 'heads_8', 'rates'; got 'heads_3'"
        in capsys.readouterr().err
    )
    assert main(["-o", str(tmp_path / "none")]) == 2
    assert "must be a folder that exists" in capsys.readouterr().err


@pytest.mark.skipif(not has_numba(), reason="half a million steps need the compiled loop")
def test_a_study_that_fails_stops_the_others_where_they_can_go_on(tmp_path, monkeypatch, capsys) -> None:
    real, began = full_runs.train_resumable, threading.Event()

    def sometimes(study: Experiment, path, *, watch, **options):
        def seen(step: int) -> None:
            watch(step)
            if step > 0:
                began.set()

        if study.heads == 2:
            assert began.wait(600)
            raise ValueError("the second study fails")
        return real(study, path, watch=seen, **options)

    monkeypatch.setattr(full_runs, "train_resumable", sometimes)
    assert main(["heads_1", "heads_2", "--runs", "1", "--threads", "2", "-o", str(tmp_path)]) == 2
    assert "the second study fails" in capsys.readouterr().err
    done = read_checkpoint(path_of("heads_1", tmp_path))[1]["step"]
    assert 0 < done < experiment(1, 1).steps
    with pytest.raises(CheckpointError, match=rf"holds {done} of 500001 steps"):
        load_history(path_of("heads_1", tmp_path))
