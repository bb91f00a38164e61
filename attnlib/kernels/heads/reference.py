"""The readable training loop of attention heads: a batched product and a few lines a step, on any device."""

from __future__ import annotations

import torch

from attnlib.kernels.heads import Call, Recorded

UNDERFLOW = 708.0  # beyond this margin e^-margin is no normal number, and a sample pulls no more


def _normalised(gradient: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """Divided by its length in the metric of the vectors, per run; a length of zero stays zero. Small numbers have lengths too."""
    largest = gradient.abs().amax((1, 2), keepdim=True)
    gradient = gradient / torch.where(largest == 0, 1.0, largest)
    square = (gradient * (gradient @ gram)).sum((1, 2), keepdim=True)
    return gradient * torch.where(square <= 0, 0.0, square).rsqrt().masked_fill(square <= 0, 0.0)


@torch.no_grad()
def advance(call: Call) -> Recorded:
    """See `attnlib.kernels.heads.advance`."""
    seen, marks, n, first = call.blank(), set(call.record), call.n, call.signals
    state, velocity, labels, chosen = call.coefficients, call.buffers, call.labels, call.attention_map
    # (R, n, K): row i is the unit vector of sample i's signal; a product with it sums over the samples of each signal.
    held = torch.nn.functional.one_hot(call.classes, first).to(state)  # (R, n, K)
    at_class = call.classes.unsqueeze(1).expand(-1, state.shape[1], -1)
    rates = call.rates[:, :1].expand(-1, call.values), call.rates[:, 1:].expand(-1, call.heads)
    sizes = torch.cat(rates, 1).unsqueeze(2)  # (R, Hv + H, 1)
    place = 0
    for step in range(call.steps + 1):
        if step == call.steps and step not in marks:
            break
        # Scores of every vector of the basis, X G: (R, Hv + H, q). A sample looks at its two tokens only.
        scores = state @ call.gram
        pairs = torch.stack([scores.gather(2, at_class), scores[..., first : first + n]], dim=-1)  # (R, Hv + H, n, 2)
        values, logits = pairs[:, : call.values].expand(-1, call.heads, -1, -1), pairs[:, call.values :]
        # Forward: w_hi = map(logits_hi) and f_i = kappa sum_h w_hi . values_hi.
        weights = chosen.weights(logits)
        output = call.output_scale * (weights * values).sum((1, 3))
        if step in marks:
            seen.coefficients[place], seen.output[place], seen.attention[place] = state, output, weights[..., 0]
            place += 1
        if step == call.steps:
            break
        # kappa dL/df_i = -(kappa/n) y_i sigma(-y_i f_i); of a batch of B samples n/B times as much, and 0 for the others.
        margin = labels * output
        pull = -labels * torch.sigmoid(-margin).masked_fill(margin > UNDERFLOW, 0.0) * (call.output_scale / n)
        if call.batches is not None:
            batch = call.batches[:, step]
            pull = pull * torch.zeros_like(pull).scatter_(1, batch, n / batch.shape[1])
        # Backward: df/dv_h = kappa sum_t w_t x_t and df/dp_h = kappa sum_t (J' values)_t x_t, as coefficients of the x_t.
        pull = pull[:, None, :, None]
        for_v = pull * weights
        if call.values < call.heads:
            for_v = for_v.sum(1, keepdim=True)
        tokens = torch.cat([for_v, pull * chosen.pullback(logits, weights, values)], dim=1)  # (R, Hv + H, n, 2)
        # A signal belongs to many samples, a noise token to one; start vectors are no sample's token.
        gradient = torch.zeros_like(state)
        gradient[..., :first] = tokens[..., 0] @ held
        gradient[..., first : first + n] = tokens[..., 1]
        if call.prepare == "joint":
            gradient = _normalised(gradient, call.gram)
        elif call.prepare == "blocks":
            blocks = gradient.split([call.values, call.heads], dim=1)
            gradient = torch.cat([_normalised(block, call.gram) for block in blocks], dim=1)
        # b <- mu b + g, then x <- x - rate (b, or with look-ahead g + mu b): torch.optim.SGD.
        if call.momentum:
            velocity.mul_(call.momentum).add_(gradient)
            gradient = gradient + call.momentum * velocity if call.look_ahead else velocity
        state -= call.factors[step].item() * sizes * gradient
    return seen
