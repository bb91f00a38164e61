r"""The trap at finite d: gradient descent on Gaussian noise, sample by sample, against the theorem's inequalities.

Noise tokens have $\xi_i\cdot\xi_j = d(1_{i=j} + E_{ij})$. With $h = \beta d/n$ and the scores of one class,
$V = \bar y_k v\cdot\mu_k$, $t_i = y_iv\cdot\xi_i$, $P = p\cdot\mu_k$, $q_i = p\cdot\xi_i$, split what $t_i$ and $q_i$ gain after a step
$t_0$ into the sample's own terms and the *cross terms* $\zeta_i = \sum_{j\ne i}E_{ij}y_iy_j\,d\,\Delta\theta_j$ and $\chi_i$ (likewise for
p). If from $t_0$ on
$|\zeta_i| \le z$, $|\chi_i| \le z'$, and $\sigma_c, \sigma_n$ solve

$$ x\sigma_ce^{hx\sigma_c+2z} \le (1-\sigma_c)(1-\varepsilon),\qquad \nu x\sigma_ne^{h\nu x\sigma_n+2z} \le (1-\sigma_n)(1-\varepsilon),
   \qquad \varepsilon = \max|E_{ii}|, $$

then a class with $t_i - V \ge z$, $V + t_j \ge z$ and logits $P-q$ below those of $\sigma_c, \sigma_n$ by $z'$ at step $t_0$ stays in
$\{V \le t_i,\ s_i \le \sigma_c,\ V + t_j \ge 0,\ s_j \le \sigma_n\}$ (i clean, j flipped). Source: derived, chapter *In the long run*.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from attnbook.halving import halved
from attnlib.arrays import Bools, Floats
from attnlib.single_head.training import gram_descent


def largest_share(pull, step, cross, spread):
    r"""The largest $\sigma$ in (0, 1) with $a\sigma e^{ha\sigma+2z} \le (1-\sigma)(1-\varepsilon)$; 1 for a = 0, 0 if $\varepsilon \ge 1$.

    pull: a = x for clean and nu x for flipped samples; step: h; cross: z; spread: epsilon. By bisection: the left side grows, the
    right one falls.
    """
    if spread >= 1:
        return 0.0
    if pull == 0:
        return 1.0

    def fits(s):
        return math.log(pull * s) + step * pull * s + 2 * cross <= math.log1p(-s) + math.log1p(-spread)

    return halved(fits, 0.0, 1.0, 60)[0]


@dataclass(frozen=True)
class ClassScores:
    """One class of one run at all steps S: its n_k samples' scores, and the cross terms that they have gathered."""

    x: float
    nu: float
    spread: float  # epsilon
    step: float  # h
    clean: Bools  # (n_k,)
    value: Floats  # (S,), V
    own: Floats  # (S, n_k), t_i
    logits: Floats  # (S, n_k), P - q_i
    cross: Floats  # (S, n_k), zeta_i gathered from the first step
    cross_logit: Floats  # (S, n_k), chi_i

    def room(self):
        """(S,): the smallest of t_i - V over clean and V + t_j over flipped samples."""
        sign = np.where(self.clean, -1.0, 1.0)
        return np.asarray((self.own + sign * self.value[:, None]).min(1))

    def shares(self, first):
        """sigma of every sample (n_k,), z and z' if the theorem is applied from step `first` on."""
        z, z_logit = (float(np.abs(cross[first:] - cross[first]).max()) for cross in (self.cross, self.cross_logit))
        clean, flipped = (largest_share(a, self.step, z, self.spread) for a in (self.x, self.nu * self.x))
        return np.where(self.clean, clean, flipped), z, z_logit

    def enters(self, first):
        """Whether the theorem's hypotheses hold at step `first`, with the cross terms of all later steps."""
        sign = np.where(self.clean, -1.0, 1.0)
        room = (self.own[first] + sign * self.value[first]).min()
        if room < 0:
            return False
        share, z, z_logit = self.shares(first)
        if not (share > 0).all() or room < z:
            return False
        with np.errstate(divide="ignore"):
            return bool((self.logits[first] + z_logit <= np.log(share) - np.log1p(-share)).all())


def class_scores(sample, step, steps):
    """Gradient descent from zero with $\\beta$ = step n/d, every step kept; one entry per run and class that has clean samples."""
    law = sample.law
    scale = law.d * law.noise_std**2
    path = gram_descent(sample, step * law.n / scale, steps)
    found = []
    for run in range(sample.runs):
        noise = sample.noise_tokens()[run, :, 0].numpy()
        gram = noise @ noise.T
        labels, classes = sample.labels[run].numpy(), sample.signal_class[run].numpy()
        clean = ~sample.noisy[run].numpy()
        v, p = path.v[:, run].numpy(), path.p[:, run].numpy()
        scores = {"v": v @ noise.T, "p": p @ noise.T}
        # A score is G c with the coefficients c of the noise tokens: what is not the sample's own term is cross.
        cross = {name: score - np.linalg.solve(gram, score.T).T * np.diag(gram) for name, score in scores.items()}
        for k, sign in ((0, 1.0), (1, -1.0)):
            own = classes == k
            if not (own & clean).any():
                continue
            count, flips = (own & clean).sum(), (own & ~clean).sum()
            signal = sample.signals[run, k].numpy()
            found.append(ClassScores(
                law.signal_norm**2 * count / scale, flips / count, float(np.abs(np.diag(gram)[own] / scale - 1).max()), step,
                clean[own], sign * v @ signal, labels[own] * scores["v"][:, own], (p @ signal)[:, None] - scores["p"][:, own],
                labels[own] * cross["v"][:, own], cross["p"][:, own],
            ))  # fmt: skip
    return found


def trap_record(scores, candidates):
    """What became of one class: x; `entry`, the first of these steps at which the theorem's hypotheses hold, -1 at none (it may speak from
    any of them); `worst`, the largest violation of its four inequalities from there on, or from the last candidate where it is silent;
    and whether the mean attention of its clean samples ends above one half."""
    entry = next((t for t in candidates if scores.enters(t)), -1)
    first = entry if entry > 0 else candidates[-1]
    share = scores.shares(first)[0]
    weights = 1 / (1 + np.exp(-scores.logits))
    worst = max(float((-scores.room()[first:]).max()), float((weights[first:] - share).max()))
    on_signal = bool(weights[-1, scores.clean].mean() > 0.5)
    return SimpleNamespace(x=scores.x, entry=entry, worst=worst, on_signal=on_signal)
