r"""Claims I91, I92, I93 and I95: what keeps the pattern of two numbers per head in place, and the other pattern, of trapped runs.

Each judge takes a `PatternStudy` and a constant (1 is the claim, `wrong` its negative control).
"""

import torch

from attnbook.in_context.circuits.pattern import BesideStudy, PatternStudy, antisymmetric_share
from attnbook.in_context.off_pattern import KINDS, OffPatternHessian
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, NothingToMeasure, agrees, both, exactly, statistic_within, stored_within

CLAIMS = ClaimSet("in_context")


def _beside(study: PatternStudy) -> BesideStudy:
    if study.beside is None:
        raise NothingToMeasure("needs two covariates or more: one has no directions beside the pattern")
    return study.beside


@CLAIMS.claim("I91", wrong=0.0, box="ic-invariant")
def invariance(study: PatternStudy, constant: float) -> Evidence:
    r"""the pattern is invariant
    at random circuits $M_h=\omega_hI$, $V_h=\mu_he_{d+1}$ the gradient of the risk has this form too, up to rounding, if the mean is over
    prompts that have the symmetries of the law: all coordinate axes in any order and with any signs, the labels and the query with either
    sign
    wrong: prompts with the axes in any order only, no signs"""
    outside = _beside(study).kept["symmetric prompts" if constant == 1 else "permuted prompts"]
    return exactly(outside, 0.0, tolerance=1e-10)


@CLAIMS.claim("I92", wrong=2.0, box="ic-small-start", uses="I91")
def small_start(study: PatternStudy, constant: float) -> Evidence:
    r"""from small starts the pattern grows fastest
    from opposite heads with random entries of size $\epsilon$, gradient descent has entries of size $\epsilon^{1-\ell_2/\ell_1}$ outside
    the pattern when the effective step reaches 0.3. $\ell_1$ and $\ell_2$ are the logarithms of the growth per step of the pattern and of
    label rows with outputs; for many prompts and short steps their ratio is $\sqrt d$ (exponent between $\epsilon=10^{-7}$ and $10^{-10}$,
    within 0.02)
    regime: starts whose effective step reaches 0.3 within the patience of the page
    wrong: growth in the ratio d
    coarse: six starts, since each descent from entries of 1e-10 takes thousands of steps"""
    small = _beside(study).small
    slopes, exponents = (
        torch.tensor([getattr(start, name) for start in small], dtype=torch.float64) for name in ("slope", "exponent")
    )
    return agrees(
        slopes,
        1 - (1 - exponents) ** constant,
        allowance=0.02,
        allowance_text="higher powers of the start's size",
        silent=torch.tensor([not start.reached for start in small]),
    )


@CLAIMS.claim("I93", wrong=1.15, box="ic-off-hessian")
def second_derivative(study: PatternStudy, constant: float) -> Evidence:
    """three small matrices give the risk outside the pattern
    small random entries in the blocks, the label rows and the outputs of a pair add to its risk the value of the derived quadratic form,
    with no first order and no products of two kinds: ratio 1, on prompts with labels
    wrong: 15 % more"""
    return agrees(_beside(study).added, constant, allowance=0.03, allowance_text="fourth order in the entries")


def _least(form: OffPatternHessian, kind: str, **bounds: float) -> Evidence:
    return statistic_within(form.least(kind), form.per_batch[kind], quantity=f"least eigenvalue, {kind}", **bounds)


def _not_the_authors(study: PatternStudy) -> str:
    law = study.law
    return "" if (law.d, law.length) == (5, 40) else f"needs d = 5 and L = 40; here {law.d} and {law.length}"


@CLAIMS.claim(
    "I95", wrong=0.0, source=Source.MEASURED, box="ic-off-hessian ic-trap", uses="I93", violation=_not_the_authors
)
def minimum_and_saddle(study: PatternStudy, constant: float) -> Evidence:
    r"""the pattern is a minimum of the risk of all circuits, the trap a saddle
    at an opposite pair with $\omega=\pm0.14$ and the best step, where training ends, all three quadratic forms of the risk outside the
    pattern are positive. Two equal heads at the numbers of the best single one are a minimum among two-number heads of the approximate
    loss. Antisymmetric entries of opposite signs in their two blocks lower their risk, and so do label rows of opposite signs. In the
    stored trapped runs the part of the blocks off their diagonal is antisymmetric to 97 % of its square or more, with a cosine of -0.99 or
    less between the two heads
    regime: d = 5, L = 40, where it was measured
    wrong: the equal heads in place of the pair, and the runs that are not trapped"""
    beside, stored = _beside(study), study.stored[2].final
    trapped = study.trapped(2) if constant == 1 else ~study.trapped(2)
    if not trapped.any():
        raise NothingToMeasure("needs a stored trapped run; there is none")
    pair, equal = (beside.pair, beside.equal) if constant == 1 else (beside.equal, beside.pair)
    ends = stored[trapped]
    turns = (ends.covariate_block - ends.covariate_block.mT).flatten(2).double()
    cosine = (turns[:, 0] * turns[:, 1]).sum(-1) / turns.norm(dim=2).prod(1)
    return both(
        *(_least(pair, kind, low=0.0) for kind in KINDS),
        _least(equal, KINDS[1], high=0.0),
        _least(equal, KINDS[2], high=0.0),
        stored_within(antisymmetric_share(ends), low=0.97, quantity="antisymmetric share"),
        stored_within(cosine, high=-0.99, quantity="cosine of the two turns"),
    )
