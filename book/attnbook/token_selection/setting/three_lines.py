r"""The recursion of Part II as it is written on paper, for reading and for comparison; `recursion` is the program others use.

$$ z \leftarrow z + \alpha Hc + \alpha(\pi+\alpha\beta)Kc, \qquad H \leftarrow H + \alpha(zk^\top + kz^\top) + \alpha^2\pi kk^\top,
   \qquad \pi \leftarrow \pi + 2\alpha\beta + \alpha^2c^\top Hc, $$

with $k = Kc$ and $\beta = c^\top z$, all from the old values. Also here: the force computed the obvious way, which loses its digits
when attention saturates. Source: derived in the theory chapter of Part II.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.token_selection.gram import Gram
from attnlib.token_selection.model import forces

Force = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@checks.checked
def three_lines(gram: Gram, step_size: float, steps: int, *, second_order: float = 1.0) -> torch.Tensor:
    """Scores of the training tokens after 0 ... steps full-batch steps, (steps + 1, R, n, T).

    Args:
        gram: inner products of R training sets with their starts.
        step_size: alpha > 0.
        steps: >= 0.
        second_order: factor of the terms in alpha squared. 1 is gradient descent; 0 drops them, which is Euler's scheme for the
            gradient flow of (z, H, pi) and no longer gradient descent.

    Raises ValueError for a bad argument.
    """
    alpha, steps = checks.positive_number("step_size", step_size), checks.whole_number("steps", steps, at_least=0)
    extra = checks.finite_number("second_order", second_order)
    state = _Lines(gram)
    path = [state.tokens]
    for _ in range(steps):
        c = forces(state.tokens, gram.head_scores, gram.labels.observed).view(gram.runs, -1, 1)
        state.step(c, alpha, extra * alpha)
        path.append(state.tokens)
    return torch.stack(path)


class _Lines:
    """z (with the two signals as passive rows), H and pi, and the three lines."""

    def __init__(self, gram: Gram) -> None:
        self._shape, self._N = (gram.runs, gram.law.n, gram.law.tokens), gram.kernel.shape[2]
        self._K, self._H = gram.kernel, gram.weighted
        self.z, self.pi = gram.scores.unsqueeze(-1), gram.prompt_norm_squared[:, None, None]

    @property
    def tokens(self) -> torch.Tensor:
        return self.z[:, : self._N].reshape(self._shape)

    def speed(self, c: torch.Tensor) -> torch.Tensor:
        """Largest rate of a token's score, (R, 1, 1)."""
        return (self._H @ c + self.pi * (self._K @ c))[:, : self._N].abs().amax(1, keepdim=True)

    def step(self, c: torch.Tensor, alpha: torch.Tensor | float, extra: torch.Tensor | float) -> None:
        """`extra` is alpha, where the terms in alpha squared are kept whole."""
        z, pi, N = self.z, self.pi, self._N
        h, k = self._H @ c, self._K @ c
        beta = (c * z[:, :N]).sum(1, keepdim=True)
        self.z = z + alpha * h + alpha * (pi + extra * beta) * k
        self._H = self._H + alpha * (z @ k[:, :N].mT + k @ z[:, :N].mT) + alpha * extra * pi * (k @ k[:, :N].mT)
        self.pi = pi + 2 * alpha * beta + alpha * extra * (c * h[:, :N]).sum(1, keepdim=True)


def naive_forces(scores: torch.Tensor, head_scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What `model.forces` computes, by the textbook difference gamma - f: it has no digits left once s is 1 to rounding."""
    s = torch.softmax(scores, -1)
    f = (s * head_scores).sum(-1, keepdim=True)
    y = labels.unsqueeze(-1)
    return torch.sigmoid(-y * f) * (y / scores.shape[-2]) * s * (head_scores - f)


@dataclass(frozen=True)
class LongRun:
    """One way to compute the force, over many decades of time: every attribute (moments, R)."""

    log10_time: torch.Tensor
    signal_score: torch.Tensor  # v . mu, mean of the two classes: what fresh data see


@checks.checked
def long_run(gram: Gram, force: Force, *, steps: int, largest_move: float = 0.1, every: int = 10) -> LongRun:
    """Train with steps as long as the scores allow, with a given force. For comparison: `train_flow` is the one to use.

    Args:
        force: `model.forces`, `naive_forces`, or another function of (scores, head_scores, labels).
        steps: >= every.
        largest_move: how far a score may move in one step, > 0.
        every: keep every so-manieth step, >= 1.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("every", every, at_least=1)
    checks.whole_number("steps", steps, at_least=every)
    checks.positive_number("largest_move", largest_move)
    state, time, rows = _Lines(gram), gram.kernel.new_zeros(gram.runs, 1, 1), []
    for step in range(steps + 1):
        c = force(state.tokens, gram.head_scores, gram.labels.observed).view(gram.runs, -1, 1)
        if step and step % every == 0:
            signal = gram.law.signal_norm * state.z[:, -2:, 0].mean(1)
            rows.append((time[:, 0, 0].log10(), signal))
        alpha = largest_move / state.speed(c)
        state.step(c, alpha, alpha)
        time = time + alpha
    return LongRun(*(torch.stack(column) for column in zip(*rows, strict=True)))


def force_at_gap(gaps: torch.Tensor, tokens: int, force: Force = forces) -> tuple[torch.Tensor, torch.Tensor]:
    r"""The force on the selected token of one sample whose T - 1 competitors lie a gap x below it: computed, and exact.

    Values are 1 on the selected token and 0 on the others, the label is 1: $c = \sigma(-s)\,s\,(1-s)$ with
    $1-s = (T-1)e^{-x}/(1+(T-1)e^{-x})$, which keeps all its digits.

    Args:
        gaps: x, (points,).
        tokens: T >= 2.
        force: what computes it.

    Returns both as (points,). Raises ValueError for a bad `tokens`.
    """
    checks.whole_number("tokens", tokens, at_least=2)
    scores = gaps.new_zeros(gaps.shape[0], 1, tokens)
    scores[:, 0, 0] = gaps
    values = torch.zeros_like(scores)
    values[..., 0] = 1
    computed = force(scores, values, gaps.new_ones(gaps.shape[0], 1))[:, 0, 0]
    rest = (tokens - 1) * torch.exp(-gaps)
    s = 1 / (1 + rest)
    return computed, torch.sigmoid(-s) * s * rest / (1 + rest)
