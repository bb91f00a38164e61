"""Claims TS61-TS69: what token selection does with label noise on a real data set. All measured or derived, none the paper's.

They are judged on a `DigitsStudy`. Trained networks differ in their last digits from processor to processor and the runs
amplify that, so the evidence is told in counts and coarse bounds, and every bound leaves room for it.
"""

from __future__ import annotations

import torch

from attnbook.token_selection.real_data.digits import DigitsStudy
from attnbook.token_selection.real_data.experiment import BENIGN_BELOW, FITTED_FROM
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, NothingToMeasure

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("token_selection")


def _too_small(study: DigitsStudy) -> str:
    problems = []
    if len(study.seeds) < 3:
        problems.append(f"needs three seeds or more; here {len(study.seeds)}")
    if not _sizes(study):
        problems.append(f"needs an n >= 100; here {study.sizes}")
    if not _levels(study):
        problems.append(f"needs an eta in [0.1, 0.4]; here {study.noise_levels}")
    if study.steps * study.step_size < 0.5:
        problems.append(f"needs steps x step size >= 0.5; here {study.steps * study.step_size:g}")
    return "; ".join(problems)


def _needs_reach(study: DigitsStudy) -> str:
    reach = study.held_values("reach", study.shape.heads).min().item()
    small = "" if reach >= 0.9 else "needs reach >= 0.9 in every seed; here one has less"
    return "; ".join(filter(None, (_too_small(study), small)))


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


def _count(hits: torch.Tensor, what: str, predicted: str, *, all_but: float = 0.0) -> Evidence:
    """Evidence that (nearly) all entries are True: `all_but` is the share allowed to be False."""
    hits = hits.flatten()
    good, total = int(hits.sum()), hits.numel()
    allowed = int(all_but * total)
    rule = (
        f"count: at most {allowed} of {total} {what} otherwise" if allowed else f"count: in every one of {total} {what}"
    )
    holds = total - good <= allowed
    # How many more than the bound's worth fail may differ between processors; on which side of it they are may not.
    shown = (
        f"in {'all' if not allowed else 'nearly all'} {what}"
        if holds
        else f"not in {'all' if not allowed else 'enough'} {what}"
    )
    return Evidence(holds, predicted, shown, rule, total)


def _mean_in(values: torch.Tensor, low: float, high: float, quantity: str) -> Evidence:
    """Evidence that the mean over seeds lies in [low, high] by two standard errors."""
    seeds = values.shape[0]
    if seeds < 2:
        raise NothingToMeasure(f"needs two seeds or more for a standard error; here {seeds}")
    mean, error = values.mean().item(), values.std().item() / seeds**0.5
    holds = low <= mean - 2 * error and mean + 2 * error <= high
    below = mean + 2 * error < low
    place = "inside" if holds else "below" if below else "above" if mean - 2 * error > high else "astride a bound"
    rule = f"statistics: mean over {seeds} seeds +- 2 s.e. inside the bounds"
    bounds = f"in [{low:g}, {high:g}]" if low > -torch.inf and high < torch.inf else f"<= {high:g}"
    if high == torch.inf:
        bounds = f">= {low:g}"
    return Evidence(holds, f"{quantity} {bounds}", place, rule, seeds)


@CLAIMS.claim(
    "TS61", "query and key memorise noise",
    r"training query and key of one layer reproduces at least 3/4 of the flipped labels at every $n \ge 100$, $\eta \in [0.1, 0.4]$",
    source=Source.MEASURED, wrong=0.0, wrong_text="the same network with two free heads", **_REGIME,
)  # fmt: skip
def memorises(study: DigitsStudy, constant: float) -> Evidence:
    fit = (
        _over_runs(study, "fit_noisy")[..., -1]
        if constant
        else study.held_values("fit_noisy", _fewest(study))[:, 1, -1]
    )
    return _count(fit >= 0.75, "runs", "fit of noise >= 0.75", all_but=0.1)


@CLAIMS.claim(
    "TS62", "noise costs nearly what copying it costs",
    r"accuracy lost against the twin, as a fraction of copying the noise, $(a_0 - a_\eta)/(\eta\,a_0)$, is between 0.5 and 1.1",
    source=Source.MEASURED, wrong=0.25, wrong_text="a quarter of that", **_REGIME,
)  # fmt: skip
def loses(study: DigitsStudy, constant: float) -> Evidence:
    lost = _over_runs(study, "lost_fraction").mean(1)
    return _mean_in(lost, 0.5 * constant, 1.1 * constant, "fraction of copying")


@CLAIMS.claim(
    "TS63", "overfitting is benign",
    r"with the noise memorised, less than a quarter of copying is lost",
    source=Source.MEASURED, wrong=0.0, wrong_text="the twin against itself", expected=Verdict.FAILS, **_REGIME,
)  # fmt: skip
def benign(study: DigitsStudy, constant: float) -> Evidence:
    lost = constant * _over_runs(study, "lost_fraction").mean(1)
    return _mean_in(lost, -torch.inf, BENIGN_BELOW, "fraction of copying")


@CLAIMS.claim(
    "TS64", "generalisation first, memorisation later",
    r"test accuracy is highest before half of the memorised labels are memorised: the reverse of the theorem's delay",
    source=Source.MEASURED, wrong=-1.0, wrong_text="the order of the theorem", **_REGIME,
)  # fmt: skip
def order_of_events(study: DigitsStudy, constant: float) -> Evidence:
    peak, memorised = _over_runs(study, "peak"), _over_runs(study, "memorised_at")
    return _count(constant * (memorised - peak) > 0, "runs", "peak before memorisation", all_but=0.1)


@CLAIMS.claim(
    "TS65", "no recovery",
    r"at the horizon, test accuracy at $\eta \ge 0.2$ is still at least 3 points below the best of the path",
    source=Source.MEASURED, wrong=0.0, wrong_text="the twin's own path", **_REGIME,
)  # fmt: skip
def no_recovery(study: DigitsStudy, constant: float) -> Evidence:
    levels = [e for e, eta in enumerate(study.noise_levels) if eta >= 0.2] if constant else [0]
    if not levels:
        raise NothingToMeasure("needs eta >= 0.2")
    paths = torch.cat([study.values("test_accuracy", n)[:, levels] for n in _sizes(study)], 1)
    return _count(paths.amax(-1) - paths[..., -1] >= 0.03, "runs", "below the peak by 0.03", all_but=0.1)


@CLAIMS.claim(
    "TS66", "reach bounds what is memorised",
    r"the share of noise memorised is at most the reach of the trained heads, plus 0.2 for the few flipped labels of a run",
    source=Source.DERIVED, wrong=0.5, wrong_text="half the reach", **_HELD,
)  # fmt: skip
def reach_bounds(study: DigitsStudy, constant: float) -> Evidence:
    fit = torch.stack([study.held_values("fit_noisy", k)[:, 1, -1] for k in study.free], 1)
    reach = torch.stack([study.held_values("reach", k) for k in study.free], 1)
    return _count(fit <= constant * reach + 0.2, "runs", "fit <= reach + 0.2", all_but=0.1)


@CLAIMS.claim(
    "TS67", "noise moves the attention of its own samples most",
    r"total variation distance from the twin's attention is larger for flipped than for clean training samples",
    source=Source.MEASURED, wrong=-1.0, wrong_text="larger for clean samples", **_REGIME,
)  # fmt: skip
def attention_moves(study: DigitsStudy, constant: float) -> Evidence:
    distance = _over_runs(study, "twin_distance")
    return _count(constant * (distance[..., 0] - distance[..., 1]) > 0, "runs", "flipped above clean", all_but=0.1)


@CLAIMS.claim(
    "TS68", "small reach: not overfitting",
    r"with two free heads fewer than half of the flipped labels are memorised, and less than a quarter of copying is lost",
    source=Source.MEASURED, wrong=0.0, wrong_text="all heads free", **_HELD,
)  # fmt: skip
def small_reach(study: DigitsStudy, constant: float) -> Evidence:
    free = _fewest(study) if constant else study.shape.heads
    fit = study.held_values("fit_noisy", free)[:, 1, -1]
    lost = study.held_values("lost_fraction", free)[:, 1]
    memorised = _count(fit < FITTED_FROM, "seeds", f"fit < {FITTED_FROM:g}")
    harmed = _mean_in(lost, -torch.inf, BENIGN_BELOW, "fraction of copying")
    return Evidence(
        memorised.holds and harmed.holds,
        f"{memorised.predicted}; {harmed.predicted}",
        f"{memorised.measured}; {harmed.measured}",
        f"{memorised.rule}; {harmed.rule}",
        memorised.draws,
    )


@CLAIMS.claim(
    "TS69", "selection loses less than a new linear head",
    r"at the largest $n$, a new linear head on the frozen features loses a larger fraction of copying than selection",
    source=Source.MEASURED, wrong=-1.0, wrong_text="a smaller fraction", **_REGIME,
)  # fmt: skip
def better_than_linear(study: DigitsStudy, constant: float) -> Evidence:
    n, levels = max(study.sizes), _levels(study)
    eta = torch.tensor(study.noise_levels, dtype=torch.float64)[levels]
    accuracy = study.values("linear_head", n)
    linear = ((accuracy[:, :1] - accuracy[:, levels]) / (eta * accuracy[:, :1])).mean(1)
    difference = constant * (linear - study.values("lost_fraction", n)[:, levels].mean(1))
    return _mean_in(difference, 0.0, torch.inf, "excess of the linear head")
