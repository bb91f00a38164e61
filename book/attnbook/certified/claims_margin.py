r"""Claims V10-V13: which selection has the largest margin, proved for the very draw. A judge takes a `MarginStudy`; no float decides."""

from fractions import Fraction

from attnbook.certified.certificate import Certificate, bounds
from attnbook.certified.judging import evidence
from attnbook.certified.margin import MarginStudy, Nine, threshold_proved
from attnbook.certified.printed import fraction
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence

MARGIN_CLAIMS = ClaimSet("certified", Source.CERTIFIED)
_ENOUGH = 1e-10  # of a solver's cost, relative


def _lead(draws: tuple[Nine, ...]) -> tuple[str, str]:
    """The smallest relative lead of the best pattern over the second, rounded outwards."""
    low, high = (min(draw.lead[end] for draw in draws) for end in (0, 1))
    return bounds(fraction(low), 4)[0], bounds(fraction(high), 4)[1]


def _all(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def _named(draws: tuple[Nine, ...], name: str) -> bool | None:
    return _all([None if draw.best is None else draw.best == name for draw in draws])


@MARGIN_CLAIMS.claim("V10", wrong=1.3, box="thm-cert-margin thm-margin-exact thm-margin-threshold", uses="M4 M5")
def who_wins(study: MarginStudy, constant: float) -> Evidence:
    r"""who wins, proved draw by draw
    10 % above both thresholds $\sqrt{d/|C_k|}$ SS has the largest margin of all hard selections, 10 % below both XX has, in each of the
    draws ($n = 40$, $d = 8000$, $\eta = 0.2$, in each class at least twice as many clean samples as flipped ones); the enclosure is the
    smallest relative lead in $|v|^2$
    wrong: thresholds 1.3 times as large"""
    above = "SS" if constant < 1.1 else "XX"
    proved = _all([_named(study.above, above), _named(study.below, "XX")])
    statement = f"SS above and XX below, in {len(study.above)} + {len(study.below)} draws"
    return evidence(Certificate(statement, proved, *_lead(study.above + study.below)))


@MARGIN_CLAIMS.claim("V11", wrong=0.0, box="thm-cert-margin thm-margin-exact", uses="M26")
def one_by_one(study: MarginStudy, constant: float) -> Evidence:
    """all hard selections, one by one
    at $n = 7$ the best of all $2^7$ hard selections, each with bounds of its own, is SS 10 % above both exact thresholds and XX 10 % below
    both: no selection beside the class-level patterns is better
    wrong: SS and XX exchanged"""
    other = {"SS": "XX", "XX": "SS"}
    answers = [best == (predicted if constant else other[predicted]) for predicted, best in study.small]
    return evidence(Certificate(f"the best of all is the predicted one in {len(answers)} draws", all(answers)))


@MARGIN_CLAIMS.claim("V12", wrong=0.0, box="thm-cert-margin thm-margin-exact", uses="M26 M27")
def thresholds(study: MarginStudy, constant: float) -> Evidence:
    r"""the threshold at finite d, to nine digits
    with $W$ of noise tokens alone, class $k$ takes its noise at $\rho_k(1-10^{-9})$ and its signal at $\rho_k(1+10^{-9})$, $\rho_k$ the
    float threshold of that draw: at $(n,d,\eta) = (10,100,0.1)$, $(20,400,0.2)$, $(40,800,0.3)$, four draws and both classes each; the
    enclosure is that of $\rho_k\sqrt{|C_k|/d}$ over all of them
    wrong: the threshold of orthogonal noise, $\sqrt{d/|C_k|}$"""
    answers, ratios = [], []
    for tokens, k, norm in study.thresholds:
        limit = float((tokens.noise_scale / tokens.counts()[0][k]) ** 0.5)
        answers.append(threshold_proved(tokens, k, norm if constant else limit))
        ratios.append(Fraction(norm) / Fraction(limit))
    edge = Fraction(1, 10**8)
    low, high = bounds(fraction(min(ratios) * (1 - edge)), 7)[0], bounds(fraction(max(ratios) * (1 + edge)), 7)[1]
    return evidence(
        Certificate(
            f"the change lies within 1e-9 of the float, {len(answers)} thresholds", _all(answers), low, high, box=True
        )
    )


@MARGIN_CLAIMS.claim("V13", wrong=1e-6, box="thm-cert-margin", uses="M1")
def solver(study: MarginStudy, constant: float) -> Evidence:
    """the float solver's costs are right to ten digits
    each $|v|^2$ of the solver for the class-level patterns of the draws of V10 differs from the true one by a relative $10^{-10}$ or less;
    the proof uses whole numbers only and not the solver's own optimality conditions
    wrong: a true cost that is $10^{-6}$ larger"""
    shift = 0 if constant == 1.0 else Fraction(constant)
    answers: list[bool | None] = []
    for draw in study.above + study.below:
        for (low, high), cost in zip(draw.brackets.values(), draw.float_costs.values(), strict=True):
            ends = [Fraction(cost) / (end * (1 + shift)) - 1 for end in (low, high)]  # the second is the smaller one
            inside, outside = max(map(abs, ends)) <= _ENOUGH, min(ends) > _ENOUGH or max(ends) < -_ENOUGH
            answers.append(True if inside else False if outside else None)
    return evidence(Certificate(f"relative error below 1e-10, {len(answers)} costs", _all(answers)))
