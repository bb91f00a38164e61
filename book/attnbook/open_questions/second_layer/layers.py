r"""Two attention layers: tokens are mixed once, then read by the single head.

$$ Y = \lambda X + \alpha\, A X, \quad A = \mathrm{softmax}_{\text{row}}(X W X^\top + M), \qquad f = v^\top Y^\top \mathrm{softmax}(Yp), $$

two tokens, logistic loss. $\lambda$: residual (1) or not (0). $\alpha$: the value matrix of the first layer is $\alpha I$. M: which token
looks at which, a mask. Trained: v, p and W (frozen with step 0). From zero, or from Gaussian v, p; W starts at zero.

At W = 0 and without a mask the rows of A are $(\tfrac12,\tfrac12)$: $Y_u = (\lambda+\tfrac\alpha2)u + \tfrac\alpha2\xi$ and
$Y_\xi = (\lambda+\tfrac\alpha2)\xi + \tfrac\alpha2u$ *both* carry the signal. Reduced coordinates stay exact: a rotation Q takes W to
$QWQ^\top$, every gradient is made of inner products, and W stays in the span of the data on both sides, so a fresh token is seen through
its coordinates there. Minimal architectures, chosen to see a mechanism; nothing is claimed of transformers. Source: derived here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.single_head.law import Sample
from attnlib.single_head.model import gradients, pulls


@dataclass(frozen=True)
class Architecture:
    """Mixing layer: residual lambda, scale alpha of its value matrix, and which entries of A are allowed.

    `allowed` is ((u to u, u to xi), (xi to u, xi to xi)); a row needs one allowed entry. `name` for tables. Raises ValueError.
    """

    name: str
    residual: float = 1.0
    scale: float = 1.0
    allowed: tuple[tuple[bool, bool], tuple[bool, bool]] = ((True, True), (True, True))

    def __post_init__(self) -> None:
        checks.finite_number("residual", self.residual)
        checks.finite_number("scale", self.scale)
        shape = [len(row) for row in self.allowed]
        if shape != [2, 2] or not all(any(row) for row in self.allowed):
            raise ValueError(f"allowed must be 2 x 2 with an allowed entry in every row; got {self.allowed!r}")

    @property
    def start(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Y = mixing @ X at W = 0: rows (u, xi)."""
        rows = []
        for i, row in enumerate(self.allowed):
            share = self.scale / sum(row)
            rows.append(tuple(share * ok + self.residual * (i == j) for j, ok in enumerate(row)))
        return tuple(rows)

    @property
    def threshold(self) -> float:
        r"""x at which the second layer's two tokens tie while W = 0: $(e^2-b^2)/(a^2-c^2)$ for $Y_u=au+b\xi$, $Y_\xi=cu+e\xi$.

        nan where the two tokens are the same vector. Derived on page 05: the maximum-margin threshold for every $\eta$, and that
        of gradient descent without label noise.
        """
        (a, b), (c, e) = self.start
        return (e**2 - b**2) / (a**2 - c**2) if a**2 != c**2 else float("nan")


ARCHITECTURES = {
    a.name: a
    for a in (
        Architecture("one layer", 1.0, 0.0),
        Architecture("residual", 1.0, 1.0),
        Architecture("weak mix", 1.0, 0.25),
        Architecture("strong mix", 1.0, 4.0),
        Architecture("no residual", 0.0, 1.0),
        Architecture("noise sees signal", 1.0, 1.0, ((True, False), (True, True))),
        Architecture("signal sees noise", 1.0, 1.0, ((True, True), (False, True))),
        Architecture("others only", 1.0, 1.0, ((False, True), (True, False))),
    )
}


def signal_first(sample: Sample) -> torch.Tensor:
    """(R, n, 2, m): the tokens with the signal in front. Raises ValueError for more than two tokens."""
    if sample.law.tokens != 2:
        raise ValueError(f"tokens must be 2 for two layers; got {sample.law.tokens}: draw a law with tokens=2")
    index = torch.stack([sample.signal_position, 1 - sample.signal_position], -1).unsqueeze(-1)
    return sample.tokens.gather(2, index.expand_as(sample.tokens))


def _check_shapes(tokens, v, p, W) -> None:
    checks.tensor("tokens", tokens, ("R", "n", 2, "m"))
    runs, _, _, m = tokens.shape
    checks.tensor("v", v, (runs, m), like=tokens)
    checks.tensor("p", p, (runs, m), like=tokens)
    checks.tensor("W", W, (runs, m, m), like=tokens)


def layer_outputs(
    tokens: torch.Tensor, v: torch.Tensor, p: torch.Tensor, W: torch.Tensor, architecture: Architecture
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """f (R, n), weight of the second layer on Y_u (R, n), and A (R, n, 2, 2), rows u and xi.

    tokens: (R, n, 2, m), signal first; v, p: (R, m); W: (R, m, m). Raises ValueError on bad shapes.
    """
    _check_shapes(tokens, v, p, W)
    output, weight, attention, _, _ = _forward(tokens, v, p, W, architecture)
    return output, weight, attention


def _forward(tokens, v, p, W, architecture: Architecture) -> tuple[torch.Tensor, ...]:
    """f, weight on Y_u, A, and the numbers (p . x, v . x) of the tokens x = u, xi and of y = Y_u, Y_xi, both (R, n, 2, 2)."""
    flat = tokens.flatten(1, 2)
    scores = (flat @ W).view_as(tokens) @ tokens.mT
    blocked = ~torch.tensor(architecture.allowed, device=tokens.device)
    # Two tokens: a softmax is a sigmoid of the difference.
    scores = scores.masked_fill(blocked, -torch.inf)
    on_first = torch.sigmoid(scores[..., 0] - scores[..., 1])
    attention = torch.stack([on_first, 1 - on_first], -1)
    raw = (flat @ torch.stack([p, v], -1)).view(*tokens.shape[:-1], 2)
    mixed = architecture.residual * raw + architecture.scale * torch.lerp(
        raw[..., 1:, :], raw[..., :1, :], on_first.unsqueeze(-1)
    )
    weight = torch.sigmoid(mixed[..., 0, 0] - mixed[..., 1, 0])
    return torch.lerp(mixed[..., 1, 1], mixed[..., 0, 1], weight), weight, attention, raw, mixed


def layer_gradients(
    tokens: torch.Tensor, labels: torch.Tensor, v: torch.Tensor, p: torch.Tensor, W: torch.Tensor,
    architecture: Architecture,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    r"""Gradients of the mean logistic loss in v, p (R, m) and W (R, m, m), written out.

    With $w = \mathrm{softmax}(Yp)$, $\ell_i' = -y_ig_i/n$, mixing matrix $B = \lambda I + \alpha A$ and $e_t = w_t(v\cdot y_t - f)$:
    $\nabla_v = \sum \ell' X^\top B^\top w$, $\nabla_p = \sum \ell' X^\top B^\top e$, and
    $\nabla_W = \sum \ell' X^\top D X$ with $D_{ts} = \alpha A_{ts}(h_{ts} - \sum_{s'}A_{ts'}h_{ts'})$,
    $h_{ts} = w_t\,v\cdot x_s + e_t\,p\cdot x_s$.
    """
    _check_shapes(tokens, v, p, W)
    checks.tensor("labels", labels, tuple(tokens.shape[:2]), like=tokens)
    output, first, attention, raw, mixed = _forward(tokens, v, p, W, architecture)
    slope = pulls(output, labels)
    weight = torch.stack([first, 1 - first], -1)
    mixing = architecture.residual * torch.eye(2, dtype=tokens.dtype, device=tokens.device)
    mixing = mixing + architecture.scale * attention
    # e_t = w_t (v . y_t - f): the derivative of f with respect to the logit of token t in the second layer.
    edge = weight * (mixed[..., 1] - output.unsqueeze(-1))
    # B'w and B'e, times l': what the gradients with respect to v and p give to each token.
    back = slope[..., None, None] * (mixing.mT @ torch.stack([weight, edge], -1))  # (R, n, token, 2)
    flat = tokens.flatten(1, 2)
    grad = back.flatten(1, 2).mT @ flat
    # h_ts, the derivative of f with respect to entry (t, s) of the mixing matrix; `centred` takes it through the softmax of row t,
    # and `pull` is l' D, the derivative of the loss with respect to the first layer's logits.
    push = weight.unsqueeze(-1) * raw[..., 1].unsqueeze(-2) + edge.unsqueeze(-1) * raw[..., 0].unsqueeze(-2)
    centred = push - (attention * push).sum(-1, keepdim=True)
    pull = architecture.scale * slope[..., None, None] * attention * centred  # (R, n, 2, 2)
    grad_W = flat.mT @ (pull @ tokens).flatten(1, 2)
    return grad[:, 0], grad[:, 1], grad_W


@dataclass(frozen=True)
class LayersTrajectory:
    """Training at the recorded steps S (axis 0)."""

    architecture: Architecture
    steps: tuple[int, ...]
    v: torch.Tensor  # (S, R, m)
    p: torch.Tensor  # (S, R, m)
    W: torch.Tensor  # (S, R, m, m)
    margins: torch.Tensor  # (S, R, n)
    weight: torch.Tensor  # (S, R, n), of the second layer on Y_u
    attention: torch.Tensor  # (S, R, n, 2, 2), of the first layer; entry [1, 0] is xi to u
    clean: torch.Tensor  # (R, n), 0 or 1

    @property
    def train_accuracy(self) -> torch.Tensor:
        """(S, R)."""
        return (self.margins > 0).to(self.v.dtype).mean(-1)

    def mean_over_clean(self, values: torch.Tensor) -> torch.Tensor:
        """(S, R): mean over clean samples of values (S, R, n)."""
        return (values * self.clean).sum(-1) / self.clean.sum(-1)


def train_layers(
    sample: Sample, architecture: Architecture, step_size: float, steps: int, *, mixing_step_size: float = 0.0,
    start: tuple[torch.Tensor, torch.Tensor] | None = None, record: Iterable[int] | None = None,
) -> LayersTrajectory:  # fmt: skip
    """Gradient descent on v, p (step_size) and W (mixing_step_size, 0 freezes it at zero), all from the same point.

    start: (v_0, p_0), both (R, m); zero when left out. record: steps to keep, all when left out. Raises ValueError.
    """
    beta = checks.positive_number("step_size", step_size)
    if mixing_step_size != 0:
        checks.positive_number("mixing_step_size", mixing_step_size, hint="or 0 to freeze W")
    steps = checks.whole_number("steps", steps, at_least=0)
    recorded = checks.recorded_steps(record, steps)
    tokens, labels = signal_first(sample), sample.labels
    runs, _, _, m = tokens.shape
    v, p = start if start is not None else (tokens.new_zeros(runs, m), tokens.new_zeros(runs, m))
    W, rows = tokens.new_zeros(runs, m, m), []
    # A frozen mixing layer is a single head on fixed tokens.
    mixed = tokens.new_tensor(architecture.start) @ tokens
    for step in range(steps + 1):
        if step in recorded:
            output, weight, attention = layer_outputs(tokens, v, p, W, architecture)
            rows.append((v, p, W, labels * output, weight, attention))
        if step == steps:
            break
        if mixing_step_size:
            grad_v, grad_p, grad_W = layer_gradients(tokens, labels, v, p, W, architecture)
            W = W - mixing_step_size * grad_W
        else:
            grad_v, grad_p, _ = gradients(mixed, labels, v, p)
        v, p = v - beta * grad_v, p - beta * grad_p
    parts = map(torch.stack, zip(*rows, strict=True))
    return LayersTrajectory(architecture, recorded, *parts, (~sample.noisy).to(tokens.dtype))
