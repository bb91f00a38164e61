r"""Where the exact risk of two-number heads is smallest, and how flat it is there.

For given omega the risk is quadratic in mu, so the best mu is A^{-1} b (`best_mu`) and only omega is searched. All searches look at draws
of the role "search"; the risks that are reported come from the role "test", so no value is the one that was optimised.

A pair is compared with what it is for omega -> 0, debiased gradient descent: `closed_form.debiased_gd_optimal_risk`, and the first term
beyond it, `closed_form.opposite_pair_curvature`, which at the best step is negative: a pair of finite omega is better.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch

from attnbook.in_context.closed_form import debiased_gd_optimal_risk
from attnbook.in_context.reduced import ReducedMoments, line_moments, mean_and_error, reduced_moments, reduced_risk
from attnlib.in_context.law import RegressionLaw

_FINE = 9  # omegas of a local search
_SEARCH_PROMPTS = 40_000


@dataclass(frozen=True)
class Optimum:
    """A minimum in one omega, with jackknife standard errors over the batches of prompts. Risks in the law's units."""

    omega: float  # of the head, or of the pair's positive head
    mu: float  # of the same head
    risk: float
    omega_error: float
    mu_error: float
    risk_error: float
    heads: int  # 1 or 2

    @property
    def effective_step(self) -> float:
        """Sum over heads of omega mu."""
        return self.heads * self.omega * self.mu


@dataclass(frozen=True)
class Valley:
    """The pair (omega, -omega, mu, -mu) at its best mu, along omega. All (P,), float64; risks in the law's units."""

    omega: torch.Tensor
    mu: torch.Tensor
    risk: torch.Tensor
    risk_error: torch.Tensor
    excess: torch.Tensor  # risk minus that of the best debiased gradient step
    lowest: torch.Tensor  # risk minus the smallest risk along the valley
    lowest_error: torch.Tensor  # of that difference, on shared draws

    @property
    def effective_step(self) -> torch.Tensor:
        """(P,): 2 omega mu."""
        return 2 * self.omega * self.mu


@dataclass(frozen=True)
class FreeOptimum:
    """The best of H heads with free (omega_h, mu_h): heads sorted by |omega|, the first omega positive."""

    omega: tuple[float, ...]
    mu: tuple[float, ...]
    risk: float
    risk_error: float

    @property
    def effective_step(self) -> float:
        return sum(w * m for w, m in zip(self.omega, self.mu, strict=True))


def best_mu(moments: ReducedMoments) -> torch.Tensor:
    """The mu (K,) that minimises the risk at these omegas: A mu = b, scaled to a unit diagonal.

    Directions of A below 1e-11 of the largest (two heads of one omega, say) are left out: of all equally good mu the shortest.
    """
    return _solve(moments.overlap.mean(0), moments.gain.mean(0))


def one_head_optimum(law: RegressionLaw, *, prompts=_SEARCH_PROMPTS, seed=0) -> Optimum:
    """The best single head (omega > 0; the mirror image (-omega, -mu) is as good). Isotropic laws, two examples or more."""
    return _line_search(law, 1, prompts, seed)


def pair_optimum(law: RegressionLaw, *, prompts=_SEARCH_PROMPTS, seed=0) -> Optimum:
    """The best pair (omega, -omega, mu, -mu), omega > 0. Isotropic laws, two examples or more."""
    return _line_search(law, 2, prompts, seed)


def pair_valley(law: RegressionLaw, omega, *, prompts=_SEARCH_PROMPTS, seed=0) -> Valley:
    """Risk of a pair with its best mu at each omega (P,), omega > 0; mu from the search draws, risk from the test draws."""
    omega = torch.as_tensor(omega, dtype=torch.float64)
    gain, overlap = line_moments(omega, law, pair=True, prompts=prompts, seed=seed, role="search")
    mu = gain.mean(0) / overlap.mean(0)
    gain, overlap = line_moments(omega, law, pair=True, prompts=prompts, seed=seed)
    risks = _risk(law, gain, overlap, mu)
    risk, error = mean_and_error(risks)
    lowest = int(risk.argmin())
    below, below_error = mean_and_error(risks - risks[:, lowest, None])
    best = float(debiased_gd_optimal_risk(law))
    return Valley(omega, mu, risk, error, risk - best, below, below_error)


def risk_landscape(law: RegressionLaw, omega, mu, *, pair=False, prompts=10_000, seed=0):
    """Risk on a grid of omega (P,) and mu (Q,): value and standard error, both (P, Q). One head, or the pair with both signs."""
    omega, mu = (torch.as_tensor(values, dtype=torch.float64) for values in (omega, mu))
    gain, overlap = line_moments(omega, law, pair=pair, prompts=prompts, seed=seed)
    return mean_and_error(_risk(law, gain[..., None], overlap[..., None], mu))


def _risk(law, gain, overlap, mu):
    """Risks of `line_moments` at mu."""
    return law.d * law.beta_std**2 - 2 * mu * gain + mu**2 * overlap


def free_optimum(law: RegressionLaw, heads, *, prompts=3000, evaluations=80, seed=0) -> FreeOptimum:
    """The best risk of 1 to 4 heads with free omega_h and mu_h, |omega_h| in [0.07, 3] in units of sqrt(5/d).

    A grid of 12 sizes, both signs, is searched over all combinations of heads (one call of moments serves them all), then the best is
    refined by Nelder-Mead. Without the lower limit small heads run together with ever larger opposite mu along the valley.
    """
    from scipy.optimize import minimize

    low, high = (limit * math.sqrt(5 / law.d) for limit in (0.07, 3.0))
    sizes = torch.as_tensor(np.geomspace(low, high, 12))
    grid = torch.cat((sizes, -sizes))

    def moments_of(omega):
        return reduced_moments(omega, law, prompts=prompts, seed=seed, role="search")

    start = grid[_best_combination(moments_of(grid), heads)]

    def profile(omega):
        moments = moments_of(omega)
        return moments.zero_risk - float(best_mu(moments) @ moments.gain.mean(0))

    omega = start.numpy()
    bounds = [(low, high) if w > 0 else (-high, -low) for w in omega]
    options = {"xatol": 1e-3, "fatol": 1e-6 * law.d, "maxfev": evaluations}
    # Simplex: a tenth of each omega, inwards where that would leave the limits.
    simplex = [omega] + [
        np.where(np.arange(heads) == h, omega * (0.9 if abs(omega[h]) * 1.1 > high else 1.1), omega)
        for h in range(heads)
    ]
    found = minimize(
        profile, omega, method="Nelder-Mead", bounds=bounds, options=options | {"initial_simplex": simplex}
    )
    omega = _one_of_two_images(found.x)
    mu = best_mu(moments_of(omega))
    risk, error = reduced_risk(omega, mu, law, prompts=4 * prompts, seed=seed)
    return FreeOptimum(tuple(omega.tolist()), tuple(mu.tolist()), risk.item(), error.item())


def _one_of_two_images(omega):
    """Heads by |omega|; of the mirror images omega and -omega, which are equally good, the one whose first head is positive.

    Which of them a search finds is decided by a last bit. Where the first heads are a pair, the next decides.
    """
    images = (image[np.lexsort((-image, np.abs(image)))] for image in (omega, -omega))
    return max(images, key=tuple)


def _best_combination(moments, heads):
    gain, overlap = moments.gain.mean(0), moments.overlap.mean(0)
    best, chosen = torch.tensor(-math.inf), torch.empty(0, dtype=torch.int64)
    for part in torch.tensor(list(itertools.combinations(range(len(gain)), heads))).split(20_000):
        b, a = gain[part], overlap[part[:, :, None], part[:, None, :]]
        removed = (_solve(a, b) * b).sum(-1)  # zero risk - risk
        if removed.max() > best:
            best, chosen = removed.max(), part[removed.argmax()]
    return chosen.tolist()


def _solve(overlap, gain):
    scale = overlap.diagonal(dim1=-2, dim2=-1).sqrt()
    unit = overlap / (scale[..., :, None] * scale[..., None, :])
    values = torch.linalg.pinv(unit, rtol=1e-11, hermitian=True) @ (gain / scale)[..., None]
    return values[..., 0] / scale


def _line_search(law, heads, prompts, seed):
    """Best omega of a head or a pair: a coarse grid, then a polynomial through nine close omegas."""
    draws = {"pair": heads == 2, "seed": seed, "role": "search"}
    coarse = torch.as_tensor(np.geomspace(0.01, 6.0, 27)) / math.sqrt(law.d / 5)
    gain, overlap = line_moments(coarse, law, prompts=max(prompts // 5, 200), **draws)
    at = int((gain.mean(0) ** 2 / overlap.mean(0)).argmax())
    centre, width = coarse[at].item(), 1.3
    for _ in range(8):
        fine = centre * torch.as_tensor(np.geomspace(1 / width, width, _FINE))
        gain, overlap = line_moments(fine, law, prompts=prompts, **draws)
        omega, mu = _vertex(fine, gain.mean(0), overlap.mean(0))
        if fine[1] < omega < fine[-2]:
            break
        centre = omega
    else:
        raise RuntimeError(f"no minimum found near omega = {omega:.3g} for {law!r}: raise prompts")
    batches = gain.shape[0]
    left = [
        _vertex(fine, *((part.sum(0) - part[k]) / (batches - 1) for part in (gain, overlap))) for k in range(batches)
    ]
    spread = torch.tensor(left, dtype=torch.float64)
    errors = ((spread - spread.mean(0)) ** 2).sum(0).mul((batches - 1) / batches).sqrt()
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)[:heads]
    risk, risk_error = reduced_risk(omega * signs, mu * signs, law, prompts=2 * prompts, seed=seed)
    return Optimum(omega, mu, risk.item(), errors[0].item(), errors[1].item(), risk_error.item(), heads)


def _vertex(omega, gain, overlap):
    """Minimum of the risk at the best mu = gain / overlap, between the given omegas: polynomials of degree 4 and 2 in log omega."""
    log = np.log(omega.numpy())
    middle = log.mean()
    removed = np.polynomial.Polynomial.fit(log - middle, (gain**2 / overlap).numpy(), 4)
    fine = np.linspace(log[0], log[-1], 2001) - middle
    place = int(removed(fine).argmax())
    if 0 < place < len(fine) - 1:
        # Newton on the polynomial: the grid's best is within half a step of the root of the slope.
        slope, curve = removed.deriv(1), removed.deriv(2)
        best = fine[place] - slope(fine[place]) / curve(fine[place])
    else:
        best = fine[place]
    mu = np.polynomial.Polynomial.fit(log - middle, (gain / overlap).numpy(), 3)(best)
    return math.exp(best + middle), float(mu)
