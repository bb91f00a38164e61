"""Claims TS91-TS96: the poster's statement on each of its six sets, on strong backbones, by the rule of `trial`.

The rule is older than the tables; it was written to II.7 on the day that `trial.FIXED` names. The claims are judged on the stored tables.
"""

from collections.abc import Callable, Sequence

import torch

from attnbook.token_selection.real_data.sets_study import SETS
from attnbook.token_selection.real_data.trial import UNHARMED
from attnbook.token_selection.real_data.trial_study import Tried, cheapest
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, NothingToMeasure, stored_within

CLAIMS = ClaimSet("token_selection", Source.MEASURED)
_POSTER = ("mnist", "cifar10", "pneumonia_mnist", "breast_mnist", "ag_news", "trec")


def _benign(data: str) -> Callable[[Sequence[Tried], float], Evidence]:
    def judge(study: Sequence[Tried], constant: float) -> Evidence:
        row = cheapest(study, data)
        if row is None:
            raise NothingToMeasure("needs a row whose wrong labels are fitted")
        lost = constant * torch.tensor([[row.judged.fraction.low, row.judged.fraction.high]], dtype=torch.float64)
        if lost[0, 0] <= UNHARMED < lost[0, 1]:
            raise NothingToMeasure(f"needs an interval on one side of {UNHARMED:g}; more seeds are needed")
        quantity = "95 % interval of the fraction of copying, cheapest row:"
        return stored_within(lost, high=UNHARMED, quantity=quantity, what="network")

    return judge


for _number, _data in enumerate(_POSTER, start=91):
    CLAIMS.claim(
        f"TS{_number}",
        rf"""{SETS[_data]}: benign on a strong backbone
        on {SETS[_data]}, by the rule of 26 November 2026, overfitting is benign in at least one row of the trial: a network, a way of
        training and a number of samples with which the wrong labels are fitted
        regime: the poster speaks of pretrained ViT-B and BERT-base; the trial's networks are others
        wrong: a fifth of the fractions""",
        wrong=0.2,
        expected=Verdict.FAILS,
    )(_benign(_data))
