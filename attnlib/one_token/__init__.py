"""One token matters: a score gap between two tokens, and the mean attention of a softmax over them."""

from attnlib.one_token.law import GapLaw
from attnlib.one_token.model import mean_attention, mean_attention_sampled

__all__ = ["GapLaw", "mean_attention", "mean_attention_sampled"]
