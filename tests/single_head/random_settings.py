"""Proved outcomes of random settings against drawn training sets: settings over the whole box, and what becomes of them."""

import numpy as np
import torch

from attnbook.single_head.proved import OUTCOMES, proved_outcome
from attnlib.gaussian import bartlett_rows
from attnlib.single_head.errors import FreshScores, log10_error_of_scores
from attnlib.single_head.law import SignalNoiseLaw

ERROR = 0.1


def random_setting(rng: np.random.Generator) -> dict[str, float]:
    """n, d, SNR, label noise, beta d/n and delta, over the whole box: uniform logarithms; a third of the label noises is 0 or 1/2."""
    n = int(np.rint(np.exp(rng.uniform(np.log(2), np.log(1000)))))
    d = int(np.rint(np.exp(rng.uniform(np.log(3), np.log(10**9)))))
    snr = np.exp(rng.uniform(np.log(0.1 * (n * d) ** -0.25), np.log(20 * n**-0.5)))
    eta = rng.choice([0.0, 0.5, *rng.uniform(0, 0.5, 4)])
    multiple = np.exp(rng.uniform(np.log(0.05), np.log(100)))
    return {"n": n, "d": d, "snr": snr, "eta": eta, "multiple": multiple, "delta": rng.choice([0.01, 0.1])}


def drawn_outcomes(law: SignalNoiseLaw, step_size: float, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, 4): which of `OUTCOMES` hold after two steps, from the definitions; noise in coordinates of its own, whatever d."""
    unit, numbers, fits = step_size / (4 * law.n), [], []
    for _ in range(draws):
        noise, classes = bartlett_rows(rng, law.n, law.d - 2), rng.integers(0, 2, law.n)
        flipped, truth = rng.random(law.n) < law.label_noise, 1.0 - 2 * classes
        y = np.where(flipped, -truth, truth)

        def signals(weights: np.ndarray, classes: np.ndarray = classes) -> np.ndarray:
            return unit * law.signal_norm**2 * np.bincount(classes, weights, 2)

        signal, own = signals(y)[classes], unit * (noise @ (noise.T @ y))
        g = np.exp(-np.logaddexp(0, y * (signal + own) / 2))
        of_v, of_p = (1 + 2 * g) * y, g * y * (signal - own)
        (v_signal, p_signal), v, p = (signals(of_v), signals(of_p)), unit * (noise.T @ of_v), -unit * (noise.T @ of_p)
        logit = p_signal[classes] - noise @ p
        margin = y * (
            v_signal[classes] * np.exp(-np.logaddexp(0, -logit)) + (noise @ v) * np.exp(-np.logaddexp(0, logit))
        )
        fits.append([(margin > 0).all(), (margin[flipped] < 0).any(), (margin[~flipped] < 0).any()])
        largest = max(np.abs(p).max(), 1e-300)  # first: its squares would vanish
        length = np.linalg.norm(p / largest)
        along = v @ (p / largest) / length if length else 0.0
        rest = v - along * (p / largest) / length if length else v
        sign, two = np.array([1.0, -1.0]), np.ones(2)
        numbers.append((p_signal, sign * v_signal, largest * length * two, sign * along, np.linalg.norm(rest) * two))
    scores = FreshScores(*(torch.as_tensor(np.array(x)) for x in zip(*numbers, strict=True)))
    error, (fit, flip, clean) = log10_error_of_scores(scores).numpy(), np.array(fits).T
    return np.stack([fit & (error <= np.log10(ERROR)), fit & (error >= np.log10(ERROR)), flip, clean], 1)


def judged_settings(settings: int, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Of each random setting: its numbers, the code of its proved outcome (-1: none), its probability, and draws with another one."""
    rng, rows = np.random.default_rng(seed), []
    for x in [random_setting(rng) for _ in range(settings)]:
        law = SignalNoiseLaw(x["n"], x["d"], x["snr"] * x["d"] ** 0.5, float(x["eta"]))
        step = x["multiple"] * law.n / law.d
        proof, others = proved_outcome(law, step, float(x["delta"]), error=ERROR), 0
        code = OUTCOMES.index(proof.outcome) if proof.outcome in OUTCOMES else -1
        if code >= 0:
            others = int((~drawn_outcomes(law, step, draws, rng)[:, code]).sum())
        rows.append(x | {"code": code, "probability": proof.probability, "others": others, "draws": draws})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
