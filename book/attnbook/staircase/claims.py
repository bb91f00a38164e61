"""Claims P1 and so on."""

import math

import torch

from attnbook.staircase import plateau_levels, population_loss
from attnbook.staircase.study import (
    ALIGNED_SIZES,
    MERGED_SIZES,
    SOFTMAX_HEADS,
    SUM_STEP,
    different_heads,
    largest_part,
    pair_time,
    single_time,
)
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, exactly, mean_within, median_within, within
from bookkit.worlds import exchange

CLAIMS = ClaimSet("staircase")
LINEAR = "linear attention, rank-one heads, gradient flow on the exact loss from Gaussian starts of the page's size"


@CLAIMS.claim("P1", wrong=1.2, box="prop-staircase-loss")
def loss_by_moments(study, constant):
    r"""the loss by Gaussian moments
    the loss of linear attention with the matrix $A$ is $\mathrm{tr}\,\Lambda-2\sum_i\lambda_i^2A_{ii}+\sum_{ij}c_i\lambda_jA_{ij}^2$ with
    $c_i=(1+\frac1N)\lambda_i^2+\frac{\mathrm{tr}\,\Lambda+\sigma^2}N\lambda_i$
    wrong: a loss that is a fifth larger"""
    return agrees(study.sampled, constant * population_loss(study.main.law, study.matrix).item())


@CLAIMS.claim("P2", wrong=1.01, box="prop-staircase-levels")
def best_of_a_rank(study, constant):
    r"""a level is the best loss of its rank
    the least loss of a matrix of rank $m$ is $L_m=\mathrm{tr}\,\Lambda-\sum_{i\le m}\lambda_i/(1+(1+\mathrm{tr}\,\Lambda/\lambda_i)/N)$,
    for $m=1,\dots,D-1$
    wrong: steps that are one per cent higher"""
    levels = plateau_levels(study.main.law)
    steps = levels[0] - constant * (levels[0] - levels[1:-1])
    return exactly(study.best, steps.expand_as(study.best), tolerance=1e-8)


@CLAIMS.claim("P3", wrong=1.03, source=Source.CODE, box="prop-staircase-levels rem-staircase-code", regime=LINEAR)
def heights(study, constant):
    r"""heights of the plateaus
    where the loss falls most slowly between two drops it is $L_m$, in the median over the starts that have this plateau up to half a per
    cent, on each one $m=1,\dots,D-1$
    wrong: steps that are three per cent higher"""
    levels = study.main.levels
    predicted = levels[0] - constant * (levels[0] - levels[1:-1])
    return both(*_heights(median_within, study.main, predicted, 0.995, 1.005, "median of height / level"))


def _heights(rule, found, predicted, low, high, quantity):
    """Of each plateau, over the trainings that have it."""
    ratios = found.heights / predicted
    return [
        rule(ratio, low, high, quantity=quantity, silent=silent)
        for ratio, silent in zip(ratios.T, found.no_plateau.T, strict=True)
    ]


@CLAIMS.claim("P5", wrong=1.3, box="thm-staircase-escape", regime=LINEAR)
def lengths(study, constant):
    """lengths of the plateaus
    the time of the first drop is the predicted one up to one per cent in the mean, and that of the second drop up to three per cent in the
    median, computed from the start alone
    wrong: times that are three tenths longer"""
    first, second = (study.main.ratio / constant).T[:2]
    return both(
        mean_within(first, 0.99, 1.01, quantity="mean of measured / predicted"),
        median_within(second, 0.97, 1.03, quantity="median of measured / predicted"),
    )


@CLAIMS.claim("P6", wrong=1.1, box="thm-staircase-escape prop-staircase-merged", regime=LINEAR)
def scaling(study, constant):
    r"""separate: a power of the start; merged: its logarithm
    a start half as large doubles the time to the first drop for separate keys and queries (exponent within 0.05 of 1); for merged ones a
    start a tenth as large adds $\ln10/(\sum_i\lambda_i^4)^{1/2}$ to the time of each drop, and the times between drops stay as they are
    wrong: an exponent, and a logarithm, that are ten per cent larger"""
    exponent = (study.first[:, 2] / study.first[:, 1]).log2() / constant
    values = torch.as_tensor(study.main.law.eigenvalues())
    added = (
        (study.merged[:, 2] - study.merged[:, 1])
        * (values**4).sum().sqrt()
        / math.log(MERGED_SIZES[1] / MERGED_SIZES[2])
    )
    return both(
        mean_within(exponent, 0.95, 1.05, quantity="exponent"),
        *(mean_within(column / constant, 0.99, 1.01, quantity="added time / formula") for column in added.T),
    )


@CLAIMS.claim(
    "P8",
    wrong=exchange("main.path.heads", "main.start"),
    source=Source.MEASURED,
    box="rem-staircase-heads",
    uses="Q47",
    regime=LINEAR,
)
def one_head_each(study):
    r"""one head for each direction
    of the terms $v_hk_{hi}q_{hi}$ of which $A_{ii}$ is the sum, the largest one has at least 0.9 of their absolute sum in the mean, for
    $i=1,\dots,D-1$, and these largest terms belong to different heads in at least 95 % of starts, while the heads of Part IV learn all
    directions together
    wrong: the heads before training"""
    heads, directions = study.main.path.heads, study.main.law.dimension - 1
    part, different, level = largest_part(heads, directions), different_heads(heads, directions), LEVEL / 2
    return both(
        *(mean_within(column, 0.9, quantity="largest part", level=level) for column in part.T),
        within(different.double(), low=1.0, quantity="each of another head (1 = yes)", level=level),
    )


@CLAIMS.claim("P9", wrong=1.15, box="cor-staircase-equal", uses="P3 P5", regime=LINEAR)
def equal_eigenvalues(study, constant):
    """equal eigenvalues: as many drops
    for equal eigenvalues, the covariates of Part III, the loss still falls in D drops of equal height: the median height of each plateau is
    its level up to two per cent, and the median time of each drop is the predicted one up to three per cent
    wrong: steps and times that are fifteen per cent larger"""
    found = study.equal
    predicted = found.levels[0] - constant * (found.levels[0] - found.levels[1:-1])
    times = found.ratio / constant
    return both(
        *_heights(median_within, found, predicted, 0.98, 1.02, "median of height / level"),
        *(median_within(column, 0.97, 1.03, quantity="median of measured / predicted") for column in times.T),
    )


@CLAIMS.claim("P10", wrong=1.5, source=Source.MEASURED, box="rem-staircase-softmax", uses="P3")
def softmax_heights(study, constant):
    """softmax heads have the same plateaus
    the mean height of each plateau of six softmax heads, over the starts that have it, lies between $L_m$ for $N-1$ examples and ten per
    cent above it if the eigenvalues are distinct, and between four per cent below it and eight per cent above if they are equal
    regime: rank-one heads, D = 3, gradient descent on a fixed set of prompts from Gaussian starts of size 0.03
    wrong: steps that are half as high again
    coarse 1, 2, 3, 4: heights differ from start to start, by more where eigenvalues are equal"""
    found = []
    for softmax, low, high in ((study.softmax, 1.0, 1.1), (study.softmax_equal, 0.96, 1.08)):
        predicted = softmax.levels[0] - constant * (softmax.levels[0] - softmax.levels[1:-1])
        found += _heights(mean_within, softmax, predicted, low, high, "mean of height / level")
    return both(*found)


@CLAIMS.claim("P11", wrong=1 / SOFTMAX_HEADS, box="prop-staircase-softmax")
def values_sum_to_zero(study, constant):
    r"""values of small softmax heads first sum to zero
    from small weights the sum of the values of $H$ softmax heads decays at the rate $H\,\mathrm{tr}\,\Lambda/N$, before a direction is
    learned
    regime: weights of size 0.0001, gradient descent
    wrong: the rate of one head, $\mathrm{tr}\,\Lambda/N$"""
    law, steps = study.softmax.law, study.sums_time / SUM_STEP
    rate = constant * SOFTMAX_HEADS * law.trace / law.length
    measured = -(study.sums[:, 1] / study.sums[:, 0]).abs().log() / study.sums_time
    # Gradient descent multiplies the sum by 1 - step * rate in each step.
    return agrees(measured, -steps * math.log1p(-SUM_STEP * rate) / study.sums_time, allowance=0.02 * rate,
                  allowance_text="two per cent for the higher orders in the weights")  # fmt: skip


@CLAIMS.claim("P12", wrong=0.5, box="prop-staircase-softmax", uses="P11")
def one_or_two(study, constant):
    r"""one softmax head waits longer than two opposite ones
    half the start $u$ multiplies the waiting time of one softmax head by four and that of two opposite ones by two (powers 2 and 1, up to
    0.15 and 0.05), as their escape times $\mathrm{tr}\,\Lambda/(2Ng^2u^2)$ and $\pi/(2gu)$ say. At the smaller $u$ the mean time of two is
    the formula's up to five per cent; that of one, compared with the square of the time of two for the same prompts, is three to
    seventeen per cent longer than the formulas say
    regime: $v=0$, keys and queries of size 0.05 and 0.025 on the first eigenvector, N = 10
    wrong: half the powers, that of linear attention for one head, and half the times
    coarse 1, 3, 4: the formulas are of leading order: bands of five and seven per cent"""
    one, two = ((times[:, 1] / times[:, 0]).log2() for times in (study.single, study.pair))
    size, law = ALIGNED_SIZES[1], study.short
    # The pull g differs between sets of prompts, and does not enter here.
    longer = study.single[:, 1] / study.pair[:, 1] ** 2 / (single_time(law, size) / pair_time(law, size) ** 2)
    return both(
        mean_within(one, 2 * constant - 0.15, 2 * constant + 0.15, quantity="power, one head", level=LEVEL / 2),
        mean_within(two, constant - 0.05, constant + 0.05, quantity="power, two heads", level=LEVEL / 2),
        mean_within(study.pair[:, 1] / pair_time(law, size), 0.95 * constant, 1.05 * constant,
                    quantity="time of two / formula", level=LEVEL / 2),
        mean_within(longer, 1.03 * constant, 1.17 * constant, quantity="time of one / formula", level=LEVEL / 2),
    )  # fmt: skip
