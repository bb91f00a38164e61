"""A claim and its negative control, each in its own world: data made by the claim's law, and data made by the control's."""

from bookkit.claims import Claim


def worlds(claim: Claim, own: object, other: object) -> None:
    """In its own world the claim holds and its control fails; in the control's world the other way round."""
    tighter(claim, own, other)
    assert not claim.judge(other, 1.0).holds


def tighter(claim: Claim, own: object, other: object) -> None:
    """The same for a control that says more than the claim (half a bound): in the control's world the claim may hold as well."""
    assert claim.judge(own, 1.0).holds
    assert not claim.judge(own, claim.wrong).holds
    assert claim.judge(other, claim.wrong).holds
