r"""What the claims about deeper and wider models look at: stacks, several tasks, exact references beside them.

All of it is derived in the theory chapter of Part III, unless said.
"""

from dataclasses import dataclass, replace

import torch

from attnbook.in_context import closed_form
from attnbook.in_context.causal import causal_attention, prompt_tokens
from attnbook.in_context.deeper_and_wider.multi_task import (
    MultiTaskLaw,
    best_linear_maps,
    centred_linear_answers,
    linear_risks,
    paired_heads,
    separate_maps,
    superposed_heads,
)
from attnbook.in_context.deeper_and_wider.risk import plain_risk, risk_beside_linear
from attnbook.in_context.deeper_and_wider.stack import predict_stack, stack_of_circuits
from attnbook.in_context.deeper_and_wider.study import DEPTH_NAMES, TASK_NAMES, Trained, WiderSetting, obtain, specs
from attnlib import checks
from attnlib.attention import attention_weights
from attnlib.in_context.circuits import circuits_of
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.model import HeadWeights, initial_weights

SCALES = (0.02, 0.05, 0.1, 0.2)


# One causal layer


def authors_attention(scores: torch.Tensor) -> torch.Tensor:
    """Weights (..., T, T) as the authors' causal layer has them: a softmax over all tokens, a mask of -10^9, another softmax.

    Row 0 has every key masked, so that all its entries are equal: it looks at everything, the future included. Source: authors' code.
    """
    T = scores.shape[-1]
    allowed = torch.ones(T, T, dtype=torch.bool).tril(-1)
    return attention_weights(attention_weights(scores).masked_fill(~allowed, -1e9))


_STARTS = 20  # of layers that are read without training


@dataclass(frozen=True)
class CausalFinding:
    """R models at their random start, read once (one softmax) and as the authors' layer reads them."""

    spread: dict[str, torch.Tensor]  # "once", "twice": (R, 2) least and largest L p at the query
    leak: dict[str, torch.Tensor]  # (R,) largest change of any weight of a token when a later token changes
    # (R, 2) largest sum |p - 1/L| at the query: random start, scores 100 times as large
    unevenness: dict[str, torch.Tensor]


def causal_finding(law: RegressionLaw, heads: int, *, runs: int = 5, seed: int = 0) -> CausalFinding:
    """Weights of all tokens before and after the last three tokens of every prompt change (all but the first, if they are fewer)."""
    weights = initial_weights(law.d, heads, seed=seed, runs=runs)
    tokens = prompt_tokens(law.draw(20, seed))
    moved = tokens.clone()
    first = max(1, tokens.shape[-2] - 3)
    moved[:, first:] += 1.0
    spread, leak, unevenness = {}, {}, {}
    for name, rule in (("once", causal_attention), ("twice", authors_attention)):
        before, after = (rule(_scores(weights, z)) for z in (tokens, moved))
        last = law.length * before[..., -1, :-1].flatten(1)
        spread[name] = torch.stack([last.amin(1), last.amax(1)], 1)
        # What the earlier tokens give to the later ones, and what changes among the earlier ones.
        change = (after - before)[..., :first, :first].abs().flatten(1).amax(1)
        given = before[..., :first, first:].abs().flatten(1).amax(1)
        leak[name] = torch.maximum(change, given)
        far = [
            (rule(scale * _scores(weights, tokens))[..., -1, :-1] - 1 / law.length).abs().sum(-1) for scale in (1, 100)
        ]
        unevenness[name] = torch.stack([part.flatten(1).amax(1) for part in far], 1)
    return CausalFinding(spread, leak, unevenness)


def _scores(heads: HeadWeights, z: torch.Tensor) -> torch.Tensor:
    """(R, B, H, T, T), row = the token that looks."""
    return torch.einsum("bsi,rhij,btj->rbhts", z, circuits_of(heads).key_query, z)


# Several tasks


@dataclass(frozen=True)
class TaskFinding:
    """R trainings of H heads on N tasks. Risks are means over tasks, as in the authors' loss."""

    trained: Trained
    heads: int
    best: float  # the smallest mean risk of H heads of small scale
    risk: torch.Tensor  # (R,)
    risk_se: torch.Tensor


def _task_finding(trained: Trained, prompts: int, seed: int) -> TaskFinding:
    law, heads = trained.spec.law, trained.spec.experiment.heads
    maps, risks = best_linear_maps(law, heads)
    risk, error = risk_beside_linear(trained.stack(), law, maps, prompts=prompts, seed=seed)
    # a bound: tasks are correlated
    return TaskFinding(trained, heads, float(risks.mean()), risk.mean(1), error.mean(1))


def superposition_cost(law: MultiTaskLaw, *, prompts: int = 6000, seed: int = 0) -> dict[str, torch.Tensor]:
    """Mean risk over tasks of constructed heads minus that of the separate steps: (len(SCALES), 2), value and standard error.

    "pairs": 2N heads, two for each task; "superposed": N + 1 heads. The same prompts for all, each with both signs of its query, which
    cancels the first order in the scale prompt by prompt.
    """
    drawn, maps = law.draw(prompts, seed), separate_maps(law)
    both = drawn, replace(drawn, query=-drawn.query, target=-drawn.target)
    linear = [(centred_linear_answers(maps, part) - part.target).square() for part in both]
    found = {}
    for name, build in (("pairs", paired_heads), ("superposed", superposed_heads)):
        rows = []
        for scale in SCALES:
            stack = stack_of_circuits(*build(law, scale))
            errors = [(predict_stack(stack, part)[0] - part.target).square() for part in both]
            excess = sum((mine - other).mean(1) for mine, other in zip(errors, linear, strict=True)) / 2
            rows.append(torch.stack([excess.mean(), excess.std() / prompts**0.5]))
        found[name] = torch.stack(rows)
    return found


# Everything


def _depth_risk(trained: Trained, prompts: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer is near a centred step; a stack is near nothing whose risk is known."""
    law = trained.spec.law
    if trained.spec.experiment.layers > 1:
        return plain_risk(trained.stack(), law, prompts=prompts, seed=seed)
    gamma = closed_form.best_preconditioner(law, centred=True)
    return risk_beside_linear(trained.stack(), law, gamma, prompts=prompts, seed=seed)


@dataclass(frozen=True)
class WiderStudy:
    """Everything the claims look at."""

    setting: WiderSetting
    causal: CausalFinding
    depth: dict[str, tuple[torch.Tensor, torch.Tensor]]  # by name of the stack: risk (R,) and its standard error
    depth_trained: dict[str, Trained]
    depth_law: RegressionLaw
    tasks: tuple[TaskFinding, ...]  # 2, 3 and 4 heads
    task_law: MultiTaskLaw
    superposition: dict[str, torch.Tensor]  # at SCALES

    @property
    def task_separate(self) -> float:
        """Mean risk of separate steps."""
        return float(linear_risks(self.task_law, separate_maps(self.task_law)).mean())


@checks.checked
def wider_study(setting: WiderSetting, *, prompts: int = 6000, progress: bool = False) -> WiderStudy:
    """Collect: trainings from the table where they are there, everything else measured now on `prompts` held-out prompts."""
    s = setting
    wanted = specs(s)
    trained = {name: obtain(wanted[name], progress=progress) for name in (*DEPTH_NAMES, *TASK_NAMES)}
    depth = {name: trained[name] for name in DEPTH_NAMES}
    law = RegressionLaw(s.d, s.length, s.noise_std)
    tasks = MultiTaskLaw(noise_std=s.noise_std)
    return WiderStudy(
        s,
        causal_finding(law, s.heads, runs=_STARTS, seed=s.seed),
        {name: _depth_risk(one, prompts, s.seed) for name, one in depth.items()},
        depth,
        depth[DEPTH_NAMES[0]].spec.law,
        tuple(_task_finding(trained[name], prompts, s.seed) for name in TASK_NAMES),
        tasks,
        superposition_cost(tasks, prompts=prompts, seed=s.seed),
    )
