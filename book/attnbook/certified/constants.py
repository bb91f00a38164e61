r"""Constants of Part II, and of the flow of Part I, as balls: functions at the present precision.

All letters are those of the chapter "Proofs for Part II": tokens T, the flipped fraction $\eta$, the weak signal $\rho$,
$h=|\nu||\mu|$; one token of each kind ($k_\rho=1$), so that the coefficients are $a=(1,\rho,\rho,0,\dots)$ and the values
$y=(1,-\rho,\rho,0,\dots)/\sqrt2$. Numbers of a law are decimals, such as "0.2", and stand for exactly that decimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attnbook.certified.certificate import ball
from attnbook.certified.printed import enclosed_root
from attnbook.halving import halved

if TYPE_CHECKING:
    from flint import acb, arb

_TAIL = 14  # standard deviations; what lies beyond is below 2 Phi(-14) < 10^-40 and is added to the ball


@dataclass(frozen=True)
class Selection:
    """The law of Part II. Every property is a ball at the precision at which it is first asked for: make a new object for another."""

    tokens: int = 8
    flipped: str = "0.2"
    weak: str = "0.1"
    head: str = "1"

    @cached_property
    def eta(self) -> arb:
        return ball(self.flipped)

    @cached_property
    def rho(self) -> arb:
        return ball(self.weak)

    @cached_property
    def h(self) -> arb:
        return ball(self.head)

    @cached_property
    def advantage(self) -> arb:
        r"""$\bar a-A_1/T$, $\bar a=1-\eta+\eta\rho$, $A_1=1+2\rho$."""
        return 1 - self.eta + self.eta * self.rho - (1 + 2 * self.rho) / self.tokens

    @cached_property
    def signal_score(self) -> arb:
        r"""$S^*$, the root of $e^S=T-3+2e^{\rho S}$: where attention on $x_1$, which increases in S, is one half."""
        rho, others = self.rho, self.tokens - 3

        def f(s: arb) -> arb:
            return s.exp() - others - 2 * (rho * s).exp()

        def slope(s: arb) -> arb:
            return s.exp() - 2 * rho * (rho * s).exp()

        return enclosed_root(f, slope, _guess(f, 0.0, 20.0))

    @cached_property
    def first_half(self) -> arb:
        r"""$\mathcal C$: the integral over $S=S^*u$, $0\le u\le1$. A finite ball proves that the denominator has no zero on the way."""
        from flint import acb

        root2 = acb(2).sqrt()
        eta, rho, h, end = acb(self.eta), acb(self.rho), acb(self.h), acb(self.signal_score)

        def integrand(u: acb, analytic: bool) -> acb:
            strong, weak = (end * u).exp(), (rho * end * u).exp()
            total = strong + 2 * weak + (self.tokens - 3)
            first, second = strong / total, weak / total  # attention on x_1, and on each weak token
            mean = first / root2  # the values of x_2 and x_3 cancel
            # sum of a_t s_t (y_t - mean); x_2 and x_3 together
            growth = first * (1 / root2 - mean) - 2 * rho * second * mean
            force = (1 - eta) / (1 + (h * mean).exp()) - eta / (1 + (-h * mean).exp())
            return 2 * end / (force * growth)

        return acb.integral(integrand, 0, 1).real

    @cached_property
    def memory_exponent(self) -> arb:
        r"""$\kappa=\frac{T-1}{2T}\mathrm{KL}((1-\eta,\eta)\|(\sigma(h/\sqrt2),\sigma(-h/\sqrt2)))$, for $\eta<\sigma(-h/\sqrt2)$."""
        doubt = 1 / (1 + (self.h / ball(2).sqrt()).exp())
        entropy = (1 - self.eta) * ((1 - self.eta) / (1 - doubt)).log() + self.eta * (self.eta / doubt).log()
        return entropy * (self.tokens - 1) / (2 * self.tokens)

    @cached_property
    def delay_exponent(self) -> arb:
        r"""$b=2S^*/(\bar a-A_1/T)$."""
        return 2 * self.signal_score / self.advantage

    @cached_property
    def drag(self) -> arb:
        r"""$r_0=2(y_1-\bar y)/\{[(1-\eta)e^{-h\bar y}-\eta](1-A_1/T)\sum_ta_t(y_t-\bar y)\}$; the bracket must be positive."""
        root2, T = ball(2).sqrt(), self.tokens
        mean, total = 1 / (root2 * T), 1 + 2 * self.rho
        lead = (1 - self.eta) * (-self.h * mean).exp() - self.eta
        if not lead > 0:
            raise ArithmeticError("(1 - eta) exp(-h mean y) - eta is not proved positive")
        return 2 * (1 / root2 - mean) / (lead * (1 - total / T) * (1 / root2 - total * mean))

    @cached_property
    def floor(self) -> arb:
        r"""$\log(1+e^{-h/\sqrt2})$, the loss of a clean sample that attends to $x_1$ alone."""
        return (1 + (-self.h / ball(2).sqrt()).exp()).log()

    def hard_selection(self, discrimination: arb) -> arb:
        r"""$P_1(D)=\int\varphi(x)\Phi(x+D(1-\rho))^2\Phi(x+D)^{T-3}dx$; it increases in D, because every factor does."""
        from flint import acb, arb

        D, rho, root2 = acb(discrimination), acb(self.rho), acb(2).sqrt()

        def normal(x: acb) -> acb:
            return (-x / root2).erfc() / 2

        def integrand(x: acb, analytic: bool) -> acb:
            density = (-x * x / 2).exp() / (2 * acb.pi()).sqrt()
            return density * normal(x + D * (1 - rho)) ** 2 * normal(x + D) ** (self.tokens - 3)

        tail = normal(acb(-_TAIL)).real * 2
        return acb.integral(integrand, -_TAIL, _TAIL, abs_tol=arb(10) ** -14).real + tail * arb(0).union(arb(1))

    @cached_property
    def critical(self) -> arb:
        """$D_c$, $P_1(D_c)=1/2$: two numbers, 2e-9 apart, on whose sides the sign is proved."""
        # a guess, 37 halvings to 1e-10; only the two signs below are proof
        low, high = halved(lambda D: self.hard_selection(ball(D)) < 0.5, 0.0, 8.0, 37)
        below, above = ball(low) - ball("1e-9"), ball(high) + ball("1e-9")
        if not (self.hard_selection(below) < 0.5 and self.hard_selection(above) > 0.5):
            raise ArithmeticError(f"no root of P_1 = 1/2 is proved near {low:g}")
        return below.union(above)

    @cached_property
    def critical_strength(self) -> arb:
        r"""$q_c=\frac{4(T-1)}TD_c^2/(\bar a-A_1/T)^2$."""
        return 4 * (self.tokens - 1) * self.critical**2 / self.advantage**2 / self.tokens

    def discrimination(self, signal_norm: str, inverse: arb) -> arb:
        r"""$D=|\mu|\varsigma/\sqrt{r\sum w\sum_te_t^2+2\varsigma^2}$, all gaps 1, at $\sigma_\varepsilon=1$ and $r=1/$`inverse`."""
        r, T, rho = 1 / inverse, self.tokens, self.rho
        first, second = 1 + 2 * rho, 1 + 2 * rho**2
        score = r / 2 * self.advantage / (1 + r / 2 * (second - first**2 / T))
        shares = [ball(1), rho, rho] + [ball(0)] * (T - 3)
        weights = [(1 - first * score) / T + a * score for a in shares]
        squares = ball(0)
        for kind, selected in ((1 - self.eta, 0), (self.eta, 1)):
            own = [(1 - w if t == selected else -w) for t, w in enumerate(weights)]
            squares += kind * sum((e**2 for e in own), ball(0))
        return ball(signal_norm) * score / (r * squares + 2 * score**2).sqrt()


def _guess(f, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """A float near a root of f, which changes its sign from - to + between low and high."""
    return sum(halved(lambda x: f(ball(x)) < 0, low, high, 60)) / 2


def first_move(flipped: str) -> arb:
    r"""$x_1=\frac{\nu+\sqrt{\nu^2+(1-\nu)^2}}{(1-\nu)^2}$, $\nu=\eta/(1-\eta)$."""
    eta = ball(flipped)
    nu = eta / (1 - eta)
    return (nu + (nu**2 + (1 - nu) ** 2).sqrt()) / (1 - nu) ** 2
