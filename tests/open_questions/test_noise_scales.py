"""A token's scale R tells nothing of its direction: rank correlations over 20 000 tokens of each law, however they are drawn."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from attnbook.open_questions.noise_laws.laws import NoiseLaw
from attnbook.open_questions.noise_laws.parts import RadialT
from attnbook.open_questions.noise_laws.study import LAWS
from attnlib.randomness import stream
from attnlib.single_head.law import Sample, SignalNoiseLaw

RUNS, N, D = 400, 56, 8


def noise(law: SignalNoiseLaw, sample: Sample, how: str) -> np.ndarray:
    """(RUNS, 50 or more, columns): the noise tokens of many training sets, or the fresh points beside them."""
    if how == "fresh":
        return law.draw_fresh(sample, N)[0][:, :, 1].numpy()
    tokens = sample.noise_tokens().squeeze(2).numpy()
    # Reduced: two columns are the signals', and the first tokens span the others one by one.
    return tokens if how == "dense" else tokens[:, D - 2 :, 2:]


def without_scale(law: NoiseLaw, sample: Sample, how: str) -> np.ndarray:
    """The same tokens with R = 1, made without the code under test."""
    if how == "reduced":
        plain = SignalNoiseLaw(N, D, 3.0)
        return noise(plain, plain.draw(7, RUNS), how)
    found = np.empty((RUNS, N, D))
    for run, units in enumerate(sample.avoided.numpy()):
        rng = stream(7, "test" if how == "fresh" else "noise", run)
        if how == "fresh":
            rng.integers(0, 2, N)  # the classes, drawn first
            vectors = law.entries.draw(rng, (N, D))
        else:
            vectors = law.entries.draw(rng, (N, 2, D))[np.arange(N), 1 - sample.signal_position[run].numpy()]
        found[run] = law.noise_std * law.covariance.times(vectors)
        found[run] -= found[run] @ units.T @ units
    return found


@pytest.mark.parametrize("name", LAWS)
def test_the_scale_is_independent_of_the_direction(name: str) -> None:
    """R is the ratio of two norms, for a law shares its directions with the one without scale. Laws without a scale are given one."""
    law = replace(NoiseLaw(N, D, 3.0, **LAWS[name]), scale=LAWS[name].get("scale", RadialT(3.0)))
    for how in ("dense", "fresh", *["reduced"] * law.rotation_invariant):
        sample = law.draw(7, RUNS, coordinates="dense" if how == "fresh" else how)
        plain, scaled = without_scale(law, sample, how), noise(law, sample, how)
        norms = np.linalg.norm(plain, axis=-1)
        kept = norms > 1e-6  # a sparse token may be zero
        scales = np.where(kept, np.linalg.norm(scaled, axis=-1) / np.where(kept, norms, 1), np.nan)
        np.testing.assert_allclose(scaled[kept], (scales[..., None] * plain)[kept], rtol=1e-9, atol=1e-12)
        assert len(np.unique(scales[kept].round(9))) > 0.99 * kept.sum(), how  # each token has its own
        u = plain / np.where(kept, norms, 1)[..., None]
        for what, values in {"u_1": u[..., 0], "|u_1|": abs(u[..., 0]), "max |u_i|": abs(u).max(-1)}.items():
            for which, some in {"all tokens": np.s_[:, :], "the first of each stream": np.s_[:, :1]}.items():
                chosen = kept[some]
                errors = spearmanr(scales[some][chosen], values[some][chosen]).statistic * math.sqrt(chosen.sum() - 1)
                assert abs(errors) < 4, f"{how}, {which}: R and {what} are correlated, {errors:.1f} standard errors"
