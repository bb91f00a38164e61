"""Weights that a head gives to its tokens, and the risk of the head that has them, by running it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from attnbook.one_token.law import OneTokenLaw, Sample
from attnlib import attention, checks


@checks.checked
def softmax_weights(scores: torch.Tensor, law: OneTokenLaw, *, slope: float = 1.0) -> torch.Tensor:
    r"""Softmax weights of the scores, at the Bayes slope or a multiple of it.

    $$ w = \operatorname{softmax}(c\sqrt\nu\,\chi). $$

    Args:
        scores: $\chi$, the tokens on the last axis.
        law: with the strength $\nu$.
        slope: the multiple $c$; at 1 the weights are the probabilities of the positions given the scores.

    Returns:
        weights of the shape of the scores.

    Raises:
        ValueError: a slope that is no finite number, or scores of another number of tokens than the law's.

    Source:
        abstract of 2509.21936 (softmax reaches the Bayes risk); the slope is derived here.

    Example:
        >>> law = OneTokenLaw(tokens=2, strength=4.0)
        >>> softmax_weights(torch.tensor([[0.0, 0.0]]), law)
        tensor([[0.5000, 0.5000]])
    """
    scores, slope = _scores(scores, law.tokens), checks.finite_number("slope", slope)
    return attention.attention_weights(slope * math.sqrt(law.strength) * scores)


@checks.checked
def sigmoid_weights(scores: torch.Tensor, law: OneTokenLaw, *, bias: float = 1.0) -> torch.Tensor:
    r"""The best weights that depend on a token's own score only: a sigmoid.

    $$ g(\chi) = \sigma\bigl(\sqrt\nu\,\chi - c\,[\tfrac\nu2 + \log(L-1)]\bigr). $$

    Args:
        scores: $\chi$.
        law: with $L$ and $\nu$.
        bias: the multiple $c$ of the best bias.

    Returns:
        weights of the shape of the scores.

    Raises:
        ValueError: a bias that is no finite number, or scores that are no floating-point tensor.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> law = OneTokenLaw(tokens=2, strength=4.0)
        >>> sigmoid_weights(torch.tensor([[1.0]]), law)  # halfway between the two means
        tensor([[0.5000]])
    """
    scores, bias = _scores(scores), checks.finite_number("bias", bias)
    return torch.sigmoid(math.sqrt(law.strength) * scores - bias * (law.strength / 2 + math.log(law.tokens - 1)))


@checks.checked
def linear_weights(scores: torch.Tensor, law: OneTokenLaw, *, centred: bool = False) -> torch.Tensor:
    r"""The best weights $b+c\chi_i$, or the best weights $b+c(\chi_i-\bar\chi)$ with the mean score $\bar\chi$ of the sample.

    $$ b=\frac{R}{L-1},\quad c=\frac{\sqrt\nu R}{L},\quad R=\frac{L(L-1)}{L^2+\nu(L-1)};
       \qquad\text{centred}\quad b=\frac1L,\quad c=\frac{\sqrt\nu}{L+\nu}. $$

    Args:
        scores: $\chi$, the tokens on the last axis.
        law: with $L$ and $\nu$.
        centred: whether the mean score of the sample is taken off first.

    Returns:
        weights of the shape of the scores.

    Raises:
        ValueError: scores of another number of tokens than the law's.

    Source:
        derived in the chapter "Proofs for Part VII".

    Example:
        >>> law = OneTokenLaw(tokens=2, strength=4.0)
        >>> linear_weights(torch.tensor([[2.0, 0.0]]), law, centred=True)
        tensor([[0.8333, 0.1667]])
    """
    scores, tokens, root = _scores(scores, law.tokens), law.tokens, math.sqrt(law.strength)
    if centred:
        return 1 / tokens + root / (tokens + law.strength) * (scores - scores.mean(-1, keepdim=True))
    risk = 1 / (1 + 1 / (tokens - 1) + law.strength / tokens)
    return risk / (tokens - 1) + root * risk / tokens * scores


@checks.checked
def erf_weights(scores: torch.Tensor, law: OneTokenLaw, *, scale: float) -> torch.Tensor:
    r"""Weights of the authors' older head, without a bias.

    $$ w_i = \operatorname{erf}(\lambda\chi_i). $$

    Args:
        scores: $\chi$.
        law: not used; it stands here so that the four kinds are called alike.
        scale: $\lambda>0$.

    Returns:
        weights of the shape of the scores.

    Raises:
        ValueError: a scale that is not a finite number above 0, or scores that are no floating-point tensor.

    Source:
        the authors' code of 2410.01537.

    Example:
        >>> law = OneTokenLaw(tokens=2, strength=4.0)
        >>> erf_weights(torch.tensor([[0.0]]), law, scale=0.3)
        tensor([[0.]])
    """
    return torch.erf(checks.positive_number("scale", scale) * _scores(scores))


def _scores(scores: torch.Tensor, *tokens: int) -> torch.Tensor:
    return checks.tensor("scores", scores, (*("R" for _ in scores.shape[len(tokens) :]), *tokens))


@checks.checked
def risk_sampled(weights: Callable[[torch.Tensor], torch.Tensor], sample: Sample) -> torch.Tensor:
    r"""Mean squared error of a head on each set of samples, $\frac1n\sum(y-\sum_iw_i\tau_i)^2$, against the labels of the sample.

    Args:
        weights: a function from scores (R, n, L) to weights of the same shape.
        sample: R sets of n samples.

    Returns:
        a vector (R,), one mean for each set.

    Raises:
        ValueError: weights of another shape than the scores.

    Source:
        the model itself; it has no line in common with the exact risks.

    Example:
        >>> law = OneTokenLaw(tokens=4, strength=6.0)
        >>> risk_sampled(lambda scores: softmax_weights(scores, law), law.draw(0, runs=3, samples=10)).shape
        torch.Size([3])
    """
    found = weights(sample.scores)
    if found.shape != sample.scores.shape:
        raise ValueError(
            f"weights must return the shape of the scores, {tuple(sample.scores.shape)}; got {tuple(found.shape)}"
        )
    return ((found * sample.values).sum(-1) - sample.labels).square().mean(-1)
