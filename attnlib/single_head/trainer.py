r"""The general trainer: any number of heads, softmax or an alternative to it, any update rule, R runs at once.

$$ f(X) = \kappa\sum_h\sum_t w_t(Xp_h)\,v_h\cdot x_t . $$

Two methods make the same steps. *Vectors*: the parameters are vectors in the sample's coordinates; the readable form, for any
number of tokens and every rule. *Gram*: the parameters are combinations of the signals, the noise tokens and the start vectors, and
all that training looks at are scores, one product with the Gram matrix of those vectors per step; two tokens per sample, rules
that commute with rotations. Their equality is a test. (They part where a rule normalises a gradient that is nothing but rounding,
as p's is once attention is saturated.) Source: derived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.kernels.batches import in_batches
from attnlib.kernels.heads import Call, advance
from attnlib.single_head.law import Sample
from attnlib.single_head.maps import SOFTMAX, AttentionMap
from attnlib.single_head.model import evaluate, gradients_at, loss
from attnlib.single_head.rules import GRADIENT_DESCENT, Rule, batch_orders
from attnlib.single_head.trajectory import HeadsTrajectory

__all__ = ["HeadsPlan", "Start", "in_gram_space", "train_heads", "with_vectors"]

StepSize = float | torch.Tensor
Start = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class HeadsPlan:
    """The arguments of a training, checked by who makes one. Step sizes are (R,)."""

    sample: Sample
    value_step: torch.Tensor
    attention_step: torch.Tensor
    factors: torch.Tensor  # (steps,), of both step sizes
    recorded: tuple[int, ...]
    v: torch.Tensor  # (R, Hv, m)
    p: torch.Tensor  # (R, H, m)
    attention_map: AttentionMap
    rule: Rule
    output_scale: float
    orders: torch.Tensor | None  # (R, steps, B)


def train_heads(
    sample: Sample, step_size: StepSize, steps: int, *, heads: int = 1, attention_step_size: StepSize | None = None,
    attention_map: AttentionMap = SOFTMAX, rule: Rule = GRADIENT_DESCENT, start: Start | None = None,
    shared_values: bool = False, output_scale: float = 1.0, schedule: Callable[[int], float] | None = None,
    record: Iterable[int] | None = None, method: str = "auto",
) -> HeadsTrajectory:  # fmt: skip
    r"""Train H heads with one output on every run of `sample`, with softmax or an alternative to it, by any update rule.

    $$ f(X) = \kappa\sum_{h=1}^H\sum_t w_t(Xp_h)\,v_h\cdot x_t $$

    Args:
        sample: R training sets.
        step_size: beta > 0, a number or (R,) one per run (a number for Adam).
        steps: number of updates >= 0.
        heads: H >= 1.
        attention_step_size: beta for the p_h when it differs, likewise; 0 freezes attention where it starts.
        attention_map: one of `attnlib.single_head.maps`.
        rule: one of `attnlib.single_head.rules`.
        start: (v_0 (R, Hv, m), p_0 (R, H, m)), Hv = 1 with `shared_values`, else H; zero when left out. Not changed in place.
        shared_values: all heads have the same v.
        output_scale: kappa > 0.
        schedule: step (0, 1, ...) -> factor >= 0 on both step sizes; 1 when left out.
        record: steps to keep, each in 0 ... steps; all of them when left out. The last step is always kept.
        method: "gram", "vectors", or "auto": gram where it can.

    Returns:
        parameters, loss, margins and attention of every head at the recorded steps, in the sample's dtype and on its device.

    Raises:
        ValueError: a bad argument, before any work: among them a rule that does not commute with rotations on a sample in reduced
            coordinates, and a map without a derivative at 0 where training starts there.

    Source:
        derived in `book/open_questions_theory`; for one softmax head this is `gradient_descent`.

    Example:
        >>> sample = SignalNoiseLaw(n=50, d=10_000, signal_norm=30.0).draw(seed=0, runs=2)
        >>> train_heads(sample, 0.01, 20, heads=4).attention_clean[-1].shape
        torch.Size([2, 4])
    """
    plan = _checked(
        sample, step_size, steps, heads, attention_step_size, attention_map, rule, start, shared_values, output_scale,
        schedule, record,
    )  # fmt: skip
    can = sample.law.tokens == 2 and rule.rotation_invariant and attention_map.window is None
    checks.one_of("method", method, ("auto", "gram", "vectors"))
    if method == "gram" and not can:
        raise ValueError(
            'method must be "vectors" or "auto" here; got "gram", which needs two tokens, no windows and a rule that commutes '
            f"with rotations: T = {sample.law.tokens}, {attention_map.name}, {rule.name}"
        )
    return (in_gram_space if can and method != "vectors" else with_vectors)(plan)


def _step_sizes(name: str, value: object, sample: Sample, rule: Rule, *, zero: bool) -> torch.Tensor:
    """(R,) tensor of step sizes."""
    runs, like = sample.runs, sample.tokens
    hint = "or 0 to freeze it" if zero else ""
    if not isinstance(value, torch.Tensor):
        if not (zero and value == 0):
            value = checks.positive_number(name, value, hint=hint)
        return like.new_full((runs,), float(value))
    checks.tensor(name, value, (runs,), like=like)
    if not (torch.isfinite(value).all() and ((value >= 0) if zero else (value > 0)).all()):
        raise ValueError(f"{name} must be finite and {'>= 0' if zero else '> 0'} in every run; got {value.tolist()}")
    if not rule.scales and len(set(value.tolist())) > 1:
        raise ValueError(
            f"{name} must be one number with rule {rule.name!r}; got one per run: train the runs in groups"
        )
    return value


def _checked(
    sample: Sample, step_size: object, steps: int, heads: int, attention_step_size: object, attention_map: AttentionMap,
    rule: Rule, start: Start | None, shared_values: bool, output_scale: float, schedule: Callable[[int], float] | None,
    record: Iterable[int] | None,
) -> HeadsPlan:  # fmt: skip
    heads = checks.whole_number("heads", heads, at_least=1)
    steps = checks.whole_number("steps", steps, at_least=0)
    if not isinstance(attention_map, AttentionMap) or not isinstance(rule, Rule):
        raise ValueError("attention_map and rule must come from attnlib.single_head.maps and .rules; got others")
    value_step = _step_sizes("step_size", step_size, sample, rule, zero=False)
    attention_step = value_step
    if attention_step_size is not None:
        attention_step = _step_sizes("attention_step_size", attention_step_size, sample, rule, zero=True)
    output_scale = checks.positive_number("output_scale", output_scale)
    attention_map.check_tokens(sample.law.tokens)
    n, m = sample.tokens.shape[1], sample.tokens.shape[-1]
    rule.check(n, sample.coordinates)
    recorded = checks.recorded_steps(record, steps)
    shapes = (sample.runs, 1 if shared_values else heads, m), (sample.runs, heads, m)
    v, p = start if start is not None else (sample.tokens.new_zeros(shapes[0]), sample.tokens.new_zeros(shapes[1]))
    checks.tensor("start[0]", v, shapes[0], like=sample.tokens)
    checks.tensor("start[1]", p, shapes[1], like=sample.tokens)
    if not attention_map.differentiable_at_zero and (p == 0).all(-1).any() and attention_step.any():
        raise ValueError(
            f"attention_map {attention_map.name!r} has no derivative at 0, where training starts; choose one "
            "(relu(derivative_at_zero=...)), give a start, or freeze attention (attention_step_size=0)"
        )
    factors = [1.0 if schedule is None else schedule(step) for step in range(steps)]
    for step, factor in enumerate(factors):
        if checks.finite_number("schedule", factor, hint=f"at step {step}") < 0:
            raise ValueError(f"schedule must return factors >= 0; got {factor!r} at step {step}")
    orders = batch_orders(rule, n, steps, sample.seed, range(sample.first_run, sample.first_run + sample.runs))
    return HeadsPlan(
        sample, value_step, attention_step, torch.tensor(factors, dtype=torch.float64), recorded, v, p, attention_map, rule,
        output_scale, None if orders is None else torch.as_tensor(orders, device=sample.tokens.device),
    )  # fmt: skip


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


def with_vectors(plan: HeadsPlan) -> HeadsTrajectory:
    """The readable method."""
    sample, rule = plan.sample, plan.rule
    tokens, labels, n = sample.tokens, sample.labels, sample.labels.shape[1]
    attention_map, scale = plan.attention_map, plan.output_scale
    parameters = [plan.v.clone(), plan.p.clone()]
    sizes = [plan.value_step.view(-1, 1, 1), plan.attention_step.view(-1, 1, 1)]
    optimiser = rule.optimiser(parameters)
    kept, rows = set(plan.recorded), []
    for step in range(len(plan.factors) + 1):
        v, p = parameters
        out = evaluate(tokens, v, p, attention_map=attention_map, output_scale=scale)
        if step in kept:
            attention = sample.at_signal(out.attention.movedim(1, 0)).movedim(0, 1)
            rows.append((v.clone(), p.clone(), loss(out.output, labels), labels * out.output, attention))
        if step == len(plan.factors):
            break
        weights = None
        if plan.orders is not None and rule.batch is not None:
            weights = torch.zeros_like(labels).scatter_(1, plan.orders[:, step], n / rule.batch)
        raw = gradients_at(out, tokens, labels, v, p, weights=weights, attention_map=attention_map, output_scale=scale)
        gradient = _prepared(rule, raw)
        factor = plan.factors[step].item()
        if optimiser is None:
            parameters = [x - factor * size * g for x, size, g in zip(parameters, sizes, gradient, strict=True)]
            continue
        for group, x, size, g in zip(optimiser.param_groups, parameters, sizes, gradient, strict=True):
            x.grad = size * g if rule.scales else g
            group["lr"] = factor if rule.scales else factor * size[0].item()
        optimiser.step()
    vs, ps, losses, margins, attentions = (torch.stack(part) for part in zip(*rows, strict=True))
    return HeadsTrajectory(plan.recorded, vs, ps, losses, margins, attentions, sample.noisy)


def in_gram_space(plan: HeadsPlan, dtype: torch.dtype = torch.float64) -> HeadsTrajectory:
    """The fast method: the same steps on coefficients and scores, in `attnlib.kernels.heads`, in `dtype` whatever the sample's."""
    sample, rule = plan.sample, plan.rule
    labels, classes = sample.labels.to(dtype).contiguous(), sample.signal_class.contiguous()
    starts = torch.cat([plan.v, plan.p], dim=1)
    columns = starts.shape[1]
    from_zero = not starts.any()
    parts = []

    def work(runs: slice) -> None:
        spanning = [sample.signals[runs], sample.noise_tokens()[runs, :, 0]]
        basis = torch.cat(spanning if from_zero else [*spanning, starts[runs]], dim=1).to(torch.float64)
        coefficients = basis.new_zeros(basis.shape[0], columns, basis.shape[1], dtype=dtype)
        if not from_zero:
            coefficients[:, :, -columns:] = torch.eye(columns, dtype=dtype, device=basis.device)
        call = Call(
            (basis @ basis.mT).to(dtype), coefficients, labels[runs], classes[runs], heads=plan.p.shape[1],
            signals=sample.signals.shape[1], attention_map=plan.attention_map, value_step=plan.value_step[runs],
            attention_step=plan.attention_step[runs], factors=plan.factors, output_scale=plan.output_scale,
            prepare=rule.prepare, momentum=rule.momentum, look_ahead=rule.look_ahead,
            batches=None if plan.orders is None else plan.orders[runs], record=plan.recorded,
        )  # fmt: skip
        seen = advance(call)
        # (S, R, columns, m). One product per run: a broadcast one would copy the basis for each of the S steps.
        vectors = torch.einsum("srcq,rqm->srcm", seen.coefficients, basis.to(dtype))
        values = plan.v.shape[1]
        parts.append((vectors[:, :, :values], vectors[:, :, values:], seen.output, seen.attention))

    held = sample.signals.shape[1] + labels.shape[1] + starts.shape[1]
    in_batches(work, sample.runs, bytes_per_run=24 * held * held, device=labels.device)
    v, p, outputs, attention = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    return HeadsTrajectory(plan.recorded, v, p, loss(outputs, labels), labels * outputs, attention, sample.noisy)
