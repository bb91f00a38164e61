"""Claims TS91-TS96: the poster's statement on each of its six sets, on strong backbones, by the rule of `trial`.

The rule is older than the tables; it was written to II.7 on the day that `trial.FIXED` names. The claims are judged on the stored tables.
A claim holds if the whole interval of a row lies below a quarter, fails if those of all rows lie above it, and says nothing otherwise: with
k rows, networks that lie just on the border would be called benign with a probability of at most k / 40.
"""

from collections.abc import Callable, Sequence

import torch

from attnbook.token_selection.real_data.sets_study import SETS
from attnbook.token_selection.real_data.trial import UNHARMED
from attnbook.token_selection.real_data.trial_study import Tried, strong
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, NothingToMeasure, stored_within

CLAIMS = ClaimSet("token_selection", Source.MEASURED)
_POSTER = ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist", "ag_news", "trec")


def _benign(data: str) -> Callable[[Sequence[Tried], float], Evidence]:
    def judge(study: Sequence[Tried], constant: float) -> Evidence:
        found = [row.judged.fraction for row in strong(study, data)]
        if not found:
            raise NothingToMeasure("needs a row whose wrong labels are fitted")
        low, high = (constant * min(ends) for ends in ([one.low for one in found], [one.high for one in found]))
        if high >= UNHARMED >= low:
            raise NothingToMeasure(f"needs each interval on one side of {UNHARMED:g}; more seeds are needed")
        ends = torch.tensor([low, high], dtype=torch.float64)
        quantity = "least lower and least upper end of the rows' 95 % intervals of the fraction of copying:"
        return stored_within(ends, high=UNHARMED, quantity=quantity, what="network")

    return judge


for _number, _data in enumerate(_POSTER, start=91):
    CLAIMS.claim(
        f"TS{_number}",
        rf"""{SETS[_data]}: benign on a strong backbone
        on {SETS[_data]}, overfitting is benign in at least one row of the trial, by the rule of 26 November 2026: a network, a way of
        training and a number of samples with which the wrong labels are fitted; it is in none, if the intervals of all rows lie above a
        quarter
        regime: the poster speaks of pretrained ViT-B and BERT-base; the trial's networks are others
        wrong: a fifth of the fractions""",
        wrong=0.2,
        expected=Verdict.FAILS,
    )(_benign(_data))
