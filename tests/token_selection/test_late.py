"""Late gaps and the hard-margin problem: dual variables by a solver of another kind, the flow by plain descent."""

import math

import numpy as np
import torch
from scipy.optimize import nnls

from attnbook.token_selection.time_laws.late import late_gaps, svm_weights
from attnlib.token_selection.gram import draw_gram
from attnlib.token_selection.law import TokenLaw
from attnlib.token_selection.model import forces
from tests.bad_input import refusing

LAW = TokenLaw(n=4, d=40_000, tokens=5, signal_norm=100.0, label_noise=0.5)


def test_weights_are_the_dual_variables_of_the_hard_margin_problem():
    gram = draw_gram(LAW, 3, 1)
    kernel, chosen = gram.weighted[0, :20, :20], torch.tensor([0, 1, 0, 1])
    rows, beta = svm_weights(kernel, chosen)
    assert rows.shape == (16, 20)
    # min |A'b - p|^2 over b >= 0 with A p = 1, A A' = B: the projection of the least norm point, by active sets
    root = torch.linalg.cholesky(rows @ kernel @ rows.mT).numpy()  # rows of A
    point = np.linalg.solve(root, np.ones(16))
    solved, rest = nnls(root.T, point)
    assert rest < 1e-9
    np.testing.assert_allclose(beta.numpy(), solved, rtol=1e-6)
    assert (beta > 0).all()


def test_the_flow_is_that_of_plain_descent_on_p():
    end = 1.0
    found = late_gaps(LAW, end, runs=2, seed=3, largest_move=0.02)
    np.testing.assert_allclose(found.log_time, end, rtol=1e-12)
    gram = draw_gram(LAW, 3, 2)
    kernel = gram.weighted[:, :20, :20]
    scores = torch.zeros(2, 4, 5, dtype=torch.float64)
    step = math.exp(end) / 30_000
    for _ in range(30_000):
        c = forces(scores, gram.head_scores, gram.labels.observed)
        scores = scores + step * (kernel @ c.flatten(1).unsqueeze(-1)).view_as(scores)
    chosen = scores.argmax(-1)
    gaps = [
        scores[r, i, chosen[r, i]] - scores[r, i, t]
        for r in range(2)
        for i in range(4)
        for t in range(5)
        if t != chosen[r, i]
    ]
    np.testing.assert_allclose(found.gaps.flatten(), gaps, atol=0.01)


def test_gaps_settle_where_the_theorem_says():
    early, late = (late_gaps(LAW, end, runs=2, seed=3) for end in (15.0, 60.0))
    assert late.kkt.all()
    off = [(one.gaps - one.predicted).abs().max().item() for one in (early, late)]
    assert off[1] < 2e-3 < off[0]
    assert off[1] < off[0] / 10


test_bad_arguments = refusing(
    (late_gaps, {"law": LAW, "runs": 1, "seed": 0, "log_time": 3.0}, {"log_time": -1.0, "runs": 0})
)
