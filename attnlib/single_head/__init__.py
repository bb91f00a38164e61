"""One softmax head on the signal-noise law: benign overfitting (arXiv 2410.07746). Law, model, training, exact errors.

Softmax and its alternatives are in `maps`, update rules in `rules`. What the book derives of long training and of maximum margins, and its
proof of outcomes, are in `attnbook.single_head`.
"""

from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.errors import clean_error_sampled, log10_clean_error
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.model import forward, gradients
from attnlib.single_head.summary import Summary, summarise
from attnlib.single_head.training import gradient_descent, gram_descent, train_heads

__all__ = [
    "Sample",
    "SignalNoiseLaw",
    "Summary",
    "clean_error_sampled",
    "forward",
    "gradient_descent",
    "gradients",
    "gram_descent",
    "log10_clean_error",
    "summarise",
    "train_heads",
    "two_steps",
]
