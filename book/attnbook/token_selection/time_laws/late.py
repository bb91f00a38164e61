r"""Late gaps: training p alone, far beyond memorisation, and the hard-margin problem whose solution it approaches.

Sample i has selected token $u_i$. Gap $j=(i,t)$, $t\ne u_i$, is $X_j=z_{iu_i}-z_{it}=d_j\cdot p$ with $d_j=W_0(x_{iu_i}-x_{it})$. The
attention-SVM is $\min|p|^2$ subject to $d_j\cdot p\ge1$ for all j. Where $\beta=B^{-1}\mathbf 1>0$, $B_{jk}=d_j\cdot d_k$, its solution is
$\sum_j\beta_jd_j$ with all margins equal, and the flow has $X_j=\log\theta+\log(f_j/\beta_j)+o(1)$, $\theta=\alpha\tau$,
$f_j=\tfrac1n\sigma(-Y_i\gamma_{iu_i})\,Y_i(\gamma_{iu_i}-\gamma_{it})$. Source: derived in the theory chapter of Part II (`ts-late-gaps`).
"""

from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.token_selection.gram import Gram, draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.model import forces


@dataclass(frozen=True)
class LateGaps:
    """R training sets at the end of a long run of training p alone; gaps of sample i in the order of its tokens, without $u_i$."""

    log_time: torch.Tensor  # (R,), log(alpha tau)
    gaps: torch.Tensor  # (R, n (T - 1))
    weights: torch.Tensor  # (R, n (T - 1)): beta = B^{-1} 1, the dual variables of the hard-margin problem
    pulls: torch.Tensor  # (R, n (T - 1)): f, nan where the selected token is not the sample's best

    @property
    def kkt(self) -> torch.Tensor:
        """(R,) bool: every sample has selected its best token, and every dual variable is positive."""
        return ~self.pulls.isnan().any(1) & (self.weights > 0).all(1)

    @property
    def predicted(self) -> torch.Tensor:
        """(R, n (T - 1)): log theta + log(f / beta)."""
        return self.log_time[:, None] + (self.pulls / self.weights).log()


def svm_weights(kernel: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Differences (n (T - 1), n T) of every sample's selected token and its others, and beta = B^{-1} 1 for B = differences kernel.

    kernel: (n T, n T), positive definite on differences. chosen: (n,), the selected tokens.
    """
    n, T = len(chosen), kernel.shape[0] // len(chosen)
    eye = torch.eye(n * T, dtype=kernel.dtype).view(n, T, n * T)
    rows = torch.stack([eye[i, chosen[i]] - eye[i, t] for i in range(n) for t in range(T) if t != chosen[i]])
    products = rows @ kernel @ rows.mT
    return rows, torch.linalg.solve(products, torch.ones(len(rows), dtype=kernel.dtype))


def late_gaps(law: TokenLaw, log_time: float, *, runs: int, seed: int, largest_move: float = 0.05) -> LateGaps:
    """Train p alone from p_0 = 0 by the flow, Heun steps in which no score moves further than `largest_move`, to theta = e^log_time.

    Raises ValueError for a bad argument before any work.
    """
    checks.whole_number("runs", runs, at_least=1)
    end, move = checks.positive_number("log_time", log_time), checks.positive_number("largest_move", largest_move)
    gram = draw_gram(law, seed, runs)
    N = law.n * law.tokens
    kernel = gram.weighted[:, :N, :N]
    scores, logs = follow(gram, kernel, end, move)
    chosen, weights, gaps, pulls = scores.argmax(-1), [], [], []
    for r in range(runs):
        rows, beta = svm_weights(kernel[r], chosen[r])
        values = gram.head_scores[r] * gram.labels.observed[r, :, None]
        best = values.gather(1, chosen[r][:, None])
        lead = (rows @ values.flatten()).where(rows @ values.flatten() > 0, torch.nan)
        weights.append(beta)
        gaps.append(rows @ scores[r].flatten())
        pulls.append(torch.sigmoid(-best).repeat(1, law.tokens - 1).flatten() * lead / law.n)
    return LateGaps(logs, *(torch.stack(parts) for parts in (gaps, weights, pulls)))


def follow(gram: Gram, kernel: torch.Tensor, end: float, move: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Flow dz/dtheta = `kernel` c from zero scores: scores (R, n, T) and log theta (R,) at theta = e^end."""
    law, runs = gram.law, gram.runs
    scores = torch.zeros(runs, law.n, law.tokens, dtype=kernel.dtype)
    time = torch.zeros(runs, dtype=kernel.dtype)

    def speed(at: torch.Tensor) -> torch.Tensor:
        c = forces(at, gram.head_scores, gram.labels.observed)
        return (kernel @ c.flatten(1).unsqueeze(-1)).view_as(at)

    horizon = torch.tensor(end, dtype=kernel.dtype).exp()
    while bool((time < horizon).any()):
        first = speed(scores)
        step = torch.minimum(move / first.abs().amax((1, 2)), horizon - time)
        second = speed(scores + step.view(-1, 1, 1) * first)
        scores = scores + step.view(-1, 1, 1) / 2 * (first + second)
        time = time + step
    return scores, time.log()
