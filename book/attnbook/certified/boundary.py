r"""The boundary x*(eta) of the mean-field flow, proved to four decimals.

    end_of_flow(label_noise, x)     "noise" if the flow from zero is proved to enter the trap, "signal" if the signal set, else None
    ends(label_noise, x, on)        the same as a certificate
    bracket(label_noise, low, high) at `low` it ends on the noise, at `high` on the signal: a boundary lies between
    returns(label_noise, x)         x below x_1, the clean logit falls below zero, and yet the flow ends on the signal

Numbers are texts: "1.6212" is the decimal, not the nearest float.
"""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache

from attnbook.certified.boundary_flow import STEP, Model, NoStep, Tube, flow_tube
from attnbook.certified.boundary_sets import SignalSet, in_signal_set, in_trap
from attnbook.certified.certificate import Certificate, ball, bounds, precision

BRACKETS = {
    "0.05": ("1.0890", "1.0891"),
    "0.1": ("1.2077", "1.2078"),
    "0.2": ("1.6211", "1.6212"),
    "0.3": ("2.7988", "2.7989"),
}
OTHER_RATES = {"4": ("1.5706", "1.5707"), "0.25": ("1.6962", "1.6963")}  # at label noise 0.2
KEPT = {"0.2": ("1.6300", "1.9600")}
TRIES = ((128, STEP), (192, STEP / 4))  # bits and length of a step
SETS = (  # numbers of the signal set: the first one in which the flow is caught proves
    SignalSet("0.2", "0.43", "0.7", "1.3"),
    SignalSet("0.24", "0.37", "0.7", "1.3"),
    SignalSet("0.24", "0.158", "0.85", "1.2"),
    SignalSet("0.12", "0.18", "0.7", "1.3"),
    SignalSet("0.53", "0.73", "0.7", "1.3"),
)


@dataclass(frozen=True)
class End:
    """Where a path was caught, if it was, and whether its clean logit is proved to have been below zero at some time."""

    where: str | None  # "noise", "signal" or None
    tube: Tube | None
    fell: bool
    bits: int


def _number(name: str, text: str, low: str, high: str) -> str:
    """The text, if it is a decimal strictly between the two."""
    try:
        inside = isinstance(text, str) and Decimal(low) < Decimal(text) < Decimal(high)
    except InvalidOperation:
        inside = False
    if not inside:
        raise ValueError(f"{name} must be a decimal as a text, above {low} and below {high}; got {text!r}")
    return text


@cache
def end_of_flow(label_noise: str, x: str, rate: str = "1") -> End:
    """Follow the flow from zero until it is caught by one of the two sets. Raises ValueError for a text that is no such number."""
    _number("label_noise", label_noise, "0", "0.5")
    _number("x", x, "0", "1000")
    _number("rate", rate, "0", "1000")
    end = End(None, None, False, TRIES[-1][0])
    for bits, length in TRIES:
        with precision(bits):
            eta = ball(label_noise)
            model = Model(ball(x), eta / (1 - eta), ball(rate))
        below_zero = []

        def caught(state, model=model, below_zero=below_zero):  # type: ignore[no-untyped-def]
            below_zero.append(bool(state[3] < 0))
            if in_trap(state, model):
                return "noise"
            return "signal" if any(in_signal_set(state, model, numbers) for numbers in SETS) else None

        try:
            tube, where = flow_tube(model, caught, bits=bits, length=length)
        except NoStep:
            continue
        end = End(where, tube, any(below_zero), bits)
        if where:
            break
    return end


def _attention(end: End) -> tuple[str, str]:
    """The enclosure of the clean samples' attention on the signal where the path was caught."""
    if end.tube is None or end.where is None:
        return "", ""
    with precision(end.bits):
        return bounds(1 / (1 + (-end.tube.state[3]).exp()), 5)


def _named(label_noise: str, rate: str) -> str:
    return f"eta = {label_noise}" + ("" if rate == "1" else f", r = {rate}")


def ends(label_noise: str, x: str, on: str, rate: str = "1") -> Certificate:
    """Whether the flow from zero ends on `on`, "noise" or "signal"; low and high enclose s_c where it is caught."""
    if on not in ("noise", "signal"):
        raise ValueError(f"on must be 'noise' or 'signal'; got {on!r}")
    end = end_of_flow(label_noise, x, rate)
    proved = None if end.where is None else end.where == on
    return Certificate(f"{_named(label_noise, rate)}, x = {x}: ends on the {on}", proved, *_attention(end), end.bits)


def bracket(label_noise: str, low: str, high: str, rate: str = "1") -> Certificate:
    """Whether the flow ends on the noise at x = low and on the signal at x = high. Raises ValueError unless low < high."""
    _number("low", low, "0", "1000")
    _number("high", high, low, "1000")
    statement = (
        f"{_named(label_noise, rate)}: on the noise at x = {low}, on the signal at x = {high}, a boundary between"
    )
    lower = ends(label_noise, low, "noise", rate)
    if lower.proved is not True:
        return Certificate(statement, lower.proved, bits=lower.bits)
    upper = ends(label_noise, high, "signal", rate)
    return Certificate(statement, upper.proved, low, high, max(lower.bits, upper.bits))


def returns(label_noise: str, x: str) -> Certificate:
    """Whether x < x_1, the clean logit falls below zero and the flow ends on the signal; low and high enclose x_1."""
    statement = f"eta = {label_noise}, x = {x}: the clean logit first falls, and the flow ends on the signal"
    end = end_of_flow(label_noise, x)
    with precision(end.bits):
        eta = ball(label_noise)
        nu = eta / (1 - eta)
        first = (nu + (nu**2 + (1 - nu) ** 2).sqrt()) / (1 - nu) ** 2
        below = bool(ball(x) < first)
        above = bool(ball(x) > first)
        if above or end.where == "noise":
            proved: bool | None = False
        else:
            proved = True if below and end.where == "signal" and end.fell else None
        return Certificate(statement, proved, *bounds(first, 7), end.bits)


def shifted(text: str, units: float) -> str:
    """The decimal with its last digit moved by so many units: shifted("1.6211", 1) is "1.6212"."""
    number = Decimal(text)
    return str(number + Decimal(round(units)).scaleb(int(number.as_tuple().exponent)))


@dataclass(frozen=True)
class BoundaryStudy:
    """The intervals that are proved: by label noise at r = 1, and by r at label noise 0.2."""

    brackets: dict[str, tuple[str, str]]
    other_rates: dict[str, tuple[str, str]]
    kept: dict[str, tuple[str, str]]  # by label noise, x above the boundary that were proved cell by cell
    seed: int

    def path(self, label_noise: str, side: int) -> End:
        """The path from zero at the lower (0) or the upper (1) end of an interval."""
        return end_of_flow(label_noise, self.brackets[label_noise][side])


def make_boundary(seed: int = 0) -> BoundaryStudy:
    """The study of the page; the paths are computed when they are asked for, and once. seed: of the x at which ranges are tried."""
    return BoundaryStudy(BRACKETS, OTHER_RATES, KEPT, seed)
