"""What page `03_rotations_are_free` measures: one law in d-vectors, few enough of them to exist, and in reduced coordinates."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.single_head.coordinates import reduce, rotate
from attnlib.randomness import stream
from attnlib.single_head.errors import clean_error_sampled, log10_clean_error
from attnlib.single_head.model import forward, gradients
from attnlib.single_head.summary import summarise
from attnlib.single_head.training import gradient_descent


def sign_descent_margins(sample, step_size, steps):
    """Margins after sign descent in both parameters: a rule that looks at single coordinates."""
    v = p = sample.tokens.new_zeros(sample.runs, sample.tokens.shape[-1])
    for _ in range(steps):
        grad_v, grad_p, _ = gradients(sample.tokens, sample.labels, v, p)
        v, p = v - step_size * torch.sign(grad_v), p - step_size * torch.sign(grad_p)
    return sample.labels * forward(sample.tokens, v, p).output


def coordinate_study(law, step_size, *, steps=2, draws=40, test_points=2000, dimensions=(), seed=0):
    """Train the same law both ways; rows are draws. Dense vectors cost n T d numbers a draw.

    `dimensions`: further values of d at which `law` is rescaled with n SNR^2 and beta d / n kept.
    """
    s = SimpleNamespace(law=law)
    dense = [law.draw(seed, 1, first_run=r, coordinates="dense") for r in range(draws)]
    paths = [gradient_descent(sample, step_size, steps, record=[steps]) for sample in dense]
    ends = [(path.v[-1], path.p[-1], sample) for path, sample in zip(paths, dense, strict=True)]
    log10_error = torch.cat([log10_clean_error(*end) for end in ends])
    s.exact_error = 10**log10_error
    s.sampled_error = torch.cat([clean_error_sampled(*end, test_points).value for end in ends])
    attention = [
        torch.cat([getattr(path, name)[-1] for path in paths]) for name in ("attention_clean", "attention_noisy")
    ]
    flipped = torch.cat([sample.noisy.double().sum(1) for sample in dense])
    s.dense_outcomes = torch.stack([log10_error, *attention, flipped], 1)

    # The first draws also in the basis of their own span, and there turned: gradient descent, and sign descent with steps of 1/d,
    # which move v by about as much at these sizes.
    small = [reduce(sample) for sample in dense[:5]]
    turns = [
        stream(seed, "positions", 1000 + r).standard_normal(2 * (x.tokens.shape[-1],)) for r, x in enumerate(small)
    ]
    turned = [rotate(x, torch.as_tensor(np.linalg.qr(turn)[0])) for x, turn in zip(small, turns, strict=True)]
    reduced = [gradient_descent(x, step_size, steps, record=[steps]).margins[-1] for x in small]
    s.descent = torch.cat(reduced), torch.cat([path.margins[-1] for path in paths[:5]])
    s.sign_descent = [torch.cat([sign_descent_margins(x, 1 / law.d, steps) for x in both]) for both in (turned, small)]

    def outcomes(law):  # of other draws
        x = summarise(law, step_size, steps=steps, draws=draws, seed=seed + 1)
        return torch.stack([x.log10_clean_error, x.attention_clean, x.attention_noisy, x.flipped.double()], 1)

    s.reduced_outcomes, s.outcomes_at_twice_d = outcomes(law), outcomes(replace(law, d=2 * law.d))
    grown = {d: replace(law, d=d, signal_norm=law.signal_norm * math.sqrt(d / law.d)) for d in dimensions}
    s.errors_by_dimension = {
        d: summarise(x, step_size * law.d / d, steps=steps, draws=draws, seed=seed).log10_clean_error
        for d, x in grown.items()
    }
    return s
