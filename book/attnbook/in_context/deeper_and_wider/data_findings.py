r"""What the claims about other data look at: covariates that are correlated or have a mean, noise, and the distance from Bayes.

All of it is derived in the theory chapter of Part III, unless said.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch

from attnbook.in_context import closed_form
from attnbook.in_context.deeper_and_wider.risk import risk_beside_linear
from attnbook.in_context.deeper_and_wider.study import Trained, WiderSetting, obtain, specs
from attnbook.in_context.estimators import bayes_risk, kernel_weights
from attnlib import checks
from attnlib.in_context.law import RegressionLaw, toeplitz_covariance
from attnlib.in_context.risk import conditional_risk

# One matrix of small-scale heads, and its offset


@dataclass(frozen=True)
class MapFinding:
    """Two-number claims about R trainings on covariates N(m, Sigma), beside the best small-scale heads."""

    trained: Trained
    gamma: np.ndarray  # (d, d): best map
    offset: float  # best a
    best: float  # their risk
    scalar_step: float  # risk of the best gradient step with one number for a step
    preconditioned: float  # risk of the best gradient step with a matrix, not centred
    centred: float  # risk of the best centred step with a matrix, no offset
    risk: torch.Tensor  # (R,) of the trained model
    risk_se: torch.Tensor

    @property
    def found_map(self) -> torch.Tensor:
        """(R, d, d): sum over heads of mu_h M_h^T at the end."""
        return self.trained.maps()[:, -1, 0]

    @property
    def found_offset(self) -> torch.Tensor:
        """(R,): sum over heads of mu_h at the end."""
        return self.trained.circuits().mu[:, -1].sum(-1)

    def eigenvalues(self) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
        """Along the eigenvectors of Sigma, ascending: Sigma's eigenvalues (d,), Gamma's diagonal (d,) and the trained map's (R, d)."""
        values, vectors = np.linalg.eigh(self.trained.spec.law.covariance_matrix.numpy())
        turn = torch.as_tensor(vectors)
        along = torch.einsum("ij,rik,kj->rj", turn, self.found_map, turn)
        return values, np.einsum("ij,ik,kj->j", vectors, self.gamma, vectors), along

    def head_cosines(self, reference: np.ndarray) -> torch.Tensor:
        """(R, H): |cosine| between each head's M_h and a matrix, in the Frobenius product."""
        blocks = self.trained.circuits().covariate_block[:, -1]
        other = torch.as_tensor(np.asarray(reference, dtype=np.float64))
        return (blocks * other).sum((-2, -1)).abs() / (blocks.square().sum((-2, -1)).sqrt() * other.norm())


def _map_finding(trained: Trained, prompts: int, seed: int) -> MapFinding:
    law = trained.spec.law
    gamma, offset, best = closed_form.best_centred_heads(law)
    offset, best = float(offset), float(best)
    risk, error = risk_beside_linear(trained.stack(), law, gamma, offset=offset, prompts=prompts, seed=seed)
    plain = closed_form.best_preconditioner(law)
    centred = closed_form.best_preconditioner(law, centred=True)
    return MapFinding(
        trained, gamma, offset, best, float(closed_form.gd_optimal_risk(law)),
        float(closed_form.preconditioned_gd_risk(law, plain)),
        float(closed_form.preconditioned_gd_risk(law, centred, centred=True)), risk, error,
    )  # fmt: skip


# Noise and the Bayes factor


@dataclass(frozen=True)
class NoiseFinding:
    """Along sigma^2, repository's convention: risks (K,), without the target's noise."""

    sigma2: np.ndarray
    law: RegressionLaw  # at the first sigma^2
    step: np.ndarray  # best centred step, closed form
    pair: torch.Tensor  # a pair of heads at omega = 0.1, conditional Monte Carlo beside the step
    pair_se: torch.Tensor
    bayes: torch.Tensor  # ridge with penalty s2
    bayes_se: torch.Tensor
    prompts: int

    @property
    def factor_se(self) -> torch.Tensor:
        """(K,): standard error of `factor`, the two taken as independent."""
        return self.factor * ((self.pair_se / self.pair) ** 2 + (self.bayes_se / self.bayes) ** 2).sqrt()

    @property
    def factor(self) -> torch.Tensor:
        """(K,): risk of the pair over the Bayes risk."""
        return self.pair / self.bayes


def bayes_factor(
    law: RegressionLaw, sigma2: np.ndarray, *, omega: float = 0.1, prompts: int = 4000, seed: int = 0
) -> NoiseFinding:
    """The pair (omega, -omega) with the best effective step of the centred gradient, and ridge, at every noise.

    Regression vector and label noise are integrated by hand, and the pair is measured beside the centred step, whose risk is known.
    Raises ValueError for covariates that are not N(0, I).
    """
    if not law.isotropic:
        raise ValueError(f"law must have covariates N(0, I) for the pair's step to be the best; got {law!r}")
    checks.positive_number("omega", omega)
    drawn = law.draw(prompts, seed)
    rows = []
    for value in sigma2:
        noisy = replace(law, noise_std=float(value) ** 0.5)
        eta = float(closed_form.debiased_gd_optimal_step(noisy))
        mu = eta / (2 * omega)
        pair = conditional_risk(kernel_weights(drawn, [omega, -omega], [mu, -mu]), drawn, noisy)
        # A pair of vanishing omega is the centred step; the difference has a small variance.
        faint = conditional_risk(kernel_weights(drawn, [1e-4, -1e-4], [5e3 * eta, -5e3 * eta]), drawn, noisy)
        step = float(closed_form.debiased_gd_optimal_risk(noisy))
        ideal = bayes_risk(drawn.x, noisy)
        rows.append(
            [
                step,
                step + (pair - faint).mean(),
                (pair - faint).std() / prompts**0.5,
                ideal.mean(),
                ideal.std() / prompts**0.5,
            ]
        )
    table = torch.tensor(rows, dtype=torch.float64).T
    return NoiseFinding(np.asarray(sigma2, dtype=np.float64), law, table[0].numpy(), *table[1:], prompts)


@dataclass(frozen=True)
class LoadFinding:
    """Ridge at C pairs of load d / L and noise, d fixed: Bayes risks in units of s_beta^2 (C,), and what the theory says of them."""

    d: int
    length: np.ndarray
    sigma2: np.ndarray
    bayes: torch.Tensor
    bayes_se: torch.Tensor
    low: torch.Tensor  # B(L + 1)
    high: torch.Tensor  # B(L - 1)
    factor: torch.Tensor  # exact risk of the best centred step over `bayes`
    limit: torch.Tensor  # its limit at this load
    many: torch.Tensor  # its limit for many examples, 1 + 1 / sigma^2
    draws: int


def load_finding(
    d: int, loads: tuple[float, ...], sigma2: tuple[float, ...], *, draws: int = 400, seed: int = 0
) -> LoadFinding:
    """Ridge sampled on `draws` sets of examples for each pair; the query is integrated by hand."""
    rows = []
    for number, (load, noise) in enumerate(itertools.product(loads, sigma2)):
        law = RegressionLaw(d, max(1, round(d / load)), noise**0.5)
        risks = torch.cat([bayes_risk(law.draw(draws // 10, seed, run=10 * number + k).x, law) for k in range(10)])
        low, high = closed_form.bayes_risk_bounds(law)
        limit = closed_form.bayes_factor_proportional(d / law.length, noise)
        step = closed_form.debiased_gd_optimal_risk(law)
        mean, error = risks.mean().item(), risks.std().item() / len(risks) ** 0.5
        rows.append([law.length, noise, mean, error, low, high, step / mean, limit, 1 + 1 / noise])
    table = torch.tensor(rows, dtype=torch.float64).T
    return LoadFinding(d, table[0].numpy(), table[1].numpy(), *table[2:], draws)


@dataclass(frozen=True)
class ScaleFinding:
    """What a pair of finite scale adds to the centred step that it tends to, over omega^2, covariates N(m, Sigma): (batches,) each."""

    short: torch.Tensor  # the best matrix times 0.3
    best: torch.Tensor  # the best matrix
    predicted: tuple[float, float]  # kappa for both
    isotropic: tuple[float, float]  # kappa for N(0, I) and the best step there, as a control


def scale_finding(law: RegressionLaw, *, seed: int = 0) -> ScaleFinding:
    """Heads +-omega N, +-1/(2 omega): conditional risks minus those of the step with the same matrix, on the same prompts."""
    plain = RegressionLaw(law.d, law.length, law.noise_std, law.convention)
    omega, measured, predicted, isotropic = 0.02, [], [], []
    for factor in (0.3, 1.0):
        N = factor * closed_form.best_preconditioner(law, centred=True)
        values = []
        for run in range(40):
            drawn = law.draw(2500, seed, run=run)
            scores = torch.einsum("bld,de,be->bl", drawn.x, torch.as_tensor(N), drawn.query)
            pair = (torch.softmax(omega * scores, -1) - torch.softmax(-omega * scores, -1)) / (2 * omega)
            step = (scores - scores.mean(-1, keepdim=True)) / law.length
            values.append((conditional_risk(pair, drawn, law) - conditional_risk(step, drawn, law)).mean() / omega**2)
        measured.append(torch.stack(values))
        predicted.append(float(closed_form.opposite_pair_curvature(law, 1.0, matrix=N)))
        G = factor * closed_form.best_preconditioner(plain, centred=True)
        isotropic.append(float(closed_form.opposite_pair_curvature(plain, 1.0, matrix=G)))
    return ScaleFinding(*measured, (predicted[0], predicted[1]), (isotropic[0], isotropic[1]))


# Everything


@dataclass(frozen=True)
class DataStudy:
    """Everything the claims look at."""

    setting: WiderSetting
    anisotropic: MapFinding
    mean: MapFinding
    noise: NoiseFinding  # many sigma^2 at d / L = 0.2
    large: NoiseFinding  # d = 100, L = 500, sigma^2 = 3: near the proportional limit
    seed_noise: NoiseFinding  # at the page's own noise
    small_loads: LoadFinding  # d = 6
    loads: LoadFinding  # d = 60
    scale: ScaleFinding  # covariates with the page's rho and mean


@checks.checked
def data_study(setting: WiderSetting, *, prompts: int = 6000, progress: bool = False) -> DataStudy:
    """Collect: trainings from the table where they are there, everything else measured now on `prompts` held-out prompts."""
    s = setting
    law = RegressionLaw(s.d, s.length, s.noise_std)
    repository = RegressionLaw(s.d, 5 * s.d, 0.0, "repository")
    wanted = specs(s)
    return DataStudy(
        s,
        *(_map_finding(obtain(wanted[name], progress=progress), prompts, s.seed) for name in ("anisotropic", "mean")),
        bayes_factor(repository, np.geomspace(1e-4, 30, 12), seed=s.seed),
        bayes_factor(RegressionLaw(100, 500, 0.0, "repository"), np.array([3.0]), omega=0.02, prompts=60, seed=s.seed),
        bayes_factor(law, np.array([s.noise_std**2]), seed=s.seed),
        load_finding(6, (0.2, 1.0, 3.0), (0.1, 1.0), draws=20_000, seed=s.seed),
        load_finding(60, (0.2, 1.0, 2.0), (0.1, 1.0), seed=s.seed),
        scale_finding(
            RegressionLaw(s.d, 10, s.noise_std, covariance=toeplitz_covariance(s.d, s.rho), mean=(s.mean,) * s.d),
            seed=s.seed,
        ),
    )
