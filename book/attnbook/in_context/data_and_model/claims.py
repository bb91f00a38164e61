r"""Claims I14 and I17: the mean over regression vector and noise, and two heads with small scores.

None is a theorem of the paper; derivations are in the theory chapter of Part III. What holds exactly, such as that two circuits are the
whole head, is tested and no claim.
"""

from attnbook.in_context.data_and_model.study import LOUD, gain_of_halving
from bookkit.claims import ClaimSet
from bookkit.rules import agrees, both, within
from bookkit.worlds import exchange

CLAIMS = ClaimSet("in_context")


@CLAIMS.claim(
    "I14",
    rf"""the mean over regression vector and noise has a closed form
    for weights $c_i$ that do not depend on labels, the mean of $(\sum_ic_iy_i-\langle x_q,\beta\rangle)^2$ over $\beta$ and the label noise
    is $s_\beta^2(|X^\top c-x_q|^2+s_2|c|^2)$, $s_2=d\sigma^2$, for each prompt (judged at $\sigma={LOUD:g}$)
    wrong: σ² in place of s₂ = dσ²""",
    wrong=exchange("identity.formula", "identity.without d"),
    box="ic-linear-risk",
)
def conditional_mean(study):
    return agrees(study.identity["sampled"] / study.identity["formula"], 1.0)


@CLAIMS.claim(
    "I17",
    wrong=exchange("limit.pair_to_centred", "limit.pair_to_plain"),
    box="ic-small-heads",
    violation=lambda s: "" if s.law.length > 1 else "needs length > 1; one example, centred, is zero",
)
def linear_limit(study):
    r"""two opposite heads with small scores compute a centred gradient step
    the predictions of heads $(\omega,\mu)$ and $(-\omega,-\mu)$ with $2\omega\mu=1$ differ from $\frac1L\sum_iy_i\langle x_i-\bar
    x,x_q\rangle$ by a term of order $\omega^2$ with a known constant. At the smallest ω of the page, in at least 95 % of batches of
    prompts, halving ω divides the distance by 3.9 to 4.1, and the distance is the formula's to 2 %
    regime: two examples or more
    wrong: the step with x_i, not centred"""
    limit = study.limit
    ratio = limit.pair_to_centred[:, -1] / (limit.omega[-1] ** 2 * limit.third_order)
    return both(
        within(gain_of_halving(limit.pair_to_centred), low=3.9, high=4.1, quantity="gain of halving ω"),
        within(ratio, low=0.98, high=1.02, quantity="distance / formula"),
    )
