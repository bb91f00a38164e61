"""A claim and its negative control, each in its own world: data made by the claim's law, and data made by the control's."""

from bookkit.claims import Claim


def worlds(claim: Claim, own: object, *others: object) -> list[str]:
    """What is wrong: in its own world the claim holds and its controls fail, in a control's world the other way round."""
    found = tighter(claim, own, *others)
    return found + [f"{claim.id} holds in a control's world" for other in others if claim.judge(other, 1.0).holds]


def tighter(claim: Claim, own: object, *others: object) -> list[str]:
    """The same for a control that says more than the claim (half a bound): in the control's world the claim may hold as well."""
    wrong = claim.wrong if isinstance(claim.wrong, tuple) else (claim.wrong,)
    found = [] if claim.judge(own, 1.0).holds else [f"{claim.id} fails in its own world"]
    for constant, other in zip(wrong, others, strict=True):
        if claim.judge(own, constant).holds:
            found.append(f"the control of {claim.id} holds in the world of the claim")
        if not claim.judge(other, constant).holds:
            found.append(f"the control of {claim.id} fails in its own world")
    return found
