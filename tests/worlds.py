"""A claim and its negative control, each in its own world: data made by the claim's law, and data made by the control's."""

from bookkit.claims import Claim


def worlds(claim: Claim, own: object, other: object) -> list[str]:
    """What is wrong: in its own world the claim holds and its control fails, in the control's world the other way round."""
    found = tighter(claim, own, other)
    return [*found, f"{claim.id} holds in the world of its control"] if claim.judge(other, 1.0).holds else found


def tighter(claim: Claim, own: object, other: object) -> list[str]:
    """The same for a control that says more than the claim (half a bound): in the control's world the claim may hold as well."""
    verdicts = {
        f"{claim.id} fails in its own world": not claim.judge(own, 1.0).holds,
        f"the control of {claim.id} holds in the world of the claim": claim.judge(own, claim.wrong).holds,
        f"the control of {claim.id} fails in its own world": not claim.judge(other, claim.wrong).holds,
    }
    return [fault for fault, seen in verdicts.items() if seen]
