"""Certified numbers: a score gap between two tokens, and the mean attention of a softmax over them."""

from attnlib.certified.law import GapLaw
from attnlib.certified.model import mean_attention, mean_attention_sampled

__all__ = ["GapLaw", "mean_attention", "mean_attention_sampled"]
