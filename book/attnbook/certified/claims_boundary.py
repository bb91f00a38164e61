r"""Claims V40-V59: the boundary of the mean-field flow between two decimals. A judge takes a `BoundaryStudy`; no float decides."""

from __future__ import annotations

from attnbook.certified.boundary import BoundaryStudy, bracket, ends, returns, shifted
from attnbook.certified.boundary_range import by_table
from attnbook.certified.judging import evidence
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("certified")


def _lower(study: BoundaryStudy, label_noise: str, constant: float) -> Evidence:
    """At the lower end the flow ends on the noise; the constant 2 moves the last digit by one."""
    return evidence(ends(label_noise, shifted(study.brackets[label_noise][0], constant - 1), "noise"))


def _upper(study: BoundaryStudy, label_noise: str, constant: float) -> Evidence:
    """At the upper end the flow ends on the signal; the constant 0 moves the last digit by one."""
    return evidence(ends(label_noise, shifted(study.brackets[label_noise][1], constant - 1), "signal"))


def _between(ends_of: tuple[str, str], label_noise: str, constant: float, rate: str = "1") -> Evidence:
    low, high = (shifted(end, constant - 1) for end in ends_of)
    return evidence(bracket(label_noise, low, high, rate))


@CLAIMS.claim("V40", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-long-trap", uses="L4 L3")
def lost_at_five_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost just below the boundary, at label noise 0.05
    at $\eta = 0.05$, $x = 1.0890$ (and $r = 1$) the flow from zero enters the trap, and the attention of clean samples on the signal tends
    to 0; the enclosure is this attention on entry
    wrong: the same at $x = 1.0891$"""
    return _lower(study, "0.05", constant)


@CLAIMS.claim("V41", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-long-trap", uses="L4 L3")
def lost_at_ten_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost just below the boundary, at label noise 0.1
    at $\eta = 0.1$, $x = 1.2077$ (and $r = 1$) the flow from zero enters the trap, and the attention of clean samples on the signal tends
    to 0; the enclosure is this attention on entry
    wrong: the same at $x = 1.2078$"""
    return _lower(study, "0.1", constant)


@CLAIMS.claim("V42", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-long-trap", uses="L4 L3")
def lost_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost just below the boundary, at label noise 0.2
    at $\eta = 0.2$, $x = 1.6211$ (and $r = 1$) the flow from zero enters the trap, and the attention of clean samples on the signal tends
    to 0; the enclosure is this attention on entry
    wrong: the same at $x = 1.6212$"""
    return _lower(study, "0.2", constant)


@CLAIMS.claim("V43", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-long-trap", uses="L4 L3")
def lost_at_thirty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost just below the boundary, at label noise 0.3
    at $\eta = 0.3$, $x = 2.7988$ (and $r = 1$) the flow from zero enters the trap, and the attention of clean samples on the signal tends
    to 0; the enclosure is this attention on entry
    wrong: the same at $x = 2.7989$"""
    return _lower(study, "0.3", constant)


@CLAIMS.claim("V44", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-cert-signal-set", uses="L3")
def kept_at_five_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept just above the boundary, at label noise 0.05
    at $\eta = 0.05$, $x = 1.0891$ (and $r = 1$) the flow from zero enters the signal set: attention on the signal tends to 1 for clean and
    to 0 for flipped samples; the enclosure is that of clean samples on entry
    wrong: the same at $x = 1.0890$"""
    return _upper(study, "0.05", constant)


@CLAIMS.claim("V45", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-cert-signal-set", uses="L3")
def kept_at_ten_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept just above the boundary, at label noise 0.1
    at $\eta = 0.1$, $x = 1.2078$ (and $r = 1$) the flow from zero enters the signal set: attention on the signal tends to 1 for clean and
    to 0 for flipped samples; the enclosure is that of clean samples on entry
    wrong: the same at $x = 1.2077$"""
    return _upper(study, "0.1", constant)


@CLAIMS.claim("V46", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-cert-signal-set", uses="L3")
def kept_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept just above the boundary, at label noise 0.2
    at $\eta = 0.2$, $x = 1.6212$ (and $r = 1$) the flow from zero enters the signal set: attention on the signal tends to 1 for clean and
    to 0 for flipped samples; the enclosure is that of clean samples on entry
    wrong: the same at $x = 1.6211$"""
    return _upper(study, "0.2", constant)


@CLAIMS.claim("V47", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-boundary thm-cert-signal-set", uses="L3")
def kept_at_thirty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept just above the boundary, at label noise 0.3
    at $\eta = 0.3$, $x = 2.7989$ (and $r = 1$) the flow from zero enters the signal set: attention on the signal tends to 1 for clean and
    to 0 for flipped samples; the enclosure is that of clean samples on entry
    wrong: the same at $x = 2.7988$"""
    return _upper(study, "0.3", constant)


@CLAIMS.claim("V48", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="L3 L18")
def boundary_at_five_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""a boundary to four decimals, at label noise 0.05
    at $\eta = 0.05$ (and $r = 1$) the flow from zero ends on the noise at $x = 1.0890$ and on the signal at $x = 1.0891$; a boundary point
    of the set of lost $x$ lies between
    wrong: both last digits are larger by one"""
    return _between(study.brackets["0.05"], "0.05", constant)


@CLAIMS.claim("V49", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="L3 L18")
def boundary_at_ten_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""a boundary to four decimals, at label noise 0.1
    at $\eta = 0.1$ (and $r = 1$) the flow from zero ends on the noise at $x = 1.2077$ and on the signal at $x = 1.2078$; a boundary point
    of the set of lost $x$ lies between
    wrong: both last digits are larger by one"""
    return _between(study.brackets["0.1"], "0.1", constant)


@CLAIMS.claim("V50", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="L3 L18 Q12")
def boundary_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""a boundary to four decimals, at label noise 0.2
    at $\eta = 0.2$ (and $r = 1$) the flow from zero ends on the noise at $x = 1.6211$ and on the signal at $x = 1.6212$; a boundary point
    of the set of lost $x$ lies between
    wrong: both last digits are larger by one"""
    return _between(study.brackets["0.2"], "0.2", constant)


@CLAIMS.claim("V51", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="L3 L18")
def boundary_at_thirty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""a boundary to four decimals, at label noise 0.3
    at $\eta = 0.3$ (and $r = 1$) the flow from zero ends on the noise at $x = 2.7988$ and on the signal at $x = 2.7989$; a boundary point
    of the set of lost $x$ lies between
    wrong: both last digits are larger by one"""
    return _between(study.brackets["0.3"], "0.3", constant)


@CLAIMS.claim("V52", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="V50")
def boundary_of_fast_attention(study: BoundaryStudy, constant: float) -> Evidence:
    r"""faster attention narrows the trap
    at $\eta = 0.2$ and $r = 4$ the flow from zero ends on the noise at $x = 1.5706$ and on the signal at $x = 1.5707$, both below the
    boundary for $r = 1$ that lies in $[1.6211, 1.6212]$
    wrong: both last digits are larger by one"""
    return _between(study.other_rates["4"], "0.2", constant, "4")


@CLAIMS.claim("V53", wrong=2.0, source=Source.CERTIFIED, box="thm-cert-boundary", uses="V50")
def boundary_of_slow_attention(study: BoundaryStudy, constant: float) -> Evidence:
    r"""slower attention widens the trap
    at $\eta = 0.2$ and $r = \tfrac14$ the flow from zero ends on the noise at $x = 1.6962$ and on the signal at $x = 1.6963$, both above
    the boundary for $r = 1$ that lies in $[1.6211, 1.6212]$
    wrong: both last digits are larger by one"""
    return _between(study.other_rates["0.25"], "0.2", constant, "0.25")


@CLAIMS.claim("V54", wrong=1.12, source=Source.CERTIFIED, box="thm-cert-boundary thm-long-first-move", uses="L18 L5")
def falls_and_returns(study: BoundaryStudy, constant: float) -> Evidence:
    r"""the first move does not decide: a proved example
    at $\eta = 0.2$, $x = 1.7$ the clean logit first falls ($x < x_1$, the enclosure is $x_1$), is below zero at some time, and the flow
    ends on the signal
    wrong: $x = 1.904$, above $x_1$"""
    return evidence(returns("0.2", f"{1.7 * constant:.3f}"))


@CLAIMS.claim("V55", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-range thm-long-trap", uses="L4 V40")
def all_lost_at_five_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost from one to the boundary, at label noise 0.05
    at $\eta = 0.05$ (and $r = 1$) the flow from zero ends on the noise for each $x$ in $[1, 1.0890]$: proved for all $x$ of each cell of a
    stored table, and on this page again at one $x$ that is drawn with its seed
    wrong: the flow ends on the signal there"""
    return evidence(
        by_table("0.05", "1", study.brackets["0.05"][0], "noise", study.seed, "noise" if constant else "signal")
    )


@CLAIMS.claim("V56", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-range thm-long-trap", uses="L4 V41")
def all_lost_at_ten_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost from one to the boundary, at label noise 0.1
    at $\eta = 0.1$ (and $r = 1$) the flow from zero ends on the noise for each $x$ in $[1, 1.2077]$: proved for all $x$ of each cell of a
    stored table, and on this page again at one $x$ that is drawn with its seed
    wrong: the flow ends on the signal there"""
    return evidence(
        by_table("0.1", "1", study.brackets["0.1"][0], "noise", study.seed, "noise" if constant else "signal")
    )


@CLAIMS.claim("V57", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-range thm-long-trap", uses="L4 V42")
def all_lost_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost from one to the boundary, at label noise 0.2
    at $\eta = 0.2$ (and $r = 1$) the flow from zero ends on the noise for each $x$ in $[1, 1.6211]$: proved for all $x$ of each cell of a
    stored table, and on this page again at one $x$ that is drawn with its seed
    wrong: the flow ends on the signal there"""
    return evidence(
        by_table("0.2", "1", study.brackets["0.2"][0], "noise", study.seed, "noise" if constant else "signal")
    )


@CLAIMS.claim("V58", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-range thm-long-trap", uses="L4 V43")
def all_lost_at_thirty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""lost from one to the boundary, at label noise 0.3
    at $\eta = 0.3$ (and $r = 1$) the flow from zero ends on the noise for each $x$ in $[1, 2.7988]$: proved for all $x$ of each cell of a
    stored table, and on this page again at one $x$ that is drawn with its seed
    wrong: the flow ends on the signal there"""
    return evidence(
        by_table("0.3", "1", study.brackets["0.3"][0], "noise", study.seed, "noise" if constant else "signal")
    )


@CLAIMS.claim("V59", wrong=0.0, source=Source.CERTIFIED, box="thm-cert-range thm-cert-signal-set", uses="V46 V57")
def all_kept_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept on a whole range above the boundary, at label noise 0.2
    at $\eta = 0.2$ (and $r = 1$) the flow from zero ends on the signal for each $x$ in $[1.63, 1.96]$: proved for all $x$ of each cell of a
    stored table, and on this page again at one $x$ that is drawn with its seed; with V57, no boundary up to 1.96 lies outside $(1.6211,
    1.63)$
    wrong: the flow ends on the noise there"""
    return evidence(by_table("0.2", *study.kept["0.2"], "signal", study.seed, "signal" if constant else "noise"))
