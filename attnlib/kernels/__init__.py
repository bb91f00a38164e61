"""Hot loops: thousands of steps of many small trainings without coming back to Python.

`in_context`, `single_head`, `token_selection` and `gaussian_tail` hold one loop each, under one signature for every
implementation; `dispatch` chooses among them. numba and Triton are asked for only when their implementation is used.
"""
