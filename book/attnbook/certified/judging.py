"""From a certificate to the evidence of a claim. Chance has no part in it."""

from attnbook.certified.certificate import Certificate
from attnbook.certified.full_run import Table
from bookkit.rules import Evidence, NothingToMeasure
from bookkit.sharpness import Fixed

SPOT_CHECKED = "spot-checked"
RULE = "ball arithmetic: rounding controlled, no chance"


def evidence(certificate: Certificate, *tables: Table) -> Evidence:
    """The claim holds where the certificate proves it, and where it rests on stored tables, if a full run of each is on record.

    Raises `NothingToMeasure` where it is undecided, or proved for the rows that were tried and no others: then it is spot-checked.
    """
    if certificate.proved is None:
        raise NothingToMeasure(f"undecided at {certificate.bits} bits: {certificate.statement}")
    if certificate.proved and (missing := {table.name: table.missing for table in tables if table.missing}):
        raise NothingToMeasure(
            f"{SPOT_CHECKED}: {next(iter(missing.values()))} ({', '.join(missing)}); run attnlib certify --full; only a few rows are "
            f"proved: {certificate.statement}"
        )
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
        parts=(Fixed(certificate.proved, *_seen({} if certificate.box else numbers)),),
    )


def _seen(numbers: dict[str, float]) -> tuple[()] | tuple[str, float]:
    """Kind and value of the resolution: the relative width of an enclosure, or nothing to add to "exactly"."""
    if "low" not in numbers:
        return ()
    low, high = numbers["low"], numbers["high"]
    return "enclosure", (high - low) / max(abs(low), abs(high)) if high > low else 0.0
