"""What the page of certified numbers draws and measures."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnlib.certified import GapLaw, mean_attention_sampled

__all__ = ["GAPS", "Study", "make_study"]

GAPS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the figure


@dataclass(frozen=True)
class Study:
    """R independent sets of samples: at the page's law, and at each of `GAPS`."""

    law: GapLaw
    attention: torch.Tensor  # (R,), mean attention of each set
    ladder: torch.Tensor  # (R, len(GAPS)), the same at other gaps


def make_study(largest_gap: float, *, samples: int, draws: int, seed: int) -> Study:
    """Draw and run. ValueError for an argument out of its range."""
    law = GapLaw(largest_gap)
    of_gaps = [mean_attention_sampled(GapLaw(gap), seed, runs=draws, samples=samples) for gap in GAPS]
    return Study(law, mean_attention_sampled(law, seed, runs=draws, samples=samples), torch.stack(of_gaps, dim=1))
