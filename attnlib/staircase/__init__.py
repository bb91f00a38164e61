"""A staircase of plateaus: attention trained from small weights on regression prompts whose covariates have a spectrum."""

from attnlib.staircase.escape import balanced_time, escape_time, predicted_drops
from attnlib.staircase.flow import Path, train_merged, train_separate
from attnlib.staircase.law import Heads, Prompts, SpectrumLaw, small_heads
from attnlib.staircase.loss import loss_sampled, plateau_levels, population_loss
from attnlib.staircase.softmax import softmax_loss, train_softmax

__all__ = [
    "Heads",
    "Path",
    "Prompts",
    "SpectrumLaw",
    "balanced_time",
    "escape_time",
    "loss_sampled",
    "plateau_levels",
    "population_loss",
    "predicted_drops",
    "small_heads",
    "softmax_loss",
    "train_merged",
    "train_separate",
    "train_softmax",
]
