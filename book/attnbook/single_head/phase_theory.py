r"""Theory lines of the phase diagrams.

With expected label counts the mean-field state tells, for every setting: whether flipped labels are fitted after two steps (their
margin), and
how strong the signal is for a fresh point at typical attention, $S = e^{p_2\cdot\mu} V / |\Pi v_2|$; $S = 1$ separates a small error
from one near 1/2. For $\kappa \to 0$, $S = \tfrac12(1-2\eta)\,\mathrm{SNR}^2\sqrt{nd}$: the lower limit is of order
$(nd)^{-1/4}$. For large SNR or step size $p_2\cdot\mu < 0$ and $S$ falls again: the upper limit. Source: derived.
"""

import math

import numpy as np
import torch

from attnbook.single_head.mean_field import mean_field
from attnlib.single_head.law import SignalNoiseLaw


def preference_threshold(n, label_noise):
    r"""SNR at which clean samples begin to prefer their signal, $\kappa = 1$: $n\,\mathrm{SNR}^2 = 2/(1-2\eta)$."""
    return math.sqrt(2 / (n * (1 - 2 * label_noise)))


def lower_snr_limit(n, d, label_noise):
    r"""SNR below which two steps learn nothing useful: $\mathrm{SNR}^2\sqrt{nd}\,(1-2\eta)/2 = 1$, the order $(nd)^{-1/4}$."""
    return math.sqrt(2 / ((1 - 2 * label_noise) * math.sqrt(n * d)))


def preference_spread(n, d, label_noise):
    r"""Standard deviation of the log SNR at which one clean sample changes its preference, to leading order in n.

    $$ \tfrac12\sqrt{\frac{2 - (1-2\eta)^2}{n(1-2\eta)^2} + \frac{n+1}{d}}: $$

    the first term is the spread of $|C_k| - |N_k|$ (its variance is $\tfrac n2 - \tfrac n4(1-2\eta)^2$), the second that of the noise score
    $y_i v_1\cdot\xi_i/a$.
    """
    signal = (1 - 2 * label_noise) ** 2
    return 0.5 * math.sqrt((2 - signal) / (n * signal) + (n + 1) / d)


def log_slope(x, y):
    """Slope of the straight line through (log x, y) by least squares; x (points,), y (points, ...)."""
    log_x = np.log(x)
    centred = log_x - log_x.mean()
    return np.tensordot(centred, y, 1) / (centred**2).sum()


def mean_field_readings(plan):
    """Mean field with expected label counts in every cell: margin of flipped samples after two steps, and log S. Both (rows, columns).

    Where there is no label noise the margin is that of the clean samples.
    """
    margin, strength = np.empty(plan.shape), np.empty(plan.shape)
    half = torch.full((1, 2), 0.5, dtype=torch.float64)
    for cell in np.ndindex(*plan.shape):
        n, d, eta = int(plan.n[cell]), int(plan.d[cell]), float(plan.label_noise[cell])
        rho, beta = float(plan.signal_norm[cell]), float(plan.step_size[cell])
        f = mean_field(SignalNoiseLaw(n, d, rho), beta, (1 - eta) * n * half, eta * n * half)
        boost = (1 - eta) * (1 + 2 * f.slope_clean) ** 2 + eta * (1 + 2 * f.slope_noisy) ** 2
        v_noise = beta / (4 * n) * math.sqrt(n * d) * boost[0, 0].sqrt().item()  # |Pi v_2|
        margin[cell] = (f.margin2_noisy if eta else f.margin2_clean)[0, 0].item()
        value = f.v_signal[0, 0].item()
        strength[cell] = f.p_signal[0, 0].item() + math.log(value / v_noise) if value > 0 else -math.inf
    return margin, strength
