r"""Claims V40-V51: the boundary of the mean-field flow between two decimals. A judge takes a `BoundaryStudy`; no float decides."""

from attnbook.certified.boundary import BRACKETS, BoundaryStudy, bracket, ends, shifted
from attnbook.certified.judging import evidence
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence

BOUNDARY_CLAIMS = ClaimSet("certified", Source.CERTIFIED)


def _lost(id: str, eta: str, **links: str) -> None:
    low, high = BRACKETS[eta]

    @BOUNDARY_CLAIMS.claim(
        id,
        rf"""lost just below the boundary, at label noise {eta}
        at $\eta = {eta}$, $x = {low}$ (and $r = 1$) the flow from zero enters the trap, and the attention of clean samples on the signal
        tends to 0; the enclosure is this attention on entry
        wrong: the same at $x = {high}$""",
        wrong=2.0,
        **links,
    )
    def judge(study: BoundaryStudy, constant: float) -> Evidence:
        return evidence(ends(eta, shifted(study.brackets[eta][0], constant - 1), "noise"))


def _kept(id: str, eta: str, **links: str) -> None:
    low, high = BRACKETS[eta]

    @BOUNDARY_CLAIMS.claim(
        id,
        rf"""kept just above the boundary, at label noise {eta}
        at $\eta = {eta}$, $x = {high}$ (and $r = 1$) the flow from zero enters the signal set: attention on the signal tends to 1 for clean
        and to 0 for flipped samples; the enclosure is that of clean samples on entry
        wrong: the same at $x = {low}$""",
        wrong=0.0,
        **links,
    )
    def judge(study: BoundaryStudy, constant: float) -> Evidence:
        return evidence(ends(eta, shifted(study.brackets[eta][1], constant - 1), "signal"))


def _boundary(id: str, eta: str, **links: str) -> None:
    low, high = BRACKETS[eta]

    @BOUNDARY_CLAIMS.claim(
        id,
        rf"""a boundary to four decimals, at label noise {eta}
        at $\eta = {eta}$ (and $r = 1$) the flow from zero ends on the noise at $x = {low}$ and on the signal at $x = {high}$; a boundary
        point of the set of lost $x$ lies between
        wrong: both last digits are larger by one""",
        wrong=2.0,
        **links,
    )
    def judge(study: BoundaryStudy, constant: float) -> Evidence:
        return evidence(bracket(eta, *(shifted(end, constant - 1) for end in study.brackets[eta])))


_lost("V40", "0.05", box="thm-cert-boundary thm-long-trap", uses="L4 L3")
_lost("V41", "0.1", box="thm-cert-boundary thm-long-trap", uses="L4 L3")
_lost("V42", "0.2", box="thm-cert-boundary thm-long-trap", uses="L4 L3")
_lost("V43", "0.3", box="thm-cert-boundary thm-long-trap", uses="L4 L3")
_kept("V44", "0.05", box="thm-cert-boundary thm-cert-signal-set", uses="L3")
_kept("V45", "0.1", box="thm-cert-boundary thm-cert-signal-set", uses="L3")
_kept("V46", "0.2", box="thm-cert-boundary thm-cert-signal-set", uses="L3")
_kept("V47", "0.3", box="thm-cert-boundary thm-cert-signal-set", uses="L3")
_boundary("V48", "0.05", box="thm-cert-boundary", uses="L3 L18")
_boundary("V49", "0.1", box="thm-cert-boundary", uses="L3 L18")
_boundary("V50", "0.2", box="thm-cert-boundary", uses="L3 L18 Q12")
_boundary("V51", "0.3", box="thm-cert-boundary", uses="L3 L18")
