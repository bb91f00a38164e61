r"""Training of heads: one softmax head by gradient descent, or H heads with any map, by any update rule; R runs at once.

$$ f(X) = \kappa\sum_h\sum_t w_t(Xp_h)\,v_h\cdot x_t, \qquad
   v_{t+1} = v_t - \beta \nabla_v L(v_t, p_t), \quad p_{t+1} = p_t - \beta \nabla_p L(v_t, p_t) . $$

There is one training, behind three names: `train_heads` takes everything, `gradient_descent` and `gram_descent` are one softmax head.
Two methods make the same steps. *Vectors*: the parameters are vectors in the sample's coordinates; the readable form, for any number
of tokens and every rule. *Gram*: every iterate lies in the span of its start, the signals and the noise tokens,
$v_t = \sum_a \alpha_a b_a$, and all that training looks at are the scores $K\alpha$ with the Gram matrix $K$ of those vectors, so a step
costs $O(n^2)$ whatever the dimension; two tokens per sample, rules that commute with rotations. Their equality is a test. (They part
where a rule normalises a gradient that is nothing but rounding, as p's is once attention is saturated.)

Source: arXiv 2410.07746 (one head, simultaneous steps, v_0 = p_0 = 0); the rest is derived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from attnlib import checks, limits
from attnlib.attention import AttentionMap
from attnlib.device import one_thread
from attnlib.divergence import require_finite
from attnlib.kernels.batches import in_batches
from attnlib.kernels.heads import Call, advance
from attnlib.single_head.law import Sample
from attnlib.single_head.maps import SOFTMAX
from attnlib.single_head.model import evaluate, gradients_at, loss
from attnlib.single_head.rules import GRADIENT_DESCENT, Rule, batch_orders

StepSize = float | torch.Tensor
Start = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Trajectory:
    """What training did at the recorded steps S (axis 0). `v[-1]`, `p[-1]` belong to the last step.

    Of H heads `v` is (S, R, Hv, m) with Hv = H or 1 (shared), `p` (S, R, H, m), `attention_on_signal` (S, R, H, n).
    """

    steps: tuple[int, ...]
    v: torch.Tensor  # (S, R, m)
    p: torch.Tensor  # (S, R, m)
    loss: torch.Tensor  # (S, R)
    margins: torch.Tensor  # (S, R, n), y_i f_i with the observed labels
    attention_on_signal: torch.Tensor  # (S, R, n)
    noisy: torch.Tensor  # (R, n) bool

    def at(self, step: int) -> int:
        """Row of a recorded step. Raises ValueError when it was not recorded."""
        if step not in self.steps:
            raise ValueError(f"step must be one of the recorded steps; got {step!r}: pass record=[..., {step!r}]")
        return self.steps.index(step)

    @property
    def train_accuracy(self) -> torch.Tensor:
        """(S, R): fraction of samples with a positive margin (a zero margin is an error)."""
        return (self.margins > 0).to(self.loss.dtype).mean(-1)

    @property
    def interpolates(self) -> torch.Tensor:
        """(S, R) bool: every observed label is fitted."""
        return (self.margins > 0).all(-1)

    @property
    def attention_clean(self) -> torch.Tensor:
        """(S, R), or (S, R, H): mean attention on the signal over samples with their true label (nan without any)."""
        return self._mean_where(~self.noisy)

    @property
    def attention_noisy(self) -> torch.Tensor:
        """(S, R), or (S, R, H): mean attention on the signal over samples with a flipped label (nan without any)."""
        return self._mean_where(self.noisy)

    def _mean_where(self, mask: torch.Tensor) -> torch.Tensor:
        mask = mask.unsqueeze(-2) if self.attention_on_signal.ndim == 4 else mask
        return (self.attention_on_signal * mask).sum(-1) / mask.sum(-1)

    def single(self) -> Trajectory:
        """The trajectory of the only head. Raises ValueError when there are more."""
        heads = self.p.shape[2]
        if heads != 1:
            raise ValueError(f"heads must be 1 for a single trajectory; got {heads}: read v, p and attention by head")
        v, p, attention = self.v[:, :, 0], self.p[:, :, 0], self.attention_on_signal[:, :, 0]
        return Trajectory(self.steps, v, p, self.loss, self.margins, attention, self.noisy)


# --- what readers call ------------------------------------------------------------------------------------------------


@checks.checked
def gaussian_start(sample: Sample, std: float) -> Start:
    """v_0 and p_0 with independent N(0, std^2) entries in R^d, as (R, m) in the sample's coordinates.

    Needs a sample drawn with `start_vectors=2`. Raises ValueError otherwise.
    """
    if sample.start_directions.shape[1] < 2:
        raise ValueError("sample must hold two start directions; got fewer: draw it with start_vectors=2")
    std = checks.step_size("std", std, like=sample.tokens)
    return std * sample.start_directions[:, 0], std * sample.start_directions[:, 1]


@checks.checked
@one_thread
def gradient_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: Start | None = None,
    record: Iterable[int] | None = None,
) -> Trajectory:
    r"""Train one head on every run of `sample` by full-batch gradient descent, and record what it does.

    $$ v_{t+1} = v_t - \beta \nabla_v L(v_t, p_t), \qquad p_{t+1} = p_t - \beta \nabla_p L(v_t, p_t) $$

    Args:
        sample: R training sets, any number of tokens.
        step_size: beta > 0.
        steps: number of updates >= 0.
        attention_step_size: beta for p when it differs; 0 freezes attention where it starts (the linear model on mean tokens).
        start: (v_0, p_0), both (R, m); zero when left out. They are not changed in place, and nothing is differentiated by them.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.

    Returns:
        parameters, loss, margins and attention at the recorded steps, in the sample's dtype and on its device.

    Raises:
        ValueError: a bad argument, before any work.
        TrainingDiverged: a recorded number is not finite (`attnlib.divergence`).

    Source:
        arXiv 2410.07746 (both parameters move at once, from zero).

    Example:
        >>> sample = SignalNoiseLaw(n=200, d=40_000, signal_norm=30.0, label_noise=0.05).draw(seed=0, runs=3)
        >>> gradient_descent(sample, step_size=0.025, steps=2).train_accuracy[-1].tolist()
        [1.0, 1.0, 1.0]
    """
    plan = _checked(
        sample, step_size, steps, attention_step_size=attention_step_size, start=start, one_head=True, record=record
    )
    return _trained(plan, "vectors").single()


def plain_descent(sample: Sample, step_size: float, steps: int, recorded: tuple[int, ...]) -> Trajectory:
    """`gradient_descent` from zero, for arguments that have been checked."""
    zero = sample.tokens.new_zeros(sample.runs, 1, sample.tokens.shape[-1])
    rate = zero.new_full((sample.runs,), step_size, dtype=torch.float64)
    factors = torch.ones(steps, dtype=torch.float64, device="cpu")
    return _trained(_Plan(sample, rate, rate, factors, recorded, zero, zero), "vectors").single()


@checks.checked
@one_thread
def gram_descent(
    sample: Sample,
    step_size: float,
    steps: int,
    *,
    attention_step_size: float | None = None,
    start: Start | None = None,
    record: Iterable[int] | None = None,
) -> Trajectory:
    r"""The same steps as `gradient_descent`, computed with inner products: faster for many steps.

    Iterates are combinations $v_t = \sum_a \alpha_a b_a$ of the start, the signals and the noise tokens. With their Gram matrix $K$ a
    step is a product of $K$ with two columns: $O(n^2)$, whatever the dimension.

    Args:
        sample: R training sets. Those of more than two tokens are trained as `gradient_descent` does.
        step_size: beta > 0.
        steps: number of updates >= 0.
        attention_step_size: beta for p when it differs; 0 freezes attention.
        start: (v_0, p_0), both (R, m); zero when left out.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.

    Returns:
        the same as `gradient_descent`.

    Raises:
        ValueError: a bad argument, before any work.
        TrainingDiverged: a recorded number is not finite.

    Source:
        derived in `book/single_head_theory`; equality with `gradient_descent` is a test.

    Example:
        >>> sample = SignalNoiseLaw(n=50, d=10_000, signal_norm=30.0).draw(seed=0)
        >>> gram_descent(sample, 0.01, 1000, record=[10, 100]).steps
        (10, 100, 1000)
    """
    plan = _checked(
        sample, step_size, steps, attention_step_size=attention_step_size, start=start, one_head=True, record=record
    )
    return _trained(plan, "gram" if _has_gram(plan) else "vectors").single()


@checks.checked
@one_thread
def train_heads(
    sample: Sample, step_size: StepSize, steps: int, *, heads: int = 1, attention_step_size: StepSize | None = None,
    attention_map: AttentionMap = SOFTMAX, rule: Rule = GRADIENT_DESCENT, start: Start | None = None,
    shared_values: bool = False, output_scale: float = 1.0, schedule: Callable[[int], float] | None = None,
    record: Iterable[int] | None = None, method: str = "auto", diverged: str = "raise",
) -> Trajectory:  # fmt: skip
    r"""Train H heads with one output on every run of `sample`, with softmax or an alternative to it, by any update rule.

    $$ f(X) = \kappa\sum_{h=1}^H\sum_t w_t(Xp_h)\,v_h\cdot x_t $$

    Args:
        sample: R training sets.
        step_size: beta > 0, a number or (R,) one per run (a number for Adam).
        steps: number of updates >= 0.
        heads: H >= 1.
        attention_step_size: beta for the p_h when it differs, given in the same way; 0 freezes attention where it starts.
        attention_map: one of `attnlib.single_head.maps`.
        rule: one of `attnlib.single_head.rules`.
        start: (v_0 (R, Hv, m), p_0 (R, H, m)), Hv = 1 with `shared_values`, else H; zero when left out. Not changed in place.
        shared_values: all heads have the same v.
        output_scale: kappa > 0.
        schedule: step (0, 1, ...) -> factor >= 0 on both step sizes; 1 when left out.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.
        method: "gram", "vectors", or "auto": gram where it can.
        diverged: "raise", or "keep" numbers that are not finite, where many settings are compared and one of them may diverge.

    Returns:
        parameters, loss, margins and attention of every head at the recorded steps, in the sample's dtype and on its device.

    Raises:
        ValueError: a bad argument, before any work: among them a rule that does not commute with rotations on a sample in reduced
            coordinates, and a map without a derivative at 0 where training starts there.
        TrainingDiverged: a recorded number is not finite, unless these are kept.

    Source:
        derived in `book/open_questions_theory`; for one softmax head this is `gradient_descent`.

    Example:
        >>> sample = SignalNoiseLaw(n=50, d=10_000, signal_norm=30.0).draw(seed=0, runs=2)
        >>> train_heads(sample, 0.01, 20, heads=4).attention_clean[-1].shape
        torch.Size([2, 4])
    """
    checks.one_of("method", method, ("auto", "gram", "vectors"))
    checks.one_of("diverged", diverged, ("raise", "keep"))
    plan = _checked(
        sample, step_size, steps, heads=heads, attention_step_size=attention_step_size, attention_map=attention_map, rule=rule,
        start=start, shared_values=shared_values, output_scale=output_scale, schedule=schedule, record=record,
    )  # fmt: skip
    if method == "gram" and not _has_gram(plan):
        raise ValueError(
            'method must be "vectors" or "auto" here; got "gram", which needs two tokens, no windows and a rule that commutes '
            f"with rotations: T = {sample.law.tokens}, {attention_map.name}, {rule.name}"
        )
    return _trained(plan, method if method != "auto" else "gram" if _has_gram(plan) else "vectors", diverged)


def _has_gram(plan: _Plan) -> bool:
    """Whether inner products are enough."""
    return plan.sample.law.tokens == 2 and plan.rule.rotation_invariant and plan.attention_map.window is None


def _trained(plan: _Plan, method: str, diverged: str = "raise") -> Trajectory:
    path = (_in_gram_space if method == "gram" else _with_vectors)(plan)
    if diverged == "raise":
        require_finite(path.steps, plan.sample.first_run, path.v.flatten(2), path.p.flatten(2), path.margins)
    return path


# --- the arguments, checked -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """The arguments of a training. Step sizes are (R,), in float64."""

    sample: Sample
    value_step: torch.Tensor
    attention_step: torch.Tensor
    factors: torch.Tensor  # (steps,), of both step sizes
    recorded: tuple[int, ...]
    v: torch.Tensor  # (R, Hv, m)
    p: torch.Tensor  # (R, H, m)
    attention_map: AttentionMap = SOFTMAX
    rule: Rule = GRADIENT_DESCENT
    output_scale: float = 1.0
    orders: torch.Tensor | None = None  # (R, steps, B)


def _pair(sample: Sample, start: Start, *shapes: tuple[int, ...]) -> Start:
    if not isinstance(start, tuple | list) or len(start) != 2:
        raise ValueError(f"start must be two tensors (v_0, p_0); got {type(start).__name__}")
    v, p = (checks.tensor(f"start[{k}]", x, shapes[k], like=sample.tokens, finite=True) for k, x in enumerate(start))
    return v.detach(), p.detach()


def _step_sizes(name: str, value: object, sample: Sample, rule: Rule, *, zero: bool) -> torch.Tensor:
    """(R,) tensor of step sizes."""
    (runs, n, T, _), like = sample.tokens.shape, sample.tokens
    if not isinstance(value, torch.Tensor):
        if not (zero and value == 0):
            value = checks.step_size(name, value, among=2 * n * T, like=like, hint="or 0 to freeze it" if zero else "")
        return like.new_full((runs,), float(value), dtype=torch.float64)
    checks.tensor(name, value, (runs,), like=like)
    if not (torch.isfinite(value).all() and ((value >= 0) if zero else (value > 0)).all()):
        raise ValueError(f"{name} must be finite and {'>= 0' if zero else '> 0'} in every run; got {value.tolist()}")
    checks.step_size(name, min(filter(None, value.tolist()), default=1.0), among=2 * n * T, like=like)
    if not rule.scales and len(set(value.tolist())) > 1:
        raise ValueError(
            f"{name} must be one number with rule {rule.name!r}; got one per run: train the runs in groups"
        )
    return value.to(torch.float64)


def _checked(
    sample: Sample, step_size: object, steps: int, *, heads: int = 1, attention_step_size: object = None,
    attention_map: AttentionMap = SOFTMAX, rule: Rule = GRADIENT_DESCENT, start: Start | None = None, shared_values: bool = False,
    output_scale: float = 1.0, schedule: Callable[[int], float] | None = None, record: Iterable[int] | None = None, one_head: bool = False,
) -> _Plan:  # fmt: skip
    heads = checks.whole_number("heads", heads, at_least=1)
    steps = checks.whole_number("steps", steps, at_least=0)
    value_step = _step_sizes("step_size", step_size, sample, rule, zero=False)
    attention_step = value_step
    if attention_step_size is not None:
        attention_step = _step_sizes("attention_step_size", attention_step_size, sample, rule, zero=True)
    n, T, m = sample.tokens.shape[1:]
    share: dict[str, Any] = {"among": 2 * n * T, "like": sample.tokens}
    output_scale = checks.step_size("output_scale", output_scale, **share)
    attention_map.check_tokens(sample.law.tokens)
    rule.check(n, sample.coordinates)
    kept = None if record is None else checks.recorded_steps(record, steps)
    _require_room(sample, rule, heads, shared_values, steps, None if kept is None else len(kept))
    recorded = checks.recorded_steps(None, steps) if kept is None else kept
    shapes = (sample.runs, 1 if shared_values else heads, m), (sample.runs, heads, m)
    if start is None:
        v, p = map(sample.tokens.new_zeros, shapes)
    elif one_head:
        v, p = (x.unsqueeze(1) for x in _pair(sample, start, (sample.runs, m), (sample.runs, m)))
    else:
        v, p = _pair(sample, start, *shapes)
    if not attention_map.differentiable_at_zero and (p == 0).all(-1).any() and attention_step.any():
        raise ValueError(
            f"attention_map {attention_map.name!r} has no derivative at 0, where training starts; choose one "
            "(relu(derivative_at_zero=...)), give a start, or freeze attention (attention_step_size=0)"
        )
    factors = [1.0] * steps if schedule is None else [schedule(step) for step in range(steps)]
    for step, factor in enumerate(factors if schedule is not None else ()):
        if checks.finite_number("schedule", factor, hint=f"at step {step}") < 0:
            raise ValueError(f"schedule must return factors >= 0; got {factor!r} at step {step}")
    largest = value_step.min().item() * (max(factors, default=0.0) or 1.0) * output_scale  # step of the slowest run
    checks.step_size("step_size times schedule times output_scale", largest or 5e-324, **share)
    orders = batch_orders(rule, n, steps, sample.seed, range(sample.first_run, sample.first_run + sample.runs))
    return _Plan(
        sample, value_step, attention_step, torch.tensor(factors, dtype=torch.float64, device="cpu"), recorded, v, p, attention_map, rule,
        output_scale, None if orders is None else torch.as_tensor(orders, device=sample.tokens.device),
    )  # fmt: skip


def _require_room(sample: Sample, rule: Rule, heads: int, shared: bool, steps: int, kept: int | None) -> None:
    """Raises ValueError unless the records, the factors and the batches fit in memory."""
    runs, n, _, m = sample.tokens.shape
    size, device = sample.tokens.element_size(), sample.tokens.device

    def records(steps: int, heads: int) -> int:
        rows = steps + 1 if kept is None else kept
        return size * runs * rows * ((1 if shared else heads) * m + heads * (m + n) + n) + steps * (
            16 + 8 * runs * (rule.batch or 0)
        )

    limits.require_memory(records, steps=steps, heads=heads, device=device)


# --- the steps --------------------------------------------------------------------------------------------------------


def _with_vectors(plan: _Plan) -> Trajectory:
    """The readable method on vectors: each step computes the model and its gradient, then applies the rule."""
    sample, rule, kept = plan.sample, plan.rule, set(plan.recorded)
    tokens, labels, model = sample.tokens, sample.labels, (plan.attention_map, plan.output_scale)
    v, p = plan.v.clone(), plan.p.clone()
    of_v, of_p = (size.to(tokens.dtype).view(-1, 1, 1) for size in (plan.value_step, plan.attention_step))
    optimiser = rule.optimiser((v, p))
    rows = []
    for step, factor in enumerate([*plan.factors.tolist(), 0.0]):
        # What the heads compute on the training set, where they are now.
        out = evaluate(tokens, v, p, *model)
        if step in kept:
            attention = sample.at_signal(out.attention.movedim(1, 0)).movedim(0, 1)
            rows.append((v.clone(), p.clone(), loss(out.output, labels), labels * out.output, attention))
        if step == len(plan.factors):
            break
        # Gradients of the mean loss, both at the same point, and what the rule makes of them (length one, signs).
        raw = gradients_at(out, tokens, labels, v, p, *model, _batch(plan, step))
        for_v, for_p = _prepared(rule, raw)
        # The step. Momentum and Adam are torch's, and change v and p in place.
        if optimiser is None:
            v, p = v - factor * of_v * for_v, p - factor * of_p * for_p
        elif rule.scales:
            v.grad, p.grad = of_v * for_v, of_p * for_p
            _move(optimiser, factor, factor)
        else:
            v.grad, p.grad = for_v, for_p
            _move(optimiser, factor * of_v[0].item(), factor * of_p[0].item())
    vs, ps, losses, margins, attentions = (torch.stack(part) for part in zip(*rows, strict=True))
    return Trajectory(plan.recorded, vs, ps, losses, margins, attentions, sample.noisy)


def _batch(plan: _Plan, step: int) -> torch.Tensor | None:
    """(R, n): what each sample counts in this step, n/B in the mini-batch of B samples and 0 outside it; None: all the same."""
    if plan.orders is None or plan.rule.batch is None:
        return None
    labels = plan.sample.labels
    return torch.zeros_like(labels).scatter_(1, plan.orders[:, step], labels.shape[1] / plan.rule.batch)


def _move(optimiser: torch.optim.Optimizer, *rates: float) -> None:
    """One step of torch's optimiser, with a rate for v and one for p."""
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate
    optimiser.step()


def _prepared(rule: Rule, gradient: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """What the rule does to both gradients before stepping; a gradient of zero stays zero."""
    if rule.prepare == "sign":
        return gradient[0].sign(), gradient[1].sign()
    if rule.prepare:
        of_v, of_p = (part.square().sum((1, 2), keepdim=True) for part in gradient)
        if rule.prepare == "joint":
            of_v = of_p = of_v + of_p
        lengths = of_v.sqrt(), of_p.sqrt()
        in_v, in_p = (part / torch.where(x > 0, x, 1.0) for part, x in zip(gradient, lengths, strict=True))
        return in_v, in_p
    return gradient


def _in_gram_space(plan: _Plan) -> Trajectory:
    """The fast method, `attnlib.kernels.heads`: the same steps on coefficients, values and scores, always in float64."""
    sample, rule = plan.sample, plan.rule
    labels, classes = sample.labels.to(torch.float64).contiguous(), sample.signal_class.contiguous()
    starts, rates = torch.cat([plan.v, plan.p], dim=1), torch.stack([plan.value_step, plan.attention_step], dim=1)
    columns = starts.shape[1]
    from_zero = not starts.any()
    parts = []

    def work(runs: slice) -> None:
        # The vectors that span every iterate: two signals, n noise tokens, and the start where it is not zero.
        spanning = [sample.signals[runs], sample.noise_tokens()[runs, :, 0]]
        basis = torch.cat(spanning if from_zero else [*spanning, starts[runs]], dim=1).to(torch.float64)
        # Coefficients of each head's v and p in that basis: zero, or one of the start vectors each.
        coefficients = basis.new_zeros(basis.shape[0], columns, basis.shape[1])
        if not from_zero:
            coefficients[:, :, -columns:] = torch.eye(columns, device=basis.device)
        # All steps on the Gram matrix.
        call = Call(
            basis @ basis.mT, coefficients, labels[runs], classes[runs], rates[runs], plan.factors, heads=plan.p.shape[1],
            signals=sample.signals.shape[1], attention_map=plan.attention_map, output_scale=plan.output_scale,
            prepare=rule.prepare, momentum=rule.momentum, look_ahead=rule.look_ahead,
            batches=None if plan.orders is None else plan.orders[runs], record=plan.recorded,
        )  # fmt: skip
        seen = advance(call)
        # Back to vectors, (S, R, columns, m). One product per run: a broadcast one would copy the basis for each of the S steps.
        vectors = torch.einsum("srcq,rqm->srcm", seen.coefficients, basis)
        values = plan.v.shape[1]
        parts.append((vectors[:, :, :values], vectors[:, :, values:], seen.output, seen.attention))

    held = sample.signals.shape[1] + labels.shape[1] + starts.shape[1]
    in_batches(work, sample.runs, bytes_per_run=24 * held * held, device=labels.device)
    v, p, outputs, attention = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return Trajectory(plan.recorded, v, p, loss(outputs, labels), labels * outputs, attention, sample.noisy)
