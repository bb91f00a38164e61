"""Work of every kind that takes a device, small: compared between the CPU and a pretended or a real GPU."""

from __future__ import annotations

import torch

from attnlib import in_context, single_head, token_selection
from attnlib.single_head.maps import SPARSEMAX
from attnlib.single_head.rules import nesterov

_LAW = single_head.SignalNoiseLaw(n=12, d=400, signal_norm=8.0, label_noise=0.2)
_TOKENS = token_selection.TokenLaw(n=6, d=120, tokens=4, signal_norm=8.0, label_noise=0.34)
_STUDY = in_context.Experiment(heads=2, d=3, length=5, batch=8, optimiser="Adam", learning_rate=1e-2, steps=4, runs=2)


def _descent(device: str):
    sample = _LAW.draw(seed=0, runs=3, device=device)
    path = single_head.gradient_descent(sample, 0.05, 3)
    v, p = path.v[-1], path.p[-1]
    sampled = single_head.clean_error_sampled(v, p, sample, count=200)
    return [path.loss, path.attention_clean, v, single_head.log10_clean_error(v, p, sample), sampled.value]


def _gram(device: str):
    path = single_head.gram_descent(_LAW.draw(seed=0, runs=3, device=device), 0.05, 5, record=[1, 5])
    return [path.loss, path.train_accuracy, path.attention_noisy]


def _heads(device: str):
    sample = _LAW.draw(seed=0, runs=2, device=device)
    options = {"heads": 2, "attention_map": SPARSEMAX, "rule": nesterov(0.9), "record": [1, 4]}
    path = single_head.train_heads(sample, 0.05, 4, **options)
    return [path.loss, path.train_accuracy, path.attention_clean]


def _two_steps(device: str):
    made = single_head.summarise(_LAW, 0.05, draws=3, device=device)
    return [made.log10_clean_error, made.train_accuracy, made.attention_clean]


def _selection(device: str):
    sample = _TOKENS.draw(seed=0, runs=2, device=device)
    path = token_selection.train(token_selection.gram_of(sample, token_selection.CODE_START), 5e-2, 6, record=[0, 3, 6])
    return [path.loss, path.attention, token_selection.population_along(path, rows=[-1], count=200).attention]


def _training(device: str):
    made = in_context.train(_STUDY, device=device)
    return [made.loss, made.omega, made.final.key_query, *in_context.risk_of(made.final, _STUDY.law, prompts=200)]


WORK = {work.__name__: work for work in (_descent, _gram, _heads, _two_steps, _selection, _training)}


def on_cpu(found: list) -> list[torch.Tensor]:
    return [torch.as_tensor(x.cpu() if isinstance(x, torch.Tensor) else x) for x in found]


# Of float64; in-context training on a GPU is in float32.
TOLERANCE = {name: 2e-4 if name == "_training" else 1e-10 for name in WORK}
