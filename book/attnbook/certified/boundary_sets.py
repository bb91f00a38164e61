r"""Two sets that the mean-field flow never leaves: the trap, on which it ends on the noise, and a set on which it ends on the signal.

The trap is that of the chapter *In the long run*. The signal set $\mathcal S$ has four numbers, the largest pulls
$\omega_c,\omega_n$ and the range $\gamma_-<\gamma_+$ of the ratio of the loss slopes, and four more that are read off from the state with
which it is entered: the smallest $V-t_c$, $V+t_n$, V and $t_n$. It is invariant if the six numbers of `signal_room` are positive.
Proof: chapter of certified numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbook.certified.boundary_flow import Model, parts
from attnbook.certified.certificate import ball

if TYPE_CHECKING:
    from flint import arb


@dataclass(frozen=True)
class SignalSet:
    """Decimals: omega_c, omega_n, and gamma_- and gamma_+ as multiples of x."""

    omega_c: str
    omega_n: str
    gamma_low: str
    gamma_high: str


def in_trap(state: tuple[arb, ...], model: Model) -> bool | None:
    """Whether each state of the balls lies in the interior of the trap; None where they do not tell, False where none does."""
    V, t_c, t_n, a, b = state
    room = [t_c - V, -a - model.x.log(), -b - (model.nu * model.x).log(), V + t_n]
    return True if all(side > 0 for side in room) else False if any(side < 0 for side in room) else None


def signal_room(bounds: SignalSet, model: Model, gap_c: arb, gap_n: arb, signal: arb, noise: arb) -> list[arb]:
    """Six numbers; if all are > 0, the set with V - t_c >= gap_c, V + t_n >= gap_n, V >= signal, t_n >= noise is invariant."""
    x, nu, rate = model.x, model.nu, model.rate
    omega_c, omega_n = ball(bounds.omega_c), ball(bounds.omega_n)
    low, high = x * ball(bounds.gamma_low), x * ball(bounds.gamma_high)
    # u and s are at most the smaller roots of u (1 - u) = omega / gap: NaN, and no proof, where there is none below 1/2
    u, s = ((1 - (1 - 4 * omega / gap).sqrt()) / 2 for omega, gap in ((omega_c, gap_c), (omega_n, gap_n)))
    e_c = 1 / (1 + (signal - omega_c / (1 - u)).exp())  # largest loss slopes: sigma(-margin)
    e_n = 1 / (1 + (noise - omega_n / (1 - s)).exp())
    cross = s + rate * omega_c * omega_n
    return [
        rate * (1 - 2 * u) * ((1 + x) * omega_c - x * nu * high * omega_n) - x / gap_c,
        rate * (1 - 2 * s) * ((1 + x * nu) * low * omega_n - x * omega_c) - (x + high) / gap_n,
        (1 - e_n) * (high * (1 - s) ** 2 - x * cross) - x - rate * (1 + x) * omega_c**2,
        (1 - e_c) * (x * (1 - u) ** 2 - nu * x * low * cross) - low * (1 + rate * (1 + x * nu) * omega_n**2),
        x * (1 - u) - u - x * nu * high * s,
        x - 1,  # with nu x < 3 below: the bounds of the kernel's diagonal
    ]


def in_signal_set(state: tuple[arb, ...], model: Model, bounds: SignalSet) -> bool | None:
    """True if each state of the balls lies in a set that `signal_room` proves invariant; None where that is not shown."""
    V, t_c, t_n, a, b = state
    _, _, w_c, w_n, clean, noisy = parts(state, model)
    gamma = (1 + clean) / (1 + noisy)
    inside = [
        ball(bounds.omega_c) - w_c,
        ball(bounds.omega_n) - w_n,
        gamma - model.x * ball(bounds.gamma_low),
        model.x * ball(bounds.gamma_high) - gamma,
        V - t_c,
        V + t_n,
        a,
        -b,
        3 - model.nu * model.x,
    ]
    if not all(side > 0 for side in inside):
        return None
    room = signal_room(bounds, model, (V - t_c).lower(), (V + t_n).lower(), V.lower(), t_n.lower())
    return True if all(side > 0 for side in room) else None
