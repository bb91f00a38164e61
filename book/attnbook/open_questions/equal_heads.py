r"""How classes end on a very long clock: H heads that start from zero, as the one head with rescaled steps that they are.

The sum of H heads with step $\beta$ is one head with $(\beta_v, \beta_p) = (H\beta, \beta/H)$: slower attention, of ratio
$r = \beta_p/\beta_v = 1/H^2$ (derived on the page *Many heads*). The boundary of gradient flow at ratio r is that of `flow`.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from attnbook.single_head.flow import selects_signal
from attnbook.single_head.long_run import fates_of, side_by_side, stacked, strengths
from attnlib.kernels.heads import Call, advance
from attnlib.single_head.maps import SOFTMAX
from attnlib.single_head.training import Trajectory

# A clock for very long runs: (beta_v d/n, steps) pairs, in units of tau = beta_v t d/n. Small steps, close to gradient flow, then steps
# that double with the time itself, to tau = 100 x 2^26: slopes fall like 1/tau, so the moves per step stay small.
LONG_CLOCK = ((0.25, 400), *((2.0**k, 100) for k in range(26)))


def heads_fates(laws, heads, clock, *, draws=5, seed=0):
    """Fates of both classes of every draw, for each number of heads from zero, on one clock of V (so attention is H^2 slower).

    All laws have one n and d, and all numbers of heads see the same draws and train as one batch. `Fates.threshold` is the x* of the
    class's own share of flips at ratio 1/H^2 and at the end of the clock, known only to the side on which the class lies: 0 when
    the flow ends on the signal, inf otherwise.
    """
    samples, one = side_by_side(laws, draws, seed)
    rate = torch.tensor([1 / H**2 for H in heads], dtype=torch.float64)
    path = _run_on_clock(stacked([one] * len(heads)), clock, rate.repeat_interleave(one.runs), laws[0])
    x, share = strengths(samples, one)
    time = sum(step * steps for step, steps in clock)
    found = {}
    for H, own_rate, block in zip(
        heads, rate.tolist(), torch.arange(len(rate) * one.runs).split(one.runs), strict=True
    ):
        sides = [
            a > 1
            if b == 0
            else selects_signal(a, b, attention_rate=own_rate, time=time)  # without flips x* = 1, proved
            for a, b in zip(x.flat, share.flat, strict=True)
        ]
        own = replace(
            path, **{name: part[:, block] for name, part in vars(path).items() if name not in ("steps", "noisy")}
        )
        found[H] = fates_of(samples, one, own, np.where(np.reshape(sides, x.shape), 0.0, math.inf))
    return found


def _run_on_clock(sample, clock, rate, law):
    """One head per run from zero, steps of the clock for v and `rate` (R,) times as large for p. The end only."""
    basis = torch.cat([sample.signals, sample.noise_tokens()[:, :, 0]], 1)
    coefficients = basis.new_zeros(basis.shape[0], 2, basis.shape[1])  # v, p
    gram, labels, classes = basis @ basis.mT, sample.labels.contiguous(), sample.signal_class.contiguous()
    for step, steps in clock:
        size = step * law.n / law.d
        call = Call(
            gram, coefficients, labels, classes, size * torch.stack([torch.ones_like(rate), rate], 1),
            torch.ones(steps, dtype=torch.float64), heads=1, signals=2, attention_map=SOFTMAX, record=[steps],
        )  # fmt: skip
        seen = advance(call)
    v, p = (coefficients @ basis).unbind(1)
    margins = labels * seen.output
    return Trajectory(
        (sum(steps for _, steps in clock),), v[None], p[None], torch.nn.functional.softplus(-margins).mean(-1), margins,
        seen.attention[:, :, 0], sample.noisy,
    )  # fmt: skip
