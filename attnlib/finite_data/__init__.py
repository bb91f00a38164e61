"""Finite data in context (arXiv 2405.11751): linear attention pretrained on n prompts of k tasks, its exact errors and their limits."""

from attnlib.finite_data.attention import best_attention, exact_error, fit_attention, fit_step, sampled_error
from attnlib.finite_data.law import PretrainingSet, TaskLaw
from attnlib.finite_data.limits import (
    extrapolate,
    limit_error,
    many_prompts_error,
    pattern_error,
    prompt_cost,
    ridge_error,
)
from attnlib.finite_data.predictors import ridge_estimate, task_estimate

__all__ = [
    "PretrainingSet",
    "TaskLaw",
    "best_attention",
    "exact_error",
    "extrapolate",
    "fit_attention",
    "fit_step",
    "limit_error",
    "many_prompts_error",
    "pattern_error",
    "prompt_cost",
    "ridge_error",
    "ridge_estimate",
    "sampled_error",
    "task_estimate",
]
