r"""The error of a single head on fresh data, one integral for each run and class.

$$ \mathrm{err} = E_{t \sim N(0,1)}\, \Phi\!\left(-\frac{e^{\mathrm{logit} - \omega t}\, V + c\, t}{\tau}\right) $$

The integrand (for V < 0 that of 1 - err) is log-concave, so its logarithm is integrated from its one mode outwards, wherever that
is: errors of $10^{-16000}$ cost what errors of a tenth cost.

| implementation | how |
|---|---|
| `reference` | mode and level points by bisection, panels between them, halved where a polynomial does not follow (`attnlib.quadrature`) |
| `compiled` | mode by Newton's method in a bracket, panels whose length follows the integrand; both sides at once |
"""

from __future__ import annotations

import math

import torch

from attnlib.kernels.dispatch import Loop, run

_LOOP = Loop("population error", compiled=(torch.float64,), triton=(), package=__name__)
_NARROWEST = 1e-9  # tau relative to the std of V's noise; moves log err by about 1e-12 where no two walls nearly meet
_NEVER = -1e12  # log of an error that only the width put in for tau = 0 makes
_LARGEST_LEVEL = 1e300


def log_error(
    logit: torch.Tensor,
    value: torch.Tensor,
    omega: torch.Tensor,
    along: torch.Tensor,
    tau: torch.Tensor,
    *,
    threads: int | None = None,
    implementation: str = "auto",
) -> torch.Tensor:
    r"""Natural logarithm of $E_{t \sim N(0,1)} \Phi(-(e^{\mathrm{logit} - \omega t} V + c t)/\tau)$, entry by entry.

    Args:
        logit, value (V), omega, along (c), tau: floating tensors of one shape, dtype and device; omega, tau >= 0.
        threads: of the compiled form, which gives the same bits for any number; None for torch's number of threads.
        implementation: "auto", "reference" (any device) or "compiled" (CPU; see `attnlib.kernels.dispatch`).

    Returns a tensor like `value`. Everything is computed in float64, whatever the dtype. Relative error of err about 1e-12, or
    what rounding the integrand's logarithm leaves of it (relative error about 1e-15 of log err, say, at log err = -1e10). Where the
    numerator's least value is nearly zero, so that two walls nearly meet, up to nine digits are lost: the result is then that of a c which
    differs in the last digits. Proved for 12 000 hard heads on the page VIII.1.

    Special cases: an output of exactly zero is half an error, so a head that says nothing (V = c = tau = 0) has log 1/2. tau = 0
    makes the integrand a step: tau counts as at least 1e-9 times the standard deviation of its numerator, and an error that only this
    makes possible is 0 (-inf). That changes log err by about 1e-12, but where two walls nearly meet it can change it altogether.
    logit and V may be infinite. Entries with a NaN, or with another infinite number, are NaN, and change no other entry.

    Source: `attnlib.single_head.errors`.
    """
    dtype, shape = value.dtype, value.shape
    logit, value, omega, along, tau = (
        x.detach().reshape(-1).to(torch.float64) for x in (logit, value, omega, along, tau)
    )

    correct = value >= 0
    scale = torch.hypot(along, tau)  # std of the numerator's noise
    narrow = tau < _NARROWEST * scale
    tau = torch.maximum(tau, _NARROWEST * scale).clamp_min(torch.finfo(tau.dtype).tiny)
    slope = torch.where(correct, along, -along) / tau
    level = torch.log(value.abs()) + logit - torch.log(tau)
    unusable = level.isnan() | ~(omega.isfinite() & scale.isfinite())
    level, omega, slope = (torch.where(unusable, 0.0, x) for x in (level, omega, slope))
    integrals = level.clamp(-_LARGEST_LEVEL, _LARGEST_LEVEL), omega, slope
    log_tail = run(_LOOP, integrals, value.device, torch.float64, implementation=implementation, threads=threads)

    never = (narrow & (log_tail < _NEVER)) | (scale == 0)
    log_tail = torch.where(never, -torch.inf, log_tail)
    # V < 0: the integral is 1 - err >= 0 and err >= 1/2, so log1p loses nothing.
    log_err = torch.where(correct, log_tail, torch.log1p(-torch.exp(log_tail.clamp_max(0.0))))
    log_err = torch.where((value == 0) & (scale == 0), math.log(0.5), log_err)
    return torch.where(unusable, torch.nan, log_err).to(dtype).view(shape)
