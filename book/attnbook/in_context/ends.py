"""How trainings end: which runs are trapped, their circuits without most of the jitter, and risks that are sharp.

A risk is measured in two parts: that of the same heads reduced to two numbers each, which is known to four digits (`reduced`), and the
rest, the difference of the two models on the same prompts (`risk`). Both are unbiased; together they are some ten times sharper
than prompts alone. Source: measured here, with formulas derived in the theory chapter of Part III.
"""

import math

import torch

from attnbook.in_context.reduced import reduced_risk
from attnlib.in_context.circuits import Circuits, two_number_circuits
from attnlib.in_context.errors import risk_per_prompt
from attnlib.in_context.law import RegressionLaw
from attnlib.in_context.training import History

ACTIVE = 0.05  # a head with |mu| below this is a dummy
REDUCED_PROMPTS = 8000
LATE = 5  # records over which the end is averaged


def untrapped(history: History) -> torch.Tensor:
    """(R,) bool: the heads cancel at the end. A single head cannot: all True."""
    return ~history.final.trapped


def average_circuits(history: History, records=LATE) -> Circuits:
    """Circuits (R, ...) averaged over the last records: the end without most of the optimiser's jitter."""
    late = history.circuits[:, -records:]
    return Circuits(late.key_query.mean(1), late.output_value.mean(1))


def sharp_risk(circuits: Circuits, law: RegressionLaw, *, prompts=2000, seed=0, plain=None):
    """Risk (...) and standard error of circuits (..., H, n, n): two-number heads exactly, the rest on shared held-out `prompts`.

    plain: value and error of the two-number heads, if they are known.
    """
    if plain is None:
        plain = reduced_risk(circuits.omega, circuits.mu, law, prompts=REDUCED_PROMPTS, seed=seed)
    drawn, lead = law.draw(prompts, seed), circuits.omega.shape[:-1]
    means, spreads = [], []
    flat = Circuits(circuits.key_query.flatten(0, -4), circuits.output_value.flatten(0, -3)) if lead else circuits[None]
    for model in range(math.prod(lead)):  # one by one: little memory
        one = flat[model]
        rest = risk_per_prompt(one, law, drawn)
        rest = rest - risk_per_prompt(two_number_circuits(one.omega, one.mu, law.d), law, drawn)
        means.append(rest.mean())
        spreads.append(rest.var() / prompts)
    rest, spread = (torch.stack(values).reshape(lead) for values in (means, spreads))
    return plain[0] + rest, (plain[1].square() + spread).sqrt()
