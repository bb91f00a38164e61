r"""Data of the explorer of the long run: the flow's boundary $x^*(\eta)$, and where the classes of trained heads ended.

The explorer integrates the flow by itself, one point at a time. The whole boundary for three ratios of the step sizes is computed here by
`signal_threshold`; the points are classes of training sets with Gaussian noise, trained as on the page *Beyond two steps*.
"""

import math

import numpy as np

from attnbook.single_head.flow import signal_threshold
from attnbook.single_head.long_run import Fates, class_fates, law_at, small_then_long

LABEL_NOISES = np.linspace(0, 0.45, 46)
RATES = (0.25, 1.0, 4.0)
_TOLERANCE = 1e-5  # of x*, relative
_N, _D, _DRAWS, _SEED = 100, 40_000, 3, 1
_TRAINED_AT = (0.05, 0.1, 0.2, 0.3)  # label noises
_X = np.geomspace(0.7, 4.5, 12)


def boundary(attention_rate: float) -> np.ndarray:
    """x* at every label noise; inf where no boundary lies below 40."""
    return np.array(
        [signal_threshold(eta, attention_rate=attention_rate, tolerance=_TOLERANCE) for eta in LABEL_NOISES.tolist()]
    )


def trained(label_noise: float) -> Fates:
    """Where both classes of real training sets ended: n = 100, d = 40 000, small steps until the fate is decided."""
    laws = [law_at(x, _N, _D, label_noise) for x in _X]
    return class_fates(laws, small_then_long(_N, _D), draws=_DRAWS, seed=_SEED)


def data() -> dict:
    """Boundaries (None: above 40) and fates, each class with its own share of flips and its own x; half a minute."""
    fates = [trained(eta) for eta in _TRAINED_AT]
    flipped, x, on_signal = (
        np.concatenate([getattr(f, k).ravel() for f in fates]) for k in ("flipped", "x", "on_signal")
    )
    return {
        "label_noises": [round(eta, 4) for eta in LABEL_NOISES.tolist()],
        "boundaries": [
            {"attention_rate": rate, "x": [round(x, 5) if math.isfinite(x) else None for x in boundary(rate).tolist()]}
            for rate in RATES
        ],
        "trained": {
            "n": _N, "d": _D, "draws": _DRAWS, "seed": _SEED, "label_noises": _TRAINED_AT,
            "flipped": [round(one, 4) for one in flipped.tolist()], "x": [float(f"{one:.4g}") for one in x.tolist()],
            "on_signal": "".join(str(int(one)) for one in on_signal),
        },
    }  # fmt: skip
