r"""Claims TS11-TS19: the recursion is gradient descent, inner products can be drawn, and what the fixed head knows at the start.

Each judge takes a `SettingStudy` and a constant (1 is the claim, `wrong` its negative control). None is a lemma of the paper; derivations
are in the theory chapter of Part II.
"""

import math
from dataclasses import replace

from attnbook.token_selection.setting.study import LONG_D, SettingStudy
from attnbook.token_selection.theory import loss_floor, uniform_attention_accuracy
from bookkit.claims import ClaimSet
from bookkit.rules import LEVEL, Evidence, agrees, both, difference_within, exactly, student, within

CLAIMS = ClaimSet("token_selection")


def _pairs(study: SettingStudy):
    return (study.zero_prompt, study.gaussian_prompt)


@CLAIMS.claim("TS11", wrong=0.0, box="ts-recursion")
def three_lines_are_descent(study: SettingStudy, constant: float) -> Evidence:
    r"""the three-line recursion is gradient descent
    the recursion $z\leftarrow z+\alpha Hc+\alpha(\pi+\alpha\beta)Kc$, $H\leftarrow H+\alpha(zk^\top+kz^\top)+\alpha^2\pi kk^\top$,
    $\pi\leftarrow\pi+2\alpha\beta+\alpha^2c^\top Hc$, with $K=XX^\top$, $k=Kc$, $\beta=c^\top z$ and $c$ minus the gradient of the loss in
    the scores $z$, gives the scores of gradient descent on $W$ and $p$ exactly, at every step, from $p_0=0$ and from a Gaussian $p_0$
    wrong: the terms in α² left out"""
    return both(
        *(
            exactly(
                pair.three_lines if constant == 1 else pair.without_second_order,
                pair.dense.scores,
                draws=pair.dense.runs,
            )
            for pair in _pairs(study)
        )
    )


@CLAIMS.claim("TS12", wrong=1.001, box="ts-coordinates ts-recursion", uses="TS11")
def fresh_coordinates(study: SettingStudy, constant: float) -> Evidence:
    r"""the numbers that determine scores on fresh data need no vectors
    with $v=W^\top p$, the numbers $v\cdot\mu_\pm$, $|v|^2$ and $|p|^2$ that are computed without vectors equal those of training with
    vectors, at every step
    wrong: all three numbers 0.1 % larger"""
    names = ("direction_on_signals", "direction_norm_squared", "prompt_norm_squared")
    return both(
        *(
            exactly(constant * getattr(pair.reduced, name), getattr(pair.dense, name), draws=pair.dense.runs)
            for pair in _pairs(study)
            for name in names
        )
    )


@CLAIMS.claim("TS13", wrong=0.0, box="ts-recursion ts-v1-recursion")
def one_parameter_fixed(study: SettingStudy, constant: float) -> Evidence:
    r"""if one parameter is fixed, one line is enough
    if only $p$ is trained, the scores of the training tokens obey $z\leftarrow z+\alpha H_0c$; if only $W$ is trained, they obey
    $z\leftarrow z+\alpha|p_0|^2Kc$ (with $H_0=XW_0^\top W_0X^\top$, $K=XX^\top$, and $c$ minus the gradient of the loss in the scores)
    wrong: the two rules exchanged"""
    order = ("p", "W") if constant == 1 else ("W", "p")
    return both(
        *(
            exactly(study.only[rule][1], study.only[trained][0].scores, draws=1)
            for trained, rule in zip(("p", "W"), order, strict=True)
        )
    )


@CLAIMS.claim("TS14", wrong=0.0, box="ts-gram")
def drawn_inner_products(study: SettingStudy, constant: float) -> Evidence:
    """inner products can be drawn in any dimension
    for Gaussian token noise and Gaussian $W_0$ and $p_0$, the inner products $K$, $H_0$, $z_0$, $J_0$, … that are drawn directly have the
    same joint law as those computed from vectors: the means of all statistics of the page agree, each measured in the standard deviation
    of its own draws
    wrong: a dimension 10 % larger"""
    sampling = study.sampling
    drawn = sampling.drawn if constant == 1 else sampling.drawn_wrong
    each = LEVEL / len(drawn)  # so that all statistics together keep the level of one rule
    unit = {name: values.std() for name, values in sampling.dense.items()}
    parts = [
        difference_within(sampling.dense[name] / unit[name], drawn[name] / unit[name], 0.0, 0.0, level=each)
        for name in drawn
    ]
    scores = sampling.z_scores(wrong=constant != 1)
    name, worst = max(scores.items(), key=lambda item: abs(item[1]))
    return replace(
        both(*parts),
        predicted=f"equal means of {len(scores)} statistics",
        measured=f"largest |z| = {abs(worst):.2g} ({name})",
        rule=f"two-sample |z| of the means <= about {student(2 * sampling.draws - 1, each):.2g} (Welch's t), every statistic",
        numbers={f"z {name}": z for name, z in scores.items()},
    )


@CLAIMS.claim("TS15", wrong=2**0.5, box="ts-uniform-accuracy")
def uniform_attention(study: SettingStudy, constant: float) -> Evidence:
    r"""the fixed head classifies before training
    under uniform attention a fresh sample is classified correctly with probability
    $\Phi\big(|\mu|(1+(k-1)\rho)/(\sigma_\varepsilon\sqrt{2T})\big)$, where $k$ is the number of weakly relevant tokens and $\Phi$ the
    distribution function of the standard normal law
    wrong: argument of Φ larger by the factor √2"""
    laws = [replace(study.law, signal_norm=constant * norm) for norm in study.signal_norms.tolist()]
    predicted = sum(map(uniform_attention_accuracy, laws)) / len(laws)
    return agrees(study.uniform_accuracy.mean(1), predicted)


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
def floor_of_the_loss(study: SettingStudy, constant: float) -> Evidence:
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


@CLAIMS.claim("TS17", wrong=0.0, box="ts-arithmetic")
def stable_force(study: SettingStudy, constant: float) -> Evidence:
    r"""the vanishing force is computed with full relative precision
    if the values are measured from that of the token with the largest score, the computed force $\sigma(-s)s(1-s)$ on this token has a
    relative error of at most $10^{-12}$ at every gap up to 600 of the page
    wrong: the plain difference γ − f"""
    computed, exact = study.force["stable" if constant == 1 else "naive"]
    return exactly(computed / exact, 1.0, tolerance=1e-12, draws=len(study.gaps))


@CLAIMS.claim(
    "TS18",
    rf"""the signal score keeps growing after attention has saturated
    at $d={LONG_D:g}$, in a run in which every step moves a score equally far, $v\cdot\mu$ with $v=W^\top p$ grows by 80 % or more in
    the second half of the run, where attention on training data equals 1 to fifteen digits, in at least 95 % of training sets
    wrong: the force computed as the plain difference γ − f""",
    wrong=0.0,
    box="ts-arithmetic ts-late",
    uses="TS11 TS17",
)
def signal_goes_on(study: SettingStudy, constant: float) -> Evidence:
    signal = study.long_runs["stable" if constant == 1 else "naive"].signal_score
    return within(signal[-1] / signal[len(signal) // 2 - 1], low=1.8, quantity="growth of v·μ in the second half")
