r"""The kept side of the border of Part I at 20 per cent of flipped labels, beyond the range of Part VIII.

The certified claims of Part VIII prove that the flow from zero ends on the signal for each x in [1.63, 1.96] (label noise 0.2, r = 1).
Here the same enclosures of all x of a cell (`attnbook.certified.boundary_range`) go on to larger x. What is new is the signal set in which
a cell is caught: its numbers are read off from the states of the cell, where Part VIII tries five fixed ones. Any positive numbers
prove, by the theorem of the signal set, so a cell is caught earlier, before the bound of the radius has grown.

    python -m attnbook.open_questions.kept_side     proves all cells of `CELLS`, some minutes; exit 1 at the first that is not proved
"""

from itertools import pairwise, product

from attnbook.certified.boundary_flow import NoStep, parts
from attnbook.certified.boundary_range import BITS, DEGREE, Family, _advanced
from attnbook.certified.boundary_sets import SignalSet, in_signal_set
from attnbook.certified.certificate import _flint, ball, precision
from bookkit.parser import answered

LABEL_NOISE = "0.2"
CELLS = ("1.96", "2.02", "2.08", "2.14", "2.20", "2.27", "2.34", "2.41", "2.48", "2.55", "2.63", "2.71", "2.79", "2.87")
STEP = 2.0**-5  # of the clock T
ERROR = 1e-12  # of a step; above it a cell is halved
LONGEST = 14.0  # T after which a cell counts as undecided
HALVED = 40  # halvings at most in one cell
WIDEST = 1e-3  # radius above which halving does not help
FIRST = 1.5  # clean logit below which no set is tried
LARGER = (1.05, 1.2)  # largest pulls of the set over those of the states
BANDS = (("0.8", "1.35"), ("0.8", "1.2"), ("0.9", "1.2"), ("0.9", "1.1"), ("0.95", "1.1"))  # of gamma over x


def start(low: str, high: str) -> Family:
    """The flow from zero at time 0, for each x in [low, high]; inside `precision`."""
    arb = _flint().arb
    return Family(
        (ball(low) + ball(high)) / 2, (ball(high) - ball(low)) / 2, [[arb(0)] * (DEGREE + 1) for _ in range(5)]
    )


def caught(family: Family, nu) -> bool:
    """Whether the states of all x lie in one signal set, with the largest pulls a little above theirs."""
    state, model = family.state(), family.model(nu)
    if not state[3] > FIRST:
        return False
    w_c, w_n = (float(pull.upper()) for pull in parts(state, model)[2:4])
    return any(
        in_signal_set(state, model, SignalSet(f"{w_c * c:.6f}", f"{w_n * n:.6f}", *band))
        for band, c, n in product(BANDS, LARGER, LARGER)
    )


def kept(low: str, high: str) -> bool:
    """Whether the flow from zero is proved to end on the signal for each x in [low, high]. False: not proved."""
    with precision(BITS):
        eta = ball(LABEL_NOISE)
        nu = eta / (1 - eta)
        todo, halved = [start(low, high)], 0
        while todo:
            family = todo.pop()
            if caught(family, nu):
                continue
            try:
                ahead, error = _advanced(family, nu, STEP)
            except NoStep:
                error = float("inf")
            if error <= ERROR and family.time < LONGEST:
                todo.append(ahead)
            elif error > ERROR and family.radius < WIDEST and halved < HALVED:
                todo += reversed(family.halves())
                halved += 1
            else:
                return False
    return True


def main() -> int:
    """Prove the cells one after the other."""
    for low, high in pairwise(CELLS):
        found = kept(low, high)
        print(f"x from {low} to {high}: {'kept' if found else 'not proved'}", flush=True)
        if not found:
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(answered("kept_side", main))
