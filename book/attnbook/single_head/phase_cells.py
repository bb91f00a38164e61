r"""Two steps from zero in many settings at once, on one training set, or on one in several dimensions.

The closed forms of `two_steps` need the noise tokens only through products $\Xi(\Xi^\top C)$ with one column of coefficients per setting.
"""

from types import SimpleNamespace

import torch

from attnlib.single_head.errors import FreshScores


def two_step_cells(noise, classes, uniforms, signal_norm, label_noise, step_size, diagonal=None):
    r"""Two steps from zero for K settings on one training set, by the closed forms of `two_steps` in coefficient space.

    Args:
        noise: (n, m) float64, noise tokens in any orthonormal coordinates; only inner products are used.
        classes: (n,) whole numbers, 0 holds mu_1, 1 holds mu_2.
        uniforms: (n,) in [0, 1); label i is flipped in a cell where uniforms[i] < label_noise.
        signal_norm, label_noise, step_size: (K,), one entry per cell.
        diagonal: (min(n, m), K), added to that of `noise`: Bartlett's matrices of two dimensions above n differ there only.

    Returns a namespace, all (K,): the training accuracy after one step and after two, the smallest margin after two (positive: every label
    is fitted), `preference`, the fraction of clean samples that prefer their signal after one step (mean over the two classes), the mean
    weight on the signal after two of clean and of flipped samples (nan without such samples), `p_signal`, the mean of p_2 . mu_k over the
    two classes; and `fresh`, the law of the scores of fresh data, tensors (K, 2).

    Works with the noise itself, not with its Gram matrix: norms of $\Pi v$ and $\Pi p$ are then exact also when n exceeds d.
    """
    n, q = len(noise), min(noise.shape)
    if diagonal is None:
        diagonal = noise.new_zeros(q, len(signal_norm))
    true = 1.0 - 2.0 * classes.to(noise.dtype)
    flipped = uniforms[:, None] < label_noise  # (n, K)
    y = torch.where(flipped, -true[:, None], true[:, None])
    of_class = torch.stack([classes == 0, classes == 1]).to(noise.dtype)  # (2, n)
    unit, rho2 = step_size / (4 * n), signal_norm**2

    def per_sample(of_signals):  # (2, K) -> (n, K), by the sample's class
        return of_signals[classes]

    def at_noise(vector):  # (m, K) -> (n, K), products with the noise tokens
        found = noise @ vector
        found[:q] += diagonal * vector[:q]
        return found

    def combined(coefficients):  # (n, K) -> (m, K), sum of the noise tokens
        found = noise.mT @ coefficients
        found[:q] += diagonal * coefficients[:q]
        return found

    v1_signal = unit * rho2 * (of_class @ y)  # (2, K), v_1 . mu_k
    v1_noise = unit * at_noise(combined(y))  # (n, K), v_1 . xi_i
    at_signal = per_sample(v1_signal)
    margins1 = y * (at_signal + v1_noise) / 2
    preference = y * (at_signal - v1_noise)
    slopes = torch.sigmoid(-margins1)
    v_coefficients = unit * (1 + 2 * slopes) * y
    p_coefficients = unit * slopes * preference  # of u_i; that of xi_i is the negative
    v_signal, p_signal = rho2 * (of_class @ v_coefficients), rho2 * (of_class @ p_coefficients)
    v_noise, p_noise = combined(v_coefficients), -combined(p_coefficients)  # (m, K)
    attention = torch.sigmoid(per_sample(p_signal) - at_noise(p_noise))
    margins2 = y * (attention * per_sample(v_signal) + (1 - attention) * at_noise(v_noise))

    # Scaled first: on fitted samples g_i may be 1e-175, and the squares in a norm would vanish.
    largest = p_noise.abs().amax(dim=0)
    direction = p_noise / largest.clamp_min(torch.finfo(noise.dtype).tiny)
    length = direction.norm(dim=0)
    omega, direction = largest * length, direction / length.clamp_min(0.5)  # length >= 1, or 0 where p_2 = 0
    along = (v_noise * direction).sum(0)
    tau = (v_noise - along * direction).norm(dim=0)  # the residual's norm: no cancellation, never negative
    sign = torch.tensor([1.0, -1.0], dtype=noise.dtype, device=noise.device)
    two = torch.ones_like(sign)
    clean = (~flipped).to(noise.dtype)
    of_clean_class = of_class @ clean  # (2, K), |C_k|
    prefers = (of_class @ ((preference > 0) * clean)) / of_clean_class
    return SimpleNamespace(
        train_accuracy_step1=(margins1 > 0).to(noise.dtype).mean(0),
        train_accuracy=(margins2 > 0).to(noise.dtype).mean(0),
        smallest_margin=margins2.amin(0),
        preference=prefers.nanmean(0),
        attention_clean=(attention * clean).sum(0) / clean.sum(0),
        attention_noisy=(attention * flipped).sum(0) / flipped.sum(0),
        p_signal=p_signal.mean(0),
        fresh=FreshScores(
            logit=p_signal.mT,
            value=sign * v_signal.mT,
            omega=omega[:, None] * two,
            along=sign * along[:, None],
            tau=tau[:, None] * two,
        ),
    )
