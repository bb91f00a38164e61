r"""Claims I91, I92, I93 and I95: what keeps the pattern of two numbers per head in place, and the other pattern, of trapped runs."""

import torch

from attnbook.in_context.what_holds_the_pattern.study import KINDS, antisymmetric_share, least
from bookkit.claims import ClaimSet, Source
from bookkit.rules import NothingToMeasure, agrees, both, exactly, statistic_within, stored_within
from bookkit.worlds import changed, exchange, together

CLAIMS = ClaimSet("in_context")


@CLAIMS.claim("I91", wrong=exchange("kept.symmetric prompts", "kept.permuted prompts"), box="ic-invariant")
def invariance(study):
    r"""the pattern is invariant
    at random circuits $M_h=\omega_hI$, $V_h=\mu_he_{d+1}$ the gradient of the risk has this form too, up to rounding, if the mean is over
    prompts that have the symmetries of the law: all coordinate axes in any order and with any signs, the labels and the query with either
    sign
    wrong: prompts with the axes in any order only, no signs"""
    return exactly(study.kept["symmetric prompts"], 0.0, tolerance=1e-10)


@CLAIMS.claim("I92", wrong=changed(torch.square, "small.growth"), box="ic-small-start", uses="I91")
def small_start(study):
    r"""from small starts the pattern grows fastest
    from opposite heads with random entries of size $\epsilon$, gradient descent has entries of size $\epsilon^{1-\ell_2/\ell_1}$ outside
    the pattern when the effective step reaches 0.3. $\ell_1$ and $\ell_2$ are the logarithms of the growth per step of the pattern and of
    label rows with outputs; for many prompts and short steps their ratio is $\sqrt d$ (exponent between $\epsilon=10^{-7}$ and $10^{-10}$,
    within 0.02)
    regime: starts whose effective step reaches 0.3 within the patience of the page
    wrong: growth in the ratio d
    coarse: six starts, since each descent from entries of 1e-10 takes thousands of steps"""
    small = study.small
    room = {"allowance": 0.02, "allowance_text": "higher powers of the start's size"}
    return agrees(small.slope, 1 - small.growth, **room, silent=~small.reached)


@CLAIMS.claim("I93", wrong=1.15, box="ic-off-hessian")
def second_derivative(study, constant):
    """three small matrices give the risk outside the pattern
    small random entries in the blocks, the label rows and the outputs of a pair add to its risk the value of the derived quadratic form,
    with no first order and no products of two kinds: ratio 1, on prompts with labels
    wrong: 15 % more"""
    return agrees(study.added, constant, allowance=0.03, allowance_text="fourth order in the entries")


def _least(form, kind, **bounds):
    return statistic_within(least, form[kind], quantity=f"least eigenvalue, {kind}", **bounds)


def _not_the_authors(study):
    law = study.law
    return "" if (law.d, law.length) == (5, 40) else f"needs d = 5 and L = 40; here {law.d} and {law.length}"


@CLAIMS.claim(
    "I95",
    wrong=together(exchange("pair", "equal"), changed(torch.logical_not, "trapped")),
    source=Source.MEASURED,
    box="ic-off-hessian ic-trap",
    uses="I93",
    violation=_not_the_authors,
)
def minimum_and_saddle(study):
    r"""the pattern is a minimum of the risk of all circuits, the trap a saddle
    at an opposite pair with $\omega=\pm0.14$ and the best step, where training ends, all three quadratic forms of the risk outside the
    pattern are positive. Two equal heads at the numbers of the best single one are a minimum among two-number heads of the approximate
    loss. Antisymmetric entries of opposite signs in their two blocks lower their risk, and so do label rows of opposite signs. In the
    stored trapped runs the part of the blocks off their diagonal is antisymmetric to 97 % of its square or more, with a cosine of -0.99 or
    less between the two heads
    regime: d = 5, L = 40, where it was measured
    wrong: the equal heads in place of the pair, and the runs that are not trapped"""
    if not study.trapped.any():
        raise NothingToMeasure("needs a stored trapped run; there is none")
    ends = study.stored[2].final[study.trapped]
    turns = (ends.covariate_block - ends.covariate_block.mT).flatten(2).double()
    cosine = (turns[:, 0] * turns[:, 1]).sum(-1) / turns.norm(dim=2).prod(1)
    return both(
        *(_least(study.pair, kind, low=0.0) for kind in KINDS),
        _least(study.equal, KINDS[1], high=0.0),
        _least(study.equal, KINDS[2], high=0.0),
        stored_within(antisymmetric_share(ends), low=0.97, quantity="antisymmetric share"),
        stored_within(cosine, high=-0.99, quantity="cosine of the two turns"),
    )
