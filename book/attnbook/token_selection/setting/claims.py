r"""Claims TS11-TS19: the recursion is gradient descent, inner products can be drawn, and what the fixed head knows at the start.

Each judge takes a `SettingStudy` and a constant (1 is the claim, `wrong` its negative control). None is a lemma of the paper; derivations
are in the theory chapter of Part II.
"""

from __future__ import annotations

import math
from dataclasses import replace

from attnbook.token_selection.setting.study import LONG_D, SettingStudy
from attnlib.token_selection.theory import loss_floor, uniform_attention_accuracy
from bookkit.claims import ClaimSet
from bookkit.rules import LEVEL, Evidence, agrees, both, difference_within, exactly, student, within

__all__ = ["CLAIMS"]

CLAIMS = ClaimSet("token_selection")


def _pairs(study: SettingStudy):
    return (study.zero_prompt, study.gaussian_prompt)


@CLAIMS.claim(
    "TS11",
    "three lines are gradient descent",
    r"$z\leftarrow z+\alpha Hc+\alpha(\pi+\alpha\beta)Kc$, $H\leftarrow H+\alpha(zk^\top+kz^\top)+\alpha^2\pi kk^\top$, "
    r"$\pi\leftarrow\pi+2\alpha\beta+\alpha^2c^\top Hc$ gives the scores of gradient descent on $W$ and $p$ exactly, at every step, "
    "from a zero and from a Gaussian prompt",
    wrong=0.0,
    wrong_text="the terms in α² left out",
    box=("ts-recursion",),
)
def three_lines_are_descent(study: SettingStudy, constant: float) -> Evidence:
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


@CLAIMS.claim(
    "TS12",
    "what fresh data see needs no vector either",
    r"$v\cdot\mu_\pm$, $|v|^2$ and $|p|^2$ ($v=W^\top p$), computed without vectors, equal those of the dense run at every step",
    wrong=1.001,
    wrong_text="all three larger by 0.1 %",
    box=("ts-coordinates", "ts-recursion"),
    uses=("TS11",),
)
def fresh_coordinates(study: SettingStudy, constant: float) -> Evidence:
    names = ("direction_on_signals", "direction_norm_squared", "prompt_norm_squared")
    return both(
        *(
            exactly(constant * getattr(pair.reduced, name), getattr(pair.dense, name), draws=pair.dense.runs)
            for pair in _pairs(study)
            for name in names
        )
    )


@CLAIMS.claim(
    "TS13",
    "with one parameter fixed, one line is enough",
    r"only $p$ trained: $z\leftarrow z+\alpha H_0c$; only $W$ trained: $z\leftarrow z+\alpha|p_0|^2Kc$",
    wrong=0.0,
    wrong_text="the two rules exchanged",
    box=("ts-recursion", "ts-v1-recursion"),
)
def one_parameter_fixed(study: SettingStudy, constant: float) -> Evidence:
    order = ("p", "W") if constant == 1 else ("W", "p")
    return both(
        *(
            exactly(study.only[rule][1], study.only[trained][0].scores, draws=1)
            for trained, rule in zip(("p", "W"), order, strict=True)
        )
    )


@CLAIMS.claim(
    "TS14",
    "inner products can be drawn in any dimension",
    r"$K$, $H_0$, $z_0$, $J_0$, … drawn directly have the joint law of those measured on vectors: the means of all statistics "
    "of the page agree",
    wrong=0.0,
    wrong_text="dimension larger by 10 %",
    box=("ts-gram",),
)
def drawn_inner_products(study: SettingStudy, constant: float) -> Evidence:
    sampling = study.sampling
    drawn = sampling.drawn if constant == 1 else sampling.drawn_wrong
    each = LEVEL / len(drawn)  # so that all statistics together keep the level of one rule
    parts = [difference_within(sampling.dense[name], drawn[name], 0.0, 0.0, level=each) for name in drawn]
    scores = sampling.z_scores(wrong=constant != 1)
    name, worst = max(scores.items(), key=lambda item: abs(item[1]))
    return replace(
        both(*parts),
        predicted=f"equal means of {len(scores)} statistics",
        measured=f"largest |z| = {abs(worst):.2g} ({name})",
        rule=f"two-sample |z| of the means <= about {student(2 * sampling.draws - 1, each):.2g} (Welch's t), every statistic",
        numbers={f"z {name}": z for name, z in scores.items()},
    )


@CLAIMS.claim(
    "TS15",
    "the head classifies before anything is learned",
    r"under uniform attention a fresh sample is classified correctly with probability "
    r"$\Phi\big(|\mu|(1+(k-1)\rho)/(\sigma_\varepsilon\sqrt{2T})\big)$, $k$ the number of weak tokens of the true class",
    wrong=2**0.5,
    wrong_text="argument larger by √2",
    box=("ts-uniform-accuracy",),
)
def uniform_attention(study: SettingStudy, constant: float) -> Evidence:
    laws = [replace(study.law, signal_norm=constant * norm) for norm in study.signal_norms.tolist()]
    predicted = sum(map(uniform_attention_accuracy, laws)) / len(laws)
    return agrees(study.uniform_accuracy.mean(1), predicted)


@CLAIMS.claim(
    "TS16", "the loss has a floor",
    r"all attention on the relevant token gives the loss $\log(1+e^{-1/\sqrt2})+\frac12\sigma'(1/\sqrt2)\,\sigma_\varepsilon^2/|\mu|^2$ "
    r"on fresh data: 0.4008 and the price of the head's noise ($|\nu||\mu|=1$)",
    wrong=2**0.5, wrong_text="margin 1 instead of 1/√2",
    regime=r"$|\nu||\mu|=1$ and $|\mu|\ge 5\sigma_\varepsilon$",
    violation=lambda s: ""
    if s.law.head_scale == 1 and s.law.signal_norm >= 5 * s.law.noise_std
    else f"needs head_scale 1 and signal_norm >= 5 noise_std; here {s.law.head_scale:g} and {s.law.signal_norm:g}",
box=('ts-floor',),)  # fmt: skip
def floor_of_the_loss(study: SettingStudy, constant: float) -> Evidence:
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
    "TS17",
    "the vanishing force keeps its digits",
    r"$\gamma_t-f$ measured from the token with the largest score gives the force $\sigma(-s)s(1-s)$ to a relative $10^{-12}$ at every gap "
    "up to 600",
    wrong=0.0,
    wrong_text="the plain difference γ − f",
    box=("ts-arithmetic",),
)
def stable_force(study: SettingStudy, constant: float) -> Evidence:
    computed, exact = study.force["stable" if constant == 1 else "naive"]
    return exactly(computed / exact, 1.0, tolerance=1e-12, draws=len(study.gaps))


@CLAIMS.claim(
    "TS18",
    "the signal goes on growing after saturation",
    rf"at $d={LONG_D:g}$, over a run in which every step moves a score equally far, $v\cdot\mu$ grows by half or more in the second half, "
    "when attention on training data is 1 to fifteen digits, in at least 95 % of training sets",
    wrong=0.0,
    wrong_text="the force computed as γ − f",
    box=("ts-arithmetic", "ts-late"),
    uses=("TS11", "TS17"),
)
def signal_goes_on(study: SettingStudy, constant: float) -> Evidence:
    signal = study.long_runs["stable" if constant == 1 else "naive"].signal_score
    return within(signal[-1] / signal[len(signal) // 2 - 1], low=1.5, quantity="growth of v·μ in the second half")
