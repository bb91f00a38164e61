r"""How far the label counts are from their expectations: claim C4, and all counts that it leaves possible.

The four counts are binomial: $|C_k| \sim B(n, \tfrac{1-\eta}2)$ and $|N_k| \sim B(n, \tfrac\eta2)$. Flipped labels are rare, so the
bound for $|N_k|$ must know their variance (Bernstein); for $|C_k|$ it need not (Hoeffding). Derived in the theory chapter of Part I.
"""

import math

import torch

from attnlib.single_head.law import SignalNoiseLaw


def count_widths(n: int, label_noise: float, failure: float) -> tuple[float, float]:
    r"""Half widths of the intervals for |C_k| and |N_k|; all four hold with probability at least 1 - failure.

    $$ \sqrt{nx/2}, \qquad \sqrt{n\eta(1-\eta/2)\,x} + x/3, \qquad x = \log(8/\text{failure}). $$
    """
    x = math.log(8 / failure)
    return math.sqrt(n * x / 2), math.sqrt(n * label_noise * (1 - label_noise / 2) * x) + x / 3


def possible_counts(law: SignalNoiseLaw, failure: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Every (|C_1|, |C_2|) and (|N_1|, |N_2|) within `count_widths` that add up to n, both (R, 2); float64."""
    n, eta = law.n, law.label_noise
    clean_width, noisy_width = count_widths(n, eta, failure)

    def whole(centre: float, width: float) -> torch.Tensor:
        return torch.arange(max(0, math.ceil(centre - width)), math.floor(centre + width) + 1, dtype=torch.float64)

    clean, noisy = whole(n * (1 - eta) / 2, clean_width), whole(n * eta / 2, noisy_width)
    c1, n1, n2 = (x.flatten() for x in torch.meshgrid(clean, noisy, noisy, indexing="ij"))
    c2 = n - c1 - n1 - n2
    keep = (c2 >= clean[0]) & (c2 <= clean[-1])
    return torch.stack([c1, c2], 1)[keep], torch.stack([n1, n2], 1)[keep]
