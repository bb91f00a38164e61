"""In-context linear regression with multi-head softmax attention (arXiv 2503.12734). Law of prompts, training, circuits, risks."""

from attnlib.in_context.circuits import Circuits, circuits_of, predict
from attnlib.in_context.estimators import gradient_step, kernel_estimator, ridge
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.law import Prompts, RegressionLaw
from attnlib.in_context.model import HeadWeights, initial_weights
from attnlib.in_context.risk import risk_of
from attnlib.in_context.training import History, train, train_many

__all__ = [
    "Circuits",
    "Experiment",
    "HeadWeights",
    "History",
    "Prompts",
    "RegressionLaw",
    "circuits_of",
    "gradient_step",
    "initial_weights",
    "kernel_estimator",
    "predict",
    "ridge",
    "risk_of",
    "train",
    "train_many",
]
