r"""Token selection in high dimension: one clean and one flipped sample stand for all of them.

When $d\to\infty$ with n, T and $n\,\mathrm{SNR}^2$ fixed, the noise of different tokens becomes orthogonal and the noise on the
head's values vanishes. Every clean sample then behaves alike, and so does every flipped one. With $e_t$ the *own-noise score* of
token t, $a_t$ its coefficient of signal (1, rho, ..., rho, 0, ...), $y_t$ its value $Y\gamma_t/(|\nu||\mu|)$ and $r = n\,\mathrm{SNR}^2$,

$$ z_t = e_t + a_t S, \qquad S = \tfrac r2\sum_{\text{kinds}} w\sum_t a_te_t, \qquad
   \dot e_t = \tfrac{\alpha\sigma_\varepsilon^2d\,|\nu||\mu|}{n}\,\lambda\;\sigma(-Yf)\,s_t\Bigl(y_t-\sum_us_uy_u\Bigr), $$

over the two kinds (clean, weight $1-\eta$; flipped, weight $\eta$). $S = v\cdot\mu$ is the score of a bare signal. The *orthogonal-noise
limit* has $\lambda=m:=\sigma_w^2d$ (`finite_size=False`). The *orthogonal-noise prediction* is for finite d and a start $p_0=0$, with the
growth of $p$ (`finite_size=True`): with $e=\sqrt{\lambda}\,\tilde e$ (and so for S), $\lambda=m+|p|^2$ and

$$ |p|^2=\tfrac{n}{\sigma_\varepsilon^2d}\sum_{\text{kinds}}w\sum_t\tilde e_t^2+2\tilde S^2/|\mu|^2, $$

the equations hold for $\tilde e$ with $\sqrt\lambda$ in place of $\lambda$. A fresh score has variance $\sigma_\varepsilon^2|v|^2$ with
$|v|^2=(\lambda+m)|p|^2$: $\lambda|p|^2$ on the span of the data and $m|p|^2$ off it, where a square Gaussian $W_0$ sends as much.
Source: derived in the theory chapter of Part II. numpy, float64.
"""

import math
from types import SimpleNamespace

import numpy as np

from attnlib.arrays import Floats
from attnlib.token_selection.law import TokenLaw

CLEAN, FLIPPED = 0, 1


class MeanField(SimpleNamespace):
    """A path of K moments.

    time (K,), in gradient steps, not necessarily whole; scores and attention (K, 2, T), clean and flipped; margins (K, 2), Y f;
    signal_score (K,), S = v . mu, the score of a bare signal; score_variance (K,), sigma^2 |v|^2, of a fresh token's score;
    prompt_norm_squared (K,), |p|^2.
    """

    def crossing(self, values: Floats, level: float) -> float:
        """Time at which `values` (K,) first reaches `level` from below, linearly interpolated; nan if it never does."""
        above = np.flatnonzero(values >= level)
        if not above.size:
            return math.nan
        k = int(above[0])
        if k == 0:
            return float(self.time[0])
        part = (level - values[k - 1]) / (values[k] - values[k - 1])
        return float(self.time[k - 1] + part * (self.time[k] - self.time[k - 1]))


def flipped_share(law: TokenLaw) -> float:
    """Fraction of flipped labels: eta, or what balanced labels make of it by rounding down."""
    return 2 * law.flips_per_class / law.n if law.balanced else law.label_noise


def _softmax_parts(scores, values):
    """Attention, value minus mean value (exact next to saturation), mean value. All from (2, T)."""
    top = scores.argmax(-1)[:, None]
    weight = np.exp(scores - np.take_along_axis(scores, top, -1))
    weight /= weight.sum(-1, keepdims=True)
    best = np.take_along_axis(values, top, -1)
    gap = values - best
    mean_gap = (weight * gap).sum(-1, keepdims=True)
    return weight, gap - mean_gap, (best + mean_gap)[:, 0]


def mean_field(
    law,
    step_size,
    *,
    weight_scale=1 / 3,
    horizon=math.inf,
    until=None,
    finite_size=True,
    largest_move=0.05,
    at_most=20_000,
) -> MeanField:
    """Integrate the equations above from zero scores by fourth-order Runge-Kutta steps of varying length.

    Args:
        law: the data law; `flipped_share(law)` is the weight of the flipped kind.
        step_size: alpha > 0; time is counted in gradient steps.
        weight_scale: sigma_w^2 d > 0. The start is p_0 = 0.
        horizon: last time, > 0. until: stop at the first moment, with one value of each attribute of a path, for which it is true. One of
            the two must end the path.
        finite_size: the prediction, with the growth of |p| (True), or the limit d -> infinity (False).
        largest_move: the most that any score moves in one step of the integrator.
        at_most: most steps of the integrator.

    Raises RuntimeError if the path is not over after `at_most` steps.
    """
    m = weight_scale
    own_norm = law.noise_std**2 * law.d
    head = law.head_norm * law.signal_norm
    both = law.signal_share().numpy()
    share = both.sum(-1)  # a_t
    value = (both[:, 0] - both[:, 1]) / math.sqrt(2)
    values = np.stack([value, -value])
    eta = flipped_share(law)
    kinds = np.array([1 - eta, eta])
    half_r = law.n * law.snr**2 / 2
    speed = step_size * own_norm * head / law.n

    def state(own):
        """Signal score and |p|^2 in the coordinates that carry no factor sqrt(lambda), and lambda."""
        signal = half_r * float(kinds @ (own @ share))
        norm = law.n * float(kinds @ (own**2).sum(-1)) / own_norm + 2 * (signal / law.signal_norm) ** 2
        return signal, norm, m + norm if finite_size else m

    def rate(own):
        signal, norm, lam = state(own)
        scores = math.sqrt(lam) * (own + signal * share)
        attention, gap, mean = _softmax_parts(scores, values)
        force = attention * gap / (1 + np.exp(head * mean))[:, None]
        return speed * math.sqrt(lam) * force, (signal, norm, lam, scores, attention, mean)

    own, time, path = np.zeros((2, law.tokens)), 0.0, []
    for _ in range(at_most):
        first, (signal, norm, lam, scores, attention, mean) = rate(own)
        moment = SimpleNamespace(
            time=time,
            scores=scores,
            attention=attention,
            margins=head * mean,
            signal_score=math.sqrt(lam) * signal,
            score_variance=law.noise_std**2 * (lam + m) * norm,
            prompt_norm_squared=norm,
        )
        path.append(moment)
        if time >= horizon or (until is not None and until(moment)):
            break
        moved = math.sqrt(lam) * np.abs(first + half_r * float(kinds @ (first @ share)) * share).max()
        if not moved > 0:
            raise RuntimeError(
                f"the forces underflow at time {time:g}: the event in `until` never happens for these parameters"
            )
        step = min(largest_move / moved, horizon - time)
        second = rate(own + step / 2 * first)[0]
        third = rate(own + step / 2 * second)[0]
        fourth = rate(own + step * third)[0]
        own = own + step / 6 * (first + 2 * second + 2 * third + fourth)
        time += step
    else:
        raise RuntimeError(
            f"the path is not over after at_most = {at_most} steps (time {time:g}): raise it, or ask for less"
        )
    return MeanField(**{name: np.array([getattr(moment, name) for moment in path]) for name in vars(path[0])})
