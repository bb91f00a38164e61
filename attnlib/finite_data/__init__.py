"""Finite data in context: a score gap between two tokens, and the mean attention of a softmax over them."""

from attnlib.finite_data.law import GapLaw
from attnlib.finite_data.model import mean_attention, mean_attention_sampled

__all__ = ["GapLaw", "mean_attention", "mean_attention_sampled"]
