"""Part V, finite data in context (arXiv 2405.11751): linear attention pretrained on n prompts of k tasks, its exact errors and limits."""

from attnbook.finite_data.attention import best_attention, exact_error, fit_attention
from attnbook.finite_data.law import TaskLaw
from attnbook.finite_data.limits import extrapolate, limit_error

__all__ = ["TaskLaw", "best_attention", "exact_error", "extrapolate", "fit_attention", "limit_error"]
