r"""Claims TS11-TS18: the recursion is gradient descent, inner products can be drawn, and what the value vector knows at the start.

None is a lemma of the paper; derivations are in the theory chapter of Part II.
"""

import math
from dataclasses import replace

from attnbook.token_selection.setting.study import LONG_D, moments, z_scores
from attnbook.token_selection.theory import loss_floor, uniform_attention_accuracy
from bookkit.claims import ClaimSet
from bookkit.rules import LEVEL, agrees, both, difference_within, exactly, student, within
from bookkit.worlds import exchange, together

CLAIMS = ClaimSet("token_selection")


@CLAIMS.claim(
    "TS11",
    wrong=together(
        exchange("zero_prompt.three_lines", "zero_prompt.without_second_order"),
        exchange("gaussian_prompt.three_lines", "gaussian_prompt.without_second_order"),
    ),
    box="ts-recursion",
)
def three_lines_are_descent(study):
    r"""the three-line recursion is gradient descent
    the recursion $z\leftarrow z+\alpha Hc+\alpha(\pi+\alpha\beta)Kc$, $H\leftarrow H+\alpha(zk^\top+kz^\top)+\alpha^2\pi kk^\top$,
    $\pi\leftarrow\pi+2\alpha\beta+\alpha^2c^\top Hc$, with $K=XX^\top$, $k=Kc$, $\beta=c^\top z$ and $c$ minus the gradient of the loss in
    the scores $z$, gives the scores of gradient descent on $W$ and $p$ exactly, at every step, from $p_0=0$ and from a Gaussian $p_0$
    wrong: the terms in α² left out"""
    pairs = (study.zero_prompt, study.gaussian_prompt)
    return both(*(exactly(pair.three_lines, pair.dense.scores, draws=pair.dense.runs) for pair in pairs))


@CLAIMS.claim("TS14", wrong=exchange("sampling.drawn", "sampling.drawn_wrong"), box="ts-gram")
def drawn_inner_products(study):
    """inner products can be drawn in any dimension
    for Gaussian token noise and Gaussian $W_0$ and $p_0$, the inner products $K$, $H_0$, $z_0$, $J_0$, … that are drawn directly have the
    law of those computed from vectors, as far as first and second moments show it: all statistics of the page have the same means and the
    same variances, each measured in the standard deviation of its own draws, and so have two sums of all of them, one with alternating
    signs, in which their dependence shows
    wrong: a dimension 10 % larger"""
    dense, drawn = study.sampling.dense, study.sampling.drawn
    first, second = moments(dense, drawn)
    each = LEVEL / first.shape[1]  # so that all of them together keep the level of one rule
    parts = [difference_within(*pair, 0.0, 0.0, level=each) for pair in zip(first.T, second.T, strict=True)]
    scores = z_scores(dense, drawn)
    name, worst = max(scores.items(), key=lambda item: abs(item[1]))
    return replace(
        both(*parts),
        predicted=f"equal means and variances of {len(scores)} statistics and of two sums of them",
        measured=f"largest |z| of a mean = {abs(worst):.2g} ({name})",
        rule=f"two-sample |z| of the means <= about {student(2 * len(first) - 1, each):.2g} (Welch's t), every statistic",
        numbers={f"z {name}": z for name, z in scores.items()},
    )


@CLAIMS.claim("TS15", wrong=2**0.5, box="ts-uniform-accuracy")
def uniform_attention(study, constant):
    r"""the value vector classifies before training
    under uniform attention a fresh sample is classified correctly with probability
    $\Phi\big(|\mu|(1+(k-1)\rho)/(\sigma_\varepsilon\sqrt{2T})\big)$, where $k$ is the number of weakly relevant tokens and $\Phi$ the
    distribution function of the standard normal law: at each signal norm of the page
    wrong: argument of Φ larger by the factor √2"""
    norms = study.signal_norms.tolist()
    return both(
        *(
            agrees(
                accuracy,
                uniform_attention_accuracy(replace(study.law, signal_norm=constant * norm)),
                allowance=1 / study.uniform_count,
                allowance_text="one point",
                level=LEVEL / len(norms),
            )
            for norm, accuracy in zip(norms, study.uniform_accuracy.T, strict=True)
        )
    )


@CLAIMS.claim(
    "TS16",
    wrong=2**0.5,
    box="ts-floor",
    violation=lambda s: (
        ""
        if s.law.head_scale == 1 and s.law.signal_norm >= 5 * s.law.noise_std
        else f"needs head_scale 1 and signal_norm >= 5 noise_std; here {s.law.head_scale:g} and {s.law.signal_norm:g}"
    ),
)
def floor_of_the_loss(study, constant):
    r"""the loss has a positive lower limit
    if all attention is on the relevant token and $|\nu||\mu|=1$, the mean loss on fresh data is
    $\log(1+e^{-1/\sqrt2})+\frac12\sigma'(1/\sqrt2)\,\sigma_\varepsilon^2/|\mu|^2$: 0.4008 and a second term that is due to the noise of the
    values ($\sigma(x)=1/(1+e^{-x})$)
    regime: $|\nu||\mu|=1$ and $|\mu|\ge 5\sigma_\varepsilon$
    wrong: margin 1 instead of 1/√2"""
    ratio = study.law.noise_std / study.law.signal_norm
    floor = loss_floor(replace(study.law, head_scale=constant))
    slope = -math.expm1(-floor)  # 1 - e^{-loss} is the logistic function of minus the margin
    return agrees(
        study.selected_loss,
        floor + slope * (1 - slope) * ratio**2 / 2,
        allowance=ratio**4,
        allowance_text="fourth order of σ/|μ|",
    )


@CLAIMS.claim(
    "TS18",
    rf"""the signal score keeps growing after attention has saturated
    at $d={LONG_D:g}$, in a run in which every step moves a score equally far, $v\cdot\mu$ with $v=W^\top p$ doubles or more in
    the second half of the run, where attention on training data equals 1 to fifteen digits, in at least 95 % of training sets
    wrong: the force computed as the plain difference γ − f""",
    wrong=exchange("long_runs.stable", "long_runs.naive"),
    box="ts-arithmetic ts-late",
    uses="TS11",
)
def signal_goes_on(study):
    signal = study.long_runs["stable"].signal_score
    return within(signal[-1] / signal[len(signal) // 2 - 1], low=2.0, quantity="growth of v·μ in the second half")
