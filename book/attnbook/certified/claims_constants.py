r"""Claims V25 and V28-V33: constants of Parts I and II that the book prints. The negative control of each is another last digit.

A judge takes a `ConstantsStudy`. The constant is 1 for the claim; 2 moves the last printed digit by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attnbook.certified.certificate import Certificate, ball, precision
from attnbook.certified.constants import Selection, first_move
from attnbook.certified.constants_two_steps import TwoSteps
from attnbook.certified.judging import evidence
from attnbook.certified.printed import every, holds, moved, rounds_to
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both

if TYPE_CHECKING:
    from flint import arb

CONSTANT_CLAIMS = ClaimSet("certified", Source.CERTIFIED)
_PIECES = 64  # of an interval on which a function is bounded
FIRST_MOVES = {
    "0": "1.000", "0.02": "1.042", "0.05": "1.116", "0.1": "1.274", "0.15": "1.502", "0.2": "1.850", "0.25": "2.427", "0.3": "3.500",
    "0.35": "5.86", "0.4": "12.7", "0.45": "50.1",
}  # fmt: skip


@dataclass(frozen=True)
class ConstantsStudy:
    """The laws at which the book prints the constants. The certificates for two steps are computed once, with 64 bits."""

    selection: Selection = field(default_factory=Selection)
    two_steps: TwoSteps = field(default_factory=TwoSteps)
    edge: TwoSteps = field(default_factory=lambda: TwoSteps(d=21_482))
    before: TwoSteps = field(default_factory=lambda: TwoSteps(d=21_481))

    def __post_init__(self) -> None:
        with precision(64):
            _ = self.two_steps.room, self.edge.room, self.before.room, self.two_steps.log10_error


def _printed(
    study: ConstantsStudy, constant: float, name: str, value: Callable[[Selection], arb], printed: str, **law: str
) -> Certificate:
    """A constant of Part II, with a new object for each precision: balls are kept by it."""
    return rounds_to(name, lambda: value(replace(study.selection, **law)), _said(printed, constant))


def _said(printed: str, constant: float) -> str:
    return moved(printed, round(constant) - 1)


def _together(*parts: Certificate) -> Evidence:
    return both(*map(evidence, parts))


# Part II


@CONSTANT_CLAIMS.claim(
    "V25", wrong=2.0, box="thm-cert-newton ts-delay ts-first-half ts-floor ts-end ts-early", uses="TS16 TS32 TS38"
)
def laws_of_time(study: ConstantsStudy, constant: float) -> Evidence:
    r"""constants of the laws of time of Part II, to their last printed digit
    at $T=8$, $\eta=0.2$, $\rho=0.1$, $h=1$, where no other value is named: the root of $e^S=T-3+2e^{\rho S}$ is $S^*=2.0075$, and
    $b=2S^*/(\bar a-A_1/T)=5.99$; $\mathcal C=128.03$; the floor of the loss is $0.4008$; the exponent of late memorisation is
    $\kappa=0.06408$ for $\eta=0.1$ and $0.018$ for $\eta=0.2$; flipped samples first move with the clean ones above $r_0=4.55$
    wrong: the last printed digit increased by one"""
    return _together(
        _printed(study, constant, "S*", lambda law: law.signal_score, "2.0075"),
        _printed(study, constant, "b", lambda law: law.delay_exponent, "5.99"),
        _printed(study, constant, "C", lambda law: law.first_half, "128.03"),
        _printed(study, constant, "floor", lambda law: law.floor, "0.4008"),
        _printed(study, constant, "kappa(0.1)", lambda law: law.memory_exponent, "0.06408", flipped="0.1"),
        _printed(study, constant, "kappa(0.2)", lambda law: law.memory_exponent, "0.018", flipped="0.2"),
        _printed(study, constant, "r_0", lambda law: law.drag, "4.55"),
    )


@CONSTANT_CLAIMS.claim("V28", wrong=2.0, box="ts-delay-finite", uses="TS38h")
def critical(study: ConstantsStudy, constant: float) -> Evidence:
    r"""where the delay becomes finite
    at $T=8$, $\eta=0.2$, $\rho=0.1$: hard attention of a fresh sample selects $x_1$ with probability one half at $D_c=1.38$, and $q_c=14.9$
    wrong: the last printed digit increased by one"""
    return _together(
        _printed(study, constant, "D_c", lambda law: law.critical, "1.38"),
        _printed(study, constant, "q_c", lambda law: law.critical_strength, "14.9"),
    )


@CONSTANT_CLAIMS.claim("V29", wrong=2.0, box="ts-discrimination ts-delay-finite", uses="TS38h V28")
def infinite(study: ConstantsStudy, constant: float) -> Evidence:
    r"""at a fixed signal norm the delay becomes infinite
    at $T=8$, $\eta=0.2$, $\rho=0.1$, $\|\mu\|=20$ the late discrimination $D$ is above $D_c$ at $1/(n\,\mathrm{SNR}^2)=25.5$ and below it
    at $26.5$; the enclosure is that of $D$ at 26
    wrong: the last printed digit increased by one"""
    said = round(constant) + 25

    def question() -> bool | None:
        law = replace(study.selection)
        low, high = ball(said) - ball("0.5"), ball(said) + ball("0.5")
        if law.discrimination("20", low) > law.critical > law.discrimination("20", high):
            return True
        edges = [low + (high - low) * i / _PIECES for i in range(_PIECES + 1)]
        inside = [law.discrimination("20", a.union(b)) for a, b in itertools.pairwise(edges)]
        away = all(D < law.critical for D in inside) or all(D > law.critical for D in inside)
        return False if away else None

    statement = f"D crosses D_c where 1/(n SNR^2) is {said}, rounded"
    return evidence(
        holds(statement, question, lambda: replace(study.selection).discrimination("20", ball(26)), digits=7)
    )


# Part I


@CONSTANT_CLAIMS.claim("V30", wrong=2.0, box="thm-long-first-move", uses="L5")
def first_moves(study: ConstantsStudy, constant: float) -> Evidence:
    r"""the table of first moves
    all eleven values of $x_1(\eta)$ in the table of the chapter on long training are correctly rounded, from $\eta=0$ to $0.45$; the
    enclosure holds all of them
    wrong: the last printed digit increased by one"""
    parts = [
        rounds_to(f"x_1({flipped})", lambda eta=flipped: first_move(eta), _said(said, constant))  # type: ignore[misc]
        for flipped, said in FIRST_MOVES.items()
    ]
    return evidence(every("the eleven values of x_1, rounded", parts))


@CONSTANT_CLAIMS.claim("V31", wrong=2.0, box="thm-cert-two-steps thm-finite-certificate", uses="F5")
def two_steps(study: ConstantsStudy, constant: float) -> Evidence:
    r"""benign overfitting after two steps is a theorem at the size of page I.2
    at $n=200$, $d=40000$, $\rho=30$, $\eta=0.05$, $\beta=0.025$, $\delta=0.01$ all conditions of the certificate hold for all 12 360 sets
    of label counts that C4 allows: the least of their rooms is above zero, and the enclosure is that room
    wrong: the same $n\,\mathrm{SNR}^2$ and $\beta d/n$ at $d=21\,481$"""
    law = study.two_steps if constant == 1.0 else study.before
    return evidence(_room(law, f"the least room of {law.sets} sets of counts at d = {law.d} is above zero"))


def _room(law: TwoSteps, statement: str) -> Certificate:
    def question() -> bool | None:
        return True if law.room > 0 else False if law.room < 0 else None

    return holds(statement, question, lambda: law.room)


@CONSTANT_CLAIMS.claim("V32", wrong=2.0, box="thm-cert-two-steps thm-finite-certificate", uses="V31 F5")
def error(study: ConstantsStudy, constant: float) -> Evidence:
    """the proved bound on the clean error
    at the size of V31 the largest $e^{-E_k^-}$ over all counts is $10^{-3.38}$; the enclosure is its decimal logarithm
    wrong: the last printed digit increased by one"""
    return evidence(rounds_to("log10 of the bound", lambda: study.two_steps.log10_error, _said("-3.38", constant)))


@CONSTANT_CLAIMS.claim("V33", wrong=0.0, box="thm-cert-two-steps thm-finite-certificate", uses="V31")
def least_dimension(study: ConstantsStudy, constant: float) -> Evidence:
    r"""where the certificate begins to hold: in one dimension less it fails
    at $n=200$, $n\,\mathrm{SNR}^2=4.5$, $\beta d/4n=1.25$, $\eta=0.05$, $\delta=0.01$ the conditions of V31 hold at $d=21\,482$ and fail at
    $d=21\,481$; the enclosure is the least room at the first
    wrong: one dimension less"""
    first, last = (study.before, study.edge) if constant else (study.before, study.before)
    lower, upper = (_room(law, f"d = {law.d}") for law in (first, last))
    proved = None if None in (lower.proved, upper.proved) else upper.proved and (last is first or not lower.proved)
    return evidence(replace(upper, statement=f"the conditions hold at d = {last.d} and fail below", proved=proved))
