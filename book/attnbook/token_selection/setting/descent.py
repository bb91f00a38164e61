r"""Gradient descent on $W$ and $p$ as dense arrays: the readable reference.

$$ W \leftarrow W + \alpha\,p\,G^\top, \qquad p \leftarrow p + \alpha\,W G, \qquad G = \sum_{it} c_{it}\,x_{it} $$

both from the old values. A step costs $O(d^2 + nTd)$; the recursion of `recursion` takes the same steps at a cost that does not
depend on $d$. Source: arXiv 2409.17625 (poster) for the training, derived for the form of the gradients.
"""

from collections.abc import Iterable, Sequence

import torch

from attnlib import checks
from attnlib.token_selection.law import Labels, Sample, Start
from attnlib.token_selection.model import gradients
from attnlib.token_selection.training import Trajectory, checked_steps, join_runs


def gradient_descent(
    sample: Sample,
    start: Start,
    step_size: float | Sequence[float],
    steps: int,
    *,
    record: Iterable[int] | None = None,
    trained: str = "both",
) -> Trajectory:
    """Train every run of `sample` for `steps` full-batch steps.

    Args:
        sample: dense training sets.
        start: law of W_0 and p_0, drawn with the sample's seed and run numbers.
        step_size: alpha > 0, or one per step.
        steps: >= 0.
        record: steps to keep, default all; the last is always kept.
        trained: "both", "p" (W stays) or "W" (p stays).

    Returns a `Trajectory`. Raises ValueError for a bad argument before any work.
    """
    checks.one_of("trained", trained, ("both", "p", "W"))
    sizes, recorded = checked_steps(step_size, steps, record)
    return join_runs([_one(sample, start, sizes, recorded, trained, r) for r in range(sample.runs)])


def _one(sample: Sample, start: Start, sizes, recorded, trained: str, r: int) -> Trajectory:
    tokens, labels = sample.tokens[r], sample.labels.observed[r]
    weight, prompt = (x.to(tokens.device) for x in start.draw(sample.law.d, sample.seed, sample.first_run + r))
    time, rows = 0.0, []
    for step in range(len(sizes) + 1):
        on_weight, on_prompt, scores = gradients(tokens, labels, sample.head, weight, prompt)
        if step in recorded:
            v = weight.mT @ prompt
            rows.append((tokens.new_tensor(time), scores, v[:2], v @ v, prompt @ prompt))
        if step == len(sizes):
            break
        alpha = sizes[step]
        if trained != "p":
            weight = weight + alpha * on_weight
        if trained != "W":
            prompt = prompt + alpha * on_prompt
        time += alpha
    kept = [torch.stack(column).unsqueeze(1) for column in zip(*rows, strict=True)]
    one = Labels(sample.labels.true[r : r + 1], sample.labels.observed[r : r + 1])
    head_scores = (tokens @ sample.head).unsqueeze(0)
    return Trajectory(sample.law, sample.seed, sample.first_run + r, one, head_scores, recorded, *kept)
