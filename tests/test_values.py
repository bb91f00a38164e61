"""Every argument of every public callable of attnlib and of attnbook's faces is replaced by values that mean something else.

A sentence names the argument. A new public name without a row fails. What is taken on purpose is listed:
`EVERYWHERE` by the kind of argument, `WORKS` one by one.
"""

import atexit
import dataclasses
import importlib
import inspect
import pkgutil
import shutil
import tempfile
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

import attnbook.in_context
import attnbook.single_head
import attnbook.token_selection
import attnlib
from attnbook import finite_data as fd
from attnbook import one_token as ot
from attnbook import staircase as st
from attnbook.in_context import estimators
from attnbook.single_head import flow_path, hard_margin
from attnbook.token_selection import existence_window, selection_accuracy, selection_time
from attnlib import attention, device, gaussian, limits, randomness
from attnlib import in_context as ic
from attnlib import single_head as sh
from attnlib import token_selection as ts
from attnlib.divergence import TrainingDiverged
from attnlib.in_context import circuits
from attnlib.in_context import errors as prompt_errors
from attnlib.in_context import law as prompts_law
from attnlib.in_context import model as heads_model
from attnlib.in_context import training as heads_training
from attnlib.single_head import errors as head_errors
from attnlib.single_head import maps, rules, summary
from attnlib.single_head import training as head_training
from attnlib.token_selection import errors as token_errors
from attnlib.token_selection import gram as gram_module
from attnlib.token_selection import model as token_model
from attnlib.token_selection import training as token_training
from tests.bad_input import refusing

FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)
LAW = sh.SignalNoiseLaw(n=4, d=20, signal_norm=3.0)
SAMPLE = LAW.draw(seed=0, start_vectors=2)
V = torch.linspace(-1, 1, 8, dtype=torch.float64)[None]
HEAD = {"v": V, "p": V, "sample": SAMPLE}
SCORES = head_errors.scores_of_fresh_data(V, V, SAMPLE)
TRAINING = {
    "sample": SAMPLE, "step_size": 0.1, "steps": 2, "attention_step_size": 0.1, "start": (V, V), "record": [1],
}  # fmt: skip
TOKENS = ts.TokenLaw(n=4, d=20, tokens=4, signal_norm=3.0, label_noise=0.5)
DENSE = TOKENS.draw(seed=0)
GRAM = ts.draw_gram(TOKENS, 0)
PATH = ts.train(GRAM, 0.1, 2)
PROMPTS_LAW = ic.RegressionLaw(d=2, length=5)
PROMPTS = PROMPTS_LAW.draw(3, seed=0)
WEIGHTS = ic.initial_weights(2, 2)
HEADS = ic.circuits_of(WEIGHTS)
STUDY = ic.Experiment(heads=2, d=2, steps=3, records=2, runs=1, batch=2)
DIRECTION = {
    "direction_on_signals": V[0, :2],
    "direction_norm_squared": 9 * V[0, 0] ** 2,
    "rng": np.random.default_rng(0),
}
LATE = ts.TokenLaw(n=20, d=2000, tokens=8, signal_norm=10.0)
TASKS = fd.TaskLaw(d=2, length=3, tasks=2, noise=0.1)
SPECTRUM = st.SpectrumLaw((0.6, 0.4), length=3, noise=0.1)
SMALL = st.small_heads(0, heads=8, dimension=2, size=0.1, runs=1)
ONE = ot.OneTokenLaw(tokens=8, strength=6.0)
SIZES = {"seed": 0, "runs": 1, "first_run": 0}


# Not called by readers with values of their own: they run inside loops, or on what has been checked.
INSIDE = {
    attention.attention_logits, attention.attention_output, attention.attention_weights,
    gaussian.bartlett_rows, heads_model.draw_weights, heads_model.require_even_heads, heads_training.Training,
    head_training.Trajectory, head_errors.Estimate, head_errors.FreshScores, head_errors.noisy_error,
    rules.Rule, rules.batch_orders, maps.AttentionMap, summary.join, summary.require_two_tokens, sh.Summary, ic.History,
    token_model.loss, token_training.Recursion, token_training.checked_steps, token_training.join_runs,
    circuits.imbalance, circuits.two_number_circuits, heads_model.HeadWeights, sh.Sample, ts.Sample, type(GRAM),
    type(DENSE.labels), summary.draws_in_chunks, token_errors.Population, ts.Trajectory, ts.forces,
    ts.outputs, ot.Sample, st.Path, gram_module.join, device.one_thread, device.home, randomness.stream,
    head_training.plain_descent, circuits.predictions, circuits.weights_at, head_errors.exact_log10_error, head_errors.fresh_scores,
    token_errors.averages,
}  # fmt: skip
MODULES_INSIDE = set(
    "arrays checks divergence extras kernels limits nutshell quadrature single_head.closed_form"
    " single_head.model".split()
)


def fields(made):
    return {name: getattr(made, name) for name in inspect.signature(type(made)).parameters}


ROWS = {
    sh.SignalNoiseLaw: fields(LAW),
    LAW.draw: SIZES | {"coordinates": "dense", "start_vectors": 0, "device": "cpu"},
    LAW.draw_fresh: {"sample": SAMPLE, "count": 2},
    sh.two_steps: {"sample": SAMPLE, "step_size": 0.1},
    sh.forward: {"tokens": SAMPLE.tokens, "v": V, "p": V, "attention_map": maps.SOFTMAX, "output_scale": 1.0},
    sh.gradients: {
        "tokens": SAMPLE.tokens, "labels": SAMPLE.labels, "v": V, "p": V, "attention_map": maps.SOFTMAX, "output_scale": 1.0,
        "weights": SAMPLE.labels,
    },
    maps.relu: {"derivative_at_zero": 0.5},
    maps.softmax: {"temperature": 1.0},
    maps.windows: {"inner": maps.SOFTMAX, "width": 1},
    rules.adam: {"betas": (0.9, 0.9), "eps": 1e-8},
    rules.heavy_ball: {"momentum": 0.5},
    rules.nesterov: {"momentum": 0.5},
    rules.stochastic: {"batch": 1},
    sh.clean_error_sampled: HEAD | {"count": 2, "label_noise": 0.0},
    head_errors.clean_error_conditioned: HEAD | {"count": 2},
    sh.log10_clean_error: HEAD | {"per_class": False},
    head_errors.log10_error_of_scores: {"scores": SCORES, "per_class": True, "class_probability": 0.5},
    head_errors.scores_of_fresh_data: HEAD,
    attnbook.single_head.proved_outcome: {"law": LAW, "step_size": 0.1, "delta": 0.01, "error": 0.1, "boxes": 1, "counts": [2, 0, 1, 1]},
    sh.summarise: {"law": LAW, "step_size": 0.1, "steps": 2, "draws": 1, "seed": 0, "device": "cpu"},
    head_training.gaussian_start: {"sample": SAMPLE, "std": 1.0},
    sh.gradient_descent: TRAINING,
    sh.gram_descent: TRAINING,
    sh.train_heads: TRAINING
    | {
        "heads": 1, "attention_map": maps.SOFTMAX, "rule": rules.GRADIENT_DESCENT, "start": (V[None], V[None]), "shared_values": False,
        "output_scale": 1.0, "schedule": lambda step: 1.0, "method": "auto", "diverged": "raise",
    },
    ts.TokenLaw: fields(TOKENS),
    TOKENS.draw: SIZES | {"device": "cpu"},
    TOKENS.draw_labels: SIZES,
    TOKENS.draw_fresh: {"count": 2, "seed": 0, "run": 0},
    ts.Start: fields(ts.Start()),
    ts.CODE_START.draw: {"d": 2, "seed": 0, "run": 0},
    ts.draw_gram: {"law": TOKENS, "start": ts.Start()} | SIZES,
    ts.gram_of: {"sample": DENSE, "start": ts.Start()},
    token_model.gradients: {
        "tokens": DENSE.tokens[0], "labels": DENSE.labels.true[0], "head": DENSE.head, "weight": torch.eye(20).double(),
        "prompt": DENSE.head,
    },
    token_errors.population: {"law": TOKENS, "count": 4} | DIRECTION,
    ts.population_along: {"trajectory": PATH, "count": 4, "rows": [0]},
    ts.train: {"gram": GRAM, "step_size": 0.1, "steps": 2, "record": [1]},
    ic.RegressionLaw: fields(PROMPTS_LAW) | {"covariance": ((1.0, 0.0), (0.0, 1.0)), "mean": (0.0, 0.0)},
    PROMPTS_LAW.draw: {"count": 2, "seed": 0, "run": 0, "role": "test"},
    ic.Prompts: fields(PROMPTS),
    prompts_law.toeplitz_covariance: {"d": 2, "rho": 0.5},
    ic.initial_weights: {"d": 2, "heads": 2, "start": "random"} | SIZES,
    heads_model.attend: {"heads": WEIGHTS, "prompts": PROMPTS},
    ic.Circuits: fields(HEADS),
    ic.circuits_of: {"heads": WEIGHTS},
    ic.predict: {"circuits": HEADS, "prompts": PROMPTS},
    circuits.attention: {"circuits": HEADS, "prompts": PROMPTS},
    estimators.kernel_estimator: {"prompts": PROMPTS, "omega": [1.0], "mu": [1.0]},
    estimators.kernel_weights: {"prompts": PROMPTS, "omega": [1.0], "mu": [1.0]},
    estimators.gradient_step: {"prompts": PROMPTS, "step": 1.0},
    estimators.debiased_step: {"prompts": PROMPTS, "step": 1.0},
    estimators.preconditioned_step: {"prompts": PROMPTS, "preconditioner": torch.eye(2), "centred": True},
    estimators.preconditioned_weights: {"prompts": PROMPTS, "preconditioner": torch.eye(2), "centred": True},
    estimators.ridge: {"prompts": PROMPTS, "penalty": 1.0},
    estimators.ridge_weights: {"prompts": PROMPTS, "penalty": 1.0},
    estimators.bayes_prediction: {"prompts": PROMPTS, "law": PROMPTS_LAW},
    estimators.bayes_risk: {"x": PROMPTS.x, "law": PROMPTS_LAW},
    prompt_errors.conditional_risk: {"weights": PROMPTS.y, "prompts": PROMPTS, "law": PROMPTS_LAW, "offset": 0.0},
    ic.risk_of: {"circuits": HEADS, "law": PROMPTS_LAW, "prompts": 50, "seed": 0},
    prompt_errors.risk_per_prompt: {"circuits": HEADS, "law": PROMPTS_LAW, "prompts": PROMPTS},
    ic.Experiment: fields(STUDY),
    ic.train: {
        "experiment": STUDY, "dtype": "float32", "implementation": "reference", "device": "cpu", "progress": False,
        "threads": 1, "watch": None,
    },
    attnbook.in_context.load_history: {"path": "nothing.safetensors"},
    attnbook.in_context.train_resumable: {
        "experiment": STUDY, "checkpoint": FOLDER + "/a.safetensors", "progress": False, "watch": None, "about": None,
    },
    flow_path: {"x": 1.0, "label_noise": 0.1, "times": [0.5, 1.0], "attention_rate": 1.0},
    hard_margin: {"rows": np.eye(2), "labels": np.array([1.0, -1.0]), "tolerance": 1e-8, "max_iterations": 200},
    existence_window: {"law": TOKENS},
    selection_accuracy: {"discrimination": 1.0, "law": TOKENS},
    selection_time: {"law": LATE, "step_size": 0.1, "weight_scale": 0.5},
    fd.TaskLaw: fields(TASKS),
    TASKS.draw_tasks: SIZES,
    TASKS.draw: {"prompts": 4} | SIZES,
    TASKS.draw_prompts: {"prompts": 4, "task_vectors": TASKS.draw_tasks(0, runs=1)} | SIZES,
    fd.best_attention: {"law": TASKS, "task_vectors": TASKS.draw_tasks(0, runs=1)},
    fd.exact_error: {"gamma": fd.best_attention(TASKS), "law": TASKS, "task_vectors": TASKS.draw_tasks(0, runs=1)},
    fd.extrapolate: {"sizes": [1.0, 2.0, 4.0], "values": torch.ones(1, 3).double()},
    fd.fit_attention: {"data": TASKS.draw(8, 0, runs=1), "penalty": 0.1},
    fd.limit_error: {"tau": 0.5, "alpha": 1.0, "kappa": 1.0, "noise": 0.1, "tasks": "seen"},
    st.SpectrumLaw: fields(SPECTRUM),
    st.Heads: fields(SMALL),
    SMALL.scaled: {"factor": 2.0},
    st.escape_time: {"start": SMALL, "rates": [0.5, 0.3]},
    st.loss_sampled: {"law": SPECTRUM, "matrix": torch.eye(2).double(), "seed": 0, "runs": 1, "prompts": 2},
    st.plateau_levels: {"law": SPECTRUM},
    st.population_loss: {"law": SPECTRUM, "matrix": torch.eye(2).double()},
    st.predicted_drops: {"law": SPECTRUM, "start": SMALL, "drops": 1},
    st.small_heads: {"seed": 0, "heads": 2, "dimension": 2, "size": 0.1, "runs": 1},
    st.train_separate: {"law": SPECTRUM, "start": SMALL, "time": 2.0, "every": 1.0, "step": 0.5},
    st.train_softmax: {
        "law": st.SpectrumLaw((0.6, 0.4), length=3), "start": SMALL, "seed": 0, "time": 2.0, "prompts": 2, "every": 1, "step": 1.0,
    },
    ot.OneTokenLaw: fields(ONE),
    ONE.draw: {"seed": 0, "runs": 1, "samples": 2},
    ot.bayes_risk: {"law": ONE},
    ot.concave_floor: {"law": ONE},
    ot.own_score_risk: {"law": ONE},
    ot.erf_risk: {"law": ONE, "scale": 1.0},
    ot.linear_risk: {"law": ONE, "centred": True},
    ot.risk_bounds: {"law": ONE, "own_score": True},
    ot.erf_weights: {"scores": V, "law": ONE, "scale": 1.0},
    ot.linear_weights: {"scores": V, "law": ONE, "centred": True},
    ot.sigmoid_weights: {"scores": V, "law": ONE, "bias": 1.0},
    ot.softmax_weights: {"scores": V, "law": ONE, "slope": 1.0},
    ot.risk_sampled: {"weights": torch.sigmoid, "sample": ONE.draw(0, runs=1, samples=2)},
    device.resolve: {"device": "cpu"},
    device.report: {"device": "cpu"},
}  # fmt: skip

BAD = {
    "None": None, "'no'": "no", "'3'": "3", "1j": 1j, "nan": np.nan, "inf": np.inf, "True": True, "np.True_": np.True_, "2.5": 2.5,
    "200.0": 200.0, "-1": -1, "0": 0, "10**30": 10**30, "[]": [], "1/2": Fraction(1, 2), "Decimal": Decimal(1), "object": object(),
    "str_": np.str_("3"), "int_tensor": torch.ones(2, dtype=torch.int64), "nan_tensor": torch.full((1, 8), torch.nan).double(),
    "empty": torch.zeros(0).double(), "meta": torch.zeros((), device="meta"),
}  # fmt: skip
NO_RANGE = "2.5 200.0 -1 0"
# What is taken on purpose, beside None, True and False where the annotation has them: by the argument's name, and one by one.
WORKS = {
    "signal_norm": "2.5 200.0", "step_size": "2.5 200.0", "attention_step_size": "2.5 200.0 0", "output_scale": NO_RANGE,
    "temperature": "2.5 200.0", "eps": "2.5 200.0", "std": "2.5 200.0", "head_scale": "2.5 200.0", "noise_std": "2.5 200.0 0",
    "weight_scale": "2.5 200.0", "prompt_scale": "2.5 200.0 0", "learning_rate": "2.5 200.0", "weight_decay": "2.5 200.0 0",
    "penalty": "2.5 200.0 0", "step": f"{NO_RANGE} 10**30 1/2 Decimal int_tensor", "offset": f"{NO_RANGE} 10**30 1/2 Decimal",
    "label_noise": "0", "weak_signal": "0", "derivative_at_zero": "0", "class_probability": "0", "rho": "0",
    "seed": "0 10**30", (ic.Experiment, "seed"): "0", "run": "0", "first_run": "0", "start_vectors": "0", "same_class_tokens": "0",
    "record": "[] empty int_tensor",  # the last step alone
    "v": "nan_tensor", "p": "nan_tensor",  # a diverged head has outputs and errors that are nan
    (ts.TokenLaw, "noise_std"): "2.5 200.0", (ic.Experiment, "steps"): "0", (sh.train_heads, "output_scale"): "2.5 200.0",
    (ic.RegressionLaw, "mean"): "int_tensor",
    (flow_path, "x"): "2.5 200.0", "attention_rate": "2.5 200.0", "tolerance": "2.5 200.0", "size": "2.5 200.0", "time": "2.5 200.0",
    "strength": "2.5 200.0", "alpha": "2.5 200.0", "tau": "2.5 200.0 inf", "kappa": "2.5 200.0 inf",
    "noise": "2.5 200.0 0", "discrimination": NO_RANGE, "factor": NO_RANGE, "slope": NO_RANGE, "bias": NO_RANGE,
    "rates": "int_tensor", "scale": "2.5 200.0", (hard_margin, "labels"): "int_tensor", (st.Heads, "value"): "nan_tensor",
    (st.train_separate, "every"): "2.5 200.0", (st.train_separate, "step"): "", (ot.OneTokenLaw, "tokens"): "10**30",
    (st.train_softmax, "step"): "2.5 200.0",
}  # fmt: skip
WORKS |= {
    (weights, "scores"): "nan_tensor meta" if weights in (ot.erf_weights, ot.sigmoid_weights) else "nan_tensor"
    for weights in (ot.erf_weights, ot.sigmoid_weights, ot.linear_weights, ot.softmax_weights)
}


def works(thing, name):
    """The labels of `BAD` that are no bad values of this argument."""
    annotation = str(inspect.signature(thing).parameters[name].annotation).removeprefix("<class '").removesuffix("'>")
    taken = {"None"} if "None" in annotation else set()
    taken |= {"True", "np.True_"} if annotation == "bool" else set()
    return taken | set(WORKS.get((thing, name), WORKS.get(name, "")).split())


def public():
    """Every callable that a module of attnlib makes and does not call private, and those of the faces of attnbook."""
    for face in (fd, ot, st, attnbook.single_head, attnbook.token_selection, attnbook.in_context):
        yield from map(vars(face).__getitem__, face.__all__)
    for module in pkgutil.walk_packages(attnlib.__path__, "attnlib."):
        name = module.name.removeprefix("attnlib.")
        if name.startswith("_") or name.split(".")[0] in MODULES_INSIDE or name in MODULES_INSIDE:
            continue
        made = importlib.import_module(module.name)
        for word, x in vars(made).items():
            callable_ = inspect.isfunction(x) or (isinstance(x, type) and not issubclass(x, Exception))
            if callable_ and not word.startswith("_") and x.__module__ == made.__name__:
                yield x


def test_every_public_callable_has_a_row_for_every_argument():
    assert {x for x in public() if not hasattr(x, "__origin__")} - ROWS.keys() - INSIDE == set()
    assert len(ROWS) > 60
    for thing, good in ROWS.items():
        assert inspect.signature(thing).parameters.keys() - good.keys() <= {"options"}


@pytest.mark.parametrize("thing", ROWS, ids=lambda thing: f"{thing.__module__}.{thing.__qualname__}")
def test_a_value_with_another_meaning_is_refused_by_name(thing):
    good, taken, told = ROWS[thing], set(), {}
    for name in good:
        for label, value in BAD.items():
            try:
                thing(**good | {name: value})
                taken.add((name, label))
            except ValueError as error:
                told[name, label] = str(error)
    # A file that is found wanting is called by the argument of the training that makes it.
    assert [k for k, words in told.items() if k[0] not in words and (k[0], words[:10]) != ("path", "checkpoint")] == []
    assert max(map(len, told.values())) < 500
    assert taken == {(name, label) for name in good for label in works(thing, name)}


@pytest.mark.parametrize("law", [sh.SignalNoiseLaw(5, 10, 1e200), ts.TokenLaw(10, 10, 3, 1e140)])
def test_a_law_whose_squares_overflow_can_be_printed(law):
    assert "inf" in str(law)


# --- what would be a wrong number, by kind --------------------------------------------------------------------------

LEAST = 2 * 4 * 2 * 2.0**-1022  # 2 n T times the smallest normal number, of LAW
EMPTY = torch.zeros(1, 4, 0, 8).double()
ONES = torch.ones(3, 2).double()
TINY_STEPS = {"step_size": 0.9 * LEAST}, {"attention_step_size": 0.9 * LEAST}

test_products_of_a_step_keep_their_digits = refusing(
    (lambda: sh.summarise(LAW, 1e-310), r"^step_size must be at least 3.6e-307 here; got 1e-310: products with a smaller number lose"),
    (lambda: sh.two_steps(SAMPLE, 0.9 * LEAST), "^step_size must be at least 3.6e-307"),
    *((partial(train, SAMPLE, **{"step_size": 0.1, "steps": 2} | tiny), f"^{name} must be at least 3.6e-307")
      for train in (sh.gradient_descent, sh.gram_descent, sh.train_heads) for tiny in TINY_STEPS for name in tiny),
    (lambda: sh.train_heads(SAMPLE, 0.1, 2, output_scale=1e-310), "^output_scale must be at least"),
    (lambda: sh.train_heads(SAMPLE, 0.1, 2, schedule=lambda step: 1e-310 * step), "^step_size times schedule times output_scale must be"),
    (lambda: sh.train_heads(SAMPLE, 1e-200, 2, output_scale=1e-200), "^step_size times schedule times output_scale must be at least"),
    (lambda: sh.train_heads(SAMPLE, torch.tensor([1e-310], dtype=torch.float64), 2), "^step_size must be at least"),
    (lambda: sh.train_heads(single(SAMPLE), 1e-40, 2), "^step_size must be at least 1.9e-37 here; got 1.*: .* lose digits of float32"),
    (lambda: head_training.gaussian_start(SAMPLE, 1e-310), "^std must be at least 2.2e-308"),
    (lambda: ts.train(GRAM, 1e-310, 2), "^step_size must be at least"),
    (lambda: ts.train(GRAM, [0.1, 1e-310], 2), "^step_size must be at least"),
    (ts.TokenLaw, fields(TOKENS), {"signal_norm": [1e-310, 1e160], "noise_std": [1e-310, 1e160], "head_scale": [1e-200, 1e160]}),
    (lambda: dataclasses.replace(TOKENS, signal_norm=1e-100, head_scale=1e100), r"^head_scale / signal_norm must be in \[1e-150, 1e150\]"),
    (lambda: ic.RegressionLaw(noise_std=1e160), r"^noise_std must be at most 1e\+140; got 1e\+160"),
)  # fmt: skip


@pytest.mark.parametrize("step_size", [LEAST, 1e-160, 1e-9])
def test_down_to_the_least_step_the_error_is_that_of_small_steps(step_size):
    """The clean error does not depend on the scale of v, and p of a second step no longer matters."""
    law = sh.SignalNoiseLaw(n=4, d=20, signal_norm=3.0, label_noise=0.1)
    found, expected = (sh.summarise(law, step, draws=9).log10_clean_error for step in (step_size, 1e-20))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)
    late = sh.train_heads(SAMPLE, 0.1, 3, schedule=lambda step: 1e-310**step)  # a step that vanishes beside the first
    torch.testing.assert_close(late.v[-1], late.v[1], rtol=0, atol=0)


def single(sample):
    """A sample in float32."""
    floats = {k: x.float() for k, x in vars(sample).items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    return dataclasses.replace(sample, **floats)


test_nothing_is_broadcast_and_nothing_empty_is_trained = refusing(
    *((partial(dataclasses.replace, PROMPTS, **{name: x[:1]}), r"must have shape \(.*\); got \(") for name, x in vars(PROMPTS).items()),
    (lambda: dataclasses.replace(PROMPTS, y=PROMPTS.y[:, :1]), r"^y must have shape \(3, 5\); got \(3, 1\)"),
    (lambda: ic.Circuits(torch.zeros(2, 3, 3), torch.zeros(2, 4)), "^output_value must have shape"),
    (lambda: ic.Circuits(torch.zeros(2, 3, 3), torch.zeros(1, 3)), "^output_value must have shape"),
    (lambda: dataclasses.replace(WEIGHTS, key=WEIGHTS.key[:, :1]), "^key must have shape"),
    (lambda: dataclasses.replace(SAMPLE, labels=SAMPLE.labels[:, :1]), "labels must have shape"),
    (lambda: dataclasses.replace(SAMPLE, labels=(SAMPLE.labels + 1) / 2), r"^labels must be \+1 or -1; got something else: labels 0"),
    (lambda: dataclasses.replace(SAMPLE, signal_class=SAMPLE.signal_class + 7), r"^signal_class must be in 0 \.\.\. 1; got"),
    (lambda: ts.forces(ONES, ONES, 0 * ONES[:, 0]), r"^labels must be \+1 or -1"),
    (lambda: dataclasses.replace(DENSE, labels=dataclasses.replace(DENSE.labels, observed=0 * DENSE.labels.true)), "^observed must be"),
    (lambda: dataclasses.replace(SAMPLE, signal_class=SAMPLE.signal_class[:, :1]), "^signal_class must have shape"),
    (lambda: dataclasses.replace(DENSE, tokens=DENSE.tokens[:, :1]), "^true must have shape"),
    (lambda: head_errors.log10_error_of_scores(dataclasses.replace(SCORES, tau=SCORES.tau[:, :1])), "^tau must have shape"),
    (lambda: ts.forces(ONES, ONES, ONES[:, :1]), r"^labels must have shape \(3, 3\); got \(3, 1\)"),
    (lambda: ts.forces(ONES, ONES, torch.tensor(1.0).double()), "^labels must have shape"),
    (lambda: ts.forces(ONES, ONES[0], ONES[:, 0]), "^head_scores must have shape"),
    (lambda: ts.outputs(ONES, ONES[0]), "^head_scores must have shape"),
    (lambda: ts.outputs(ONES[:, :0], ONES[:, :0]), r"^scores must have shape \(n, T\); got \(3, 0\): an axis is empty"),
    (lambda: token_model.gradients(DENSE.tokens[0, :, :0], DENSE.labels.true[0], DENSE.head, V, V), "^tokens .*: an axis is empty"),
    (lambda: prompt_errors.conditional_risk(PROMPTS.y[:1], PROMPTS, PROMPTS_LAW), "^weights must have shape"),
    *((partial(sh.forward, EMPTY.transpose(2, axis), V, V), r"^tokens must have shape \(R, n, T, m\); .*: an axis is empty")
      for axis in range(4)),
    (lambda: sh.forward(SAMPLE.tokens, V[:, None][:, :0], V[:, None][:, :0]), r"^p must have shape \(1, H, 8\); .*: an axis is empty"),
    (lambda: sh.forward(SAMPLE.tokens.to_sparse(), V, V), r"^tokens must be a dense tensor; .*: use .to_dense\(\)"),
    (lambda: ic.Circuits(torch.zeros(0, 3, 3), torch.zeros(0, 3)), "^key_query must have shape .*: an axis is empty"),
    (lambda: ic.risk_of(ic.circuits_of(WEIGHTS)[:0], PROMPTS_LAW), "^circuits must be of one run or more; got shape"),
    *((partial(measure, **{"prompts": PROMPTS, "law": ic.RegressionLaw(d=3)} | rest), "for d = [23], the")
      for measure, rest in ((estimators.bayes_prediction, {}), (prompt_errors.conditional_risk, {"weights": PROMPTS.y}),
                            (prompt_errors.risk_per_prompt, {"circuits": HEADS}))),
)  # fmt: skip


@pytest.mark.parametrize("make", [partial(torch.tensor, dtype=torch.float64), np.array], ids=["tensor", "array"])
@pytest.mark.parametrize(
    ("law", "name"),
    [
        (LAW, "signal_norm"), (TOKENS, "head_scale"), (ts.Start(), "weight_scale"), (PROMPTS_LAW, "noise_std"), (STUDY, "eps"),
        (STUDY, "learning_rate"), (TASKS, "noise"), (ONE, "strength"), (SPECTRUM, "noise"),
    ],
)  # fmt: skip
def test_a_frozen_law_holds_its_own_number(law, name, make):
    value = getattr(law, name)
    given = make(value)
    made = dataclasses.replace(law, **{name: given})
    given[...] = 99.0
    assert type(getattr(made, name)) is float
    assert made == law
    assert hash(made) == hash(law)
    assert repr(made) == repr(law)


def test_what_is_taken_in_more_than_one_form():
    """Starts that a graph hangs on, recorded steps and rows as others count them, rates as an array or a tensor, ambient autocast."""
    dense, rates = LAW.draw(0, coordinates="dense"), [1e-3, 2e-3]
    start = tuple(torch.full((1, 1, 20), 0.1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    paths = [
        sh.train_heads(dense, 0.1, 3, rule=rules.adam(), start=s, record=[1])
        for s in (start, tuple(x.detach() for x in start))
    ]
    torch.testing.assert_close(paths[0].v, paths[1].v, rtol=0, atol=0)
    assert sh.gradient_descent(SAMPLE, 0.1, 3, record=torch.tensor([0, 2])).steps == (0, 2, 3)
    found, expected = (ts.population_along(PATH, rows=rows, count=4).error for rows in ([np.int64(1)], [1]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    for make in (np.array, lambda x: torch.tensor(x, dtype=torch.float64)):
        assert STUDY.replace(runs=2, learning_rate=make(rates)).learning_rate == tuple(rates)
    plain = ic.train(STUDY, implementation="reference")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (ic.train(STUDY, implementation="reference").loss[:, -1] == plain.loss[:, -1]).all()


@pytest.mark.parametrize("step_size", [1e160, 1e300, 1.7e308])
def test_the_closed_form_diverges_where_the_training_does(step_size):
    outcomes = []
    for work in (sh.two_steps, partial(sh.gradient_descent, steps=2)):
        try:
            work(LAW.draw(0, 40), step_size=step_size)
            outcomes.append(None)
        except TrainingDiverged as error:
            outcomes.append("take a smaller step_size" in str(error))
    assert outcomes == [True if step_size > 1e308 else None] * 2


test_sentences_are_one_line_and_say_what_to_do = refusing(
    (
        lambda: LAW.draw(np.random.SeedSequence(0)),
        r"^seed must be a whole number >= 0; got SeedSequence\( entropy=0, \)",
    ),
    (
        lambda: STUDY.replace(first_run=2**32),
        "^first_run must be a whole number <= 4294967295; got 4294967296: the stream's counter",
    ),
    (
        lambda: ts.population_along(PATH, rows=[True]),
        r"^rows must choose some of the 3 recorded moments; got \[True\]",
    ),
    (lambda: device.resolve("mps"), "^device 'mps' has no float64, .*: use device='cpu'"),
)


# --- more than can be done --------------------------------------------------------------------------------------------

GIB = float(1 << 30)
TOO_MUCH = [
    # The number that fits in 2^30 bytes, by hand: 32 n (n + 2) of them are needed, 768 runs, 5120 runs, 384 n^2, 16 d^2, 240 count ...
    (lambda: sh.SignalNoiseLaw(n=10**8, d=40_000, signal_norm=1.0).draw(0), "n = 5700 would fit"),
    (lambda: LAW.draw(0, 10**9), "runs = 1300000 would fit"),
    (lambda: TOKENS.draw(0, 10**9), "runs = 200000 would fit"),
    (lambda: ts.draw_gram(ts.TokenLaw(n=10**6, d=50, tokens=4, signal_norm=5.0), 0), "n = 1600 would fit"),
    (lambda: ts.CODE_START.draw(10**6, 0), "d = 8100 would fit"),
    (lambda: ts.train(GRAM, 0.1, 10**9), "steps = 130000000 would fit"),
    (lambda: sh.gradient_descent(SAMPLE, 0.1, 10**12), r"steps = \d+ would fit"),
    (lambda: sh.train_heads(SAMPLE, 0.1, 2, heads=10**9), r"heads = \d+ would fit"),
    (lambda: sh.summarise(LAW, 0.1, draws=10**12), "draws = 19000000 would fit"),
    (lambda: sh.summarise(LAW, 0.1, steps=10**18), r"steps = \d+ would fit"),
    (lambda: PROMPTS_LAW.draw(10**10, 0), r"count = \d+ would fit"),
    (lambda: ic.initial_weights(10**6, 2), "d = 3300 would fit"),
    (lambda: ic.train(ic.Experiment(batch=10**12)), "batch must be a whole number <= 2147483648"),
    (lambda: ic.train(ic.Experiment(records=10**10, steps=2**31 - 1)), r"records = \d+ would fit"),
    (lambda: ic.risk_of(HEADS, PROMPTS_LAW, prompts=10**10), "prompts = 33000000 would fit"),
]


@pytest.mark.parametrize(("work", "words"), TOO_MUCH)
def test_work_that_cannot_be_done_is_refused_before_it_begins(work, words, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda device: GIB)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(ValueError, match=words):
        work()


def test_the_number_that_would_fit_fits(monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda device: GIB)
    limits.require_memory(lambda n: 8 * n, n=2**27)  # 2^30 bytes: just
    with pytest.raises(
        ValueError, match=r"^n = 134217729 needs 1 GiB of memory, and 1 GiB are free: n = 130000000 would fit$"
    ):
        limits.require_memory(lambda n: 8 * n, n=2**27 + 1)
    with pytest.raises(ValueError, match=r"^n = 1000, d = 1000000000 need 2 GiB .*: take smaller numbers$"):
        limits.require_memory(lambda n, d: 2**31, n=10**3, d=10**9)


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("", {}, 8.0),
        ("0::/", {"memory.max": "max", "memory.current": "5"}, 8.0),
        ("0::/a", {"a/memory.max": 2 << 30, "a/memory.current": 1 << 30, "a/memory.stat": f"inactive_file {1 << 29}"}, 1.5),
        ("4:cpu,memory:/b", {"cpu,memory/b/memory.limit_in_bytes": 3 << 30, "cpu,memory/b/memory.usage_in_bytes": 1 << 30}, 2.0),
        ("4:memory:/x", {"memory/memory.limit_in_bytes": 1 << 30, "memory/memory.usage_in_bytes": 2 << 30}, 0.0),
    ],
)  # fmt: skip
def test_free_memory_is_what_the_system_and_the_container_leave(groups, files, free, tmp_path):
    told = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8388608 kB\n", "proc/self/cgroup": groups}
    told |= {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in told.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(text))
    assert limits.free_memory(root=tmp_path) == free * GIB
