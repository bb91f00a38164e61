"""The laptop experiment: scikit-learn's 8 x 8 digits, a small vision transformer trained on the page, several seeds.

Nothing is downloaded. Every seed has its own split, backbone, samples, flips and start; runs are repeatable on one machine
because they use one thread. A seed takes about a quarter of a minute, so `tables/digits_study.npz` keeps those of the page:
``python -m attnbook.token_selection.real_data.digits`` makes it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from attnbook.stored import seal, sealed
from attnbook.token_selection.real_data.experiment import NoiseStudy
from attnbook.token_selection.real_data.frozen import free_heads, reachable_by_one_token, wrong_labels
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import Setup, prepare, scale_head
from attnbook.token_selection.real_data.vit import ViTShape
from attnlib.device import one_thread
from bookkit.files import written_aside
from bookkit.parser import answered

STORED = Path(__file__).parent / "tables" / "digits_study.npz"
_REACH_SAMPLES = 300


class DigitsStudy(SimpleNamespace):
    """All runs, and with which settings: what `digits_study` was given, by the same names.

    runs[n], held[k]: lists of `NoiseStudy` over seeds; `held`: only k heads of the last layer are trained, at n = held_size and the noise
    levels 0 and held_level. free: numbers of trained heads, rising; the last one is all of them.
    one_token: (seeds,) reach when all heads must attend to one and the same token.
    settings: all of them, by which stored runs are known. trained: so many of the seeds, from the first, were trained here; the others were
    read from the stored runs. drift: largest difference of a final test accuracy between a run trained here and its stored row; nan: none.
    """

    def values(self, what: str, n: int) -> torch.Tensor:
        """A quantity of `NoiseStudy`, seeds first, at one n: (seeds, ...)."""
        return _stack(self.runs[n], what)

    def held_values(self, what: str, free: int) -> torch.Tensor:
        """The same with only `free` trained heads; for all heads, from the full runs at the same n and level."""
        if free in self.held:
            return _stack(self.held[free], what)
        values = _stack(self.runs[self.held_size], what)
        if values.ndim == 1:
            return values
        return values[:, [0, self.noise_levels.index(self.held_level)]]


def _stack(runs: list[NoiseStudy], what: str) -> torch.Tensor:
    values = [getattr(run, what) for run in runs]
    return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])


@torch.no_grad()
def hold_heads(setup: Setup, free: int) -> Setup:
    """The same setup with all but the first `free` heads held at the attention that phase 1 gave them."""
    own = setup.own
    pool, test = (free_heads(part, part.attention(own)[0], free) for part in (setup.pool, setup.test))
    return replace(setup, pool=pool, test=test)


def digits_study(
    shape: ViTShape | None = None,
    *,
    seeds: int = 5,
    seed: int = 0,
    sizes: Sequence[int] = (20, 100, 200),
    noise_levels: Sequence[float] = (0.0, 0.1, 0.2, 0.4),
    steps: int = 300,
    step_size: float = 5e-3,
    epochs: int = 20,
    head_scale: float = 1.0,
    free: Sequence[int] = (2, 4, 8),
    held_size: int = 100,
    held_level: float = 0.2,
    parts: tuple[int, int, int] = (1000, 297, 500),
    live: int = 1,
    read: bool = True,
) -> DigitsStudy:
    """Train a backbone per seed, then query and key of its last layer at every n and eta, then with fewer free heads.

    Args:
        shape: the backbone; None takes `ViTShape()`: 2 layers, 16 heads, width 64, patches of 2 x 2 pixels.
        seeds: number of seeds, `seed`, `seed` + 1, ...
        sizes: values of n. noise_levels: eta, rising from 0. steps, step_size: full-batch Adam, see `noise_study`.
        epochs: of phase 1. head_scale: see `scale_head`.
        free: numbers of trained heads for the runs at n = `held_size`, eta = `held_level`; those not below the backbone's
            number of heads are left out.
        parts: sizes of phase 1, phase-2 pool and test, disjoint.
        live: so many seeds, from the first, are trained here even where their runs are stored, and compared with them.
        read: False trains every seed here.

    Uses one thread of torch.
    """
    shape = shape or ViTShape()
    every = tuple(range(seed, seed + seeds))
    settings = {
        "shape": _plan_shape(shape), "sizes": tuple(sizes), "noise_levels": tuple(noise_levels), "steps": steps,
        "step_size": step_size, "epochs": epochs, "head_scale": head_scale,
        "free": sorted({k for k in free if k < shape.heads}), "held_size": held_size, "held_level": held_level,
        "parts": parts,
    }  # fmt: skip
    kept = _stored(settings, STORED) if read and STORED.is_file() else {}
    here = [s for i, s in enumerate(every) if s not in kept or i < live]
    found = kept | {s: _train_seed(s, settings) for s in here}
    drift = [found[s].distance(kept[s]) for s in here if s in kept]
    known = {"settings": settings, "shape": shape, "seeds": every, "free": (*settings["free"], shape.heads)}
    return DigitsStudy(
        **settings | known,
        runs={n: [found[s].runs[n] for s in every] for n in sizes},
        held={k: [found[s].held[k] for s in every] for k in settings["free"]},
        one_token=torch.tensor([found[s].one_token for s in every], dtype=torch.float64),
        trained=len(here),
        drift=max(drift, default=float("nan")),
    )


@dataclass(frozen=True)
class _Seed:
    """What one seed gave: a study for each n, one for each number of free heads, and the reach of one token."""

    runs: dict[int, NoiseStudy]
    held: dict[int, NoiseStudy]
    one_token: float

    def distance(self, other: _Seed) -> float:
        """The largest difference of a final test accuracy."""
        pairs = [(self.runs[n], other.runs[n]) for n in self.runs] + [(self.held[k], other.held[k]) for k in self.held]
        return max(float((a.test_accuracy - b.test_accuracy)[:, -1].abs().max()) for a, b in pairs)


@one_thread
def _train_seed(seed: int, settings: Mapping[str, Any]) -> _Seed:
    phase1, pool, test = settings["parts"]
    plan = replace(
        PLANS["digits"], phase1=phase1, pool=pool, test=test, epochs=settings["epochs"], shape=settings["shape"]
    )
    levels, level, scale = settings["noise_levels"], settings["held_level"], settings["head_scale"]
    setup = prepare("digits", seed, plan=plan)
    fewer = {k: scale_head(hold_heads(setup, k), scale) for k in settings["free"]}
    setup = scale_head(setup, scale)
    common = {"seed": seed, "steps": settings["steps"], "step_size": settings["step_size"]}
    smallest, *larger = settings["sizes"]
    runs = {smallest: setup.study(smallest, levels, reach_samples=_REACH_SAMPLES, **common)}
    looked_at = slice(0, _REACH_SAMPLES)
    targets = wrong_labels(setup.test_labels[looked_at], setup.classes, seed=seed, run=2)
    one_token = reachable_by_one_token(setup.test.subset(looked_at), targets).double().mean()
    for n in larger:  # the same network and test samples: reach is what it was
        runs[n] = setup.study(n, levels, reach_samples=0, **common)
        runs[n].reach = runs[smallest].reach
    held = {
        k: replace(part, features=None).study(
            settings["held_size"], (0.0, level), reach_samples=_REACH_SAMPLES, **common
        )
        for k, part in fewer.items()
    }
    return _Seed(runs, held, float(one_token))


# --- stored runs ----------------------------------------------------------------------------------------------------------


@cache
def _table(path: Path) -> dict[str, np.ndarray]:
    with np.load(sealed(path), allow_pickle=False) as stored:
        return dict(stored)


def _stored(settings: dict[str, Any], path: Path) -> dict[int, _Seed]:
    """The stored runs by seed; none where they were made with other settings."""
    table = _table(path)
    if str(table["settings"]) != json.dumps(settings):
        return {}
    return {
        seed: _Seed(
            {n: _unpacked(table, f"{seed}/n/{n}/") for n in settings["sizes"]},
            {k: _unpacked(table, f"{seed}/free/{k}/") for k in settings["free"]},
            float(table[f"{seed}/one_token"]),
        )
        for seed in table["seeds"].tolist()
    }


def _unpacked(table: Mapping[str, np.ndarray], prefix: str) -> NoiseStudy:
    values = {key.removeprefix(prefix): value for key, value in table.items() if key.startswith(prefix)}
    return NoiseStudy(**{name: torch.from_numpy(v) if v.ndim else v.item() for name, v in values.items()})


def store(study: DigitsStudy, path: Path) -> None:
    """Keep a study's runs, written aside and renamed."""
    table: dict[str, Any] = {"settings": np.array(json.dumps(study.settings)), "seeds": np.array(study.seeds)}
    for i, seed in enumerate(study.seeds):
        table[f"{seed}/one_token"] = study.one_token[i].numpy()
        for folder, kept in (("n", study.runs), ("free", study.held)):
            for k, runs in kept.items():
                table |= {f"{seed}/{folder}/{k}/{name}": np.asarray(value) for name, value in vars(runs[i]).items()}
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **table)
    seal(path)


def _plan_shape(shape: ViTShape) -> dict[str, int]:
    """As the stored runs know it: what says how texts come in counts only where it is set."""
    return {
        name: value
        for name, value in asdict(shape).items()
        if name != "classes" and (value or name not in ("tokens", "padded"))
    }


if __name__ == "__main__":
    raise SystemExit(answered("digits", lambda: store(digits_study(read=False), STORED)))
