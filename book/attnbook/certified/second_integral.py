r"""The same integral by Arb's own integrator, which shares no panel and no remainder with `attnbook.certified.clean_error`.

$e^{h(t)} = e^{-t^2/2}\,\mathrm{erfc}(x(t)/\sqrt2)/2$ is an entire function of a complex t. Arb bounds it on ellipses around an interval,
takes Gauss-Legendre nodes until the remainder, which follows from that bound, is small enough, and halves the interval where it is not
(Johansson, arXiv 1802.07942; the library is not ours). Only the tails are bounded as before. It takes about ten times as long.
"""

from typing import Any

from attnbook.certified import clean_error
from attnbook.certified.certificate import precision
from attnbook.certified.clean_error import Balls, Enclosed


def by_arb_integral(head: Balls) -> Enclosed:
    """log err as a ball, for a head with V > 0."""
    from flint import acb, arb

    with precision(96):
        n = clean_error.numbers(head)
        if n.sign <= 0:
            raise ValueError("V must be > 0 here: the second integral has no use for a mirrored head")
        mode, left, right = clean_error.where(n)
        peak = clean_error.density(mode, n)

        def integrand(t: Any, analytic: bool) -> Any:
            x = (n.level - n.omega * t).exp() + n.slope * t
            return (x / n.root).erfc() / 2 * (-(t * t) / 2 - peak).exp()

        mass = sum((acb.integral(integrand, acb(a), acb(b)) for a, b in ((left, mode), (mode, right))), acb(0)).real
        tails = clean_error.tail(left, -1, n) + clean_error.tail(right, 1, n)
        total = mass + tails * (-peak).exp()
        return Enclosed(total.log() + peak - (2 * arb.pi()).log() / 2, 96, 0)
