"""Part III: in-context regression. Here: what heads are compared with, and trainings that are resumed from a file."""

from attnbook.in_context.estimators import gradient_step, kernel_estimator, ridge
from attnbook.in_context.resumable import load_history, train_resumable

__all__ = ["gradient_step", "kernel_estimator", "load_history", "ridge", "train_resumable"]
