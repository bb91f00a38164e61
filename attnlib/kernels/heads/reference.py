"""The readable training loop of attention heads: a batched product and a few lines a step, on any device."""

from __future__ import annotations

import torch

from attnlib.kernels.heads import Call, Recorded

UNDERFLOW = 708.0  # beyond this margin e^-margin is no normal number, and a sample pulls no more
Tensor = torch.Tensor


@torch.no_grad()
def advance(call: Call) -> Recorded:
    """See `attnlib.kernels.heads.advance`."""
    seen, marks, place = call.blank(), set(call.record), 0
    state, velocity = call.coefficients, call.buffers  # the v_h and the p_h, (R, Hv + H, q)
    rates = torch.cat(
        [call.rates[:, :1].expand(-1, call.values), call.rates[:, 1:].expand(-1, call.heads)], 1
    ).unsqueeze(2)
    for step in range(call.steps + 1):
        # Forward: what the heads see and say where they are now.
        if step < call.steps or step in marks:
            values, logits, weights, output = _forward(call, state)
        if step in marks:
            seen.coefficients[place], seen.output[place], seen.attention[place] = state, output, weights[..., 0]
            place += 1
        if step == call.steps:
            break
        # Backward, and the step: torch.optim.SGD's on the coefficients, all from the same point.
        gradient = _prepared(call, _gradient(call, step, values, logits, weights, output))
        state -= call.factors[step].item() * rates * _with_momentum(call, velocity, gradient)
    return seen


def _forward(call: Call, state: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values and logits of each sample's signal and noise token, the map's weights, all (R, H, n, 2), and outputs (R, n)."""
    # Scores of every vector of the basis, X G: (R, Hv + H, q). A sample looks at its two tokens only.
    scores, first = state @ call.gram, call.signals
    at_class = call.classes.unsqueeze(1).expand(-1, state.shape[1], -1)
    pairs = torch.stack([scores.gather(2, at_class), scores[..., first : first + call.n]], dim=-1)  # (R, Hv + H, n, 2)
    values, logits = pairs[:, : call.values].expand(-1, call.heads, -1, -1), pairs[:, call.values :]
    # w_hi = map(logits_hi) and f_i = kappa sum_h w_hi . values_hi.
    weights = call.attention_map.weights(logits)
    return values, logits, weights, call.output_scale * (weights * values).sum((1, 3))


def _gradient(call: Call, step: int, values: Tensor, logits: Tensor, weights: Tensor, output: Tensor) -> Tensor:
    """Coefficients of the gradient of the mean loss, (R, Hv + H, q)."""
    labels, n, first = call.labels, call.n, call.signals
    # kappa dL/df_i = -(kappa/n) y_i sigma(-y_i f_i); in a batch of B samples n/B times as much, and 0 for the others.
    margin = labels * output
    pull = -labels * torch.sigmoid(-margin).masked_fill(margin > UNDERFLOW, 0.0) * (call.output_scale / n)
    if call.batches is not None:
        batch = call.batches[:, step]
        pull = pull * torch.zeros_like(pull).scatter_(1, batch, n / batch.shape[1])
    # df/dv_h = kappa sum_t w_t x_t and df/dp_h = kappa sum_t (J' values)_t x_t, as coefficients of the x_t.
    pull = pull[:, None, :, None]
    for_v = pull * weights
    if call.values < call.heads:
        for_v = for_v.sum(1, keepdim=True)
    tokens = torch.cat([for_v, pull * call.attention_map.pullback(logits, weights, values)], dim=1)  # (R, Hv + H, n, 2)
    # A signal belongs to many samples, whose parts add up; a noise token to one; a start vector to none.
    held = torch.nn.functional.one_hot(call.classes, first).to(tokens)  # (R, n, K)
    gradient = torch.zeros_like(call.coefficients)
    gradient[..., :first] = tokens[..., 0] @ held
    gradient[..., first : first + n] = tokens[..., 1]
    return gradient


def _prepared(call: Call, gradient: Tensor) -> Tensor:
    """The gradient as it is, or with the length one: of all vectors together, or of the v_h and of the p_h each."""
    if call.prepare == "joint":
        return _normalised(gradient, call.gram)
    if call.prepare == "blocks":
        blocks = gradient.split([call.values, call.heads], dim=1)
        return torch.cat([_normalised(block, call.gram) for block in blocks], dim=1)
    return gradient


def _normalised(gradient: Tensor, gram: Tensor) -> Tensor:
    """Divided by its length in the metric of the vectors, per run; a length of zero stays zero. Small numbers have lengths too."""
    largest = gradient.abs().amax((1, 2), keepdim=True)
    gradient = gradient / torch.where(largest == 0, 1.0, largest)
    square = (gradient * (gradient @ gram)).sum((1, 2), keepdim=True)
    return gradient * torch.where(square <= 0, 0.0, square).rsqrt().masked_fill(square <= 0, 0.0)


def _with_momentum(call: Call, velocity: Tensor, gradient: Tensor) -> Tensor:
    """What a step subtracts, times its rate. b <- mu b + g, then b, or with look-ahead g + mu b; without momentum g."""
    if not call.momentum:
        return gradient
    velocity.mul_(call.momentum).add_(gradient)
    return gradient + call.momentum * velocity if call.look_ahead else velocity
