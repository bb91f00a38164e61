r"""Risk of any circuits on fresh prompts, $E(\hat y-\langle x_q,\beta\rangle)^2$, with its standard error: see `risk_of`.

Trained heads look at labels a little. What that does is the squared error of the model minus that of the same model with the last
rows of every $M_h$ set to zero, on the same prompt and on its mirror image (all labels with the other sign): unbiased for any
circuits. Source: derived in the theory chapter of Part III.
"""

from __future__ import annotations

import math

import torch

from attnlib import checks, limits
from attnlib.device import one_thread
from attnlib.in_context.circuits import Circuits, predictions, weights_at
from attnlib.in_context.law import Prompts, RegressionLaw

_CHUNK_NUMBERS = 1_000_000  # float64 numbers in the largest array of a chunk: 8 MB


@checks.checked
@one_thread
def risk_of(
    circuits: Circuits, law: RegressionLaw, *, prompts: int = 4000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The risk of circuits on fresh prompts, $E(\hat y-\langle x_q,\beta\rangle)^2$, with its standard error.

    Where weights do not depend on labels, $\beta$ and the label noise are integrated exactly: with $c$ what the heads give to each label
    and $u$ what they write of the covariates,

    $$ E\big[(\hat y-\langle x_q,\beta\rangle)^2\,\big|\,X,x_q\big] = s_\beta^2\big(|X^\top c-x_q|^2+s_2|c|^2\big)+u^2 . $$

    What trained heads do with labels is added from the same prompts and their mirror images; what remains of chance is regressed on
    quantities of the prompt whose means are known. Differences between circuits of one call are paired: use `risk_per_prompt` for their
    standard errors.

    Args:
        circuits: any; leading axes are free, all are measured on the same prompts.
        law: of the prompts; its `d` must be the circuits'.
        prompts: how many held-out prompts, >= 50.
        seed: they come from the stream (seed, "test", 0).

    Returns:
        risk and standard error, both (...), float64, in the law's units.

    Raises:
        ValueError: a bad argument, before any work.

    Source:
        derived in `book/in_context_theory`.

    Example:
        >>> risk, error = risk_of(circuits_of(initial_weights(d=5, heads=2, seed=0, runs=3)), RegressionLaw(d=5, length=40))
        >>> risk.shape, bool((error < 0.1 * risk).all())
        (torch.Size([3]), True)
    """
    checks.whole_number("prompts", prompts, at_least=50, hint="the controls are fitted on them")
    _check(circuits, law)
    models = circuits.output_value.shape[:-2].numel()
    limits.require_memory(lambda prompts: 32 * models * prompts, prompts=prompts)
    checks.whole_number("seed", seed, at_least=0)
    drawn = law.drawn(prompts, seed, 0, "test")
    values = _in_chunks(circuits, law, drawn)
    # Remove chance: regress on quantities of the prompts whose means are known to be 0.
    fitted = 1
    if law.isotropic:
        controls = _controls(law, drawn)
        fitted += controls.shape[1]
        design = torch.cat([torch.ones_like(controls[:, :1]), controls], dim=1)
        flat = values.reshape(-1, prompts).T
        solution = torch.linalg.pinv(design) @ flat  # controls can be constant (one example): no unique solution
        values = (flat - controls @ solution[1:]).T.reshape(values.shape)
    mean = values.mean(-1)
    spread = (values - mean.unsqueeze(-1)).square().sum(-1) / (prompts - fitted)
    return mean, torch.sqrt(spread / prompts)


@checks.checked
@one_thread
def risk_per_prompt(circuits: Circuits, law: RegressionLaw, prompts: Prompts) -> torch.Tensor:
    """An unbiased value of the risk from every prompt, (..., B): the formula above. Can be negative where labels are looked at."""
    _check(circuits, law)
    law.check(prompts)
    return _in_chunks(circuits, law, prompts)


def _in_chunks(circuits: Circuits, law: RegressionLaw, prompts: Prompts) -> torch.Tensor:
    circuits = Circuits(circuits.key_query.double(), circuits.output_value.double())
    lead = circuits.output_value.shape[:-1].numel()
    B, L = prompts.y.shape[-2:]
    size = max(1, _CHUNK_NUMBERS // (lead * L))
    parts = [_risk_per_prompt(circuits, law, prompts.part(first, first + size)) for first in range(0, B, size)]
    return torch.cat(parts, dim=-1)


@checks.checked
def conditional_risk(
    weights: torch.Tensor, prompts: Prompts, law: RegressionLaw, *, offset: object = 0.0
) -> torch.Tensor:
    r"""Risk of $\sum_ic_iy_i+b$ given the covariates of each prompt: the mean over $\beta$ and the label noise, (..., B).

    $$ s_\beta^2\big(|X^\top c-x_q|^2+s_2|c|^2\big)+b^2 $$

    Args:
        weights: c, (..., B, L); must not depend on the labels.
        offset: b, (..., B) or a number, of the same kind.
    """
    law.check(prompts)
    checks.tensor("weights", weights, (*weights.shape[:-2], *prompts.y.shape[-2:]))
    offset = checks.numbers("offset", offset)
    if offset.ndim and offset.shape[-1] not in (1, prompts.y.shape[-2]):
        raise ValueError(f"offset must be a number or one for each prompt; got shape {tuple(offset.shape)}")
    return _given_covariates(weights, prompts, law, offset)


def _given_covariates(
    weights: torch.Tensor, prompts: Prompts, law: RegressionLaw, offset: torch.Tensor
) -> torch.Tensor:
    miss = torch.einsum("...bl,...bli->...bi", weights, prompts.x) - prompts.query
    noise = law.noise_variance * weights.square().sum(-1)
    return law.beta_std**2 * (miss.square().sum(-1) + noise) + offset.square()


def _risk_per_prompt(circuits: Circuits, law: RegressionLaw, prompts: Prompts) -> torch.Tensor:
    M, V, d = circuits.key_query, circuits.output_value, circuits.d
    # Without the rows that read labels: weights c of the labels, and the output from the covariates. Both moments are exact.
    blind = M.clone()
    blind[..., d, :] = 0
    unlabelled = Circuits(blind, V)
    p = weights_at(unlabelled, prompts)
    c = (V[..., d, None, None] * p).sum(-3)
    mean = torch.einsum("...hbl,bli->...hbi", p, prompts.x)
    written = (mean * V[..., None, :d]).sum((-3, -1))
    values = _given_covariates(c, prompts, law, written)
    # The effect of reading labels, from the prompt and its mirror image.
    if circuits.label_row.any():
        labelled = (c * prompts.y).sum(-1) - prompts.clean_target
        for sign in (1, -1):  # all labels and the target with the other sign are as likely
            mirrored = Prompts(prompts.x, sign * prompts.y, prompts.query, sign * prompts.target, sign * prompts.beta)
            error, without = predictions(circuits, mirrored) - mirrored.clean_target, sign * labelled + written
            values = values + (error.square() - without.square()) / 2
    return values


def _controls(law: RegressionLaw, prompts: Prompts) -> torch.Tensor:
    """(B, 7): quantities of the prompts minus their exact means: |x_q|^2 and, for the plain and the centred sum, three moments of
    the gradient step's weights c = <x_i, x_q> / L."""
    d, L = law.d, prompts.length
    columns = [prompts.query.square().sum(-1) - d]
    for x, n in ((prompts.x, L), (prompts.x - prompts.x.mean(1, keepdim=True), L - 1)):
        c = torch.einsum("bld,bd->bl", x, prompts.query) / L
        seen = torch.einsum("bld,bl->bd", x, c)
        columns.append((seen * prompts.query).sum(-1) - d * n / L)
        columns.append(seen.square().sum(-1) - d * n * (n + d + 1) / L**2)
        columns.append(c.square().sum(-1) - d * n / L**2)
    return torch.stack(columns, dim=1)


def _check(circuits: Circuits, law: RegressionLaw) -> None:
    if circuits.d != law.d:
        raise ValueError(f"circuits must be for d = {law.d}, the law's; got circuits for d = {circuits.d}")
    if not circuits.mu.numel():
        raise ValueError(f"circuits must be of one run or more; got shape {tuple(circuits.mu.shape)}")
    if not math.isfinite(float(circuits.key_query.sum() + circuits.output_value.sum())):
        raise ValueError("circuits must be finite numbers; got nan or infinity: was the training finished?")
