r"""Several regressions in one prompt: N tasks, each on its own covariates, N labels per example, one model with N answers.

$$ y_{ik} = \langle x_{i,S_k}, \beta_k\rangle + \varepsilon_{ik}, \qquad \beta_k \sim N(0, I_{d_k}), \qquad
   \varepsilon_{ik} \sim N(0, d_k\sigma^2), \qquad \text{target}_k = \langle x_{q,S_k}, \beta_k\rangle $$

Tokens $z_i = (x_i, y_{i1}, \dots, y_{iN})$ have the width $n = d + N$; $V_h$ is N x n. Source of the setting: authors' code ($d = 6$, two
tasks on the first and the last four covariates, $L = 48$).

Heads of small scale compute, for each task, a centred gradient step with a matrix of its own,

$$ \hat y_k = \tfrac1L\,x_q^\top G_k \sum_i (x_i - \bar x)\,y_{ik}, \qquad G_k = \sum_h V_{hk} M_h^\top, \qquad \sum_h V_{hk} = 0, $$

where V_{hk} is what head h writes of label k into answer k. The zero sums leave H heads a space of H - 1 matrices: *N + 1* heads are
enough for N unrelated steps, not 2N. All risks are exact and derived in the theory chapter of Part III:

$$ \mathrm{risk}_k = d_k - 2f\operatorname{tr}(G_kP_k) + \tfrac{f}{L}\big[L\operatorname{tr}(G_kP_kG_k^\top)
   + (d_k + s_k)\operatorname{tr}(G_kG_k^\top)\big], \qquad f = \tfrac{L-1}{L},\; s_k = d_k\sigma^2, $$

with $P_k$ the projection on the covariates of task k.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from attnlib.kernels.prompt_stream import normals_per_prompt
from attnlib.randomness import stream

AUTHORS_SUPPORTS = ((0, 1, 2, 3), (2, 3, 4, 5))


@dataclass(frozen=True)
class MultiTaskPrompts:
    """B prompts, float64; all fields may carry the same leading axes."""

    x: torch.Tensor  # (..., B, L, d)
    y: torch.Tensor  # (..., B, L, N)
    query: torch.Tensor  # (..., B, d)
    target: torch.Tensor  # (..., B, N), without noise
    beta: torch.Tensor  # (..., B, N, d), zero outside a task's support

    @property
    def context(self) -> torch.Tensor:
        """(..., B, L, d + N)."""
        return torch.cat([self.x, self.y], dim=-1)

    @property
    def query_token(self) -> torch.Tensor:
        """(..., B, 1, d + N): the labels are 0."""
        return torch.nn.functional.pad(self.query, (0, self.y.shape[-1])).unsqueeze(-2)

    @property
    def targets(self) -> torch.Tensor:
        """(..., B, 1, N)."""
        return self.target.unsqueeze(-2)

    def part(self, first: int, last: int) -> MultiTaskPrompts:
        """Prompts number `first` ... `last - 1` of the axis B; no leading axes."""
        return MultiTaskPrompts(*(getattr(self, field.name)[first:last] for field in dataclasses.fields(self)))


@dataclass(frozen=True)
class MultiTaskLaw:
    """The law above; `supports` lists each task's covariates, counted from 0."""

    d: int = 6
    supports: tuple[tuple[int, ...], ...] = AUTHORS_SUPPORTS
    length: int = 48
    noise_std: float = 0.01

    @property
    def tasks(self) -> int:
        """N."""
        return len(self.supports)

    @property
    def sizes(self) -> np.ndarray:
        """(N,): d_k."""
        return np.array([len(support) for support in self.supports])

    @property
    def noise_variances(self) -> np.ndarray:
        """(N,): s_k = d_k sigma^2."""
        return self.sizes * self.noise_std**2

    @property
    def projections(self) -> np.ndarray:
        """(N, d): diagonals of P_k, 1 on a task's covariates."""
        marks = np.zeros((self.tasks, self.d))
        for k, support in enumerate(self.supports):
            marks[k, list(support)] = 1
        return marks

    @property
    def stream_size(self) -> tuple[int, int]:
        """(d', L): sizes of the single-task prompt whose normals are used; tokens and head must have room."""
        room = max(self.d + self.tasks - 1, -(-(self.d + int(self.sizes.sum())) // 2) - 1)
        return room, self.length

    @property
    def normals_per_prompt(self) -> int:
        return normals_per_prompt(*self.stream_size)

    def from_normals(self, normals) -> MultiTaskPrompts:
        """Prompts of standard normals (..., B, normals_per_prompt): query, betas one after the other; then x_i and noises per example."""
        normals = torch.as_tensor(normals, dtype=torch.float64)
        d, head_size = self.d, 2 * self.stream_size[0] + 2
        head, tokens = normals[..., :head_size], normals[..., head_size:].unflatten(-1, (self.length, -1))
        query, x = head[..., :d].contiguous(), tokens[..., :d].contiguous()
        beta = torch.zeros(*head.shape[:-1], self.tasks, d, dtype=torch.float64)
        place = d
        for k, support in enumerate(self.supports):
            beta[..., k, list(support)] = head[..., place : place + len(support)]
            place += len(support)
        noise = tokens[..., d : d + self.tasks] * torch.as_tensor(np.sqrt(self.noise_variances))
        y = x @ beta.mT + noise
        return MultiTaskPrompts(x, y, query, (beta @ query.unsqueeze(-1)).squeeze(-1), beta)

    def draw(self, count, seed, *, run=0, role="test") -> MultiTaskPrompts:
        """`count` held-out prompts of the stream (seed, role, run)."""
        return self.from_normals(stream(seed, role, run).standard_normal((count, self.normals_per_prompt)))


def linear_risks(law: MultiTaskLaw, maps) -> np.ndarray:
    """Risk (..., N) of the centred steps with the matrices G_k, `maps` (..., N, d, d): the formula above."""
    G = np.asarray(maps, dtype=np.float64)
    L, P = law.length, law.projections
    f = (L - 1) / L
    linear = np.einsum("...kii,ki->...k", G, P)
    own, all_ = np.einsum("...kij,kj->...k", G**2, P), (G**2).sum((-2, -1))
    return law.sizes - 2 * f * linear + f / L * (L * own + (law.sizes + law.noise_variances) * all_)


def centred_linear_answers(maps, prompts: MultiTaskPrompts) -> torch.Tensor:
    """(B, N): x_q' G_k sum_i (x_i - mean) y_ik / L."""
    G = torch.as_tensor(np.asarray(maps, dtype=np.float64))
    centred = prompts.x - prompts.x.mean(-2, keepdim=True)
    moments = centred.mT @ prompts.y / prompts.x.shape[-2]  # (B, d, N)
    return torch.einsum("bi,kij,bjk->bk", prompts.query, G, moments)


def separate_maps(law: MultiTaskLaw) -> np.ndarray:
    """(N, d, d): the best G_k, L / (L + d_k + s_k) on the task's own covariates, with risk d_k (d_k + 1 + s_k)/(L + d_k + s_k)."""
    steps = law.length / (law.length + law.sizes + law.noise_variances)
    return (steps[:, None] * law.projections)[..., None] * np.eye(law.d)


def best_linear_maps(law: MultiTaskLaw, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest sum of risks that H heads of small scale can reach: their maps (N, d, d) and the risks (N,).

    H heads with zero sums span H - 1 matrices. From N + 1 heads on the answer is `separate_maps`; one head gives nothing. Between, the
    maps are diagonal (an entry off the diagonal has target 0), and the sum of risks is a weighted distance of rank H - 1, minimised
    by alternating least squares from four starts.
    """
    rank, L, P = heads - 1, law.length, law.projections
    if rank >= law.tasks:
        best = separate_maps(law)
        return best, linear_risks(law, best)
    f = (L - 1) / L
    weight = f / L * (L * P + (law.sizes + law.noise_variances)[:, None])
    wanted = f * P / weight
    found = []
    for start in range(4 if rank else 1):
        left = stream(0, "search", start).standard_normal((law.tasks, rank)) + 1.0
        right = np.zeros((rank, law.d))
        for _ in range(200 if rank else 0):
            right = np.stack([_least_squares(left, wanted[:, j], weight[:, j]) for j in range(law.d)], 1)
            left = np.stack([_least_squares(right.T, wanted[k], weight[k]) for k in range(law.tasks)])
        maps = (left @ right)[..., None] * np.eye(law.d)
        found.append((maps, linear_risks(law, maps)))
    return min(found, key=lambda pair: pair[1].sum())


def _least_squares(design, wanted, weight):
    root = np.sqrt(weight)
    return np.linalg.lstsq(design * root[:, None], wanted * root, rcond=None)[0]


def paired_heads(law: MultiTaskLaw, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Circuits (1, 2N, n, n) and (1, 2N, N, n): task k in its own pair of opposite heads, M = ± scale on its covariates."""
    half = scale * separate_maps(law)
    written = np.eye(law.tasks) / (2 * scale)
    return _circuits(law, np.concatenate([half, -half]), np.concatenate([written, -written]))


def superposed_heads(law: MultiTaskLaw, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Circuits of N + 1 heads that hold N tasks: head k differs from the last by scale G_k, and the last is subtracted everywhere."""
    maps = separate_maps(law)
    middle = maps.sum(0) / (law.tasks + 1)
    written = np.concatenate([np.eye(law.tasks), -np.ones((1, law.tasks))]) / scale
    return _circuits(law, scale * np.concatenate([maps - middle, -middle[None]]), written)


def _circuits(law, blocks, written):
    """Covariate blocks (H, d, d) and written[h, k], what head h writes of label k into answer k, as circuits of one run."""
    n, heads = law.d + law.tasks, len(blocks)
    M = torch.zeros(1, heads, n, n, dtype=torch.float64)
    V = torch.zeros(1, heads, law.tasks, n, dtype=torch.float64)
    M[0, :, : law.d, : law.d] = torch.as_tensor(blocks).mT
    for k in range(law.tasks):
        V[0, :, k, law.d + k] = torch.as_tensor(written[:, k])
    return M, V
