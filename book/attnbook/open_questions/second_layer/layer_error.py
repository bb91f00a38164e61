r"""Clean error of two layers on fresh data: sampled for any W, exact while W = 0.

With W = 0 the second layer reads $Y_u = au + b\xi$ and $Y_\xi = cu + e\xi$. Given $p\cdot\xi = \omega t$, $t \sim N(0,1)$, its
weight on $Y_u$ is $w = \sigma((a-c)\,p\cdot\mu_k - (e-b)\,\omega t)$ and the output is Gaussian:

$$ \mathrm{err}_k = E_t\,\Phi\!\left(-\frac1{\tau}\left[\frac{wa + (1-w)c}{wb + (1-w)e}\,V_k + c_kt\right]\right), $$

$V_k, c_k, \tau$ as for the single head (`single_head.population`). Where the noise phase is complete (w = 0) and v is the maximum-margin
vector of the tokens $Y_\xi$, orthogonal noise gives the limit `noise_phase_error`. Source: derived here.
"""

import math

import torch

from attnbook.open_questions.second_layer.layers import Architecture, LayersTrajectory, layer_outputs
from attnlib import checks
from attnlib.randomness import stream
from attnlib.single_head.law import Sample
from attnlib.single_head.population import Estimate, scores_of_fresh_data

_REACH, _POINTS = 60.0, 6001  # standard deviations and points of the trapezoid rule: errors down to 10^-700


def sampled_error_of_layers(path: LayersTrajectory, sample: Sample, count: int) -> Estimate:
    """Clean error at every recorded step: the model run on `count` fresh points of every run, (S, R) with standard errors.

    The same points serve all steps of a run. A zero output is half an error. Raises ValueError for a bad count.
    """
    checks.whole_number("count", count, at_least=2)
    value, error = (path.v.new_zeros(len(path.steps), sample.runs) for _ in range(2))
    for r in range(sample.runs):
        one = sample.run(r)
        tokens, labels = sample.law.fresh_block(one, count, stream(sample.seed, "test", one.first_run))
        for row in range(len(path.steps)):
            state = (part[row, r : r + 1] for part in (path.v, path.p, path.W))
            margin = labels * layer_outputs(tokens, *state, path.architecture)[0]
            wrong = (margin < 0).to(margin.dtype) + 0.5 * (margin == 0).to(margin.dtype)
            value[row, r], error[row, r] = wrong.mean(), wrong.std() / math.sqrt(count)
    return Estimate(value, error)


def log10_error_of_mixed_tokens(
    v: torch.Tensor, p: torch.Tensor, sample: Sample, architecture: Architecture
) -> torch.Tensor:
    """Exact log10 of the clean error (R,) of a head v, p (R, m) on the tokens that the architecture makes at W = 0.

    Trapezoid rule in log space. Raises ValueError for more than two tokens or a head of another shape.
    """
    if sample.law.tokens != 2:
        raise ValueError(
            f"tokens must be 2 for the exact formula; got {sample.law.tokens}: use sampled_error_of_layers"
        )
    (a, b), (c, e) = architecture.start
    s = scores_of_fresh_data(v, p, sample)
    t = torch.linspace(-_REACH, _REACH, _POINTS, dtype=v.dtype)
    logit, value, omega, along, tau = (part.unsqueeze(-1) for part in vars(s).values())
    gap = (a - c) * logit - (e - b) * omega * t
    w, rest = torch.sigmoid(gap), torch.sigmoid(-gap)
    ratio = (w * a + rest * c) / (w * b + rest * e).clamp_min(1e-300)
    height = (ratio * value + along * t) / tau.clamp_min(1e-300)
    log_terms = torch.special.log_ndtr(-height) - t**2 / 2
    log_error = torch.logsumexp(log_terms, -1) + math.log(t[1] - t[0]) - 0.5 * math.log(2 * math.pi)
    prior = torch.tensor([sample.law.class_probability, 1 - sample.law.class_probability], dtype=v.dtype)
    return torch.logsumexp(log_error + prior.log(), -1) / math.log(10)


def noise_phase_error(architecture: Architecture, n: int, d: int, signal_norm: float, label_noise: float) -> float:
    r"""Clean error of the maximum-margin head that reads $Y_\xi = cu + e\xi$ everywhere, orthogonal noise, expected counts.

    With $x = \rho^2n/2d$ and $z = c^2x(1-2\eta)/(e^2+c^2x)$ it is
    $\Phi\!\left(-z\sqrt{d/n}\,/\sqrt{(1-\eta)(1-z)^2+\eta(1+z)^2}\right)$: 1/2 for c = 0, and small as d/n grows for c > 0.

    Proof. $v = \lambda(\mu_1-\mu_2)+\sum y_i\theta_i\xi_i$ with margins 1: $e\theta d = 1 \mp c\lambda\rho^2$ (clean, flipped). Minimise
    $|v|^2$ over $z = c\lambda\rho^2$; a fresh output is $z + e\,v\cdot\xi$.
    """
    (_, _), (c, e) = architecture.start
    x = checks.positive_number("signal_norm", signal_norm) ** 2 * n / (2 * d)
    eta = checks.probability("label_noise", label_noise, high=0.5)
    z = c**2 * x * (1 - 2 * eta) / (e**2 + c**2 * x)
    spread = math.sqrt((1 - eta) * (1 - z) ** 2 + eta * (1 + z) ** 2)
    return 0.5 * math.erfc(z * math.sqrt(d / n) / spread / math.sqrt(2))
