r"""Claims R3-R6 of page `03_rotations_are_free`: reduced coordinates are exact in law, and for which training rules."""

import math

from bookkit.claims import ClaimSet, Source, Verdict
from bookkit.rules import agrees, both, exactly
from bookkit.worlds import exchange

CLAIMS = ClaimSet("single_head")


# R4 compares independent samples of equal size: differences of unrelated draws have the right standard error.


@CLAIMS.claim("R3", wrong=1.2, box="thm-exact-error")
def exact_is_sampled(study, constant):
    """the integral is the clean error
    for each trained head the one-dimensional integral for the clean error is the expected fraction of misclassified fresh samples, drawn as
    $d$-vectors
    wrong: 1.2 times the integral"""
    return agrees(study.sampled_error, constant * study.exact_error)


@CLAIMS.claim(
    "R4", wrong=exchange("reduced_outcomes", "outcomes_at_twice_d"), box="thm-reduced", uses="R3 thm-bartlett"
)
def same_law(study):
    r"""runs on d-vectors and in reduced coordinates agree in law
    independent draws of both kinds have the same mean $\log_{10}$ clean error and the same mean attention on clean and on flipped samples
    wrong: twice the dimension"""
    reduced, dense = study.reduced_outcomes, study.dense_outcomes
    unflipped = (reduced[:, 3] == 0) | (dense[:, 3] == 0)  # no attention of flipped samples
    return both(*(agrees(reduced[:, i], dense[:, i], silent=unflipped if i == 2 else None) for i in range(3)))


@CLAIMS.claim(
    "R5",
    wrong=1.1,
    box="prop-rate",
    uses="R3 R4",
    violation=lambda s: (
        ""
        if len(s.errors_by_dimension) > 1 and sorted(s.errors_by_dimension)[-2] >= 100 * s.law.n
        else f"needs two dimensions >= 100 n = {100 * s.law.n}; here {sorted(s.errors_by_dimension)[-2:]}"
    ),
)
def exponent(study, constant):
    r"""the exponent of the clean error is proportional to d
    at fixed $n$, $n\,\mathrm{SNR}^2$ and $\beta d/n$ the $\log_{10}$ of the clean error grows in proportion to $d$ as $d\to\infty$:
    $\mathrm{err} = e^{-\Theta(d/n)}$
    regime: the two largest dimensions, both at least $100\,n$
    wrong: 10 % faster than d"""
    small, large = sorted(study.errors_by_dimension)[-2:]
    ratio = study.errors_by_dimension[large] / study.errors_by_dimension[small] / (large / small)
    prefactor = math.log10(small / study.law.n) / study.errors_by_dimension[small].mean().abs().item()
    allowance = {"allowance": prefactor, "allowance_text": "the error's prefactor, a power of d/n, at the smaller d"}
    return agrees(ratio, constant, **allowance)


@CLAIMS.claim(
    "R6",
    wrong=exchange("sign_descent", "descent"),
    source=Source.DERIVED,
    box="rem-reduced-extensions",
    expected=Verdict.FAILS,
)
def sign_descent(study):
    """sign descent commutes with rotations too
    sign descent gives the same margins on rotated data (it does not: coordinate-wise rules must be run on $d$-vectors)
    wrong: gradient descent in place of sign descent, which holds"""
    return exactly(*study.sign_descent)
