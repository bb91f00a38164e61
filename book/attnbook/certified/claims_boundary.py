r"""Claim V50: the boundary of the mean-field flow between two decimals. Its judge takes a `BoundaryStudy`; no float decides."""

from attnbook.certified.boundary import BoundaryStudy, bracket, shifted
from attnbook.certified.judging import evidence
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both

BOUNDARY_CLAIMS = ClaimSet("certified", Source.CERTIFIED)


@BOUNDARY_CLAIMS.claim(
    "V50", wrong=2.0, box="thm-cert-boundary thm-cert-signal-set thm-long-trap", uses="L3 L4 L18 Q12"
)
def boundaries(study: BoundaryStudy, constant: float) -> Evidence:
    r"""the boundary to four decimals, at four rates of label noise
    at $\eta = 0.05, 0.1, 0.2, 0.3$ (and $r = 1$) the flow from zero ends on the noise at $x = 1.0890, 1.2077, 1.6211, 2.7988$ and on the
    signal at $x = 1.0891, 1.2078, 1.6212, 2.7989$; a boundary point of the set of lost $x$ lies between
    wrong: all last digits are larger by one"""
    return both(
        *(evidence(bracket(eta, *(shifted(x, constant - 1) for x in ends))) for eta, ends in study.brackets.items())
    )
