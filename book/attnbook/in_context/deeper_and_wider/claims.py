r"""Claims I73, I81-I83, I85 and I98: causal layers and stacks, and several tasks.

Each judge takes a `WiderStudy` and a constant (1 is the claim, `wrong` its negative control). Of the paper only its abstract was read.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from attnbook.in_context.deeper_and_wider.findings import TaskFinding, WiderStudy
from attnbook.in_context.deeper_and_wider.multi_task import separate_maps, superposed_heads
from bookkit.claims import ClaimSet, Source
from bookkit.rules import Evidence, both, exactly, stored_within, within

CLAIMS = ClaimSet("in_context")

_TRAINED = "training long enough: the page's default number of steps"


def _short(study: Any) -> str:
    steps = study.setting.steps
    return "" if steps >= 8000 else f"needs 8000 steps or more to speak of an end; here {steps}"


_LONG: dict[str, Any] = {"regime": _TRAINED, "violation": _short}


def _median(values: torch.Tensor, low: float | None, high: float | None, quantity: str) -> Evidence:
    """Bounds on the median over starts, for what training finds from most starts but not from all. values (R,)."""
    found = stored_within(values.median().reshape(1), low, high, quantity=quantity)
    shown = f"median {values.median():.4g} of {len(values)} starts, {values.min():.4g} to {values.max():.4g}"
    rule = "bound on the median of the stored starts; the table is fixed, no chance"
    return replace(found, measured=shown, rule=rule, draws=len(values))


@CLAIMS.claim("I73", wrong=1.25, source=Source.MEASURED, **_LONG)
def depth(study: WiderStudy, constant: float) -> Evidence:
    """after the same number of steps two layers are worse than one
    without a residual stream, after the same number of steps from the same seeds, each of the stored stacks of two layers has 1.4 times
    the median risk of one layer or more, with tied weights or not, with either mask. All were still improving
    wrong: 1.75 times or more"""
    one, *deeper = (risk for risk, _ in study.depth.values())
    ratios = torch.stack([risk / one.median() for risk in deeper], 1)
    return stored_within(ratios, low=1.4 * constant, quantity="risk of two layers over one")


@CLAIMS.claim("I81", wrong=2.0, box="ic-multi-task", uses="I17")
def enough_heads(study: WiderStudy, constant: float) -> Evidence:
    r"""N + 1 heads suffice for N tasks
    there are $N+1$ heads with $\sum_hV_{hk}=0$ for every task and $\sum_hV_{hk}M_h^\top=G_k$, the best matrix of the task alone: in the
    limit of small scores their risk is that of $N$ separate pairs
    wrong: N heads, without the one that is subtracted"""
    law = study.task_law
    M, V = (part[0] for part in superposed_heads(law, 0.1))
    if constant != 1:
        M, V = M[:-1], V[:-1]
    written = V[:, :, law.d :].diagonal(dim1=-2, dim2=-1)
    maps = torch.einsum("hk,hij->kji", written, M[:, : law.d, : law.d])
    gap = (maps - torch.as_tensor(separate_maps(law))).flatten()
    return exactly(torch.cat([gap, written.sum(0)]), 0.0, tolerance=1e-10, draws=law.tasks)


def _tasks(study: WiderStudy, heads: int) -> TaskFinding:
    return next(found for found in study.tasks if found.heads == heads)


@CLAIMS.claim("I82", wrong=(1.25, -1.0), source=Source.MEASURED, box="ic-multi-task", uses="I81", **_LONG)
def superposition(study: WiderStudy, constant: float) -> Evidence:
    """training finds the superposition
    three trained heads have on two tasks a mean risk within 5 % of that of separate steps, and four heads are little better: less risk than
    three, by less than 5 % (medians of the stored runs)
    wrong: within 5 % of 1.25 times that; four heads with more risk than three"""
    times, (low, high) = max(constant, 1.0), (0.95, 1.0) if constant > 0 else (1.0, 1.05)
    three, four = (_tasks(study, heads).risk for heads in (3, 4))
    return both(
        _median(three / (times * study.task_separate), 0.95, 1.05, "risk over separate"),
        _median(four / three.median(), low, high, "four heads over three"),
    )


@CLAIMS.claim("I83", wrong=0.75, box="ic-multi-task", uses="I81", **_LONG)
def one_matrix(study: WiderStudy, constant: float) -> Evidence:
    """two heads use one matrix for both tasks
    two trained heads have on two tasks the risk of the best single matrix for both, within 5 % (median of the stored runs)
    wrong: the risk of two separate matrices, 0.75 times as large"""
    found = _tasks(study, 2)
    return _median(found.risk / (constant * found.best), 0.95, 1.05, "risk over best")


@CLAIMS.claim("I85", wrong=1.3, source=Source.CODE, **_LONG)
def authors_losses(study: WiderStudy, constant: float) -> Evidence:
    """the authors' losses on two tasks
    on two tasks the median loss of the stored runs at the end is that of the authors' runs: 0.40 to 0.44 with three heads, 0.35 to 0.44
    with four (published, one batch of 256 each; allowance 0.01)
    wrong: 1.3 times as large"""
    parts = []
    for heads, low, high in ((3, 0.40, 0.44), (4, 0.35, 0.44)):
        loss = _tasks(study, heads).trained.loss[:, -1]
        parts.append(_median(loss, constant * low - 0.01, constant * high + 0.01, f"{heads} heads"))
    return both(*parts)


@CLAIMS.claim("I98", wrong=0.0, box="ic-exact-facts")
def flatness(study: WiderStudy, constant: float) -> Evidence:
    r"""how flat two softmaxes are
    with the authors' two softmaxes $\sum_i|p_i-\frac1L|\le\frac{2(e-1)}{L+e-1}$ at the query, whatever the circuits are: random starts, and
    the same with scores a hundred times as large
    wrong: one softmax"""
    found = study.causal.unevenness["twice" if constant == 1 else "once"]
    bound = 2 * (math.e - 1) / (study.setting.length + math.e - 1)
    return within(found / bound, high=1 + 1e-12, share=1, quantity="sum of |p - 1/L| over its bound")
