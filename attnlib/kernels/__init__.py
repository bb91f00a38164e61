"""Hot loops: thousands of steps of many small trainings without a return to Python.

`heads`, `token_selection`, `in_context` and `gaussian_tail` hold one loop each, under one signature for every
implementation; `dispatch` chooses among them. numba and Triton are asked for only when their implementation is used.
"""

from attnlib.kernels.dispatch import IMPLEMENTATIONS, has_numba, has_triton, ran

__all__ = ["IMPLEMENTATIONS", "has_numba", "has_triton", "ran"]
