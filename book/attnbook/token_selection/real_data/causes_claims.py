"""Claims TS83 to TS85: what raises the cost of flipped labels on a strong backbone, all else held.

They were formed on CIFAR-10, by looking. TS83 and TS84 were fixed on 26 November 2026 before a table of the other sets existed, TS85 in the
evening of that day, before one with 20 channels did. TS84 was expected to hold and fails; only then was its control, first the opposite
sign, which no interval around 0 can tell, made the set on which it was found. Intervals count seeds and test pictures (`trial.two_way`);
those of TS83 and TS84 first counted seeds alone, and neither verdict has changed. The border was 0.1: TS84 fails, too, if its interval
contains it, and the numbers of TS83 and TS85 lie above it.
"""

import torch

from attnbook.token_selection.real_data.causes import FEWER, FOUND_ON, MIXED, WHOLE, Causes
from attnbook.token_selection.real_data.sets_claims import as_said
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, stored_within

CLAIMS = ClaimSet("token_selection", Source.MEASURED)
_LEAST = 0.1


@CLAIMS.claim("TS83", wrong=-1.0, uses="TS81")
def confidence(study: Causes, constant: float) -> Evidence:
    """at equal accuracy a more confident head loses more
    with EfficientNet-Lite0, at $n=200$, on average over MNIST, PneumoniaMNIST and BreastMNIST, the fraction of copying rises when the
    confidence of one and the same frozen head is raised from 1 to 10: the mean change is 0.229, its 95 % interval, over seeds and test
    pictures, 0.115 to 0.343, above the border of 0.1
    wrong: it falls"""
    return as_said([study.change((WHOLE, 1.0), (WHOLE, 10.0))], [(0.229, 0.115, 0.343)], constant, "mean change")


@CLAIMS.claim("TS84", wrong=0.0, uses="TS83", expected=Verdict.FAILS)
def noise(study: Causes, constant: float) -> Evidence:
    """at equal confidence noise in the tokens costs more
    with EfficientNet-Lite0, at $n=200$ and confidence 1, on average over PneumoniaMNIST and BreastMNIST, the fraction of copying rises
    when noise of 1.5 standard deviations of each channel, fresh in each picture, is added to the tokens in training and test: the 95 %
    interval of the mean change, over seeds and test pictures, lies above 0.1
    regime: the verdict is "fails" if the interval contains 0.1, too
    wrong: the same on CIFAR-10"""
    change = study.change((WHOLE, 1.0), (MIXED, 1.0), (FOUND_ON,) if constant == 0 else None)
    low = torch.tensor([change.low], dtype=torch.float64)
    return stored_within(low, _LEAST, quantity="lower end of the 95 % interval of the mean change:", what="network")


@CLAIMS.claim("TS85", wrong=-1.0, uses="TS83")
def accuracy(study: Causes, constant: float) -> Evidence:
    """at equal confidence a network that sees fewer channels comes nearer to copying
    with EfficientNet-Lite0, at $n=200$ and confidence 1, on average over MNIST, PneumoniaMNIST and BreastMNIST, the fraction of copying
    rises when 20 of the 1280 channels are kept, in training and test (only half of MNIST's flipped labels are then fitted): the mean change
    is 0.261, its 95 % interval, over seeds and test pictures, 0.126 to 0.395, above the border of 0.1
    wrong: it falls"""
    return as_said([study.change((WHOLE, 1.0), (FEWER, 1.0))], [(0.261, 0.126, 0.395)], constant, "mean change")
