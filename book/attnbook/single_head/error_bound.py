"""A closed-form bound on the clean error of one trained head with two tokens."""

import math

import torch

from attnlib.single_head.errors import FreshScores


def log10_error_bound(s: FreshScores) -> torch.Tensor:
    r"""Closed-form upper bound on log10 err_k, (R, 2); nan where V_k <= 0 (then err_k >= 1/2 and no such bound exists).

    $$ \mathrm{err}_k \le \tfrac12 e^{-T^2/2\omega^2} + \tfrac12 \exp\!\left(-\frac{e^{2(p\cdot\mu_k - T)} V_k^2}{2|\Pi v|^2}\right)
       = e^{-E} \quad\text{at the cut } T \text{ where both exponents equal } E. $$

    s: what fresh data see of the trained head, as `scores_of_fresh_data` gives it. Derived in the theory chapter (claim C15).
    """
    omega = s.omega.clamp_min(1e-150)
    log_ratio = s.logit + torch.log(s.value) - 0.5 * torch.log(s.along**2 + s.tau**2)  # log of e^{p.mu} V / |Pi v|
    low, high = torch.zeros_like(omega), torch.ones_like(omega)
    # T / omega grows and e^{log_ratio - T} falls: double, then bisect.
    for _ in range(1100):
        short = torch.log(high / omega) < log_ratio - high
        if not short.any():
            break
        low, high = torch.where(short, high, low), torch.where(short, 2 * high, high)
    for _ in range(80):
        middle = (low + high) / 2
        short = torch.log(middle / omega) < log_ratio - middle
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return -torch.exp(2 * (log_ratio - (low + high) / 2)) / 2 / math.log(10.0)
