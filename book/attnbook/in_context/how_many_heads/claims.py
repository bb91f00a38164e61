r"""Claims I61-I69: one head against two, the same-sign trap, dummy heads, and what more than two heads can do.

Each judge takes a `HeadsStudy` and a constant (1 is the claim, `wrong` its negative control). Conclusions of the authors' notebook are
judged as they stand there; the rest is measured here, on stored runs at the authors' setting, or derived in the theory chapter of Part III.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from attnbook.in_context.closed_form import debiased_gd_optimal_risk
from attnbook.in_context.heads_study import Ends, HeadsStudy
from attnbook.in_context.trap_study import TrapRuns, imbalance
from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import Evidence, NothingToMeasure, agrees, both, share_within, stored_within, within

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("in_context")

_STORED = "the stored runs at the authors' setting"
_DECIDED = 110  # step at which the signs of mu are looked at


def _kept(ends: Ends) -> torch.Tensor:
    """Risks of the runs whose heads cancel, (U,)."""
    risk = ends.risk[ends.kept]
    if len(risk) < 2:
        raise NothingToMeasure("needs two runs or more whose heads cancel")
    return risk


def _against(study: HeadsStudy, heads: int) -> torch.Tensor:
    """(U,): risks of `heads` heads over the mean risk of two, runs whose heads cancel."""
    return _kept(study.ends[heads]) / _kept(study.ends[2]).mean()


@CLAIMS.claim(
    "I61", "two heads beat one",
    "conclusion (b) of the notebook. The risk of a trained head is 2.15 times that of two trained heads that cancel: the ratio of the best "
    "single head (exact risk) to the best centred step",
    source=Source.CODE, wrong=1.1, wrong_text="a ratio 10 % larger", regime=_STORED, box=("ic-isotropic",),
uses=('I51',),)  # fmt: skip
def two_beat_one(study: HeadsStudy, constant: float) -> Evidence:
    best = study.free.risk_one.mean().item() / float(debiased_gd_optimal_risk(study.stored_law))
    return agrees(
        _against(study, 1), constant * best, allowance=0.02, allowance_text="trained heads are not the best ones"
    )


@CLAIMS.claim(
    "I62", "more than two heads hardly help",
    "the stored models of four and of eight heads have the risk of two heads that cancel, to 2 %",
    source=Source.MEASURED, wrong=0.05, wrong_text="to 0.1 %", regime=_STORED,
uses=('I33',),)  # fmt: skip
def more_heads(study: HeadsStudy, constant: float) -> Evidence:
    bound = 0.02 * constant
    return both(
        *(stored_within(_against(study, heads), 1 - bound, 1 + bound, quantity="ratio of risks") for heads in (4, 8)),
    )


def _one_in(outcomes: torch.Tensor, number: float) -> Evidence:
    """A share of stored starts between 1/(number + 1/2) and 1/(number - 1/2), and a binomial test of the probability 1/number."""
    hits, trials = int(outcomes.sum()), len(outcomes)
    stored = stored_within(
        (outcomes.mean())[None], 1 / (number + 0.5), 1 / (number - 0.5), quantity="share", what="stored start"
    )
    found = both(stored, share_within(hits, trials, 1 / number, 1 / number))
    return replace(
        found, measured=f"{hits} of {trials}", draws=trials, numbers={"share": hits / trials, "trials": trials}
    )


@CLAIMS.claim(
    "I63", "the same-sign trap",
    "of the stored random starts with two heads one in six ends with both heads of one sign (a share between 1/6.5 and 1/5.5; the test of "
    "the probability 1/6 alone would accept 27 to 77 of 300)",
    source=Source.MEASURED, wrong=7 / 6, wrong_text="one in seven", regime="Adam at the authors' setting, 30 000 steps", box=("ic-trap",),
)  # fmt: skip
def trap(study: HeadsStudy, constant: float) -> Evidence:
    return _one_in(torch.from_numpy(study.table.by_heads[2].trapped).double(), 6 * constant)


def _signs(runs: TrapRuns, step: int) -> np.ndarray:
    """(R,) bool: all mu of a run have one sign at a step."""
    return imbalance(runs.mu[:, runs.at(step)]) == 1


@CLAIMS.claim(
    "I64",
    "the trap is laid in the first hundred steps",
    rf"of 300 stored starts none whose two $\mu_h$ have opposite signs after {_DECIDED} steps is trapped; of the "
    "others one in three is (a share between 1/3.5 and 1/2.5)",
    source=Source.MEASURED,
    wrong=0.0,
    wrong_text="the signs at the start decide already",
    regime="Adam at the authors' setting, 30 000 steps",
    box=("ic-trap",),
    uses=("I63",),
)
def laid_early(study: HeadsStudy, constant: float) -> Evidence:
    runs = study.table.by_heads[2]
    same = _signs(runs, _DECIDED if constant == 1 else 0)
    trapped = torch.from_numpy(runs.trapped).double()
    return both(
        stored_within(trapped[torch.from_numpy(~same)], high=0.0, quantity="trapped, opposite signs"),
        _one_in(trapped[torch.from_numpy(same)], 3),
    )


@CLAIMS.claim(
    "I65", "who is caught stays caught",
    "the stored trapped runs are still trapped after 500 000 steps, with a loss 1 to 2 % below that of one head",
    source=Source.MEASURED, wrong=0.0, wrong_text="a loss of one head to 1/1000", regime=_STORED, box=("ic-trap",),
uses=('I63',),)  # fmt: skip
def never_leaves(study: HeadsStudy, constant: float) -> Evidence:
    long = study.table.long
    if not len(long.run):
        raise NothingToMeasure("needs a trapped run; there is none")
    low, high = (0.98, 0.99) if constant == 1 else (0.999, 1.001)
    ratio = torch.from_numpy(np.asarray(long.loss, dtype=np.float64)) / study.one_head_loss
    return both(
        stored_within(torch.from_numpy(long.imbalance[:, -1]), low=0.9, quantity="imbalance"),
        stored_within(ratio, low, high, quantity="loss over that of one head"),
    )


@CLAIMS.claim(
    "I66", "three heads or four are not caught",
    "of 100 stored starts with three heads and 100 with four none ends with one sign; the probability that one does is 4 % at most",
    source=Source.MEASURED, wrong=0.0, wrong_text="two heads instead", regime="Adam at the authors' setting, 20 000 steps",
uses=('I63',),)  # fmt: skip
def more_heads_escape(study: HeadsStudy, constant: float) -> Evidence:
    parts = []
    for runs in (study.table.by_heads[heads] for heads in ((3, 4) if constant == 1 else (2,))):
        found = runs.share
        none = stored_within(torch.from_numpy(runs.trapped).double(), high=0.0, what="stored start")
        possible = share_within(found.count, found.total, high=0.04)
        parts.append(
            replace(
                both(none, possible),
                predicted="none, probability <= 4 %",
                measured=f"{found.count} of {found.total}, upper limit {100 * found.high:.1f} %",
                rule="none in the stored table; exact binomial test of 4 %",
                numbers={"count": float(found.count), "high": found.high},
            )
        )
    return both(*parts)


@CLAIMS.claim(
    "I67", "beyond two heads the rest are dummies",
    r"conclusion (c) of the notebook, to the letter: in the stored runs with four or eight heads, all but two have $|\mu_h|<0.05$",
    source=Source.CODE, wrong=4.0, wrong_text="all but eight", regime=_STORED, expected=Verdict.FAILS,
)  # fmt: skip
def dummies(study: HeadsStudy, constant: float) -> Evidence:
    active = [study.ends[heads].active.double() for heads in (4, 8)]
    return both(*(stored_within(count, high=2 * constant, quantity="active heads") for count in active))


@CLAIMS.claim(
    "I68", "heads of one sign act as one",
    "conclusion (c), by what is computed: put together into one positive and one negative head, with the same sums of $\\mu_h$ and of "
    "$\\omega_h\\mu_h$, the stored runs of four and eight heads change their risk by less than 0.1 %,"
    " if none is sharp ($|\\omega_h|>1/2$)",
    source=Source.DERIVED, wrong=0.0, wrong_text="put together with ω 10 % larger", regime=_STORED, box=("ic-moments",),
uses=('I17',),)  # fmt: skip
def same_as_two(study: HeadsStudy, constant: float) -> Evidence:
    parts = []
    for heads in (4, 8):
        ends = study.ends[heads]
        merged = ends.merged_risk if constant == 1 else ends.merged_off
        change = ((merged - ends.plain_risk) / ends.plain_risk)[ends.kept & ~ends.sharp]
        parts.append(stored_within(change.abs(), high=0.001, quantity="relative change of risk"))
    return both(*parts)


@CLAIMS.claim(
    "I69", "a sharp third head",
    r"three heads can do slightly better than any pair: the best third head is sharp ($|\omega|>1$), faint ($|\mu|<0.1$), and "
    "lowers the risk by about half a per cent",
    source=Source.DERIVED, wrong=0.0, wrong_text="nothing gained", regime="the authors' data law", box=("ic-moments",),
uses=('I51',),)  # fmt: skip
def sharp_third(study: HeadsStudy, constant: float) -> Evidence:
    omega, mu = (torch.tensor(values, dtype=torch.float64) for values in study.free.three)
    sharp = int(omega.abs().argmax())
    return both(
        agrees(study.free.gain_of_third, 0.006 * constant, allowance=0.002, allowance_text="'about half a per cent'"),
        _searched(omega[sharp].abs()[None], low=1.0, quantity="|ω|"),
        _searched(mu[sharp].abs()[None], high=0.1, quantity="|μ|"),
    )


def _searched(value: torch.Tensor, **bounds) -> Evidence:
    return replace(within(value, share=1, **bounds), rule="bound on one number, the place of a minimum")
