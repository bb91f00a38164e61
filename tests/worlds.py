"""A claim and its negative control, each in its own world: data made by the claim's law, and data made by the control's.

A control without a world of its own has the claim's, changed as the control changes it: an exchange is its own inverse.
"""

from itertools import zip_longest

from bookkit.claims import Claim


def worlds(claim: Claim, own: object, *others: object) -> list[str]:
    """What is wrong: in its own world the claim holds and its controls fail, in a control's world the other way round."""
    found = tighter(claim, own, *others)
    return found + [
        f"{claim.id} holds in a control's world" for _, other in _each(claim, own, others) if claim.seen(other).holds
    ]


def tighter(claim: Claim, own: object, *others: object) -> list[str]:
    """The same for a control that says more than the claim (half a bound): in the control's world the claim may hold as well."""
    found = [] if claim.seen(own).holds else [f"{claim.id} fails in its own world"]
    for wrong, other in _each(claim, own, others):
        if claim.seen(own, wrong).holds:
            found.append(f"the control of {claim.id} holds in the world of the claim")
        if not claim.seen(other, wrong).holds:
            found.append(f"the control of {claim.id} fails in its own world")
    return found


def _each(claim: Claim, own: object, others: tuple) -> list[tuple]:
    """Each control with its world."""
    pairs = zip_longest(claim.wrongs, others)
    return [(wrong, wrong(own) if other is None else other) for wrong, other in pairs]
