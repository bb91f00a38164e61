"""Claims TS61-TS69: what token selection does with label noise on a real data set. All measured or derived, none the paper's.

They are judged on a `DigitsStudy`. The runs of one seed share a backbone and samples, so that a seed is one draw: each claim speaks of
one number of a seed, and holds with probability .95 or more. Trained networks differ in their last digits from processor to processor
and the runs amplify that, so the evidence is told in words and coarse bounds, and every bound leaves room for it.
"""

from dataclasses import replace

import torch

from attnbook.token_selection.real_data.digits import DigitsStudy
from attnbook.token_selection.real_data.experiment import BENIGN_BELOW
from bookkit.claims import ClaimSet, Source
from bookkit.rules import SHARE, Evidence, NothingToMeasure, both, fewest_draws, within

CLAIMS = ClaimSet("token_selection", Source.MEASURED)
_FEWEST = fewest_draws(0.95)  # seeds
_REACH = 0.9  # of a seed's backbone, for its runs to count


def _too_small(study: DigitsStudy) -> str:
    problems = []
    if len(study.seeds) < _FEWEST:
        problems.append(f"needs {_FEWEST} seeds or more; here {len(study.seeds)}")
    if not _sizes(study):
        problems.append(f"needs an n >= 100; here {study.sizes}")
    if not _levels(study):
        problems.append(f"needs an eta in [0.1, 0.4]; here {study.noise_levels}")
    if study.steps * study.step_size < 0.5:
        problems.append(f"needs steps x step size >= 0.5; here {study.steps * study.step_size:g}")
    return "; ".join(problems)


def _needs_reach(study: DigitsStudy) -> str:
    few = int(_reaches(study).sum()) < min(_FEWEST, len(study.seeds))
    small = f"needs reach >= {_REACH:g} in {_FEWEST} seeds or more; here fewer have it" if few else ""
    return "; ".join(filter(None, (_too_small(study), small)))


def _reaches(study: DigitsStudy) -> torch.Tensor:
    """(seeds,) bool: in the regime."""
    return study.held_values("reach", study.shape.heads) >= _REACH


def _needs_held(study: DigitsStudy) -> str:
    few = "" if len(study.free) >= 3 and study.free[0] <= 2 else "needs runs with at most two free heads, and more"
    return "; ".join(filter(None, (_too_small(study), few)))


_REGIME = {
    "regime": r"digits, small ViT with reach $\ge 0.9$, $n \ge 100$, $\eta \in [0.1, 0.4]$, full-batch Adam, steps x step size $\ge 0.5$",
    "violation": _needs_reach,
}
_HELD = {"regime": "as TS61, and runs in which at most two heads are trained", "violation": _needs_held}


def _sizes(study: DigitsStudy) -> list[int]:
    return [n for n in study.sizes if n >= 100]


def _levels(study: DigitsStudy) -> list[int]:
    return [e for e, eta in enumerate(study.noise_levels) if 0.1 <= eta <= 0.4]


def _over_runs(study: DigitsStudy, what: str) -> torch.Tensor:
    """(seeds, runs, ...) of a quantity with a noise axis, over n >= 100 and eta in [0.1, 0.4]; steps: the last."""
    sizes, levels = _sizes(study), _levels(study)
    if not sizes or not levels:
        raise NothingToMeasure("needs n >= 100 and eta in [0.1, 0.4]")
    return torch.cat([study.values(what, n)[:, levels] for n in sizes], 1)


def _fewest(study: DigitsStudy) -> int:
    if len(study.free) < 2:
        raise NothingToMeasure("needs runs in which some heads are held")
    return study.free[0]


def _of_a_seed(
    values: torch.Tensor,
    quantity: str,
    low: float | None = None,
    high: float | None = None,
    study: DigitsStudy | None = None,
    share: float = SHARE,
) -> Evidence:
    """Evidence that a number of a seed, (seeds,), lies in [low, high]; with `study`, of the seeds whose backbone reaches enough."""
    if study is not None:
        values = values.where(_reaches(study), torch.nan)
    evidence = within(
        values, low, high, quantity=quantity, share=share, silent=None if study is None else ~_reaches(study)
    )
    # How many of the seeds lie outside may differ between processors; on which side of the rule they are may not.
    shown = "in enough seeds" if evidence.holds else "not in enough seeds"
    rule = evidence.rule.replace("per draw", "per seed")
    return replace(evidence, measured=shown, rule=rule, numbers={})


@CLAIMS.claim("TS61", wrong=0.0, **_REGIME)
def memorises(study: DigitsStudy, constant: float) -> Evidence:
    r"""query and key memorise flipped labels
    training query and key of one layer reproduces at least 85 % of the flipped labels, as a mean over $n \ge 100$ and
    $\eta \in [0.1, 0.4]$, in at least 95 % of seeds
    wrong: the same network with two free heads"""
    if constant:
        fit = _over_runs(study, "fit_noisy")[..., -1].mean(1)
    else:
        fit = study.held_values("fit_noisy", _fewest(study))[:, 1, -1]
    return _of_a_seed(fit, "fit of noise", low=0.85, study=study)


@CLAIMS.claim("TS62", wrong=0.25, uses="TS61", **_REGIME)
def loses(study: DigitsStudy, constant: float) -> Evidence:
    r"""flipped labels cost nearly as much accuracy as copying them
    the accuracy lost against the clean-label baseline, as a fraction of the loss of a network that copies the noise, $(a_0 -
    a_\eta)/(\eta\,a_0)$, is between 0.4 and 1.2, as a mean over $n \ge 100$ and $\eta\in[0.1,0.4]$, in at least 95 % of seeds ($a_\eta$:
    test accuracy with a fraction $\eta$ of flipped labels)
    wrong: a quarter of these bounds"""
    lost = _over_runs(study, "lost_fraction").mean(1)
    return _of_a_seed(lost, "fraction of copying", 0.4 * constant, 1.2 * constant, study)


@CLAIMS.claim("TS64", wrong=-1.0, uses="TS61", **_REGIME)
def order_of_events(study: DigitsStudy, constant: float) -> Evidence:
    """generalisation comes first, memorisation later
    test accuracy is highest before half of the finally memorised labels are memorised, in three quarters or more of the runs of a seed, in
    at least 95 % of seeds: the reverse of the order in part 2 of the theorem
    wrong: the order of the theorem"""
    peak, memorised = _over_runs(study, "peak"), _over_runs(study, "memorised_at")
    before = (constant * (memorised - peak) > 0).double().mean(1)
    return _of_a_seed(before, "share of runs with the peak before memorisation", low=0.75, study=study)


@CLAIMS.claim("TS66", wrong=0.5, **_HELD)
def reach_bounds(study: DigitsStudy, constant: float) -> Evidence:
    """reach bounds the fraction of flipped labels that is memorised
    the fraction of flipped labels that is memorised is at most the reach of the trained heads plus 0.15, an allowance for the few flipped
    labels of a run, at every number of trained heads of the page, in at least 95 % of seeds
    wrong: half the reach"""
    fit = torch.stack([study.held_values("fit_noisy", k)[:, 1, -1] for k in study.free], 1)
    reach = torch.stack([study.held_values("reach", k) for k in study.free], 1)
    return _of_a_seed((fit - constant * reach).amax(1), "largest fit - reach", high=0.15)


@CLAIMS.claim("TS68", wrong=0.0, uses="TS66", **_HELD)
def small_reach(study: DigitsStudy, constant: float) -> Evidence:
    """small reach: not overfitting
    with two free heads at most a quarter of the flipped labels are memorised, in at least 95 % of seeds, and at most a quarter of the loss
    by copying is lost, in at least 90 % of seeds
    wrong: all heads free"""
    free = _fewest(study) if constant else study.shape.heads
    fit = study.held_values("fit_noisy", free)[:, 1, -1]
    lost = study.held_values("lost_fraction", free)[:, 1]
    return both(
        _of_a_seed(fit, "fit of noise", high=0.25),
        _of_a_seed(lost, "fraction of copying", high=BENIGN_BELOW, share=0.9),
    )


@CLAIMS.claim("TS69", wrong=-1.0, uses="TS62", **_REGIME)
def better_than_linear(study: DigitsStudy, constant: float) -> Evidence:
    """selection loses less accuracy than a new linear head
    at the largest $n$, a new linear head on the frozen features loses a larger fraction of the loss by copying than selection does, by 0.15
    or more, in at least 85 % of seeds
    wrong: a smaller fraction
    coarse: about one seed in ten lies outside, of five on the page"""
    n, levels = max(study.sizes), _levels(study)
    eta = torch.tensor(study.noise_levels, dtype=torch.float64)[levels]
    accuracy = study.values("linear_head", n)
    linear = ((accuracy[:, :1] - accuracy[:, levels]) / (eta * accuracy[:, :1])).mean(1)
    difference = constant * (linear - study.values("lost_fraction", n)[:, levels].mean(1))
    return _of_a_seed(difference, "excess of the linear head", low=0.15, study=study, share=0.85)
