r"""What III.4 measures: heads, the kernel estimator of their two numbers, one step, linear attention and Bayes, at several lengths.

Three devices keep chance small. The kernel estimator's risk comes from the exact reduction (`reduced`). What the other entries of the
trained circuits add to it is measured prompt by prompt on the same prompts, where $\beta$ and the label noise are integrated by hand and
every prompt is used with both signs of its labels, which cancels the first order of what the heads take from labels. The references are
linear in the labels and in the query, so only the examples' covariates are sampled. Prompts are drawn and used in pieces, so that
memory grows with neither their number nor their length. Source: derived in the theory chapter of Part III.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.in_context import closed_form, full_runs
from attnbook.in_context.estimators import (
    bayes_prediction,
    bayes_risk,
    debiased_step,
    gradient_step,
    kernel_estimator,
    kernel_weights,
)
from attnbook.in_context.reduced import reduced_risk
from attnbook.in_context.what_the_heads_compute.linear_attention import (
    linear_risks,
    preconditioner_of,
    train_linear_attention,
)
from attnlib.attention import attention_weights
from attnlib.in_context.circuits import Circuits
from attnlib.in_context.errors import conditional_risk
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.training import train
from attnlib.randomness import stream

LENGTHS = (5, 10, 20, 40, 60, 80, 100, 120, 160, 240, 320, 500)
LIVE_STEPS, LIVE_RUNS = 20_000, 6
PRINTED_NOISE, PRINTED_PROMPTS = 0.1, 50_000  # of the authors' newest code: sigma^2, prompts behind each printed figure
_OMEGA, _MU = 0.13, 3.45  # of two heads there
_LINEAR_RUNS = 10  # of linear attention: with five, Student's t leaves room for a step 5 % larger
_SIGMA2 = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
_PIECE = 200_000  # numbers in the largest array of a piece: 1.6 MB, which caches hold


# --- what the entries outside two numbers per head do ------------------------------------------------------------------------


def off_pattern(circuits: Circuits, prompts: Prompts, law: RegressionLaw) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Circuits (R, H, ...) against the kernel estimator of their $(\omega_h,\mu_h)$ on the same prompts (B), (R, B) each.

    Returns the risk of the heads minus that of their two numbers, given the prompt, and the difference of the two predictions.

    With $p^h$ the attention when the label row of $M_h$ is taken as zero, $c=\sum_h\mu_hp^h$ and $u=\sum_hV_{h,1..d}\cdot\sum_ip_i^hx_i$,
    the risk of $c\cdot y+u$ given the covariates is exact; the squared error of the whole model minus that of $c\cdot y+u$ is added,
    averaged over the prompt and the prompt with all labels negated (the law does not tell them apart).
    """
    V, d = circuits.output_value, circuits.d
    shape = circuits.omega.shape  # (R, H)
    x, y, target = prompts.x, prompts.y, prompts.clean_target
    direction = torch.einsum("rhij,bj->brhi", circuits.key_query[..., :d], prompts.query).flatten(1, 2)
    from_x, from_label = direction[..., :d] @ x.mT, direction[..., d:] * y[:, None, :]  # (B, R H, L)

    def combine(scores):
        """c (B, R, L) and u (B, R) of these scores."""
        p = attention_weights(scores)
        written = torch.einsum("rhi,brhi->br", V[..., :d], (p @ x).unflatten(1, shape))
        return torch.einsum("rh,brhl->brl", V[..., d], p.unflatten(1, shape)), written

    weights, written = combine(from_x)
    blind = (weights @ y[..., None]).squeeze(-1)
    risk = conditional_risk(weights.transpose(0, 1), prompts, law, offset=written.T)
    for sign in (1, -1):
        own, offset = combine(from_x + sign * from_label)
        predicted = sign * (own @ y[..., None]).squeeze(-1) + offset
        goal = sign * target[:, None]
        change = (predicted - goal).square() - (sign * blind + written - goal).square()
        risk = risk + change.T / 2
        if sign == 1:
            model = predicted.T
    c = kernel_weights(prompts, circuits.omega, circuits.mu)
    kernel = (c * y).sum(-1)
    return risk - conditional_risk(c, prompts, law), model - kernel


def off_pattern_parts(circuits: Circuits, law: RegressionLaw) -> torch.Tensor:
    r"""Mean square that each kind of entry outside the two numbers adds to the predictions, to leading order in the scores: (R, 3).

    | kind | entries | mean square |
    |---|---|---|
    | block | $\Delta=\sum_h(\mu_hM_h^\top+m_hv_h^\top)-\eta I$ | $s_\beta^2f\,(1+\tfrac{d+s_2}L)\lVert\Delta\rVert^2$ |
    | label row | $w=\sum_h\mu_hm_h$ | $\tfrac{L^2-1}{L^2}\,\mathbb E[\sigma_y^4]\,\lvert w\rvert^2+K$ |
    | output | $v=\sum_hv_h$, $t=\sum_hM_h^\top v_h$ | $\lvert v\rvert^2/L+f(1+\tfrac dL)\lvert t\rvert^2+K$ |

    with $f=(L-1)/L$, $M_h$ the covariate block, $m_h$ the label row, $v_h$ the first d entries of $V_h$, $\sigma_y^2$ the variance of a
    label given $\beta$, and $K=s_\beta^2f\,(fd+fs_2+\tfrac2L)\,w\cdot t$ half of what the last two have in common. The last two
    are even in the labels, and the law has no direction: so these parts add to the *risk* what they add to the predictions, but for
    $-2s_\beta^2f(1-\eta/\eta^*)\operatorname{tr}\Delta$, which is zero at the best step. Isotropic laws. Source: derived in the theory
    chapter of Part III.
    """
    d, L, s2, v = law.d, law.length, law.noise_variance, circuits.output_rest
    spread, f = law.beta_std**2, (L - 1) / L
    delta = preconditioner_of(circuits) - circuits.effective_step[..., None, None] * torch.eye(d, dtype=torch.float64)
    block = spread * f * (1 + (d + s2) / L) * delta.square().sum((-2, -1))
    w = torch.einsum("rh,rhi->ri", circuits.mu, circuits.label_row)
    t = torch.einsum("rhij,rhi->rj", circuits.covariate_block, v)
    common = spread * f * (f * d + f * s2 + 2 / L) * (w * t).sum(-1)
    fourth = spread**2 * (d * (d + 2) + 2 * d * s2 + s2**2)
    label = (1 - 1 / L**2) * fourth * w.square().sum(-1) + common
    output = v.sum(1).square().sum(-1) / L + f * (1 + d / L) * t.square().sum(-1) + common
    return torch.stack([block, label, output], -1)


# --- error against the length of the prompt ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A risk at K lengths of R models; a predictor that was not trained has R = 1."""

    risk: torch.Tensor  # (K, R)
    error: torch.Tensor  # (K, R): standard errors, prompts alone

    @property
    def mean(self) -> np.ndarray:
        """(K,): means over models."""
        return self.risk.mean(1).numpy()

    @property
    def standard_error(self) -> np.ndarray:
        """(K,): of `mean`, prompts and models together (models share their prompts, so those errors do not average out)."""
        runs = self.risk.shape[1]
        spread = self.risk.std(1) / math.sqrt(runs) if runs > 1 else torch.zeros(len(self.risk), dtype=torch.float64)
        return torch.hypot(spread, self.error.amax(1)).numpy()

    def at(self, index: int, runs: np.ndarray) -> tuple[float, float]:
        """Mean over some of the models at one length, and its standard error (prompts and models)."""
        pick = runs if self.risk.shape[1] > 1 else np.array([0])
        risk, prompts = self.risk[index, pick], self.error[index, pick].max().item()
        spread = risk.std().item() / math.sqrt(len(risk)) if len(risk) > 1 else 0.0
        return risk.mean().item(), math.hypot(spread, prompts)


def length_study(law: RegressionLaw, circuits: Circuits, lengths=LENGTHS, *, prompts=4000, seed=0) -> SimpleNamespace:
    """Measure trained circuits (R, H, ...) and what they are compared with at each of K lengths, all on the same prompts.

    law: at the length of training; isotropic. prompts: held-out prompts for each length; stream (seed, "test", length).

    Returns curves: `kernel` (their two numbers each, exact reduction), `off_pattern` (risk of the heads as they are minus that of their
    two numbers, paired), `shift` (mean square of the difference of the two predictions), `model` (the heads as they are), and `gd1`, one
    step with eta = 1, `gd_optimal` and `debiased`, the best plain and centred step for each length, and `bayes`, sampled. By run: `floor`,
    the risk of each model's two numbers in the limit of long prompts, and `crossings`, the length beyond which one step with eta = 1 has
    less risk than the model; nan where it never has.
    """
    s = SimpleNamespace(law=law, circuits=circuits, lengths=np.array(lengths))
    kernel, off, shift, references = [], [], [], []
    for here in map(law.with_length, lengths):
        exact = reduced_risk(circuits.omega, circuits.mu, here, prompts=prompts, batches=100, seed=seed)
        kernel.append(torch.stack(exact))
        parts = [
            (*off_pattern(circuits, part, here), _references(part, here))
            for part in _pieces(here, prompts, seed, circuits.omega.numel())
        ]
        risks, shifts, others = (torch.cat(each, -1) for each in zip(*parts, strict=True))
        off.append(_mean(risks))
        shift.append(_mean(shifts.square()))
        references.append(_mean(others))
    s.kernel, s.off_pattern, s.shift = (Curve(*torch.stack(found).unbind(1)) for found in (kernel, off, shift))
    s.model = Curve(s.kernel.risk + s.off_pattern.risk, torch.hypot(s.kernel.error, s.off_pattern.error))
    plain = torch.stack(references)  # (K, 2, 4)
    s.gd1, s.gd_optimal, s.debiased, s.bayes = (Curve(plain[:, 0, [k]], plain[:, 1, [k]]) for k in range(4))
    s.floor = closed_form.softmax_floor(law, circuits.effective_step.numpy(), offset=circuits.mu.sum(-1).numpy())
    one = closed_form.gd_risk(law, 1.0, length=s.lengths)
    s.crossings = np.array([crossing(s.lengths, risk.numpy() / one) for risk in s.model.risk.T])
    return s


def crossing(lengths: np.ndarray, ratio: np.ndarray) -> float:
    """The length where a ratio of two risks passes 1 from below for the first time, linear in log length; nan if it never does."""
    up = np.flatnonzero((ratio[:-1] < 1) & (ratio[1:] >= 1))
    if not len(up):
        return math.nan
    k = up[0]
    share = (1 - ratio[k]) / (ratio[k + 1] - ratio[k])
    return float(np.exp((1 - share) * np.log(lengths[k]) + share * np.log(lengths[k + 1])))


def _pieces(law, prompts, seed, heads):
    """Held-out prompts of the stream (seed, "test", length), a piece at a time; the size of the pieces changes no number."""
    generator = stream(seed, "test", law.length)
    size = max(1, _PIECE // (law.length * max(heads, law.d + 1)))
    for first in range(0, prompts, size):
        rows = min(size, prompts - first)
        yield law.from_normals(generator.standard_normal((rows, law.normals_per_prompt)))


def _references(prompts, law):
    """(4, B): risks of one step with eta = 1, of the best plain and centred step, and of Bayes, given the examples' covariates.

    With S = X'X / L (of the centred X where the step is), a step of size eta has |I - eta S|^2 + s2 eta^2 tr S / L in units of s_beta^2,
    averaged over the query too.
    """
    x, eye = prompts.x, torch.eye(law.d, dtype=torch.float64)
    centred = x - x.mean(-2, keepdim=True)
    best, best_centred = float(closed_form.gd_optimal_step(law)), float(closed_form.debiased_gd_optimal_step(law))
    risks = []
    for data, step in ((x, 1.0), (x, best), (centred, best_centred)):
        S = data.mT @ data / law.length
        trace = S.diagonal(dim1=-2, dim2=-1).sum(-1)
        miss = (eye - step * S).square().sum((-2, -1))
        risks.append(law.beta_std**2 * (miss + law.noise_variance * step**2 * trace / law.length))
    return torch.stack([*risks, bayes_risk(x, law)])


def _mean(values):
    """(2, C): mean over prompts and its standard error, of values (C, B)."""
    return torch.stack([values.mean(-1), values.std(-1) / math.sqrt(values.shape[-1])])


# --- other noises, and published figures -------------------------------------------------------------------------------------


def noise_scan(law: RegressionLaw, prompts, seed) -> SimpleNamespace:
    """The best centred step (closed form) and Bayes at K noises, everything else as trained: (K,) each, in the law's units."""
    # A ladder for logarithmic axes: without the law's own noise where that is zero.
    sigma2 = np.array(sorted({*_SIGMA2, law.noise_std**2} - {0.0}))
    rows = []
    for value in sigma2:
        here = RegressionLaw(law.d, law.length, math.sqrt(value), law.convention)
        risks = bayes_risk(here.draw(prompts, seed).x, here)
        best = float(closed_form.debiased_gd_optimal_risk(here))
        rows.append((best, risks.mean().item(), risks.std().item() / math.sqrt(prompts)))
    step, bayes, error = np.array(rows).T
    return SimpleNamespace(sigma2=sigma2, step=step, bayes=bayes, bayes_error=error)


def published_figures(*, prompts=2000, seed=0) -> SimpleNamespace:
    r"""The authors' printed errors at $d=5$, $\omega=\pm0.13$, $\mu=\pm3.45$, $\sigma^2=0.1$ and what they should be.

    Noisy targets, repository's convention: errors are risks plus $\sigma^2$. Steps are $\eta=2\omega\mu$, their one head is
    $\omega=1/\sqrt d$, $\mu=\sqrt d/(1+de(1+\sigma^2)/L)$. Source of the printed figures: authors' code. `error`: standard error of the
    printed ones, from the spread of single prompts.
    """
    law = RegressionLaw(5, 40, math.sqrt(PRINTED_NOISE), "repository")
    single_mu = math.sqrt(5) / (1 + 5 * math.e * (1 + PRINTED_NOISE) / 40)
    pair, single = ((_OMEGA, -_OMEGA), (_MU, -_MU)), ((5**-0.5,), (single_mu,))
    step = 2 * _OMEGA * _MU

    def heads(omega_mu, length):
        numbers = (torch.tensor(values, dtype=torch.float64) for values in omega_mu)
        return float(reduced_risk(*numbers, law.with_length(length), seed=seed)[0])

    ridge_risk = bayes_risk(law.draw(prompts, seed).x, law).mean().item()
    rows = [
        *((f"two heads, L = {L}", L, value, lambda p: kernel_estimator(p, *pair), heads(pair, L))
          for L, value in ((10, 0.604), (20, 0.367), (40, 0.2430), (100, 0.164))),
        ("one head, L = 40", 40, 0.4048, lambda p: kernel_estimator(p, *single), heads(single, 40)),
        ("one step, L = 40", 40, 0.2407, lambda p: gradient_step(p, step), float(closed_form.gd_risk(law, step))),
        ("centred step, L = 40", 40, 0.2431, lambda p: debiased_step(p, step), float(closed_form.debiased_gd_risk(law, step))),
        ("ridge, L = 40", 40, 0.1146, lambda p: bayes_prediction(p, law), ridge_risk),
    ]  # fmt: skip
    spread = []
    for _, length, _, predictor, _ in rows:
        here = law.with_length(length).draw(prompts, seed, role="search")
        spread.append((predictor(here) - here.target).square().std().item() / math.sqrt(PRINTED_PROMPTS))
    names, _, printed, _, exact = zip(*rows, strict=True)
    return SimpleNamespace(
        names=names, printed=np.array(printed), exact=np.array(exact) + PRINTED_NOISE, error=np.array(spread)
    )


# --- everything --------------------------------------------------------------------------------------------------------------


def trained_heads(setting: Experiment) -> tuple[Circuits, Experiment, bool]:
    """Heads (R, H, ...) of a setting, the experiment that made them, and whether it is a stored one.

    The authors' setting is stored at full size, from seed 0: the setting's own seed, runs and records are then without effect. Anything
    else is trained now: `LIVE_RUNS` runs, and where the setting still asks for the full 500 001 steps, `LIVE_STEPS` of them, after which
    risks change by a per cent or two.
    """
    if setting.heads in full_runs.HEADS:
        full = full_runs.experiment(setting.heads)
        if setting.replace(runs=full.runs, records=full.records, seed=full.seed) == full:
            history = full_runs.load(setting.heads)
            return history.final, history.experiment, True
    steps = LIVE_STEPS if setting.steps == Experiment().steps else setting.steps
    now = setting.replace(runs=LIVE_RUNS, records=2, steps=steps)
    return train(now).final, now, False


def _predicted(heads, kept):
    """What follows from the weights of the kept runs, (R',) each.

    Risks at the length of training: `centred`, the step of size eta = sum omega mu with the offset sum mu; `plain`, the same step without
    centring; `added`, what entries outside the two numbers add. `crossings`: the length beyond which a plain step with eta = 1 is better.
    """
    law, circuits = heads.law, heads.circuits
    step, offset = circuits.effective_step[kept].numpy(), circuits.mu.sum(-1)[kept].numpy()
    grid = np.unique(np.geomspace(heads.lengths[0], heads.lengths[-1], 200).astype(int))
    one = closed_form.gd_risk(law, 1.0, length=grid)
    added = torch.stack([off_pattern_parts(circuits, law.with_length(int(L))).sum(-1) for L in grid]).numpy()
    crossings = [
        crossing(grid, (closed_form.debiased_gd_risk(law, eta, offset=a, length=grid) + added[:, r]) / one)
        for r, eta, a in zip(kept, step, offset, strict=True)
    ]
    return SimpleNamespace(
        centred=torch.as_tensor(closed_form.debiased_gd_risk(law, step, offset=offset)),
        plain=torch.as_tensor(closed_form.gd_risk(law, step)),
        added=off_pattern_parts(circuits, law).sum(-1)[kept],
        crossings=torch.tensor(crossings, dtype=torch.float64),
    )


def estimator_study(experiment: Experiment, lengths=LENGTHS, *, prompts=4000, seed=0) -> SimpleNamespace:
    """Take or train the heads of a setting (`trained_heads`) and measure them and their rivals.

    `seed` is that of the held-out prompts and of linear attention.
    """
    s = SimpleNamespace(prompts=prompts)
    circuits, s.experiment, s.stored = trained_heads(experiment)
    law = s.experiment.law
    lengths = sorted({*lengths, law.length})
    s.trained_at = lengths.index(law.length)
    s.heads = length_study(law, circuits, lengths, prompts=prompts, seed=seed)  # of all R runs
    s.opposite = circuits.cancels.numpy()  # (R,): the run ended with heads of both signs
    # Indices of the runs with heads of both signs; of all runs if there is none (one head).
    s.kept = np.flatnonzero(s.opposite) if s.opposite.any() else np.arange(len(s.opposite))
    s.predicted = _predicted(s.heads, s.kept)
    # Runs that are still ahead on the longest prompts are overtaken beyond them, if at all.
    s.ahead = s.heads.model.risk[-1, s.kept] < float(closed_form.gd_risk(law, 1.0, length=lengths[-1]))
    s.exact = {
        "plain step, eta = 1": float(closed_form.gd_risk(law, 1.0)),
        "plain step, best eta": float(closed_form.gd_optimal_risk(law)),
        "centred step, best eta": float(closed_form.debiased_gd_optimal_risk(law)),
    }
    s.linear = train_linear_attention(law, seed=seed, runs=_LINEAR_RUNS)  # circuits (10, 1, ...), 1/L form
    sampled = torch.stack([linear_risks(s.linear, law, length, prompts=prompts, seed=seed) for length in lengths], 1)
    s.linear_risk = dict(zip(("raw sum", "1/L"), sampled, strict=True))  # (K, 10) each
    s.noise = noise_scan(law, prompts, seed)
    s.published = published_figures(seed=seed)
    return s
