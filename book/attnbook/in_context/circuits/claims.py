r"""Claims I22, I31, I34, I35 and I37: the patterns of trained circuits, with the row and the column that pictures leave out.

The four patterns are named in the paper's abstract; the bounds are what was measured here, at the authors' setting. Runs whose active heads
have one sign of $\omega$ (trapped) are not judged for patterns: they have another one, and the page shows it.
"""

import math
from dataclasses import replace

import torch

from attnbook.in_context.circuits.study import STRONG
from attnbook.in_context.published import PUBLISHED
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure, both, stored_within
from bookkit.sharpness import Fixed
from bookkit.worlds import changed, instead, together

CLAIMS = ClaimSet("in_context")
_STORED = "the stored runs at the authors' setting, those that are not trapped"


def _per_run(study, value, *, least=1):
    """(runs of all numbers of heads >= least,): a number of every run that is not trapped."""
    found = [value(study.ends[heads])[study.free[heads]] for heads in study.heads if heads >= least]
    if not sum(map(len, found)):
        raise NothingToMeasure("needs a stored run that is not trapped; there is none")
    return torch.cat(found)


def _each(change, name):
    """The change for every number of heads."""
    return changed(lambda by_heads: {heads: change(numbers) for heads, numbers in by_heads.items()}, name)


@CLAIMS.claim(
    "I31",
    wrong=together(instead("ends", "starts"), _each(torch.ones_like, "free")),
    source=Source.PAPER,
    box="ic-trained-pattern",
    regime=_STORED,
)
def pattern(study):
    r"""trained circuits are two numbers per head
    in the strong heads ($|\mu|>0.5$) of the stored runs the key–query circuits are diagonal and homogeneous. Entries off the diagonal of
    the $d\times d$ block are 0.022 at most, the standard deviation of the diagonal is 0.0127 at most, and 97.5 % or more of the block's
    squared norm lie on the diagonal. Their label row $M_{d+1,1\dots d}$ is gone: entries of 0.0054 at most. The output–value circuits keep
    the label only: entries of $V_{1\dots d}$ are 0.072 at most, and 99.3 % or more of the squared norm of $V$ lie in its last entry. With
    two heads or more these last entries sum to zero: $|\sum_h\mu_h|\le0.017\sum_h|\mu_h|$
    wrong: before training"""

    def largest(name, bound, quantity):
        worst = _per_run(study, lambda numbers: numbers.largest(name, numbers.strong))
        return stored_within(worst, high=bound, quantity=quantity)

    def least(name, bound, quantity):
        worst = _per_run(study, lambda numbers: getattr(numbers, name).where(numbers.strong, 1.0).amin(-1))
        return stored_within(worst, low=bound, quantity=quantity)

    balance = _per_run(study, lambda numbers: numbers.mu.sum(-1).abs() / numbers.mu.abs().sum(-1), least=2)
    return both(
        largest("off_diagonal", 0.022, "off the diagonal"),
        largest("diagonal_std", 0.0127, "s.d. of the diagonal"),
        least("diagonal_share", 0.975, "share on the diagonal"),
        largest("label_row", 0.0054, "label row"),
        largest("output_rest", 0.072, "rest of V"),
        least("last_share", 0.993, "share of the last entry"),
        stored_within(balance, high=0.017, quantity="imbalance"),
    )


@CLAIMS.claim("I34", wrong=instead("ends", "starts"), box="ic-start", uses="I31")
def signs_match(study):
    r"""the signs of ω and μ agree
    each head of the stored runs with $|\mu|>0.05$ has $\operatorname{sign}\omega=\operatorname{sign}\mu$, in trapped runs too: heads that
    give large weights to examples similar to the query have $\mu>0$, heads that give large weights to opposite examples have $\mu<0$
    regime: the stored runs at the authors' setting
    wrong: before training, all heads"""
    shares = [
        ((numbers.omega * numbers.mu > 0) & numbers.active).sum(-1) / numbers.active.sum(-1)
        for numbers in study.ends.values()
    ]
    return stored_within(torch.cat(shares), low=1.0, quantity="share of heads")


@CLAIMS.claim(
    "I35",
    wrong=_each(lambda numbers: replace(numbers, omega=numbers.mu), "ends"),
    source=Source.MEASURED,
    box="ic-trained-pattern",
    uses="I31",
    regime=_STORED,
)
def one_scale(study):
    r"""all strong heads of a run have one scale
    in the stored runs with two heads or more the $|\omega|$ of the strong heads ($|\mu|>0.5$) are nearly equal: their standard deviation
    within a run is 8 % of their mean at most
    wrong: |μ| in place of |ω|"""

    def spread(numbers):
        values = numbers.omega.abs()
        count = numbers.strong.sum(-1, keepdim=True)
        mean = values.where(numbers.strong, 0.0).sum(-1, keepdim=True) / count
        return ((values - mean).square().where(numbers.strong, 0.0).sum(-1) / count[..., 0]).sqrt() / mean[..., 0]

    return stored_within(_per_run(study, spread, least=2), high=0.08, quantity="s.d. / mean")


@CLAIMS.claim(
    "I37",
    wrong=together(
        _each(lambda moved: moved.roll(1, -1), "moved"),
        _each(lambda numbers: replace(numbers, query_column=numbers.label_row), "ends"),
    ),
    box="ic-exact-facts",
    violation=lambda s: "" if not any(h.experiment.weight_decay for h in s.stored.values()) else "needs weight_decay 0",
)
def untrained_column(study):
    r"""the column that is never trained
    after half a million steps without weight decay the last column of every $W_Q$ equals its random start, bit by bit; the last column of
    $M$, computed from it, is not small: in the strong heads ($|\mu|>0.5$) of the stored runs its largest entry is 0.06 or more
    regime: no weight decay
    wrong: the column before it; the label row"""
    last = torch.cat([study.moved[heads][:, -1] for heads in study.heads])
    differing, runs = int(last.sum()), len(last)
    kept = Evidence(
        differing == 0,
        "no bit of the column differs",
        f"differs in {differing} of {runs} runs",
        "algebra: no bit differs, whatever the run",
        runs,
        {"runs that differ": differing},
        parts=(Fixed(differing == 0),),
    )
    smallest = _per_run(study, lambda numbers: numbers.query_column.where(numbers.strong, math.inf).amin(-1))
    return both(kept, stored_within(smallest, low=0.06, quantity="column of M"))


def _positive_sum(mu):
    """What one half of the heads says: the larger of the two sums over heads of one sign."""
    return torch.maximum(mu.clamp_min(0).sum(-1), (-mu).clamp_min(0).sum(-1))


@CLAIMS.claim("I22", wrong=(1.1, 0.9), source=Source.CODE, uses="I31", regime=_STORED)
def published_circuits(study, constant):
    r"""the authors' circuits are those of our runs
    mean $|\omega|$ of the strong heads ($|\mu|>0.5$) and $\sum|\mu_h|$ over the heads of one sign, printed by the authors' notebook for one
    run with 1, 2, 4 and 8 heads, are each within 3 % of the mean of our stored runs
    wrong: printed numbers 10 % larger; 10 % smaller"""
    ratios = []
    for heads in study.heads:
        numbers, free, theirs = study.ends[heads], study.free[heads], PUBLISHED[heads]
        if not free.any():
            raise NothingToMeasure(f"needs a stored run with {heads} heads that is not trapped; there is none")
        mu, omega = torch.tensor(theirs.mu), torch.tensor(theirs.omega)
        ratios += [
            omega.abs()[mu.abs() > STRONG].mean() / numbers.mean_over("omega", numbers.strong)[free].mean(),
            _positive_sum(mu) / _positive_sum(numbers.mu)[free].mean(),
        ]
    ratio = constant * torch.stack(ratios).double()
    return stored_within(ratio, 0.97, 1.03, quantity="printed over ours")
