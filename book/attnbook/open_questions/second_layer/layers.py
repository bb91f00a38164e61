r"""Two attention layers: tokens are mixed once, then read by the single head.

$$ Y = \lambda X + \alpha\, A X, \quad A = \mathrm{softmax}_{\text{row}}(X W X^\top + M), \qquad f = v^\top Y^\top \mathrm{softmax}(Yp), $$

two tokens, logistic loss. $\lambda$: residual (1) or not (0). $\alpha$: the value matrix of the first layer is $\alpha I$. M: which token
looks at which, a mask. Trained: v, p and W (frozen with step 0). From zero, or from Gaussian v, p; W starts at zero.

At W = 0 and without a mask the rows of A are $(\tfrac12,\tfrac12)$: $Y_u = (\lambda+\tfrac\alpha2)u + \tfrac\alpha2\xi$ and
$Y_\xi = (\lambda+\tfrac\alpha2)\xi + \tfrac\alpha2u$ *both* carry the signal. Reduced coordinates stay exact: a rotation Q takes W to
$QWQ^\top$, every gradient is made of inner products, and W stays in the span of the data on both sides, so a fresh token is seen through
its coordinates there. Minimal architectures, chosen to see a mechanism; nothing is claimed of transformers. Source: derived here.

**Error.** With W = 0 the second layer reads $Y_u = au + b\xi$ and $Y_\xi = cu + e\xi$. Given $p\cdot\xi = \omega t$, $t \sim N(0,1)$, its
weight on $Y_u$ is $w = \sigma((a-c)\,p\cdot\mu_k - (e-b)\,\omega t)$ and the output is Gaussian:

$$ \mathrm{err}_k = E_t\,\Phi\!\left(-\frac1{\tau}\left[\frac{wa + (1-w)c}{wb + (1-w)e}\,V_k + c_kt\right]\right), $$

$V_k, c_k, \tau$ as for the single head (`single_head.errors`). Where the noise phase is complete (w = 0) and v is the maximum-margin
vector of the tokens $Y_\xi$, orthogonal noise gives the limit `noise_phase_error`. Source: derived here.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from attnlib.randomness import stream
from attnlib.single_head.errors import Estimate, scores_of_fresh_data
from attnlib.single_head.model import gradients, pulls

_REACH, _POINTS = 60.0, 6001  # standard deviations and points of the trapezoid rule: errors down to 10^-700


@dataclass(frozen=True)
class Architecture:
    """Mixing layer: residual lambda, scale alpha of its value matrix, and which entries of A are allowed.

    `allowed` is ((u to u, u to xi), (xi to u, xi to xi)); a row needs one allowed entry. `name` for tables.
    """

    name: str
    residual: float = 1.0
    scale: float = 1.0
    allowed: tuple[tuple[bool, bool], tuple[bool, bool]] = ((True, True), (True, True))

    @property
    def start(self):
        """Y = mixing @ X at W = 0: rows (u, xi)."""
        rows = []
        for i, row in enumerate(self.allowed):
            share = self.scale / sum(row)
            rows.append(tuple(share * ok + self.residual * (i == j) for j, ok in enumerate(row)))
        return tuple(rows)

    @property
    def threshold(self):
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


def signal_first(sample):
    """(R, n, 2, m): the tokens with the signal in front."""
    index = torch.stack([sample.signal_position, 1 - sample.signal_position], -1).unsqueeze(-1)
    return sample.tokens.gather(2, index.expand_as(sample.tokens))


def layer_outputs(tokens, v, p, W, architecture):
    """f (R, n), weight of the second layer on Y_u (R, n), and A (R, n, 2, 2), rows u and xi.

    tokens: (R, n, 2, m), signal first; v, p: (R, m); W: (R, m, m).
    """
    output, weight, attention, _, _ = _forward(tokens, v, p, W, architecture)
    return output, weight, attention


def _forward(tokens, v, p, W, architecture):
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


def layer_gradients(tokens, labels, v, p, W, architecture):
    r"""Gradients of the mean logistic loss in v, p (R, m) and W (R, m, m), written out.

    With $w = \mathrm{softmax}(Yp)$, $\ell_i' = -y_ig_i/n$, mixing matrix $B = \lambda I + \alpha A$ and $e_t = w_t(v\cdot y_t - f)$:
    $\nabla_v = \sum \ell' X^\top B^\top w$, $\nabla_p = \sum \ell' X^\top B^\top e$, and
    $\nabla_W = \sum \ell' X^\top D X$ with $D_{ts} = \alpha A_{ts}(h_{ts} - \sum_{s'}A_{ts'}h_{ts'})$,
    $h_{ts} = w_t\,v\cdot x_s + e_t\,p\cdot x_s$.
    """
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
    def train_accuracy(self):
        """(S, R)."""
        return (self.margins > 0).to(self.v.dtype).mean(-1)

    def mean_over_clean(self, values):
        """(S, R): mean over clean samples of values (S, R, n)."""
        return (values * self.clean).sum(-1) / self.clean.sum(-1)


def train_layers(sample, architecture, step_size, steps, *, mixing_step_size=0.0, start=None, record=None):
    """Gradient descent on v, p (step_size) and W (mixing_step_size, 0 freezes it at zero), all from the same point.

    start: (v_0, p_0), both (R, m); zero when left out. record: steps to keep beside the last one, all when left out.
    """
    recorded = tuple(range(steps + 1)) if record is None else tuple(sorted({*record, steps}))
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
        v, p = v - step_size * grad_v, p - step_size * grad_p
    parts = map(torch.stack, zip(*rows, strict=True))
    return LayersTrajectory(architecture, recorded, *parts, (~sample.noisy).to(tokens.dtype))


def train_frozen(architectures, samples, step_size, steps, *, record):
    r"""Gradient descent on v and p from zero while W rests at 0, every architecture on every sample (of one n), in Gram space.

    The second layer reads $Y_u = au + b\xi$ and $Y_\xi = cu + e\xi$: four numbers per architecture. Iterates lie in the span of signals
    and noise tokens, so a step is one product of the n x n Gram matrix of the noise with two columns per architecture. Fast twin of
    `train_layers` with W frozen; equality is a test. v, p (S, R, m), margins and the weight on Y_u (S, R, n) are lists: all samples with
    the first architecture, then with the second, ...
    """
    kept = tuple(sorted({*record, steps}))
    noise = [signal_first(sample)[:, :, 1] for sample in samples]
    n, count = samples[0].law.n, len(architectures)
    gram = torch.cat([x @ x.mT for x in noise])  # (R, n, n)
    signals = torch.cat([s.signals @ s.signals.mT for s in samples])  # (R, 2, 2)
    labels = torch.cat([s.labels for s in samples]).unsqueeze(1)  # (R, 1, n)
    members = torch.cat([torch.stack([s.signal_class == 0, s.signal_class == 1], 1) for s in samples]).to(gram)
    holders = members.mT.contiguous()
    mixing = gram.new_tensor([a.start for a in architectures])
    a, b, c, e = (mixing[:, i, j].unsqueeze(-1) for i in (0, 1) for j in (0, 1))  # (A, 1)
    # Rows: v of every architecture, then p of every architecture. One Gram matrix serves them all.
    on_signals, on_noise = gram.new_zeros(len(gram), 2 * count, 2), gram.new_zeros(len(gram), 2 * count, n)
    rows = []
    for step in range(steps + 1):
        at_signal, at_noise = (on_signals @ signals) @ members, on_noise @ gram
        value_signal, value_noise = at_signal[:, :count], at_noise[:, :count]
        # Differences of the two tokens: in logit, so the weight on Y_u, and in value.
        weight = torch.sigmoid((a - c) * at_signal[:, count:] - (e - b) * at_noise[:, count:])
        gap = (a - c) * value_signal - (e - b) * value_noise
        of_signal, of_noise = c + weight * (a - c), e + weight * (b - e)
        margin = labels * (of_signal * value_signal + of_noise * value_noise)
        if step in kept:
            rows.append((on_signals, on_noise, margin, weight))
        if step < steps:
            pull = step_size / n * labels * torch.sigmoid(-margin)
            turn = pull * weight * (1 - weight) * gap
            on_signals = on_signals + torch.cat([pull * of_signal, turn * (a - c)], 1) @ holders
            on_noise = on_noise + torch.cat([pull * of_noise, -turn * (e - b)], 1)
    sizes = [sample.runs for sample in samples]
    own, other, margins, weights = (torch.stack(part).split(sizes, dim=1) for part in zip(*rows, strict=True))
    vectors = [on @ s.signals + off @ x for on, off, s, x in zip(own, other, samples, noise, strict=True)]
    pairs = [(i, j) for i in range(count) for j in range(len(samples))]
    return SimpleNamespace(
        steps=kept,
        v=[vectors[j][:, :, i] for i, j in pairs],
        p=[vectors[j][:, :, count + i] for i, j in pairs],
        margins=[margins[j][:, :, i] for i, j in pairs],
        weight=[weights[j][:, :, i] for i, j in pairs],
    )


# --- errors ----------------------------------------------------------------------------------------------------------------


def sampled_error_of_layers(path, sample, count):
    """Clean error at every recorded step: the model run on `count` fresh points of every run, (S, R) with standard errors.

    The same points serve all steps of a run. A zero output is half an error.
    """
    value, error = (path.v.new_zeros(len(path.steps), sample.runs) for _ in range(2))
    for r in range(sample.runs):
        one = sample.run(r)
        tokens, labels = sample.law.fresh_block(one, count, stream(sample.seed, "test", one.first_run))
        for row in range(len(path.steps)):
            state = (part[row, r : r + 1] for part in (path.v, path.p, path.W))
            margin = labels * layer_outputs(tokens, *state, path.architecture)[0]
            wrong = (margin < 0).to(margin.dtype) + 0.5 * (margin == 0).to(margin.dtype)
            value[row, r], error[row, r] = wrong.mean(), wrong.std() / math.sqrt(count)
    return Estimate(value, error)


def log10_error_of_mixed_tokens(v, p, sample, architecture):
    """Exact log10 of the clean error (R,) of a head v, p (R, m) on the tokens that the architecture makes at W = 0: trapezoid rule."""
    (a, b), (c, e) = architecture.start
    s = scores_of_fresh_data(v, p, sample)
    t = torch.linspace(-_REACH, _REACH, _POINTS, dtype=v.dtype)
    logit, value, omega, along, tau = (part.unsqueeze(-1) for part in vars(s).values())
    gap = (a - c) * logit - (e - b) * omega * t
    w, rest = torch.sigmoid(gap), torch.sigmoid(-gap)
    ratio = (w * a + rest * c) / (w * b + rest * e).clamp_min(1e-300)
    height = (ratio * value + along * t) / tau.clamp_min(1e-300)
    log_terms = torch.special.log_ndtr(-height) - t**2 / 2
    log_error = torch.logsumexp(log_terms, -1) + math.log(t[1] - t[0]) - 0.5 * math.log(2 * math.pi)
    prior = torch.tensor([sample.law.class_probability, 1 - sample.law.class_probability], dtype=v.dtype)
    return torch.logsumexp(log_error + prior.log(), -1) / math.log(10)


def noise_phase_error(architecture, n, d, signal_norm, label_noise):
    r"""Clean error of the maximum-margin head that reads $Y_\xi = cu + e\xi$ everywhere, orthogonal noise, expected counts.

    With $x = \rho^2n/2d$ and $z = c^2x(1-2\eta)/(e^2+c^2x)$ it is
    $\Phi\!\left(-z\sqrt{d/n}\,/\sqrt{(1-\eta)(1-z)^2+\eta(1+z)^2}\right)$: 1/2 for c = 0, and small as d/n grows for c > 0.

    Proof. $v = \lambda(\mu_1-\mu_2)+\sum y_i\theta_i\xi_i$ with margins 1: $e\theta d = 1 \mp c\lambda\rho^2$ (clean, flipped). Minimise
    $|v|^2$ over $z = c\lambda\rho^2$; a fresh output is $z + e\,v\cdot\xi$.
    """
    (_, _), (c, e) = architecture.start
    x, eta = signal_norm**2 * n / (2 * d), label_noise
    z = c**2 * x * (1 - 2 * eta) / (e**2 + c**2 * x)
    spread = math.sqrt((1 - eta) * (1 - z) ** 2 + eta * (1 + z) ** 2)
    return 0.5 * math.erfc(z * math.sqrt(d / n) / spread / math.sqrt(2))
