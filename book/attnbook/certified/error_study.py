"""What the page computes for the exact clean error. Each part is computed when it is first asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnbook.certified import hard_heads
from attnbook.certified.certificate import ball, precision
from attnbook.certified.clean_error import Enclosed, Head, enclose
from attnbook.certified.hard_heads import Compared, backward_ulps, compare, draw
from attnbook.certified.second_integral import by_arb_integral
from attnbook.certified.trained_heads import log10_clean_error_ball
from attnlib.single_head import SignalNoiseLaw, log10_clean_error, two_steps

# Heads from a coin toss to less than 10^-16000, and the digits of log10 err that are claimed.
LADDER = (
    (Head(0.0, 1e-6, 1.0, 0.5, 1.0), "-0.301030458"),
    (Head(2.0, 1.0, 0.5, -1.0, 0.3), "-1.968471246"),
    (Head(5.0, 3.0, 1.0, 0.2, 0.1), "-80.89230280"),
    (Head(8.0, 3.0, 0.7, 1.0, 0.1), "-4243.674021"),
    (Head(15.0, 1.0, 0.05, 0.5, 1.0), "-16206.52031"),
)
# Two walls that do not quite meet, and almost no noise besides that along p.
MEETING = (Head(0.0, 1.0, 1.0, 2.7182818284, 1e-12), "-766.5426069")
TRAINED = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05)  # the law of page I.2
STEP_SIZE = 0.025
_SECOND = ("wide", "deep", "steep")  # families of which heads are integrated twice


@dataclass(frozen=True)
class ErrorStudy:
    """seed: of the hard heads and the training sets; heads: of each family; trained: training sets."""

    seed: int = 1
    heads: int = 40
    trained: int = 6

    @cached_property
    def ladder(self) -> list[Enclosed]:
        """Enclosures of `LADDER`."""
        return [enclose(head) for head, _ in LADDER]

    @cached_property
    def compared(self) -> dict[str, list[Compared]]:
        """Hard heads of each family at this seed against the float path."""
        return {family: compare(draw(family, self.heads, self.seed)) for family in hard_heads.FAMILIES}

    @cached_property
    def moves(self) -> list[int | None]:
        """Of each head with two walls that nearly meet: how far c is moved where the float result is exact (0: not at all)."""
        return [backward_ulps(each) if each.distance > hard_heads.FAR else 0 for each in self.compared["tie"]]

    @cached_property
    def trained_distances(self) -> list[Any]:
        """|float/exact - 1| of log10 err after two steps of training, a ball for each training set."""
        sample = TRAINED.draw(self.seed, self.trained)
        head = two_steps(sample, STEP_SIZE)
        found = log10_clean_error(head.v2, head.p2, sample)
        exact = [log10_clean_error_ball(head.v2, head.p2, sample, run) for run in range(self.trained)]
        with precision(128):
            return [abs(ball(float(y)) / e - 1) for y, e in zip(found, exact, strict=True)]

    @cached_property
    def twice(self) -> list[tuple[Any, Any]]:
        """Both enclosures of log err for a few heads of errors above 10^-10000."""
        heads = [LADDER[i][0] for i in range(4)]
        for family in _SECOND:
            each = [c.head for c in self.compared[family] if c.log10_error > -1e4 and c.head.value > 0]
            heads += each[:4]
        return [(enclose(head).log_error, by_arb_integral(head).log_error) for head in heads]

    @cached_property
    def meeting(self) -> tuple[Enclosed, float]:
        """The enclosure of `MEETING` and its float result, both of log err."""
        return enclose(MEETING[0]), hard_heads.float_path([MEETING[0]])[0]


def log10_of(natural: Any) -> Any:
    """log10 from log, as balls."""
    with precision(256):
        return natural / ball(1).const_log10()


def printed(values: Sequence[Any], texts: Sequence[str], constant: float = 1.0) -> bool | None:
    """Whether each value rounds to the decimals of its text times `constant`: |value - text| is at most half a unit of its last place."""
    answers: list[bool | None] = []
    for value, text in zip(values, texts, strict=True):
        off = abs(value - ball(text) * ball(constant)) - ball(last_place(text)) / 2
        answers.append(True if off < 0 else False if off > 0 else None)
    return False if False in answers else None if None in answers else True


def last_place(text: str) -> str:
    """A unit of the last place of a decimal: 1e-3 of "2.125"."""
    return f"1e-{len(text.partition('.')[2])}"


def next_digit(text: str) -> float:
    """The factor by which a decimal grows when its last digit goes up by one."""
    return 1 + float(last_place(text)) / abs(float(text))
