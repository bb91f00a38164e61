"""Part VI, a staircase of plateaus: attention trained from small weights on regression prompts whose covariates have a spectrum."""

from attnbook.staircase.escape import escape_time, predicted_drops
from attnbook.staircase.flow import Path, train_separate
from attnbook.staircase.law import Heads, SpectrumLaw, small_heads
from attnbook.staircase.loss import loss_sampled, plateau_levels, population_loss
from attnbook.staircase.softmax import train_softmax

__all__ = [
    "Heads",
    "Path",
    "SpectrumLaw",
    "escape_time",
    "loss_sampled",
    "plateau_levels",
    "population_loss",
    "predicted_drops",
    "small_heads",
    "train_separate",
    "train_softmax",
]
