"""Two stacked layers, measured: which architecture keeps the signal in long training, and where the first layer looks."""

import math
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.open_questions.second_layer.layers import (
    ARCHITECTURES,
    log10_error_of_mixed_tokens,
    noise_phase_error,
    sampled_error_of_layers,
    signal_first,
    train_frozen,
    train_layers,
)
from attnbook.single_head.long_run import collected_moves, orthogonal_sample
from attnbook.single_head.svm import hard_margin
from attnlib.single_head.errors import scores_of_fresh_data
from attnlib.single_head.law import SignalNoiseLaw
from attnlib.single_head.training import gaussian_start

NSNR2 = (1.0, 2.0, 4.5)
FROZEN = ("one layer", "residual", "weak mix", "strong mix", "no residual", "noise sees signal", "signal sees noise")
TRAINED = (("residual", 1e-4), ("residual", 1e-3), ("no residual", 1e-3))  # step of W over beta
_N, _D, _ETA = 60, 12_000, 0.1
_BETA = 2.5 * _N / _D
_FRESH = 8000


def layers_law(nsnr2):
    """n = 60, d = 12000, eta = 0.1 at the given n SNR^2."""
    return SignalNoiseLaw(_N, _D, math.sqrt(nsnr2 * _D / _N), _ETA)


def _frozen(samples, steps, record):
    """W = 0 throughout, by (architecture, n SNR^2): exact error, weight of the second layer on Y_u in clean samples, (steps, draws)."""
    path = train_frozen([ARCHITECTURES[name] for name in FROZEN], list(samples.values()), _BETA, steps, record=record)
    keys, found = [(name, q) for name in FROZEN for q in samples], {}
    for (name, q), vs, ps in zip(keys, path.v, path.p, strict=True):
        heads = zip(vs, ps, strict=True)
        errors = [log10_error_of_mixed_tokens(v, p, samples[q], ARCHITECTURES[name]).numpy() for v, p in heads]
        found[name, q] = SimpleNamespace(steps=path.steps, log10_error=np.stack(errors))
    return found


def _trained(name, ratio, sample):
    """W trained: sampled error and A[xi, u], mean over clean samples, (steps, draws)."""
    options = {"mixing_step_size": ratio * _BETA, "record": [10, 30, 100, 300]}
    path = train_layers(sample, ARCHITECTURES[name], _BETA, 300, **options)
    looks = path.mean_over_clean(path.attention[..., 1, 0])
    error = sampled_error_of_layers(path, sample, _FRESH).value
    return SimpleNamespace(steps=path.steps, error=error.numpy(), noise_to_signal=looks.numpy())


def _still(seed, draws):
    """Largest move of p away from its start in 30 steps without the residual, (draws,): frozen W from 0 and at random, trained."""
    sample, alone = layers_law(2.0).draw(seed, draws, start_vectors=2), ARCHITECTURES["no residual"]
    start = gaussian_start(sample, 0.01)
    runs = (
        (train_layers(sample, alone, _BETA, 30), 0.0),
        (train_layers(sample, alone, _BETA, 30, start=start), start[1]),
        (train_layers(sample, alone, _BETA, 30, mixing_step_size=1e-3 * _BETA), 0.0),
    )
    return tuple((path.p - origin).abs().amax((0, 2)) for path, origin in runs)


def _one_way(seed):
    """No flips, orthogonal noise: own x over the architecture's threshold, the moves of the weight on Y_u, the step in n/d."""
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


def _limit(name, sample):
    """Clean error of f = v . Y_xi with v the exact SVM on the tokens Y_xi, every sample: (draws,)."""
    (_, _), (c, e) = ARCHITECTURES[name].start
    tokens, errors = signal_first(sample), []
    for r in range(sample.runs):
        rows = c * tokens[r, :, 0] + e * tokens[r, :, 1]
        v = torch.as_tensor(hard_margin(rows.numpy(), sample.labels[r].numpy()).weights).unsqueeze(0)
        scores = scores_of_fresh_data(v, torch.zeros_like(v), sample.run(r))
        errors.append(torch.special.ndtr(-c * scores.value / (e * scores.tau)).mean().item())
    return np.array(errors)


def _noise_phase(law, flips):
    """The formula of the noise phase with a residual layer, at every draw's own share of flips."""
    sizes = ARCHITECTURES["residual"], law.n, law.d, law.signal_norm
    return np.array([noise_phase_error(*sizes, eta) for eta in flips])


def layers_study(*, steps=3000, draws=10, seed=0):
    """Train and collect: frozen mixing for `steps` steps, trained mixing for 300."""
    record = sorted({2, 10, 30, 100, 300, *(s for s in (1000, 3000, 10_000, 30_000) if s <= steps)})
    samples = {q: layers_law(q).draw(seed, draws) for q in NSNR2}
    frozen = _frozen(samples, steps, record)
    trained = {(name, ratio, q): _trained(name, ratio, samples[q]) for name, ratio in TRAINED for q in NSNR2}
    flips = samples[1.0].noisy.double().mean(1).tolist()  # the same for every norm

    at_300 = {}  # clean errors at step 300, n SNR^2 = 1, and A[xi, u] where W is trained
    for name in ("residual", "signal sees noise", "one layer"):
        run = frozen[name, 1.0]
        at_300[name] = SimpleNamespace(error=10.0 ** run.log10_error[run.steps.index(300)])
    for name, ratio in (("slow W", 1e-4), ("fast W", 1e-3)):
        run = trained["residual", ratio, 1.0]  # 300 is its last step
        at_300[name] = SimpleNamespace(error=run.error[-1], noise_to_signal=run.noise_to_signal[-1])
    return SimpleNamespace(
        frozen=frozen,
        trained=trained,
        at_300=at_300,
        still=_still(seed, draws),
        one_way=_one_way(seed),
        # Clean error (draws,) of the exact SVM on the tokens Y_xi, and the formula.
        limits={(name, q): _limit(name, samples[q]) for name in ("residual", "strong mix") for q in (1.0, 2.0)},
        noise_phase={q: _noise_phase(layers_law(q), flips) for q in (1.0, 2.0)},
    )
