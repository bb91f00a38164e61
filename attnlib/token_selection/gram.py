r"""Training depends on inner products only. Here they are computed from vectors, or drawn directly in any dimension.

`draw_gram` lists them, with the two unit signals appended to the training tokens as passive rows. For Gaussian $W_0$ and $p_0$
their joint law can be drawn in $O(N^3)$ whatever the dimension: Bartlett's triangles stand for the token noise, for $W_0$ on the
span of the tokens, and for $W_0^\top$ on the span of what that gives. No approximation, also for $d - 2 < N$. Source: derived in
the theory chapter of Part II.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch

from attnlib import checks, limits
from attnlib.arrays import Arrays
from attnlib.gaussian import bartlett_rows
from attnlib.randomness import stream
from attnlib.token_selection.law import Labels, Sample, Start, TokenLaw


@dataclass(frozen=True)
class Gram:
    """Inner products of R training sets with their starts, float64; N = n T, sample by sample, token by token."""

    law: TokenLaw
    start: Start
    seed: int
    first_run: int
    labels: Labels
    head_scores: torch.Tensor  # (R, n, T), gamma
    kernel: torch.Tensor  # (R, N + 2, N), K; the last two rows are the unit signals
    weighted: torch.Tensor  # (R, N + 2, N), H_0
    scores: torch.Tensor  # (R, N + 2), z_0
    prompt_norm_squared: torch.Tensor  # (R,), pi_0
    weighted_twice: torch.Tensor  # (R, N, N), J_0
    scores_weighted: torch.Tensor  # (R, N), y_0
    direction_norm_squared: torch.Tensor  # (R,), |v_0|^2

    @property
    def runs(self) -> int:
        return self.kernel.shape[0]

    def part(self, first: int, last: int) -> Gram:
        """Runs first ... last - 1."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        cut = {name: x[first:last] for name, x in own.items() if isinstance(x, torch.Tensor)}
        labels = Labels(self.labels.true[first:last], self.labels.observed[first:last])
        return Gram(**own | cut | {"labels": labels, "first_run": self.first_run + first})


def join(parts: list[Gram]) -> Gram:
    """The runs of several Grams of one law, seed and start as one."""
    first = parts[0]
    own = {f.name: getattr(first, f.name) for f in fields(Gram)}
    tensors = {k: torch.cat([getattr(g, k) for g in parts]) for k, x in own.items() if isinstance(x, torch.Tensor)}
    labels = Labels(*(torch.cat([getattr(g.labels, k) for g in parts]) for k in ("true", "observed")))
    return Gram(**own | tensors | {"labels": labels})


@checks.checked
def gram_of(sample: Sample, start: Start) -> Gram:
    """Inner products of dense vectors, as `draw_gram` draws them: the link between `TokenLaw.draw` and `train`.

    Args:
        sample: dense training sets; the products with W_0 cost $O(N d^2)$ per run, N = n T.
        start: law of W_0 and p_0, any; drawn as `Start.draw` does, from the sample's seed.

    Returns:
        inner products, float64, on the sample's device.

    Raises:
        ValueError: a bad argument.

    Source:
        derived in `book/token_selection_theory`; equality of both trainings to 1e-10 is a test.

    Example:
        >>> sample = TokenLaw(n=10, d=50, tokens=4, signal_norm=5.0).draw(seed=0, runs=2)
        >>> gram_of(sample, CODE_START).kernel.shape
        torch.Size([2, 42, 40])
    """
    limits.require_memory(lambda d: 8 * d * d, d=sample.law.d)
    return join([_measured(sample, start, r) for r in range(sample.runs)])


def _measured(sample: Sample, start: Start, r: int) -> Gram:
    law, run, like = sample.law, sample.first_run + r, sample.tokens
    weight, prompt = (x.to(like.device) for x in start.drawn(law.d, sample.seed, run))
    rows = torch.cat([like[r].flatten(0, 1), torch.eye(2, law.d, dtype=like.dtype, device=like.device)])
    N = rows.shape[0] - 2
    X, image = rows[:N], rows @ weight.mT  # image = X~ W_0^T
    twice = image[:N] @ weight  # X M_0
    v = weight.mT @ prompt
    one = {
        "head_scores": (X @ sample.head).view(law.n, law.tokens),
        "kernel": rows @ X.mT,
        "weighted": image @ image[:N].mT,
        "scores": rows @ v,
        "prompt_norm_squared": prompt @ prompt,
        "weighted_twice": twice @ twice.mT,
        "scores_weighted": twice @ v,
        "direction_norm_squared": v @ v,
    }
    labels = Labels(sample.labels.true[r : r + 1], sample.labels.observed[r : r + 1])
    return Gram(law, start, sample.seed, run, labels, **{name: x.unsqueeze(0) for name, x in one.items()})


@checks.checked
def draw_gram(law: TokenLaw, seed: int, runs: int = 1, *, start: Start | None = None, first_run: int = 0) -> Gram:
    r"""Draw the inner products of a training set, which are all that training depends on, without making a d-vector.

    With the $N = nT$ tokens as the rows of $X$, the unit signals appended ($\tilde X$), $M_0 = W_0^\top W_0$ and $v_0 = W_0^\top p_0$:

    $$ K = \tilde XX^\top, \quad H_0 = \tilde XM_0X^\top, \quad z_0 = \tilde Xv_0, \quad \pi_0 = |p_0|^2, \quad
       J_0 = XM_0^2X^\top, \quad y_0 = XM_0v_0, \quad |v_0|^2. $$

    Exact in law, at a cost of $O(N^3)$ whatever the dimension. The draws are not those of `TokenLaw.draw` with the same seed.

    Args:
        law: any d >= 3.
        seed: run r draws from the streams (seed, role, r), so batches can be cut anywhere.
        runs: R >= 1.
        start: law of W_0 and p_0, Gaussian; `Start()` when left out.
        first_run: number of the first run, >= 0.

    Returns:
        inner products of runs `first_run` ... `first_run + runs - 1`, float64.

    Raises:
        ValueError: a start that is not Gaussian (it has no such shortcut: use `gram_of`), or a bad argument.

    Source:
        derived in `book/token_selection_theory`.

    Example:
        >>> gram = draw_gram(TokenLaw(n=10, d=10**9, tokens=4, signal_norm=3000.0), seed=0, runs=2)
        >>> gram.kernel.shape, gram.head_scores.shape
        (torch.Size([2, 42, 40]), torch.Size([2, 10, 4]))
    """
    start = Start() if start is None else start
    if start.distribution != "gaussian":
        raise ValueError(
            "start must have distribution='gaussian' to be drawn without vectors; got 'uniform': use gram_of(law.draw(...), start)"
        )
    checks.origin(seed, runs, first_run)
    limits.require_memory(lambda n, runs, tokens: 24 * runs * (n * tokens) ** 2, n=law.n, runs=runs, tokens=law.tokens)
    labels = law.labels_of(seed, runs, first_run)
    drawn = [_drawn(law, start, labels.true[r], seed, first_run + r) for r in range(runs)]
    tensors = {name: torch.from_numpy(np.stack([one[name] for one in drawn])) for name in drawn[0]}
    return Gram(law, start, seed, first_run, labels, **tensors)


def _drawn(law: TokenLaw, start: Start, true_labels: torch.Tensor, seed: int, run: int) -> Arrays:
    d, N = law.d, law.n * law.tokens
    # Tokens: coordinates in the plane of the signals, and Bartlett's rows off it.
    rng = stream(seed, "noise", run)
    plane = law.means(true_labels).reshape(N, 2).numpy() + law.noise_std * rng.standard_normal((N, 2))
    off_plane = law.noise_std * bartlett_rows(rng, N, d - 2)  # (N, min(N, d - 2))
    m = 2 + off_plane.shape[1]
    rows = np.zeros((N + 2, m))  # X~ in an orthonormal basis of its span
    rows[:N, :2], rows[:N, 2:], rows[N:, :2] = plane, off_plane, np.eye(2)
    X = rows[:N]

    # W_0 on their span: M_0 = W_0' W_0 there, p_0 in the basis of the image and beyond it, v_0 = W_0' p_0.
    rng, std = stream(seed, "start", run), math.sqrt(start.weight_scale / d)
    forward = std * bartlett_rows(rng, m, d)  # row i: W_0 u_i, in a basis of the image of the span
    M = forward @ forward.T
    prompt = math.sqrt(start.prompt_scale / d) * rng.standard_normal(m)  # p_0 in that basis
    beyond = start.prompt_scale / d * rng.chisquare(d - m) if d > m else 0.0  # |p_0|^2 outside it
    v = forward @ prompt
    # W_0' maps the images and p_0 out of the span again; J_0, y_0 and |v_0|^2 include that part.
    back = np.zeros((m + 1, m + 1))  # rows: the images W_0 u_i, then p_0, with one more direction for what lies beyond
    back[:m, :m], back[m, :m], back[m, m] = forward, prompt, math.sqrt(beyond)
    outside = std * back @ bartlett_rows(rng, m + 1, d - m) if d > m else np.zeros((m + 1, 1))
    extra = outside @ outside.T

    weighted = rows @ M
    return {
        "head_scores": (plane @ law.head_coordinates().numpy()).reshape(law.n, law.tokens),
        "kernel": rows @ X.T,
        "weighted": weighted @ X.T,
        "scores": rows @ v,
        "prompt_norm_squared": prompt @ prompt + beyond,
        "weighted_twice": X @ (M @ M + extra[:m, :m]) @ X.T,
        "scores_weighted": X @ (M @ v + extra[:m, m]),
        "direction_norm_squared": v @ v + extra[m, m],
    }
