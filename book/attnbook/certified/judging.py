"""From a certificate to the evidence of a claim. Chance has no part in it."""

from attnbook.certified.certificate import Certificate
from bookkit.rules import Evidence, NothingToMeasure
from bookkit.sharpness import Fixed

RULE = "ball arithmetic: rounding controlled, no chance"


def evidence(certificate: Certificate) -> Evidence:
    """The claim holds where the certificate proves it. Raises `NothingToMeasure` where it is undecided."""
    if certificate.proved is None:
        raise NothingToMeasure(f"undecided at {certificate.bits} bits: {certificate.statement}")
    enclosed = f"[{certificate.low}, {certificate.high}]" if certificate.low else certificate.verdict
    numbers = {"low": float(certificate.low), "high": float(certificate.high)} if certificate.low else {}
    numbers |= {"bits": certificate.bits} if certificate.bits else {}
    return Evidence(
        certificate.proved,
        certificate.statement,
        enclosed,
        RULE,
        1,
        numbers,
        parts=(Fixed(certificate.proved, *_seen(numbers)),),
    )


def _seen(numbers: dict[str, float]) -> tuple[()] | tuple[str, float]:
    """Kind and value of the resolution: the relative width of an enclosure, or nothing to add to "exactly"."""
    if "low" not in numbers:
        return ()
    low, high = numbers["low"], numbers["high"]
    return "enclosure", (high - low) / max(abs(low), abs(high)) if high > low else 0.0
