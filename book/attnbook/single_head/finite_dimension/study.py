"""What page `08_finite_dimension` measures: the theorem's bounds beside trained heads, and the least dimension that they certify."""

import math
from types import SimpleNamespace

import torch

from attnbook.single_head.deviations import at_dimension, deviation_bounds, drawn, smallest_certified_dimension
from attnbook.single_head.label_counts import possible_counts
from attnbook.single_head.mean_field import mean_field_log10_error
from attnlib.single_head.summary import summarise

INSIDE = (1, 10)  # C of the published condition d >= C n^2 log(n/delta), at which the theorem is judged
SHORTER = (10, 100)  # how many times fewer dimensions than the bounds certify
_SMALL_STEP = 0.4  # factor of the step size in the negative control of T1b


def use_of_bounds(own):
    """How much of its bound each quantity of the theorem uses: the largest |deviation| / bound of a draw, (R,) each."""
    b, f, sample = own.bounds, own.found, own.sample

    def per_sample(values):  # (R, class, kind) to (R, n)
        clean, noisy = (values[..., kind].gather(1, sample.signal_class) for kind in (0, 1))
        return torch.where(sample.noisy, noisy, clean)

    t = per_sample(b.noise_low), per_sample(b.noise_high)
    middle = b.field.a * per_sample(torch.stack([1 + 2 * b.field.slope_clean, 1 + 2 * b.field.slope_noisy], -1))
    noise = torch.where(f.noise > middle, (f.noise - middle) / (t[1] - middle), (middle - f.noise) / (middle - t[0]))
    return {
        "norms": f.norm.abs().amax(1) / b.norm,
        "scores": f.score.abs().amax(1) / b.score,
        "mean square": (f.score**2).mean(1).sqrt() / b.rms,
        "cross terms of v": f.cross_v.abs().amax(1) / b.cross_v,
        "cross terms of p": f.cross_p.abs().amax(1) / b.cross_p,
        "V": ((f.value - b.value).abs() / b.value_room).amax(1),
        "P": ((f.query - b.query).abs() / b.query_room).amax(1),
        "t": noise.amax(1),
        "logits": ((f.logit - per_sample(b.logit)).abs() / per_sample(b.logit_room)).amax(1),
        "norm of v": torch.maximum(f.v_norm / b.v_norm[:, 1], b.v_norm[:, 0] / f.v_norm),
        "norm of p": torch.maximum(f.p_norm / b.p_norm[:, 1], b.p_norm[:, 0] / f.p_norm),
    }


def finite_study(law, step_size, *, draws=40, seed=0, delta=0.01):
    """The page's draws with the bounds for them; and what the bounds, and training, say at other sizes."""
    n, s = law.n, SimpleNamespace()
    s.page = drawn(law, step_size, draws, seed, delta)
    s.use = use_of_bounds(s.page)
    # For every label count within C4 at delta/2; and with sums bounded by the triangle inequality.
    counts = possible_counts(law, delta / 2)
    s.possible, s.possible_by_triangle = (
        deviation_bounds(law, step_size, *counts, delta=delta, triangle=triangle) for triangle in (False, True)
    )
    # The least d that the bounds certify at expected label counts, for each size, in three ways.
    s.sizes = [max(5, n // 2) * 2**k for k in range(7)]
    settings = [at_dimension(law, step_size, law.d, n=size) for size in s.sizes]
    s.certified, s.cauchy_schwarz, s.triangle = (
        [smallest_certified_dimension(*own, delta=delta, **how) for own in settings]
        for how in ({}, {"cauchy_schwarz": True}, {"triangle": True})
    )

    def outcome(d, factor=1.0):
        """Fits, log10 error and that of C17 from the label counts at the whole step size, (R,) each."""
        own, beta = at_dimension(law, step_size, d)
        result = summarise(own, factor * beta, draws=draws, seed=seed)
        predicted = mean_field_log10_error(own, beta, *own.draw(seed, draws).counts())
        return result.interpolates, result.log10_clean_error, predicted

    # Do two steps fit in so many times fewer dimensions than are certified? And inside the published condition?
    here = smallest_certified_dimension(*at_dimension(law, step_size, law.d), delta=delta)
    s.shorter = {times: outcome(here / times)[0] for times in SHORTER}
    published = n**2 * math.log(n / delta)
    s.inside, s.inside_at_small_step = (
        [outcome(c * published, factor) for c in INSIDE] for factor in (1.0, _SMALL_STEP)
    )
    return s
