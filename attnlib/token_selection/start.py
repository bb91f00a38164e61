r"""Where training starts: $W_0$ and $p_0$ with independent entries.

In units that do not depend on the dimension: `weight_scale` $=\sigma_w^2 d$ and `prompt_scale` $=\sigma_p^2 d$, so that
$W_0^\top W_0\approx$ `weight_scale` $\cdot I$ on any fixed vector and $|p_0|^2\approx$ `prompt_scale`. The authors' code starts at
`weight_scale` 1/3 (entries uniform in $\pm1/\sqrt d$) and `prompt_scale` 0; the theorem speaks of Gaussian entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attnlib import checks
from attnlib.randomness import stream

__all__ = ["CODE_START", "Start"]


@dataclass(frozen=True)
class Start:
    r"""The law of $W_0$ and $p_0$: independent entries, of variances $\sigma_w^2$ and $\sigma_p^2$ given times d.

    So $W_0^\top W_0\approx$ `weight_scale` $\cdot I$ on any fixed vector and $|p_0|^2\approx$ `prompt_scale`. Arguments outside their range
    raise ValueError, and so do two zeros: from there nothing could ever move.

    Source:
        Gaussian entries as in the theorem of arXiv 2409.17625.

    Example:
        >>> weight, prompt = Start(weight_scale=0.5).draw(100, seed=0)
        >>> weight.shape, bool(prompt.any())
        (torch.Size([100, 100]), False)
    """

    weight_scale: float = 1 / 3  # sigma_w^2 d
    prompt_scale: float = 0.0  # sigma_p^2 d
    distribution: str = "gaussian"  # of the entries of W_0; those of p_0 are Gaussian always

    def __post_init__(self) -> None:
        for name in ("weight_scale", "prompt_scale"):
            if checks.finite_number(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must be >= 0; got {getattr(self, name)!r}: it is a variance times d")
        if self.weight_scale == 0 == self.prompt_scale:
            raise ValueError(
                "weight_scale and prompt_scale must not both be 0: W = 0, p = 0 is a critical point, nothing moves"
            )
        checks.one_of("distribution", self.distribution, ("gaussian", "uniform"))

    def draw(self, d: int, seed: int, run: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """W_0 (d, d) and p_0 (d,), float64, from the stream (seed, "start", run)."""
        checks.whole_number("d", d, at_least=1)
        rng = stream(seed, "start", run)
        if self.distribution == "uniform":
            half = math.sqrt(3 * self.weight_scale / d)
            weight = rng.uniform(-half, half, (d, d))
        else:
            weight = math.sqrt(self.weight_scale / d) * rng.standard_normal((d, d))
        prompt = math.sqrt(self.prompt_scale / d) * rng.standard_normal(d)
        return torch.as_tensor(weight), torch.as_tensor(prompt)


CODE_START = Start(distribution="uniform")
r"""Where the authors' code starts: $p_0 = 0$, and the entries of $W_0$ uniform in $\pm1/\sqrt d$.

Source:
    the code of arXiv 2409.17625.

Example:
    >>> CODE_START.weight_scale, CODE_START.prompt_scale
    (0.3333333333333333, 0.0)
"""
