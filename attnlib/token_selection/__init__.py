"""Token selection under label noise (arXiv 2409.17625). Law, inner products, the recursion of scores, errors, time scales.

Theory in closed form is in `theory`, the limit of high dimension in `mean_field`.
"""

from attnlib.token_selection.fresh_selection import selection_accuracy
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, Sample, Start, TokenLaw
from attnlib.token_selection.model import forces, outputs
from attnlib.token_selection.population import population_along, tail_error
from attnlib.token_selection.theory import existence_window, selection_time
from attnlib.token_selection.training import Trajectory, train

__all__ = [
    "CODE_START",
    "Sample",
    "Start",
    "TokenLaw",
    "Trajectory",
    "draw_gram",
    "existence_window",
    "forces",
    "gram_of",
    "outputs",
    "population_along",
    "selection_accuracy",
    "selection_time",
    "tail_error",
    "train",
]
