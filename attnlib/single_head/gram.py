r"""The fast twin of `gradient_descent`: the same steps in Gram space, for many steps on the CPU.

Every iterate lies in the span of its start, the signals and the noise tokens, $v_t = \sum_a \alpha_a b_a$, and all that training looks at
are the scores $K\alpha$ with the Gram matrix $K$ of those $n + 2$ (or $n + 4$) vectors. A step is one product of $K$ with two
columns, $O(n^2)$ whatever the dimension. Source: derived; equality with the readable trainer is a test. Two tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from attnlib.single_head.descent import TrainingPlan, Trajectory, gradient_descent
from attnlib.single_head.law import Sample
from attnlib.single_head.model import loss

__all__ = ["gram_descent"]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """Logistic function without overflow, accurate relative to its value on both sides."""
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, tail) / (1.0 + tail)


def gram_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
    record: Iterable[int] | None = None,
) -> Trajectory:
    """As `gradient_descent`, with the same arguments, errors and result; float64 on the CPU whatever the sample's dtype.

    Samples of more than two tokens, or on a GPU, are handed to `gradient_descent`.
    """
    if sample.law.tokens != 2 or sample.tokens.device.type != "cpu":
        return gradient_descent(
            sample, step_size, steps, attention_step_size=attention_step_size, start=start, record=record
        )
    plan = TrainingPlan.checked(sample, step_size, steps, attention_step_size, start, record)
    runs, n = sample.labels.shape
    basis = [sample.signals, sample.noise_tokens()[:, :, 0]]
    if start is not None:
        basis += [vector.unsqueeze(1) for vector in plan.start]
    basis = torch.cat(basis, dim=1).to(torch.float64)
    gram = (basis @ basis.mT).numpy()
    y = sample.labels.to(torch.float64).numpy()
    classes = sample.signal_class.numpy()
    run = np.arange(runs)[:, None]
    of_class = np.stack([classes == 0, classes == 1], axis=1).astype(float)  # (R, 2, n)
    coefficients = np.zeros((runs, basis.shape[1], 2))  # columns: v, p
    if start is not None:
        coefficients[:, -2, 0] = coefficients[:, -1, 1] = 1.0
    rates = np.array([plan.step_size, plan.attention_step_size]) / n

    kept, rows = set(plan.recorded), []
    for step in range(plan.steps + 1):
        scores = gram @ coefficients
        at_signal, at_noise = scores[run, classes], scores[:, 2 : 2 + n]  # (R, n, 2)
        gap = at_signal - at_noise
        attention = _sigmoid(gap[..., 1])
        output = at_noise[..., 0] + attention * gap[..., 0]
        if step in kept:
            rows.append((coefficients.copy(), output, attention))
        if step == plan.steps:
            break
        pull = y * _sigmoid(-y * output)
        on_signal = np.stack([pull * attention, pull * attention * (1 - attention) * gap[..., 0]], axis=-1)
        on_noise = np.stack([pull - on_signal[..., 0], -on_signal[..., 1]], axis=-1)
        coefficients[:, :2] += rates * (of_class @ on_signal)
        coefficients[:, 2 : 2 + n] += rates * on_noise

    kept_coefficients, outputs, attentions = (torch.as_tensor(np.stack(part)) for part in zip(*rows, strict=True))
    vectors = torch.einsum("srqc,rqm->csrm", kept_coefficients, basis)
    labels = sample.labels.to(torch.float64)
    return Trajectory(
        plan.recorded, vectors[0], vectors[1], loss(outputs, labels), labels * outputs, attentions, sample.noisy
    )
