"""Part I: a single head. Here: what two pages or more derive of it, gradient flow of long training and the maximum margin among it."""

from attnbook.single_head.flow import flow_path
from attnbook.single_head.svm import hard_margin

__all__ = ["flow_path", "hard_margin"]
