"""Part I: a single head. Here: gradient flow of long training, the maximum margin, the proof of outcomes, and what pages share."""

from attnbook.single_head.flow import flow_path
from attnbook.single_head.proved import proved_outcome
from attnbook.single_head.svm import hard_margin

__all__ = ["flow_path", "hard_margin", "proved_outcome"]
