r"""Claims V15 and V18-V23: strict statements of Part III. A judge takes a `RiskStudy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnbook.certified.certificate import Certificate, ball, sign
from attnbook.certified.judging import evidence
from attnbook.certified.printed import fraction, holds, moved, rounds_to
from attnbook.certified.risk import Regression, TwoExamples, debiased_risk, kappa
from attnbook.certified.risk_approximate import Approximate, krawczyk
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both

if TYPE_CHECKING:
    from flint import arb

RISK_CLAIMS = ClaimSet("certified", Source.CERTIFIED)
_LAST = "the last printed digit increased by one"


@dataclass(frozen=True)
class RiskStudy:
    """The authors' law, its approximate loss, and a pair and a head on two examples; integrals are kept."""

    law: Regression = field(default_factory=Regression)
    approximate: Approximate = field(default_factory=Approximate)
    pair: TwoExamples = field(default_factory=TwoExamples)
    head: TwoExamples = field(default_factory=lambda: TwoExamples(heads=1))
    noises: tuple[TwoExamples, ...] = field(default_factory=lambda: (TwoExamples("0"), TwoExamples("1")))  # pairs


def _said(printed: str, constant: float) -> str:
    return moved(printed, round(constant) - 1)


@RISK_CLAIMS.claim("V15", wrong=2.0, box="ic-curvature", uses="I52")
def curvature(study: RiskStudy, constant: float) -> Evidence:
    r"""a pair of small scale beats every debiased step at the authors' law
    at $d=5$, $L=40$, $\sigma=0.01$ the risk of a pair with the effective step of the best debiased step is, for small scales, its risk plus
    $\kappa\omega^2$ with $\kappa=-0.0674$, a negative number
    wrong: the last printed digit increased by one"""
    return evidence(rounds_to("kappa", lambda: fraction(kappa(study.law)), _said("-0.0674", constant)))


def _scale(found: TwoExamples, low: str, constant: float, what: str) -> Evidence:
    low = _said(low, constant)
    high = moved(low, 1)
    return evidence(
        Certificate(
            f"every best scale of {what} lies in [{low}, {high}]", found.best_between(low, high), low, high, found.bits
        )
    )


@RISK_CLAIMS.claim(
    "V18",
    wrong=2.0,
    box="thm-cert-least-risks thm-cert-two-examples thm-cert-best-scale ic-isotropic",
    uses="I52 I54 I55 I61",
)
def order_of_risks(study: RiskStudy, constant: float) -> Evidence:
    r"""one head, a debiased step, a pair: the order of the least risks, and the best scales
    at $d=4$, $L=2$, $\sigma=0.01$ the exact risk has its minimum over all pairs at $|\omega|$ in $[0.559,0.560]$, over all single heads at
    $|\omega|$ in $[3.527,3.528]$ (seven times the $1/\sqrt d$ of the approximate loss), and only there; the least risks are $3.7085$ with
    one head, $3.3334$ with a debiased step and $3.2733$ with a pair, each correctly rounded
    wrong: the last printed digits increased by one"""
    values: list[tuple[str, Callable[[], arb], str]] = [
        ("one head", lambda: study.head.least_risk("3.527", "3.528"), "3.7085"),
        ("debiased step", lambda: fraction(debiased_risk(study.pair.law)), "3.3334"),
        ("pair", lambda: study.pair.least_risk("0.559", "0.560"), "3.2733"),
    ]
    return both(
        _scale(study.pair, "0.559", constant, "a pair"),
        _scale(study.head, "3.527", constant, "one head"),
        *(evidence(rounds_to(name, value, _said(said, constant))) for name, value, said in values),
    )


@RISK_CLAIMS.claim("V19", wrong=(2.0, 3.0), box="thm-cert-krawczyk ic-one-sign", uses="I54")
def one_head(study: RiskStudy, constant: float) -> Evidence:
    r"""the best single head of the approximate loss
    at $d=5$, $L=40$, $\sigma=0.01$ the approximate loss of one head has exactly one critical point within $0.005$ of the formula in each of
    $\omega$ and $\mu$ (Krawczyk's test), with the loss $0.25373$
    wrong: the last printed digit increased by one; a critical point within $0.005$ of a place that lies $0.02$ beside the formula"""
    loss = study.approximate

    def derivatives(point: list[arb]) -> tuple[list[arb], list[list[arb]]]:
        return loss.derivatives(point[:1], point[1:])

    def alone() -> bool | None:
        w, _, mu = loss.trap()
        beside = 0.02 if constant == 3.0 else 0.0
        place = [float(w) + beside, float(mu) + beside]
        if krawczyk(derivatives, place, 0.005):
            return True
        slopes, _ = derivatives([ball(x) + ball(-0.005).union(ball(0.005)) for x in place])
        return False if any(sign(slope) for slope in slopes) else None

    def value() -> arb:
        w, _, mu = loss.trap()
        return loss.loss([w], [mu])

    return both(
        evidence(holds("one critical point within 0.005", alone, value)),
        evidence(rounds_to("its loss", value, _said("0.25373", constant))),
    )


@RISK_CLAIMS.claim("V20", wrong=-1.0, box="thm-cert-trapped thm-cert-trap ic-trap", uses="I63")
def trap(study: RiskStudy, constant: float) -> Evidence:
    r"""the trap is a strict local minimum, with a size
    at $d=5$, $L=40$, $\sigma=0.01$ and for each fraction $q=\mu_1/(\mu_1+\mu_2)$ in $[0.1,0.9]$ the approximate loss of two heads is
    strictly convex in $(\omega_1,\omega_2,\mu_1+\mu_2)$ within $0.005$ of the trap in each: the trap is the only critical point there, and
    the minimum
    wrong: fractions in $[1.1,1.9]$, where $\mu_2$ has the other sign"""
    shares = ("0.1", "0.9") if constant == 1.0 else ("1.1", "1.9")
    statement = f"convex within 0.005 of the trap for q in [{shares[0]}, {shares[1]}]"
    return evidence(
        holds(
            statement, lambda: study.approximate.trapped("0.005", *shares), lambda: study.approximate.eigenvalues()[0]
        )
    )


@RISK_CLAIMS.claim("V21", wrong=2.0, box="ic-trap", uses="I63 V20")
def eigenvalues(study: RiskStudy, constant: float) -> Evidence:
    r"""the curvature of the trap
    at $d=5$, $L=40$, $\sigma=0.01$ the eigenvalues of the Hessian of the approximate loss at two equal heads are $0$, $0.318$, $0.947$ and
    $6.379$
    wrong: the last printed digits increased by one"""
    loss = study.approximate
    return both(
        *(
            evidence(rounds_to(f"eigenvalue {i + 2}", lambda i=i: loss.eigenvalues()[i], _said(said, constant)))  # type: ignore[misc]
            for i, said in enumerate(("0.318", "0.947", "6.379"))
        )
    )


@RISK_CLAIMS.claim("V22", wrong=2.0, box="ic-ridge-between ic-factor-load", uses="I89")
def bayes_factor(study: RiskStudy, constant: float) -> Evidence:
    r"""how far the best debiased step is from Bayes
    at $d=5$, $L=40$, $\sigma=0.01$ the Bayes risk lies between $6.94\cdot10^{-5}$ and $7.353\cdot10^{-5}$, and the least risk of a debiased
    step is between 9067 and 9601 times as large
    wrong: the last printed digits increased by one"""
    law, step = study.law, debiased_risk(study.law)
    values: list[tuple[str, Callable[[], arb], str, str]] = [
        ("10^5 B(L+1)", lambda: law.bayes(law.length + 1) * 10**5, "6.94", "down"),
        ("10^5 B(L-1)", lambda: law.bayes(law.length - 1) * 10**5, "7.353", "up"),
        ("least factor", lambda: fraction(step) / law.bayes(law.length - 1), "9067", "down"),
        ("largest factor", lambda: fraction(step) / law.bayes(law.length + 1), "9601", "up"),
    ]
    return both(*(evidence(rounds_to(name, value, _said(said, constant), way)) for name, value, said, way in values))


@RISK_CLAIMS.claim("V23", wrong=10.0, box="thm-cert-noise thm-cert-two-examples", uses="I52 V18")
def all_noises(study: RiskStudy, constant: float) -> Evidence:
    r"""one finite pair beats every debiased step at all noise levels up to the signal's
    at $d=4$, $L=2$ and for every $\sigma\in[0,1]$ the pair with $\omega=0.25$ and its best output has a smaller exact risk than every
    debiased step; the two enclosures are of the difference at $\sigma=0$ and $\sigma=1$
    wrong: $\omega=2.5$"""
    scale = str(0.25 * constant)

    def ahead(found: TwoExamples) -> Evidence:
        def value() -> arb:
            return fraction(debiased_risk(found.law)) - found.risk(scale)

        def question() -> bool | None:
            return True if value() > 0 else False if value() < 0 else None

        return evidence(holds(f"omega = {scale} is ahead at sigma = {found.law.noise}", question, value, digits=6))

    return both(*map(ahead, study.noises))
