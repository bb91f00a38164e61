"""Named results of this part's pages for many parameter sets at once: what `attnlib sweep --batched` calls.

Every number is the page's, bit for bit on the same machine and one thread: the same streams, the same functions, the same
shapes. What many points share is computed once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from attnbook.draws import mean, share
from attnbook.single_head.typical_error import typical_error
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import FreshScores, log10_error_of_scores, scores_of_fresh_data
from attnlib.single_head.summary import draws_in_chunks, join
from attnlib.single_head.training import gradient_descent


def two_steps(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What page `single_head/02_two_steps` records, for each of `points` (its complete parameter sets), in order.

    Points that agree in `seed`, `n`, `d` and `draws` have the same noise, classes and uniforms behind their flips: these are
    drawn once, and signal norm, flips, step size and steps then differ from point to point. Training sees the draws of one point at
    a time, as on the page: in a larger batch the matrix products of torch may change the last bit. The integrals of all
    points are one batch, whose entries do not see each other.

    Raises ValueError for what the law or the training refuses, KeyError for a missing parameter.
    """
    laws = [SignalNoiseLaw(p["n"], p["d"], p["signal_norm"], p["label_noise"]) for p in points]
    shared: dict[tuple, list[int]] = {}
    for place, p in enumerate(points):
        shared.setdefault((p["seed"], p["n"], p["d"], p["draws"]), []).append(place)
    parts: list[list[dict]] = [[] for _ in points]
    for (seed, _, _, draws), places in shared.items():
        for sample in draws_in_chunks(laws[places[0]], seed, draws):
            runs = range(sample.first_run, sample.first_run + sample.runs)
            uniforms = torch.as_tensor(np.stack([stream(seed, "flips", run).random(sample.law.n) for run in runs]))
            for place in places:
                own = _under(laws[place], sample, uniforms)
                parts[place].append(_measured(own, points[place]["step_size"], points[place]["steps"]))
    if not parts:
        return []
    measured = [join(each) for each in parts]
    errors = log10_error_of_scores(join([each["scores"] for each in measured])).split([p["draws"] for p in points])
    noise = (p["label_noise"] for p in points)
    return [two_step_results(SimpleNamespace(**own), *rest) for own, *rest in zip(measured, errors, noise, strict=True)]


def _under(law: SignalNoiseLaw, sample: Sample, uniforms: torch.Tensor) -> Sample:
    """What `law` draws from the streams that made `sample`, for a law that differs in signal norm and label noise only.

    The tokens are changed in place: of `sample` only one such copy is valid at a time.
    """
    plane = torch.as_tensor(law.signal_factor)  # of the signals, the first two coordinates
    signals = torch.zeros_like(sample.signals)
    signals[:, :, :2] = plane
    sample.tokens[:, :, 0, :2] = plane[sample.signal_class]
    labels = torch.where(uniforms < law.label_noise, -sample.true_labels, sample.true_labels)
    return replace(sample, law=law, signals=signals, labels=labels)


def _measured(sample: Sample, step_size: float, steps: int) -> dict[str, torch.Tensor | FreshScores]:
    """Per draw (R,): what `study.summarise` keeps, with the fresh scores in place of the error."""
    path = gradient_descent(sample, step_size, steps, record=[1, steps])
    return {
        "train_accuracy_step1": path.train_accuracy[0],
        "train_accuracy": path.train_accuracy[-1],
        "interpolates": path.interpolates[-1],
        "attention_clean": path.attention_clean[-1],
        "attention_noisy": path.attention_noisy[-1],
        "scores": scores_of_fresh_data(path.v[-1], path.p[-1], sample),
    }


def two_step_results(measured: Any, error: Any, label_noise: float) -> dict[str, float]:
    """What the page records of its draws (R,): attributes of `summarise`, and the exact log10 clean errors."""
    return {
        **mean(measured.train_accuracy_step1).named("train_accuracy_step1"),
        **mean(measured.train_accuracy).named("train_accuracy"),
        **share(int(measured.interpolates.sum()), len(measured.interpolates)).named("interpolating_fraction"),
        **typical_error(error, label_noise),
        "log10_clean_error_mean": float(error.mean()),
        "log10_clean_error_min": float(error.min()),
        "log10_clean_error_max": float(error.max()),
        **mean(measured.attention_clean).named("attention_clean"),
        **mean(measured.attention_noisy).named("attention_noisy"),
    }
