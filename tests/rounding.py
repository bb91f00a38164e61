"""How far apart rounding may leave two sums of the same numbers: a tolerance from what is compared, not from one run of one machine."""

import math

import torch


def rounding(terms: int, size: float = 1.0, dtype: torch.dtype = torch.float32) -> float:
    """Room for numbers that each come from `terms` additions one after another, of partial sums up to `size`.

    An addition rounds to the nearest of numbers that are eps * size apart at most: its error is even on half of that to either
    side, with a standard deviation of eps * size / sqrt(12). Two orders of adding `terms` numbers make 2 * terms such errors, which
    are off by sqrt(terms / 6) * eps * size together; the largest of some thousand such differences is about five times that, 2 *
    sqrt(terms) * eps * size. The room is four times as much: a comparison that rounding alone explains uses a quarter of it
    (`tests.close_calls`).

    Args:
        terms: Additions on the way to one number: the lengths of all sums that are computed from each other, added up.
        size: The largest partial sum, in the units of what is compared: after a division it is smaller by the divisor.
        dtype: In which the sums were computed.
    """
    return 8 * math.sqrt(terms) * torch.finfo(dtype).eps * size


def of_digits(count: int) -> float:
    """Relative room for a number that was stored with `count` significant digits.

    Half a unit of the last digit, 5 * 10^-count of the number at most, takes a quarter of it: the number itself may round otherwise.
    """
    return 20 * 10.0**-count
