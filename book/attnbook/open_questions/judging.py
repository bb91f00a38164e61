"""What the judges of Part IV share: one row is one independent training set; what one training set shows is not independent.

Classes, samples, cells and maps of one training set are averaged to one number of that set, which `bookkit.rules.mean_within` judges.
"""

from dataclasses import replace

import numpy as np
import torch

from bookkit.rules import LEVEL, both, mean_within, on_grid, within
from bookkit.sharpness import Fixed


def tensor(values):
    """Any array of numbers or flags as a double tensor."""
    return torch.as_tensor(np.asarray(values, dtype=float))


def per_draw(flags, judged=None):
    """Fraction of true flags among the judged ones of every draw, over all arrays together: (draws,), nan where none is judged.

    flags, judged: arrays (draws, ...) with the same draws in all of them; everything is judged when `judged` is left out.
    """
    flags = [np.asarray(part, dtype=bool) for part in flags]
    judged = [np.ones_like(part) for part in flags] if judged is None else [np.asarray(part, bool) for part in judged]
    hits = sum((part & mask).reshape(len(part), -1).sum(1) for part, mask in zip(flags, judged, strict=True))
    total = sum(mask.reshape(len(mask), -1).sum(1) for mask in judged)
    return tensor(np.divide(hits, total, out=np.full(len(total), np.nan), where=total > 0))


def none_judged(judged):
    """The draws of which no flag is judged, so that `per_draw` has nothing to say of them: (draws,)."""
    return ~torch.as_tensor(
        np.stack([np.asarray(part, dtype=bool).reshape(len(part), -1).any(1) for part in judged])
    ).any(0)


def mean_share(flags, low=None, high=None, *, what, judged=None, level=LEVEL):
    """The expected fraction of true flags in a draw lies in [low, high]: Student's t over the draws. Arguments as in `per_draw`."""
    shares = per_draw(flags, judged)
    total = int(sum(np.size(part) for part in flags) if judged is None else sum(np.sum(part) for part in judged))
    silent = None if judged is None else none_judged(judged)
    evidence = mean_within(shares, low, high, quantity=f"mean fraction of {what}", silent=silent, level=level)
    numbers = {
        "share": evidence.numbers["measured"],
        "standard_error": evidence.numbers["standard_error"],
        "classes": total,
    }
    return replace(evidence, measured=f"{evidence.measured} ({total} {what})", numbers=numbers)


def one_way(x, moves, boundary, steps=0.0):
    """From zero no step of training moves a sample's weight against the side of its x, and the second step moves it towards that side.

    x: (samples,), rho^2 |C_k| / d of each sample's class over the threshold; moves: (samples, steps), changes of its weight on the
    signal; steps: size of each one's steps in units of n/d. Towards the signal if x > `boundary`, towards the noise if x < `boundary`;
    x = 1 is left out. Proved for every sample: a move below -10^-12 rejects, and so does a second move below 10^-9 after a first step of
    5n/d or less; after a longer one the loss may have no slope left in double precision. Weights that never move are rejected. The
    verdict is no sharper than the distance to the nearest x on either side of the boundary.
    """
    x, moves = tensor(x), tensor(moves)
    learns = (tensor(steps) <= 5).expand_as(x)
    clear = (x - 1).abs() > 1e-9
    towards = torch.sign(x - boundary)[clear].unsqueeze(1) * moves[clear]
    seconds = towards[learns[clear], 1]
    never = within(towards, low=-1e-12, quantity="moves towards the predicted side", share=1)
    second = within(seconds, low=1e-9, quantity="second moves", share=1)
    found = both(never, second)
    against, rising = int((towards < -1e-12).sum()), int((seconds >= 1e-9).sum())
    shown = f"{against} of {towards.numel()} moves against it; second moves of {rising} of {len(seconds)} samples towards it"
    below, above = x[clear & (x < boundary)].max().item(), x[clear & (x > boundary)].min().item()
    found = replace(found, measured=shown, numbers={}, parts=(Fixed(found.holds),))
    return on_grid(found, max(boundary / below, above / boundary) - 1)
