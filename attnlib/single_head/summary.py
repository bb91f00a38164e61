"""Many draws of one law, trained and measured: a summary after any number of steps.

Draws are processed in chunks of a bounded size, so a thousand draws need no more memory than a few.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from attnlib import checks, limits
from attnlib.device import one_thread, resolve
from attnlib.single_head.errors import exact_log10_error
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.training import plain_descent

_CHUNK_BYTES = 32 << 20  # tokens of one chunk; measured fastest near the size of the caches


@dataclass(frozen=True)
class Summary:
    """What is measured on R training sets after the last step of training. All tensors are (R,).

    Source:
        this book; made by `summarise`.

    Example:
        >>> law = SignalNoiseLaw(n=60, d=12_000, signal_norm=30.0, label_noise=0.05)
        >>> summarise(law, step_size=0.025, draws=5).flipped.shape
        torch.Size([5])
    """

    train_accuracy_step1: torch.Tensor  # share of labels that are fitted after the first step
    train_accuracy: torch.Tensor  # after the last
    interpolates: torch.Tensor  # bool: every label is fitted
    log10_clean_error: torch.Tensor  # exact
    attention_clean: torch.Tensor  # mean attention on the signal; nan where a draw has no such sample
    attention_noisy: torch.Tensor  # the same for samples with a flipped label
    flipped: torch.Tensor  # number of flipped labels

    @property
    def draws(self) -> int:
        """R, the number of draws."""
        return self.train_accuracy.shape[0]


def draws_in_chunks(law: SignalNoiseLaw, seed: int, draws: int, device: str = "cpu") -> Iterator[Sample]:
    """Draws 0 ... `draws` - 1 of `law`, as many at a time as fit the caches."""
    bytes_per_draw = law.n * 2 * (min(law.n, law.d) + 2) * 8
    size, where = max(1, min(draws, _CHUNK_BYTES // bytes_per_draw)), resolve(device)
    for first in range(0, draws, size):
        yield law.drawn(seed, min(size, draws - first), first, "reduced", 0, where)


def require_two_tokens(law: SignalNoiseLaw, draws: int) -> None:
    """Raise ValueError unless the arguments fit a study of exact errors."""
    if not isinstance(law, SignalNoiseLaw) or law.tokens != 2:
        raise ValueError(f"law must be a SignalNoiseLaw with two tokens; got {law!r}: T > 2 has no exact error")
    checks.whole_number("draws", draws, at_least=1)


@checks.checked
@one_thread
def summarise(
    law: SignalNoiseLaw, step_size: float, *, steps: int = 2, draws: int = 40, seed: int = 0, device: str = "cpu"
) -> Summary:
    """Draw training sets, train each from zero, and measure accuracy, attention and the exact clean error (of `log10_clean_error`).

    Draw r is the same training set in every call with the same law and seed. Memory does not grow with the number of draws.

    Args:
        law: two tokens, any d.
        step_size: beta > 0.
        steps: >= 1 updates of `gradient_descent`.
        draws: R >= 1 independent training sets.
        seed: of all random streams.
        device: "cpu", "cuda", "cuda:N" or "auto".

    Returns:
        a `Summary`, float64.

    Raises:
        ValueError: a bad argument, before any work.

    Source:
        the experiment of arXiv 2410.07746, with the exact error of `log10_clean_error` in place of a test set.

    Example:
        >>> law = SignalNoiseLaw(n=200, d=10**9, signal_norm=4743.4165, label_noise=0.05)
        >>> bool((summarise(law, step_size=1e-6, draws=4).log10_clean_error < -100_000).all())
        True
    """
    require_two_tokens(law, draws)
    checks.step_size("step_size", step_size, among=4 * law.n)
    checks.whole_number("steps", steps, at_least=1, hint="with 0 nothing is trained")
    checks.whole_number("seed", seed, at_least=0)
    law.require_room("reduced", 1, 0)
    limits.require_memory(lambda draws, steps: 56 * draws + 8 * steps, draws=draws, steps=steps)
    parts = []
    for sample in draws_in_chunks(law, seed, draws, device):
        path = plain_descent(sample, step_size, steps, tuple(sorted({1, steps})))
        parts.append(
            Summary(
                train_accuracy_step1=path.train_accuracy[0],
                train_accuracy=path.train_accuracy[-1],
                interpolates=path.interpolates[-1],
                log10_clean_error=exact_log10_error(path.v[-1], path.p[-1], sample),
                attention_clean=path.attention_clean[-1],
                attention_noisy=path.attention_noisy[-1],
                flipped=sample.noisy.sum(-1),
            )
        )
    whole: Summary = join(parts)
    return whole


def join(parts: list[Any]) -> Any:
    """Concatenate equal structures (tensors, dicts, dataclasses of tensors) along the run axis, on the CPU: they are small."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(parts).cpu()
    if isinstance(first, dict):
        return {key: join([part[key] for part in parts]) for key in first}
    return type(first)(**{f.name: join([getattr(part, f.name) for part in parts]) for f in dataclasses.fields(first)})
