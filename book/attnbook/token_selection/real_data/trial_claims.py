"""Claim TS91: whether any of six data sets, on strong backbones, is benign by the rule of `trial`.

The rule is older than the tables; it was published on the day that `trial.FIXED` names. The claim is judged on the stored tables, and
was six, one for each set. It holds if the whole interval of a row lies below a quarter, fails if those of all rows lie above it, and says
nothing otherwise: with k rows, networks that lie just on the border would be called benign with a probability of at most k / 40.
"""

from collections.abc import Sequence

import torch

from attnbook.token_selection.real_data.trial import UNHARMED
from attnbook.token_selection.real_data.trial_study import Tried, strong
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, NothingToMeasure, stored_within

CLAIMS = ClaimSet("token_selection", Source.MEASURED)


@CLAIMS.claim("TS91", wrong=0.2, expected=Verdict.FAILS)
def benign(study: Sequence[Tried], constant: float) -> Evidence:
    r"""benign on a strong backbone, on one of six sets at least
    on MNIST, CIFAR-10, PneumoniaMNIST, BreastMNIST, AG-news or TREC, overfitting is benign in at least one of our rows of the trial, by the
    rule of 26 November 2026: a network, a way of training and a number of samples with which the flipped labels are fitted; it is in none,
    if the intervals of all rows lie above a quarter
    regime: this trial's networks; the authors' are ViT-B and BERT-base, and their poster gives no result
    wrong: a fifth of the fractions"""
    found = [row.judged.fraction for row in strong(study)]
    if not found:
        raise NothingToMeasure("needs a row whose wrong labels are fitted")
    low, high = (constant * min(ends) for ends in ([one.low for one in found], [one.high for one in found]))
    if high >= UNHARMED >= low:
        raise NothingToMeasure(f"needs each interval on one side of {UNHARMED:g}; more seeds are needed")
    ends = torch.tensor([low, high], dtype=torch.float64)
    quantity = "least lower and least upper end of the rows' 95 % intervals of the fraction of copying:"
    return stored_within(ends, high=UNHARMED, quantity=quantity, what="network")
