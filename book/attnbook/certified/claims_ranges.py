r"""Claims V52-V59: the boundary at other step sizes, a path that returns, whole ranges of x. A judge takes a `BoundaryStudy`."""

from collections.abc import Callable
from functools import partial

from attnbook.certified.boundary import BRACKETS, BoundaryStudy, bracket, returns, shifted
from attnbook.certified.boundary_range import by_table, side
from attnbook.certified.full_run import Table
from attnbook.certified.judging import evidence
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence

RANGE_CLAIMS = ClaimSet("certified", Source.CERTIFIED)
TABLES: dict[str, tuple[Callable[[], Table], ...]] = {}  # by claim, what `attnlib certify --full` proves


def _at_rate(study: BoundaryStudy, rate: str, constant: float) -> Evidence:
    low, high = (shifted(end, constant - 1) for end in study.other_rates[rate])
    return evidence(bracket("0.2", low, high, rate))


@RANGE_CLAIMS.claim("V52", wrong=2.0, box="thm-cert-boundary", uses="V50")
def boundary_of_fast_attention(study: BoundaryStudy, constant: float) -> Evidence:
    r"""faster attention narrows the trap
    at $\eta = 0.2$ and $r = 4$ the flow from zero ends on the noise at $x = 1.5706$ and on the signal at $x = 1.5707$, both below the
    boundary for $r = 1$ that lies in $[1.6211, 1.6212]$
    wrong: both last digits are larger by one"""
    return _at_rate(study, "4", constant)


@RANGE_CLAIMS.claim("V53", wrong=2.0, box="thm-cert-boundary", uses="V50")
def boundary_of_slow_attention(study: BoundaryStudy, constant: float) -> Evidence:
    r"""slower attention widens the trap
    at $\eta = 0.2$ and $r = \tfrac14$ the flow from zero ends on the noise at $x = 1.6962$ and on the signal at $x = 1.6963$, both above
    the boundary for $r = 1$ that lies in $[1.6211, 1.6212]$
    wrong: both last digits are larger by one"""
    return _at_rate(study, "0.25", constant)


@RANGE_CLAIMS.claim("V54", wrong=1.12, box="thm-cert-boundary thm-long-first-move", uses="L18 L5")
def falls_and_returns(study: BoundaryStudy, constant: float) -> Evidence:
    r"""the first move does not decide: a proved example
    at $\eta = 0.2$, $x = 1.7$ the clean logit first falls ($x < x_1$, the enclosure is $x_1$), is below zero at some time, and the flow
    ends on the signal
    wrong: $x = 1.904$, above $x_1$"""
    return evidence(returns("0.2", f"{1.7 * constant:.3f}"))


def _all_lost(id: str, eta: str, **links: str) -> None:
    TABLES[id] = (partial(side, eta, "noise"),)

    @RANGE_CLAIMS.claim(
        id,
        rf"""lost from one to the boundary, at label noise {eta}
        at $\eta = {eta}$ (and $r = 1$) the flow from zero ends on the noise for each $x$ in $[1, {BRACKETS[eta][0]}]$: each cell of a
        stored table was proved by the full run on record, and one $x$ that is drawn with the page's seed is proved again here
        wrong: the flow ends on the signal there""",
        wrong=0.0,
        **links,
    )
    def judge(study: BoundaryStudy, constant: float) -> Evidence:
        end = "noise" if constant else "signal"
        return evidence(
            by_table(eta, "1", study.brackets[eta][0], "noise", study.seed, end), *(table() for table in TABLES[id])
        )


_all_lost("V55", "0.05", box="thm-cert-range thm-long-trap", uses="L4 V40")
_all_lost("V56", "0.1", box="thm-cert-range thm-long-trap", uses="L4 V41")
_all_lost("V57", "0.2", box="thm-cert-range thm-long-trap", uses="L4 V42")
_all_lost("V58", "0.3", box="thm-cert-range thm-long-trap", uses="L4 V43")


TABLES["V59"] = (partial(side, "0.2", "signal"),)


@RANGE_CLAIMS.claim("V59", wrong=0.0, box="thm-cert-range thm-cert-signal-set", uses="V46 V57")
def all_kept_at_twenty_per_cent(study: BoundaryStudy, constant: float) -> Evidence:
    r"""kept on a whole range above the boundary, at label noise 0.2
    at $\eta = 0.2$ (and $r = 1$) the flow from zero ends on the signal for each $x$ in $[1.63, 1.96]$: each cell of a stored table
    was proved by the full run on record, and one $x$ that is drawn with the page's seed is proved again here; with V57, no boundary up to
    1.96 lies outside $(1.6211, 1.63)$
    wrong: the flow ends on the noise there"""
    end = "signal" if constant else "noise"
    return evidence(
        by_table("0.2", *study.kept["0.2"], "signal", study.seed, end), *(table() for table in TABLES["V59"])
    )
