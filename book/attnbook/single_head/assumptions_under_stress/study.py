"""Two steps under stressed laws, measured: one row per value of an assumption, many draws per row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from attnbook.single_head.variants import StressedLaw, mean_field_step, same_noise_pull, stretched
from attnlib import checks
from attnlib.single_head.closed_form import two_steps
from attnlib.single_head.law import Sample, SignalNoiseLaw
from attnlib.single_head.population import clean_error_conditioned, log10_clean_error
from attnlib.single_head.training import gradient_descent

_CHUNK_BYTES = 16 << 20  # tokens held at once


@dataclass(frozen=True)
class Row:
    """One law, R draws, two steps. Errors are log10; last axis 2 is the class; preferences in units of a."""

    value: float  # of the assumption that was varied
    law: SignalNoiseLaw
    step_size: float
    interpolates: torch.Tensor  # (R,) bool
    log10_error: torch.Tensor  # (R, 2), exact
    mean_field: torch.Tensor  # (R, 2), from the draw's label counts
    preference: torch.Tensor  # (R, 2), mean of gamma over the clean samples of a class; nan without any
    signal_pull: torch.Tensor  # (R, 2), b_k from the draw's label counts
    cross_term: torch.Tensor  # (R,), max_i |sum_j y_j xi_j . xi_i| / d over j != i
    crude_bound: torch.Tensor  # (R,), n max |xi_i . xi_j| / d


@dataclass(frozen=True)
class TokenRow:
    """One number of tokens, R draws."""

    tokens: int
    fits_after_one: torch.Tensor  # (R,) bool
    interpolates: torch.Tensor  # (R,) bool, after two steps
    error: torch.Tensor  # (R,), sampled given the attention (exact for T = 2)
    standard_error: torch.Tensor  # (R,), of that sampling
    preference: torch.Tensor  # (R,), mean of gamma / a over clean samples
    predicted_preference: torch.Tensor  # (R,)
    flipped_margin: torch.Tensor  # (R,), mean margin of flipped samples after one step, times T / a; nan without any
    flipped_signal_pull: torch.Tensor  # (R,), mean b / a over the flipped samples
    flipped: torch.Tensor  # (R,), the number of flipped samples


def _noise_level(law: SignalNoiseLaw) -> float:
    """Mean square of a noise token relative to the d of mean field: projection takes two dimensions away."""
    return (law.d - 2) / law.d if law.noise_avoids_signals else 1.0


def _per_class_mean(sample: Sample, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    of_class = torch.stack([sample.signal_class == 0, sample.signal_class == 1], dim=1) & mask.unsqueeze(1)
    return (values.unsqueeze(1) * of_class).sum(-1) / of_class.sum(-1)


def measure(law: SignalNoiseLaw, step_size: float, value: float, *, draws: int, seed: int) -> Row:
    """Two steps on `draws` training sets of a two-token law. Raises ValueError for a bad argument."""
    checks.whole_number("draws", draws, at_least=2)
    size = max(1, min(draws, _CHUNK_BYTES // (16 * law.n * (min(law.n, law.d) + 2))))
    parts = []
    for first in range(0, draws, size):
        sample = law.draw(seed, min(size, draws - first), first_run=first)
        closed = two_steps(sample, step_size)
        path = gradient_descent(sample, step_size, 2, record=[2])
        field = mean_field_step(law, step_size, *sample.counts())
        noise = sample.noise_tokens()[:, :, 0] / law.noise_std
        gram = noise @ noise.mT
        apart = gram - torch.diag_embed(torch.diagonal(gram, dim1=1, dim2=2))
        parts.append(
            (
                path.interpolates[-1],
                log10_clean_error(path.v[-1], path.p[-1], sample, per_class=True),
                field.log10_error(per_class=True),
                _per_class_mean(sample, closed.preference, ~sample.noisy) / field.a,
                field.b / field.a,
                torch.einsum("rij,rj->ri", apart, sample.labels).abs().amax(1) / law.d,
                law.n * apart.abs().amax((1, 2)) / law.d,
            )
        )
    return Row(value, law, step_size, *(torch.cat(part) for part in zip(*parts, strict=True)))


def measure_tokens(
    law: SignalNoiseLaw, step_size: float, tokens: int, *, draws: int, seed: int, count: int
) -> TokenRow:
    """The same with T tokens at the step size that keeps the pull a; the error by `count` draws of the fresh attention."""
    step_size = same_noise_pull(step_size, tokens)
    law = replace(law, tokens=tokens)
    rows = []
    for run in range(draws):
        sample = law.draw(seed, first_run=run)
        path = gradient_descent(sample, step_size, 2, record=[1, 2])
        v, p = path.v[-1], path.p[-1]
        if tokens == 2:
            error = 10 ** log10_clean_error(v, p, sample)
            standard_error = torch.zeros_like(error)
        else:
            estimate = clean_error_conditioned(v, p, sample, count)
            error, standard_error = estimate.value, estimate.standard_error
        field = mean_field_step(law, step_size, *sample.counts())
        own_b = field.b.gather(1, sample.signal_class) / field.a
        clean, flipped = (~sample.noisy).double(), sample.noisy.double()
        preference = two_steps(sample, step_size).preference / field.a

        def mean(values, mask):
            return (values * mask).sum(1) / mask.sum(1)

        rows.append((
            path.interpolates[0], path.interpolates[-1], error, standard_error,
            mean(preference, clean), mean(own_b, clean) - _noise_level(law),
            tokens * mean(path.margins[0], flipped) / field.a, mean(own_b, flipped), flipped.sum(1),
        ))  # fmt: skip
    return TokenRow(tokens, *(torch.cat(part) for part in zip(*rows, strict=True)))


@dataclass(frozen=True)
class StressStudy:
    """Rows of every assumption; `rows[name]` in increasing order of the value varied."""

    law: StressedLaw
    step_size: float
    draws: int
    seed: int
    rows: dict[str, list[Row]]
    tokens: list[TokenRow]

    def row(self, name: str, value: float) -> Row:
        """The row at one value. Raises ValueError when it was not measured."""
        for row in self.rows[name]:
            if math.isclose(row.value, value):
                return row
        raise ValueError(f"value must be one of {[row.value for row in self.rows[name]]}; got {value!r}")


DIMENSIONS = (1 / 128, 1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # d / n^2
LABEL_NOISE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
CLASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
NORM_RATIOS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
COSINES = (-0.95, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 0.9)
SIGNAL_FACTORS = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0)  # of the signal norm
TOKENS = (2, 3, 4, 6, 8, 16, 32)


def stress_study(
    law: StressedLaw, step_size: float, *, draws: int = 40, seed: int = 0, count: int = 5000
) -> StressStudy:
    """Let go of one assumption at a time, from `law` on. Tokens are varied at n / 4 samples and d / 20 (memory).

    `d` varies with n SNR^2 and beta d / n kept. Raises ValueError for a bad argument before any work.
    """
    if not isinstance(law, StressedLaw) or law.tokens != 2:
        raise ValueError(f"law must be a StressedLaw with two tokens; got {law!r}")
    step_size = checks.positive_number("step_size", step_size)
    checks.whole_number("draws", draws, at_least=2)
    checks.whole_number("n", law.n, at_least=8, hint="tokens are varied at a quarter of it")
    checks.whole_number("d", law.d, at_least=100, hint="tokens are varied at a twentieth of it")

    def sweep(name: str, values: Sequence[float]) -> list[Row]:
        laws = [replace(law, **{name: value}) for value in values]
        return [measure(x, step_size, value, draws=draws, seed=seed) for x, value in zip(laws, values, strict=True)]

    def at_dimension(base: StressedLaw, d: int, value: float) -> Row:
        return measure(*stretched(base, d, step_size), value, draws=draws, seed=seed)

    rows = {
        "dimension": [at_dimension(law, max(3, round(f * law.n**2)), f) for f in DIMENSIONS],
        "label_noise": sweep("label_noise", LABEL_NOISE),
        "label_noise_large_d": [at_dimension(replace(law, label_noise=x), 100 * law.d, x) for x in LABEL_NOISE],
        "class_probability": sweep("class_probability", CLASSES),
        "norm_ratio": sweep("norm_ratio", NORM_RATIOS),
        "cosine": sweep("cosine", COSINES),
    }
    for name, avoids in (("projected", True), ("isotropic", False)):
        laws = [(f, replace(law, signal_norm=f * law.signal_norm, noise_avoids_signals=avoids)) for f in SIGNAL_FACTORS]
        rows[name] = [measure(x, step_size, f, draws=draws, seed=seed) for f, x in laws]
    small, small_step = stretched(law, law.d // 20, step_size)
    # n SNR^2 and beta d / n at a quarter of the samples
    small, small_step = replace(small, n=law.n // 4, signal_norm=2 * small.signal_norm), small_step / 4
    tokens = [measure_tokens(small, small_step, T, draws=draws, seed=seed, count=count) for T in TOKENS]
    return StressStudy(law, step_size, draws, seed, rows, tokens)


def benign(row: Row) -> bool:
    """The conclusion: every draw fits every label, and each class's error, averaged over draws, is below 1 %."""
    return bool(row.interpolates.all()) and bool(((10**row.log10_error).mean(0) < 0.01).all())


def holds_over(rows: Sequence[Row], start: float) -> tuple[float, float] | None:
    """First and last value of the unbroken run of benign rows around the value `start`, None when that one is not benign.

    Raises ValueError when `start` was not measured.
    """
    index = next((i for i, row in enumerate(rows) if math.isclose(row.value, start)), None)
    if index is None:
        raise ValueError(f"start must be one of {[row.value for row in rows]}; got {start!r}")
    if not benign(rows[index]):
        return None
    low = high = index
    while low > 0 and benign(rows[low - 1]):
        low -= 1
    while high < len(rows) - 1 and benign(rows[high + 1]):
        high += 1
    return rows[low].value, rows[high].value
