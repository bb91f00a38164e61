"""Named results of this part's pages for many parameter sets at once: what `attnlib sweep --batched` calls.

The numbers are the page's: the same streams, the same functions. Only what the page records is computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnbook.draws import mean
from attnbook.token_selection.dynamics.study import END_COUNT, recorded_steps
from attnlib.token_selection.gram import Gram, draw_gram, join
from attnlib.token_selection.law import Labels, TokenLaw
from attnlib.token_selection.population import Population, population_along
from attnlib.token_selection.training import Trajectory, train

_CHUNK_BYTES = 64 << 20  # inner products held at once


def dynamics(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What page `token_selection/02_dynamics` records, for each of `points` (its complete parameter sets), in order.

    The page records the balanced situation alone; the other situations and the authors' leaked evaluation are not computed.
    A step of the recursion sees a law only through its inner products, so points of any dimension, signal, noise and seed that agree
    in `n`, `tokens`, `step_size` and `steps` train in one batch; those that agree in law, `seed` and `runs` share the draw.

    Raises ValueError for what the law, the training or the page refuses (an odd n), KeyError for a missing parameter.
    """
    if odd := [p["n"] for p in points if p["n"] % 2]:
        raise ValueError(f"n must be even, as in the authors' code, whose data the page makes again; got n = {odd[0]}")
    sizes = ("weak_signal", "noise_std", "label_noise")
    laws = [TokenLaw(p["n"], p["d"], p["tokens"], p["signal_norm"], *(p[name] for name in sizes)) for p in points]
    results: list[dict[str, Any]] = [{} for _ in points]
    for places in _batches(points):
        drawn: dict[tuple, Gram] = {}
        for place in places:
            key = laws[place], points[place]["seed"], points[place]["runs"]
            if key not in drawn:
                drawn[key] = draw_gram(*key)
        trainings: dict[tuple, list[int]] = {}
        for place in places:
            trainings.setdefault((points[place]["step_size"], points[place]["steps"]), []).append(place)
        for (step_size, steps), together in trainings.items():
            grams = [drawn[laws[place], points[place]["seed"], points[place]["runs"]] for place in together]
            # The page's moments, though the last alone is looked at: |v|^2 is a product over all of them.
            path = train(join(grams), step_size, steps, record=recorded_steps(steps))
            first = 0
            for place, gram in zip(together, grams, strict=True):
                results[place] = _results(_end(path, gram, slice(first, first + gram.runs)))
                first += gram.runs
    return results


def _batches(points: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """Places of points of one size, as many at a time as the memory for their inner products allows."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for place, p in enumerate(points):
        by_size.setdefault((p["n"], p["tokens"]), []).append(place)
    for (n, tokens), places in by_size.items():
        batch: list[int] = []
        held, one_run = 0, 3 * 8 * (n * tokens + 2) ** 2
        for place in places:
            needed = 2 * one_run * points[place]["runs"]  # drawn, and joined to its company
            if batch and held + needed > _CHUNK_BYTES:
                yield batch
                batch, held = [], 0
            batch.append(place)
            held += needed
        yield batch


def _end(path: Trajectory, gram: Gram, runs: slice) -> Trajectory:
    """The last moment of some runs of a joint training, as a trajectory of the law that they were drawn from."""
    last = {
        name: getattr(path, name)[-1:, runs]
        for name in ("time", "scores", "direction_on_signals", "direction_norm_squared", "prompt_norm_squared")
    }
    labels = Labels(path.labels.true[runs], path.labels.observed[runs])
    own = {"law": gram.law, "seed": gram.seed, "first_run": gram.first_run, "steps": path.steps[-1:]}
    return replace(path, **own, **last, labels=labels, head_scores=path.head_scores[runs])


def _results(path: Trajectory) -> dict[str, float]:
    end = population_along(path, count=END_COUNT)
    return dynamics_results(path, Population(*(value[-1] for value in vars(end).values())))


def dynamics_results(path: Trajectory, end: Population) -> dict[str, float]:
    """What the page records: the last record of a course, and what it does on fresh data then."""
    clean, noisy = (path.attention_of(kind)[-1] for kind in ("clean", "noisy"))
    return {
        **mean(path.train_accuracy()[-1]).named("train_accuracy"),
        **mean(path.train_accuracy("clean")[-1]).named("train_accuracy_clean"),
        **mean(path.train_accuracy("noisy")[-1]).named("train_accuracy_noisy"),
        **mean(end.accuracy).named("test_accuracy"),
        **mean(end.loss).named("test_loss"),
        **mean(clean[:, 0]).named("attention_clean"),
        **mean(noisy[:, 0]).named("attention_noisy"),
        **mean(noisy[:, 1]).named("attention_noisy_confusing"),
    }
