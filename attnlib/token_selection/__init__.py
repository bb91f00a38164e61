"""Token selection under label noise (arXiv 2409.17625). Law, inner products, the recursion of scores, errors, time scales.

What the book derives of times, windows and the limit of high dimension is in `attnbook.token_selection`.
"""

from attnlib.token_selection.errors import population_along
from attnlib.token_selection.gram import draw_gram, gram_of
from attnlib.token_selection.law import CODE_START, Sample, Start, TokenLaw
from attnlib.token_selection.model import forces, outputs
from attnlib.token_selection.training import Trajectory, train

__all__ = [
    "CODE_START",
    "Sample",
    "Start",
    "TokenLaw",
    "Trajectory",
    "draw_gram",
    "forces",
    "gram_of",
    "outputs",
    "population_along",
    "train",
]
