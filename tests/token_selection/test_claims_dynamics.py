"""Claims TS21-TS30: sources, silence elsewhere, and the integration behind TS27."""

import torch

from attnbook.token_selection.dynamics.claims import CLAIMS, _integrated
from attnbook.token_selection.dynamics.study import dynamics_study
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import Verdict


def test_other_parameters_are_outside_the_regime_of_what_is_published():
    small = dynamics_study(TokenLaw(4, 50, 5, 2.0, label_noise=0.5), 0.05, 16, runs=2, leak_seeds=(1, 2))
    verdicts = {result.claim.id: result for result in CLAIMS.check(small)}
    for id in ("TS21", "TS22", "TS23", "TS24", "TS25", "TS26", "TS28", "TS30"):
        assert verdicts[id].verdict == Verdict.OUTSIDE, id
    assert verdicts["TS29"].violated.startswith("needs fresh error < 1e-4; here ")
    assert verdicts["TS27"].verdict == Verdict.HOLDS


def test_the_integration_behind_ts27_reaches_one_half_at_the_exact_time():
    times, gaps = _integrated(8)
    expected = 2 * torch.log(torch.tensor(7.0)).item() + 7 - 1 / 7  # g(log 7) - g(0)
    at = torch.searchsorted(gaps.contiguous(), torch.tensor(1.9459101090932196, dtype=torch.float64))
    assert times[at - 1] < expected < times[at]
