"""In-context linear regression with multi-head softmax attention (arXiv 2503.12734). Law of prompts, training, circuits, risks.

What heads are compared with, and trainings that are resumed from a file, are in `attnbook.in_context`.
"""

from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.errors import risk_of
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.model import HeadWeights, initial_weights
from attnlib.in_context.training import History, train

__all__ = [
    "Circuits",
    "Experiment",
    "HeadWeights",
    "History",
    "Prompts",
    "RegressionLaw",
    "circuits_of",
    "initial_weights",
    "predict",
    "risk_of",
    "train",
]
