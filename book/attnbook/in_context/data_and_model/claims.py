r"""Claims I11-I19: what prompts are, what a head can do with them, and what its predictions do not depend on.

Each judge takes a `DataStudy` and a constant (1 is the claim, `wrong` its negative control). None is a theorem of the paper; derivations
are in the theory chapter of Part III.
"""

import torch

from attnbook.in_context.data_and_model.study import LOUD, DataStudy, permuted
from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.model import attend
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, agrees, both, exactly, within
from bookkit.sharpness import Fixed

CLAIMS = ClaimSet("in_context")


def _identical(measured: torch.Tensor, predicted: torch.Tensor) -> Evidence:
    """No bit differs: the same arithmetic in two ways, without chance."""
    same = measured == predicted
    shown = "identical" if same.all() else f"{(~same).float().mean().item():.0%} of the numbers differ"
    return Evidence(
        bool(same.all()),
        "identical",
        shown,
        "algebra: no bit differs",
        measured.shape[0],
        parts=(Fixed(bool(same.all())),),
    )


@CLAIMS.claim("I11", wrong=(0.0, 2.0), box="ic-exact-facts")
def merged_is_as_written(study: DataStudy, constant: float) -> Evidence:
    r"""a head is determined by its two circuits
    with $M_h=W_K^{h\top}W_Q^h/\sqrt n$ and $V_h=W_O^hW_V^h$ the predictions are those of the four matrices, before and after training, for
    each of the page's starts
    wrong: without the factor 1/√n; V twice as large"""
    parts = []
    for heads in study.models.values():
        merged = circuits_of(heads)
        scale, times = (merged.d + 1) ** 0.5 if constant == 0 else 1.0, constant or 1.0
        merged = Circuits(scale * merged.key_query, times * merged.output_value)
        parts.append(exactly(predict(merged, study.prompts), attend(heads, study.prompts)))
    return both(*parts)


@CLAIMS.claim(
    "I12",
    wrong=0.0,
    box="ic-exact-facts",
    violation=lambda s: (
        "" if s.experiment.weight_decay == 0 else f"needs weight_decay 0; here {s.experiment.weight_decay:g}"
    ),
)
def untrained_column(study: DataStudy, constant: float) -> Evidence:
    """one column is never trained
    the last column of every $W_Q^h$ multiplies the 0 of the query token: without weight decay its gradient is exactly zero, and after
    training it equals its start, bit by bit
    regime: no weight decay
    wrong: the column before it"""
    column = -1 if constant == 1 else -2
    gradient = study.gradient[..., column]
    return both(
        _identical(gradient, torch.zeros_like(gradient)),
        _identical(study.after.query[..., column], study.before.query[..., column]),
    )


@CLAIMS.claim("I13", wrong=0.0, box="ic-exact-facts")
def order_does_not_matter(study: DataStudy, constant: float) -> Evidence:
    """the order of the examples does not matter
    predictions of trained heads are the same for the examples in any order, and for any last column of $M_h$
    wrong: the labels in another order, the covariates not; any last but one column"""
    usual = attend(study.after, study.prompts)
    other = attend(study.after, permuted(study.prompts, study.order, labels_only=constant != 1))
    circuits = circuits_of(study.after)
    key_query = circuits.key_query.clone()
    key_query[..., -1 if constant == 1 else -2] = 7.0
    without = predict(Circuits(key_query, circuits.output_value), study.prompts)
    return both(exactly(other, usual), exactly(without, usual))


@CLAIMS.claim(
    "I14",
    rf"""the mean over regression vector and noise has a closed form
    for weights $c_i$ that do not depend on labels, the mean of $(\sum_ic_iy_i-\langle x_q,\beta\rangle)^2$ over $\beta$ and the label noise
    is $s_\beta^2(|X^\top c-x_q|^2+s_2|c|^2)$, $s_2=d\sigma^2$, for each prompt (judged at $\sigma={LOUD:g}$)
    wrong: σ² in place of s₂ = dσ²""",
    wrong=0.0,
    box="ic-linear-risk",
)
def conditional_mean(study: DataStudy, constant: float) -> Evidence:
    sampled, formula, without_d = study.identity
    return agrees(sampled / (formula if constant == 1 else without_d), 1.0)


@CLAIMS.claim(
    "I15",
    wrong=(0.5, 0.0),
    box="ic-dictionary",
    violation=lambda s: "" if s.law.d > 1 else "needs d > 1; with d = 1 the two are the same but for the target",
)
def dictionary(study: DataStudy, constant: float) -> Evidence:
    r"""a dictionary between two conventions
    computed from the same normal numbers, labels and predictions of two-number heads are $\sqrt d$ times as large, and risks $d$ times as
    large, in the notebook's convention as in the repository's; in the repository's convention the loss is the risk plus $\sigma^2$, in the
    notebook's the two are equal
    regime: d > 1
    wrong: factors d^(1/4) and √d; the two conventions exchanged"""
    found = study.conventions
    root, factor = found.d ** (constant / 2), found.d**constant
    clean, noisy = ("notebook", "repository") if constant else ("repository", "notebook")
    return both(
        exactly(found.notebook.y.flatten(0, 1), root * found.repository.y.flatten(0, 1)),
        exactly(found.predictions["notebook"], root * found.predictions["repository"]),
        exactly(found.risk("notebook"), factor * found.risk("repository")),
        exactly(found.loss(clean), found.risk(clean)),
        agrees(found.loss(noisy) - found.risk(noisy), (constant or 1.0) * found.target_noise_std**2),
    )


@CLAIMS.claim("I16", wrong=0.9, box="ic-isotropic")
def zero_predictor(study: DataStudy, constant: float) -> Evidence:
    """the risk of the prediction 0
    the prediction 0 has the risk $d$ in the notebook's convention and 1 in the repository's
    wrong: 10 % smaller"""
    expected = {"notebook": float(study.law.d), "repository": 1.0}
    return both(*(agrees(study.zero_risk[name], constant * risk) for name, risk in expected.items()))


@CLAIMS.claim(
    "I17",
    wrong=0.0,
    box="ic-small-heads",
    violation=lambda s: "" if s.law.length > 1 else "needs length > 1; one example, centred, is zero",
)
def linear_limit(study: DataStudy, constant: float) -> Evidence:
    r"""two opposite heads with small scores compute a centred gradient step
    the predictions of heads $(\omega,\mu)$ and $(-\omega,-\mu)$ with $2\omega\mu=1$ differ from $\frac1L\sum_iy_i\langle x_i-\bar
    x,x_q\rangle$ by a term of order $\omega^2$ with a known constant. At the smallest ω of the page, in at least 95 % of batches of
    prompts, halving ω divides the distance by 3.9 to 4.1, and the distance is the formula's to 2 %
    regime: two examples or more
    wrong: the step with x_i, not centred"""
    limit = study.limit
    distance = limit.pair_to_centred[:, -1] if constant == 1 else limit.pair_to_plain[:, -1]
    return both(
        within(limit.gain_of_halving(centred=constant == 1), low=3.9, high=4.1, quantity="gain of halving ω"),
        within(
            distance / (limit.omega[-1] ** 2 * limit.third_order), low=0.98, high=1.02, quantity="distance / formula"
        ),
    )


@CLAIMS.claim("I18", wrong=0.0, source=Source.MEASURED)
def prompts_by_number(study: DataStudy, constant: float) -> Evidence:
    """a training prompt is determined by its number
    a training prompt computed alone from (seed, run, step, number) equals, bit by bit, the one in its batch; its random numbers have the
    moments 0, 1, 0, 3 of a standard normal variable
    wrong: the batch of the next step; the moments of a normal variable with mean 0.1 and variance 1.1"""
    there = study.in_batch if constant == 1 else study.neighbour
    expected = (0.0, 1.0, 0.0, 3.0) if constant == 1 else (0.1, 1.11, 0.331, 3.6961)
    moments = (agrees(study.moments[:, k], value) for k, value in enumerate(expected))
    return both(_identical(study.alone, there), *moments)


@CLAIMS.claim("I19", wrong=0.0, box="ic-exact-facts")
def causal_is_query_only(study: DataStudy, constant: float) -> Evidence:
    """a causal layer has the same output at the query
    masked so that each token attends to earlier tokens only, with *one* softmax, the layer over all tokens has at the query the output of
    the query-only model
    wrong: a second softmax, as in the authors' causal layer"""
    return exactly(study.causal["once" if constant == 1 else "twice"], attend(study.after, study.prompts))
