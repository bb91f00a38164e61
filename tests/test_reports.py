"""What others reported of the tools that we build on, as small inputs of ours: the reports are named beside them."""

import ast
import pickle

import pytest
import torch

import attnlib.in_context as in_context
import attnlib.token_selection as token_selection
from attnbook.in_context import ridge
from attnbook.token_selection.real_data.formats import FormatError
from attnlib import Experiment, RegressionLaw, SignalNoiseLaw, TokenLaw, divergence, risk_of, summarise
from attnlib.in_context.training import TrainingDiverged
from tests.house import ROOT, files

EXPERIMENT = Experiment(runs=1, d=2, length=3, heads=2, steps=4, batch=8, learning_rate=0.01, seed=0)
CONSTRUCTORS = set(
    "zeros ones empty full arange linspace eye tensor as_tensor asarray scalar_tensor rand randn".split()
)


@pytest.mark.parametrize(
    "error",
    [divergence.TrainingDiverged(3, 2, "why"), TrainingDiverged(3, 2, 1, EXPERIMENT), FormatError("a.npz", "short")],
)
def test_an_error_arrives_whole_from_another_process(error: Exception) -> None:
    """joblib/joblib#270: an error that cannot be unpickled ends the whole pool, and nobody learns what it was."""
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))
    assert "why" in str(arrived) or "0.01" in str(arrived) or str(arrived).startswith("a.npz: short: ")


def small_results() -> list[torch.Tensor]:
    one = summarise(SignalNoiseLaw(n=6, d=200, signal_norm=9.0, label_noise=0.2), step_size=0.1, steps=3, draws=2)
    law = TokenLaw(n=6, d=300, tokens=4, signal_norm=20.0, label_noise=0.4)
    path = token_selection.train(token_selection.draw_gram(law, seed=0), step_size=0.1, steps=3)
    fresh = token_selection.population_along(path, count=8)
    plain = RegressionLaw(d=2, length=3)
    circuits = in_context.circuits_of(in_context.initial_weights(d=2, heads=2, start="random", seed=0))
    risk = risk_of(circuits, plain, prompts=50, seed=0)
    bayes = ridge(plain.draw(4, seed=0), penalty=0.1)
    history = in_context.train(EXPERIMENT)
    return [one.log10_clean_error, path.attention, fresh.accuracy, risk[0], bayes, history.omega, *law.draw_fresh(3, 0)]


def test_the_default_device_of_torch_moves_nothing() -> None:
    """pytorch/pytorch#106773, #114691: half of torch's constructors follow it, and results meet tensors elsewhere."""
    wanted = small_results()
    torch.set_default_device("meta")  # any other device than the CPU: what is put there has no numbers
    try:
        found = small_results()
    finally:
        torch.set_default_device(None)
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_every_tensor_of_the_package_says_where_it_is_made() -> None:
    calls = [
        (path, node)
        for path in files("attnlib")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {f"torch.{name}" for name in CONSTRUCTORS}
    ]
    assert len(calls) > 40
    silent = [(path, node.lineno) for path, node in calls if not any(k.arg in ("device", None) for k in node.keywords)]
    assert not [f"{path.relative_to(ROOT)}:{line}" for path, line in silent]
