r"""Claims TS51-TS57: the constructed direction of the paper's first version, its window, and gradient descent on p alone.

The first version trains p only; nothing
here is about the theorem of the published version. Its own theorems were not read: what is known of them is second-hand.
Bounds speak of a random training set: each holds with probability .95 or more.
"""

import math

from attnbook.token_selection.existence.study import memorised_share
from attnbook.token_selection.theory import constructed_direction_accuracy
from attnlib.token_selection.law import TokenLaw
from bookkit.claims import ClaimSet, Source
from bookkit.rules import LEVEL, agrees, both, within
from bookkit.worlds import changed, exchange, together

CLAIMS = ClaimSet("token_selection")

_AUTHORS_LAW = TokenLaw(100, 10_000, 8, 20.0, weak_signal=0.2)


def _narrow(study):
    lower, upper = study.window
    return "" if upper >= 4 * lower else f"needs upper >= 4 lower; here the window is [{lower:.3g}, {upper:.3g}]"


_WIDE = {"regime": "a window at least a factor 4 wide", "violation": _narrow}


def _mean_over(ladder, function):
    return sum(map(function, ladder.strengths.tolist())) / len(ladder.strengths)


def _further(columns, *names):
    """The world in which accuracies, (R, 3), are those of other strengths: column k holds what stood that many columns further."""
    return changed(lambda accuracy: accuracy.roll(-columns, 1), *names)


_AUTHORS = ("authors.train_argmax", "authors.fresh_argmax")
_MIDDLE = ("middle.train_argmax", "middle.fresh_argmax")


@CLAIMS.claim("TS51", wrong=2.0, box="ts-window")
def lower_line(study, constant):
    r"""the lower end of the window: memorisation
    to leading order in $d$, flipped training samples are fitted if $c\,\sigma_\varepsilon^2d>(1-\rho)|\mu|^2$, and along the page's values
    of $c$ they are fitted with probability
    $\Phi\big(\frac{c\sigma_\varepsilon^2d-(1-\rho)|\mu|^2}{\sigma_\varepsilon\sqrt{2(c^2n\sigma_\varepsilon^2d+2|\mu|^2)}}\big)\Phi\big(\frac{\rho|\mu|}{\sqrt2\sigma_\varepsilon}\big)$:
    the mean over training sets and over these $c$ agrees to 0.01
    wrong: a lower end twice as large"""
    predicted = _mean_over(study.ladder, lambda c: memorised_share(study.law, c, lower=constant))
    return agrees(study.ladder.noisy_argmax.mean(1), predicted, allowance=0.01, allowance_text="leading order in d")


@CLAIMS.claim("TS52", wrong=4.0, box="ts-window")
def upper_line(study, constant):
    r"""the upper end of the window: harm
    to leading order in $d$, a fresh sample selects its token by scores with the law $N(a_t|\mu|^2,\sigma_\varepsilon^2|p|^2)$, with signal
    coefficients $a_t=1,\rho,\rho,0,\dots$ and $|p|^2=2|\mu|^2+c^2n\sigma_\varepsilon^2d$: the mean accuracy over training sets and over the
    page's values of $c$ agrees to 0.01
    wrong: c four times as large"""
    predicted = _mean_over(study.ladder, lambda c: constructed_direction_accuracy(study.law, constant * c))
    return agrees(study.ladder.fresh_argmax.mean(1), predicted, allowance=0.01, allowance_text="leading order in d")


@CLAIMS.claim(
    "TS53",
    wrong=(_further(-1, *_AUTHORS), _further(-2, *_AUTHORS)),
    source=Source.CODE,
    uses="TS51 TS52",
    violation=lambda s: "" if s.law == _AUTHORS_LAW else "needs the author's sizes; here others",
)
def authors_pictures(study):
    """the three panels of the author's figure
    the published train and test accuracies (100 test points) are 0.8 and 1.0 at $c=0.001$, 1.0 and 1.0 at $c=0.06$, 1.0 and 0.62 to 0.63 at
    $c=1$; our mean train accuracies equal these up to two samples, our mean test accuracies up to one standard error of 100 points
    regime: n = 100, d = 10000, T = 8, |μ| = 20, ρ = 0.2, η = 0.2
    wrong: the published accuracies one panel further, and two panels further
    coarse 6: the published accuracy is that of one run and 100 test points"""
    parts = []
    for k, (on_train, on_test) in enumerate(((0.8, 1.0), (1.0, 1.0), (1.0, 0.625))):
        parts.append(
            agrees(
                study.authors.train_argmax[:, k],
                on_train,
                allowance=2 / study.law.n,
                allowance_text="two samples of one run",
                level=LEVEL / 6,
            )
        )
        parts.append(
            agrees(
                study.authors.fresh_argmax[:, k],
                on_test,
                allowance=math.sqrt(max(on_test * (1 - on_test), 0.01) / 100),
                allowance_text="one s.e. of 100 points",
                level=LEVEL / 6,
            )
        )
    return both(*parts)


@CLAIMS.claim(
    "TS54",
    wrong=(_further(1, *_MIDDLE), _further(2, *_MIDDLE)),
    source=Source.PAPER_SECOND_HAND,
    box="ts-v1-existence ts-window",
    uses="TS51 TS52",
    **_WIDE,
)
def middle_of_the_window(study):
    r"""an attention vector that fits nearly all labels and generalises exists
    at the geometric mean of the two ends of the window
    $\big[(1-\rho)|\mu|^2/\sigma_\varepsilon^2d,\;|\mu|^2/(\sigma_\varepsilon^2\sqrt{nd}\sqrt{2\log T})\big]$ the train accuracy and the
    accuracy on fresh data are 0.97 or more, each in at least 95 % of training sets (Theorem 4.1 of the paper's first version says that such
    a $p$ exists; its constants were not read)
    wrong: ten times that mean, and a tenth of it"""
    return both(
        within(study.middle.train_argmax[:, 0], low=0.97, quantity="train accuracy"),
        within(study.middle.fresh_argmax[:, 0], low=0.97, quantity="fresh accuracy"),
    )


@CLAIMS.claim(
    "TS55",
    wrong=(
        changed(lambda window: (4 * window[0], 4 * window[1]), "window"),
        together(exchange("ends.train", "beside.train"), exchange("ends.fresh", "beside.fresh")),
    ),
    source=Source.MEASURED,
    box="ts-v1-convergence",
    uses="TS51 TS52",
    **_WIDE,
)
def descent_in_the_window(study):
    """gradient descent on p alone ends in the window
    at the end of training the strength $c$ lies in the window, below the geometric mean of its ends; at least 0.98 of the labels are
    fitted, and the accuracy on fresh data is 0.99 or more: each of the three in at least 95 % of training sets
    wrong: a window four times higher; and the accuracies of the construction outside the window: labels below it, fresh data above"""
    lower, upper = study.window
    return both(
        within(study.ends.strength, low=lower, high=math.sqrt(lower * upper), quantity="strength c"),
        within(study.ends.train, low=0.98, quantity="train accuracy"),
        within(study.ends.fresh, low=0.99, quantity="fresh accuracy"),
    )


@CLAIMS.claim("TS57", wrong=1.5, source=Source.MEASURED, box="ts-v1-convergence")
def cumulative_movement(study, constant):
    r"""the attention of clean samples changes for longer
    the sum $\sum_\tau s_1(1-s_1)$ over training, with $s_1$ the attention on the relevant token, is larger for clean samples than for
    flipped ones by 10 % or more, in at least 95 % of training sets (Theorem 4.2 of the paper's first version is reported to rest on this
    comparison; its constants were not read, so only the order is judged)
    wrong: larger by 65 % or more"""
    clean, flipped = study.descent.still_to_move
    return within(clean / flipped, low=1.1 * constant, quantity="ratio")
