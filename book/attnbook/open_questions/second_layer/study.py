"""Two stacked layers, measured: which architecture keeps the signal in long training, and where the first layer looks."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.open_questions.second_layer.layer_error import log10_error_of_mixed_tokens, sampled_error_of_layers
from attnbook.open_questions.second_layer.layers import ARCHITECTURES, signal_first, train_layers
from attnbook.open_questions.second_layer.layers_frozen import train_frozen
from attnbook.single_head.long_run import collected_moves, orthogonal_sample
from attnbook.single_head.svm import hard_margin
from attnlib import checks
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import scores_of_fresh_data
from attnlib.single_head.training import gaussian_start

NSNR2 = (1.0, 2.0, 4.5)
FROZEN = ("one layer", "residual", "weak mix", "strong mix", "no residual", "noise sees signal", "signal sees noise")
TRAINED = (("residual", 1e-4), ("residual", 1e-3), ("no residual", 1e-3))  # step of W over beta
_N, _D, _ETA, _UNIT = 60, 12_000, 0.1, 2.5  # beta d / n = 2.5
_FRESH = 8000


def layers_law(nsnr2: float) -> SignalNoiseLaw:
    """n = 60, d = 12000, eta = 0.1 at the given n SNR^2."""
    return SignalNoiseLaw(_N, _D, math.sqrt(checks.positive_number("nsnr2", nsnr2) * _D / _N), _ETA)


@dataclass(frozen=True)
class FrozenRun:
    """W = 0 throughout: arrays (steps, draws)."""

    steps: tuple[int, ...]
    log10_error: np.ndarray  # exact
    weight: np.ndarray  # of the second layer on Y_u, mean over clean samples
    train_accuracy: np.ndarray

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be a recorded one; got {step!r}: {self.steps}")
        return self.steps.index(step)


@dataclass(frozen=True)
class TrainedRun:
    """W trained: arrays (steps, draws)."""

    steps: tuple[int, ...]
    error: np.ndarray  # sampled
    standard_error: np.ndarray
    noise_to_signal: np.ndarray  # A[xi, u], mean over clean samples
    train_accuracy: np.ndarray


@dataclass(frozen=True)
class LayersStudy:
    """What the claims on two layers look at."""

    frozen: dict[tuple[str, float], FrozenRun]  # (architecture, n SNR^2)
    trained: dict[tuple[str, float, float], TrainedRun]  # (architecture, step of W / beta, n SNR^2)
    # no residual: moves of p (draws,): frozen W from 0 and at random, trained
    still: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    # x / threshold (samples,), moves of the weight (samples, steps), steps in n/d, no flips
    one_way: tuple[np.ndarray, ...]
    limits: dict[tuple[str, float], np.ndarray]  # clean error (draws,) of the exact SVM on the tokens Y_xi
    flips: np.ndarray  # (draws,), the share of flipped labels in these draws


def _frozen(samples: dict[float, Sample], steps: int, record: list[int]) -> dict[tuple[str, float], FrozenRun]:
    keys = [(name, q) for name in FROZEN for q in samples]
    jobs = [(ARCHITECTURES[name], samples[q]) for name, q in keys]
    path = train_frozen(
        [ARCHITECTURES[name] for name in FROZEN], list(samples.values()), _UNIT * _N / _D, steps, record=record
    )
    found = {}
    for i, (key, (architecture, sample)) in enumerate(zip(keys, jobs, strict=True)):
        pairs = zip(path.v[i], path.p[i], strict=True)
        errors = [log10_error_of_mixed_tokens(v, p, sample, architecture).numpy() for v, p in pairs]
        clean = (~sample.noisy).to(path.weight[i])
        weight = (path.weight[i] * clean).sum(-1) / clean.sum(-1)
        fit = (path.margins[i] > 0).double().mean(-1)
        found[key] = FrozenRun(path.steps, np.stack(errors), weight.numpy(), fit.numpy())
    return found


def _trained(name: str, ratio: float, steps: int, sample: Sample, record: list[int]) -> TrainedRun:
    beta = _UNIT * _N / _D
    path = train_layers(sample, ARCHITECTURES[name], beta, steps, mixing_step_size=ratio * beta, record=record)
    found = sampled_error_of_layers(path, sample, _FRESH)
    looks = path.mean_over_clean(path.attention[..., 1, 0])
    return TrainedRun(
        path.steps, found.value.numpy(), found.standard_error.numpy(), looks.numpy(), path.train_accuracy.numpy()
    )


def _still(seed: int, draws: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Largest move of p away from its start in 30 steps without the residual, per draw."""
    sample, beta = layers_law(2.0).draw(seed, draws, start_vectors=2), _UNIT * _N / _D
    start = gaussian_start(sample, 0.01)
    alone = ARCHITECTURES["no residual"]
    runs = (
        (train_layers(sample, alone, beta, 30), 0.0),
        (train_layers(sample, alone, beta, 30, start=start), start[1]),
        (train_layers(sample, alone, beta, 30, mixing_step_size=1e-3 * beta), 0.0),
    )
    return tuple((path.p - origin).abs().amax((0, 2)) for path, origin in runs)


def _one_way(seed: int) -> tuple[np.ndarray, ...]:
    """No flips, orthogonal noise: own x over the architecture's threshold, the moves of the weight on Y_u, the step."""
    trainings = []
    for i, name in enumerate(("residual", "weak mix", "noise sees signal", "signal sees noise")):
        architecture = ARCHITECTURES[name]
        for factor in (0.6, 0.9, 1.12, 1.8):
            norm = math.sqrt(factor * architecture.threshold * 4000 / 10)
            law = SignalNoiseLaw(20, 4000, norm, 0.0)
            sample = orthogonal_sample(law, seed + i, 2)
            own = (norm**2 * sample.counts()[0] / law.d / architecture.threshold).gather(1, sample.signal_class)
            trainings += [
                (own, step, train_layers(sample, architecture, step * law.n / law.d, 40).weight)
                for step in (0.25, 5.0, 50.0)
            ]
    return tuple(part.numpy() for part in collected_moves(trainings))


def _limit(name: str, sample: Sample) -> np.ndarray:
    """Clean error of f = v . Y_xi with v the exact SVM on the tokens Y_xi, every sample: (draws,)."""
    (_, _), (c, e) = ARCHITECTURES[name].start
    tokens, errors = signal_first(sample), []
    for r in range(sample.runs):
        rows = c * tokens[r, :, 0] + e * tokens[r, :, 1]
        v = torch.as_tensor(hard_margin(rows.numpy(), sample.labels[r].numpy()).weights).unsqueeze(0)
        scores = scores_of_fresh_data(v, torch.zeros_like(v), sample.run(r))
        errors.append(torch.special.ndtr(-c * scores.value / (e * scores.tau)).mean().item())
    return np.array(errors)


def layers_study(*, steps: int = 3000, draws: int = 10, seed: int = 0) -> LayersStudy:
    """Train and collect: frozen mixing for `steps` steps, trained mixing for 300. Raises ValueError for a bad argument."""
    checks.whole_number("steps", steps, at_least=300, hint="the claims look at step 300")
    checks.whole_number("draws", draws, at_least=2)
    record = sorted({2, 10, 30, 100, 300, *(s for s in (1000, 3000, 10_000, 30_000) if s <= steps), steps})
    samples = {q: layers_law(q).draw(seed, draws) for q in NSNR2}
    return LayersStudy(
        frozen=_frozen(samples, steps, record),
        trained={
            (name, ratio, q): _trained(name, ratio, 300, samples[q], [10, 30, 100, 300])
            for name, ratio in TRAINED
            for q in NSNR2
        },
        still=_still(seed, draws),
        one_way=_one_way(seed),
        limits={(name, q): _limit(name, samples[q]) for name in ("residual", "strong mix") for q in (1.0, 2.0)},
        flips=samples[1.0].noisy.double().mean(1).numpy(),  # the same for every norm
    )
