"""Executable checks of the theory of softmax attention: data laws, exact training, exact errors.

    >>> from attnlib import SignalNoiseLaw, summarise
    >>> law = SignalNoiseLaw(n=60, d=12_000, signal_norm=30.0, label_noise=0.05)
    >>> summarise(law, step_size=0.025, draws=6).interpolates.tolist()
    [True, True, True, True, True, True]

Eleven names open every part; the rest is in the parts: `single_head`, `token_selection`, `in_context`, `kernels`. Nothing is loaded before
it is asked for, so that `import attnlib` alone loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlib.in_context import Experiment, RegressionLaw, risk_of
    from attnlib.kernels import ran
    from attnlib.single_head import SignalNoiseLaw, log10_clean_error, summarise, train_heads
    from attnlib.token_selection import TokenLaw, draw_gram, population_along

__version__ = "0.2.0"

__all__ = [
    "Experiment",
    "RegressionLaw",
    "SignalNoiseLaw",
    "TokenLaw",
    "draw_gram",
    "log10_clean_error",
    "population_along",
    "ran",
    "risk_of",
    "summarise",
    "train_heads",
]

_PARTS = ("single_head", "token_selection", "in_context", "kernels")


def __getattr__(name: str) -> Any:
    """A name of the face, from the first part that has it; or a part."""
    if name in _PARTS:
        return import_module(f"attnlib.{name}")
    if name in __all__:
        parts = (import_module(f"attnlib.{part}") for part in _PARTS)
        return next(getattr(part, name) for part in parts if name in part.__all__)
    raise AttributeError(f"module 'attnlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PARTS])
