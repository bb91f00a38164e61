r"""Claims TS21-TS30: the three situations, the growth function, and the leak of the public code.

Published numbers come from single runs
of the authors' code, some with the leak that TS29 explains; the rest is derived or measured. Bounds speak of a random training set:
each holds with probability .95 or more.
"""

import math
from dataclasses import replace

import torch

from attnbook.token_selection.mean_field import FLIPPED, mean_field
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import ClaimSet, Source
from bookkit.rules import agrees, both, exactly, mean_within, within
from bookkit.worlds import exchange

CLAIMS = ClaimSet("token_selection")

DEFAULTS = TokenLaw(20, 2000, 8, 20.0), 5e-3, 1000  # the authors' configuration


def _other_configuration(study):
    same = (study.law, study.step_size, study.steps) == DEFAULTS
    return "" if same else "needs the authors' configuration; here another one"


_DEFAULT = {"regime": "the authors' configuration, of which the number is published", "violation": _other_configuration}


@CLAIMS.claim("TS21", wrong=0.8, source=Source.CODE, uses="TS11 ts-population", **_DEFAULT)
def balanced_accuracy(study, constant):
    """balanced situation: nearly all labels are fitted, and fresh data are classified correctly
    the published values after 1000 steps, train accuracy 1.0 and test accuracy 0.996, come from one run; our mean train accuracy is 0.99
    up to a quarter of a sample, and the accuracy on fresh data is 0.996 or more in at least 95 % of training sets
    wrong: flipped labels not fitted"""
    here = study.balanced
    return both(
        agrees(
            here.trajectory.train_accuracy()[-1],
            0.99 * constant,
            allowance=1 / 4 / study.law.n,
            allowance_text="a quarter of a sample",
        ),
        within(here.end.accuracy, low=0.996, quantity="fresh accuracy"),
    )


@CLAIMS.claim("TS22", wrong=1.1, source=Source.CODE, uses="TS11 ts-population", **_DEFAULT)
def large_noise_accuracy(study, constant):
    """large noise: nearly all labels are fitted, and the clean error is large
    the published values after 1000 steps, train accuracy 1.0 and test accuracy 0.867, come from one run with 1000 test points; our mean
    train accuracy is 1 up to one sample, and our mean accuracy on fresh data equals the published one up to four standard errors of 1000
    points
    wrong: accuracies 10 % higher"""
    here, published = study.situations["large noise"], 0.867
    return both(
        agrees(
            here.trajectory.train_accuracy()[-1], constant, allowance=1 / study.law.n, allowance_text="one sample of one run"
        ),
        agrees(
            here.end.accuracy, constant * published,
            allowance=4 * math.sqrt(published * (1 - published) / 1000), allowance_text="4 s.e. of 1000 points",
        ),
    )  # fmt: skip


@CLAIMS.claim(
    "TS23",
    wrong=exchange("situations.large signal", "situations.balanced"),
    source=Source.CODE,
    uses="TS11 ts-population",
    **_DEFAULT,
)
def large_signal_accuracy(study):
    """large signal: some flipped labels stay unfitted
    the published values after 1000 steps, train accuracy 0.8 and test accuracy 1.0, come from one run of 20 samples; our mean train
    accuracy is higher, 0.88 up to 0.01, and 0.8 is where one more run of ours may be; in at least 95 % of training sets every clean
    sample is fitted, and in at least 95 % the clean error is below $10^{-3}$
    wrong: the balanced situation instead
    coarse 2: one run is published, and a run of ours scatters by 0.03"""
    here = study.situations["large signal"]
    accuracy = here.trajectory.train_accuracy()[-1]
    # A published run is one more draw: its distance from the mean of R runs has their deviation times sqrt(1 + 1/R).
    one_run = accuracy.mean() + (accuracy - accuracy.mean()) * math.sqrt(len(accuracy) + 1)
    return both(
        agrees(accuracy, 0.88, allowance=0.01, allowance_text="a fifth of a sample"),
        agrees(one_run, 0.8),
        within(here.trajectory.train_accuracy("clean")[-1], low=1.0, quantity="clean samples fitted"),
        within(here.end.error, high=1e-3, quantity="fresh error"),
    )


@CLAIMS.claim(
    "TS25",
    wrong=exchange("lines.growth", "lines.gap"),
    box="ts-growth",
    uses="TS11",
    violation=_other_configuration,
)
def growth_is_linear(study):
    r"""the growth function is close to linear in time
    for a clean sample with gap $x(\tau)$, the growth function $g(x)=2x+2\sinh(x-\log(T-1))$ is close to a straight line in the number of
    steps: $R^2\ge0.95$ for all clean samples in at least 95 % of training sets
    regime: the balanced situation at the page's defaults
    wrong: the gap x itself instead of g(x)"""
    lines = study.lines
    return within(lines.straightness(lines.growth, lines.steps), low=0.95, quantity="R²", silent=~lines.clean)


@CLAIMS.claim("TS26", wrong=0.25, box="ts-speed", uses="TS25", violation=_other_configuration)
def clock_straightens(study, constant):
    r"""most of the remaining curvature is due to the growth of p
    against the rescaled time $\int(\sigma_w^2d+|p|^2)\,d\tau$ the departure $1-R^2$ of the growth function from a straight line (median
    over clean samples) is less than 0.4 times the departure against steps, in at least 95 % of training sets
    regime: the balanced situation at the page's defaults
    wrong: less than 0.1 times"""
    lines = study.lines
    rest = [
        1 - lines.over_clean(lines.straightness(lines.growth, clock), torch.median)
        for clock in (lines.clock, lines.steps)
    ]
    return within(rest[0] / rest[1], high=0.4 * constant, quantity="ratio of 1 − R²")


@CLAIMS.claim("TS27", wrong=exchange("risen.T - 1", "risen.T"), box="ts-growth")
def competitors(study):
    r"""the growth function contains log(T − 1), not log T
    the solution of $\dot x=s(1-s)$ with $s=e^x/(e^x+T-1)$ and $x(0)=0$ satisfies $g(x)-g(0)=\tau$ exactly, with
    $g(x)=2x+2\sinh(x-\log(T-1))$; the growth function reported for the paper has $\log T$
    wrong: log T instead of log(T − 1)"""
    return exactly(study.risen["T - 1"], study.times, tolerance=1e-8, draws=len(study.times))


@CLAIMS.claim(
    "TS28",
    wrong=exchange("predicted_gap", "proportional_gap"),
    box="ts-growth ts-speed",
    uses="TS25 TS26",
    violation=_other_configuration,
)
def second_stage(study):
    """in the second stage the gap grows logarithmically
    the mean gap of clean samples at the end of the run is the one predicted by the first quarter of the run, through the growth function
    and the rescaled time, up to 0.2; the gap is about 7
    regime: the balanced situation at the page's defaults
    wrong: the gap itself growing in proportion to time"""
    lines = study.lines
    return agrees(
        lines.over_clean(lines.gap[-1], torch.mean),
        lines.over_clean(study.predicted_gap, torch.mean),
        allowance=0.2,
        allowance_text="competitors are not equal",
    )


@CLAIMS.claim("TS29", wrong=0.0, source=Source.MEASURED, box="ts-leak", violation=lambda s: _too_hard(s))
def leak(study, constant):
    """the test set of the public code contains the noise of the training samples
    the misclassified points of that test set carry the noise of flipped training samples: at the authors' seed and four others (0, 1, 2, 3;
    fixed, whatever the page's seed is) three quarters or more of the flipped training samples reappear as misclassified test points, no
    other point is misclassified, and among as many fresh points none is. At the authors' seed $0.996=1-4/1000$
    regime: fresh error below $10^{-4}$
    wrong: no test point with the noise of a flipped sample is misclassified"""
    tests = study.leaks
    flipped = constant * 2 * study.law.flips_per_class
    met = torch.tensor([float(len(set(test.wrong) & set(test.flipped))) for test in tests], dtype=torch.float64)
    elsewhere = torch.tensor([float(len(set(test.wrong) - set(test.flipped))) for test in tests], dtype=torch.float64)
    fresh = torch.tensor([float(test.wrong_fresh) for test in tests], dtype=torch.float64)
    evidence = both(
        within(met, low=0.75 * flipped, high=flipped, quantity="noise of flipped samples, wrong", share=1),
        within(elsewhere, high=0.0, quantity="wrong elsewhere", share=1),
        within(fresh, high=0.0, quantity="wrong among fresh points", share=1),
    )
    return replace(evidence, rule="count at fixed seeds: no chance")


def _too_hard(study):
    worst = max((test.fresh_error for test in study.leaks), default=math.nan)
    return "" if worst < 1e-4 else f"needs fresh error < 1e-4; here {worst:.2g}"


@CLAIMS.claim("TS30", wrong=0.7, box="ts-mean-field", uses="TS11", violation=_other_configuration)
def dragged_along(study, constant):
    r"""flipped samples first move with the clean samples
    the attention of flipped samples on the relevant token first rises with that of the clean samples; its height agrees, on average to
    0.007, with the orthogonal-noise prediction (one clean and one flipped sample as $d\to\infty$, with the growth of $p$); then it falls
    to 0.0065 or less, on average, after 1000 steps
    regime: the authors' configuration
    wrong: 0.7 times that height, at which it does not rise"""
    here = study.balanced
    weight = here.trajectory.attention_of("noisy")[..., 0]
    path = mean_field(here.law, study.step_size, weight_scale=here.start.weight_scale, horizon=float(study.steps))
    return both(
        agrees(
            weight.amax(0),
            constant * float(path.attention[:, FLIPPED, 0].max()),
            allowance=0.007,
            allowance_text="finite dimension",
        ),
        mean_within(weight[-1], high=0.0065, quantity="end"),
    )
