"""Where attention looks: a few pictures of two data sets, with attention trained on clean and on partly flipped labels.

The networks are those of the trial (`plans`, the strong backbone) at n = `N`: one trained without flipped labels (the *twin*), the other
from the same start with a fraction `ETA` of them. Of each set the first three flipped samples, in the order of the draw, whose true classes
differ and whose flipped label was memorised; beside each the first clean sample of its true class. Attention is the mean over heads, on the
7 x 7 cells of the backbone's last map; what is left to one goes to the class token.

    python -m attnbook.token_selection.real_data.attention_maps [--data FOLDER] [--cache FOLDER]

makes `tables/attention_maps.npz` again. Its pictures are thumbnails of MNIST (LeCun, Cortes and Burges) and CIFAR-10 (Krizhevsky, 2009).
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from attnbook.stored import seal, sealed
from attnbook.token_selection.real_data.experiment import nested_flips, train_selection
from attnbook.token_selection.real_data.frozen import FrozenLastLayer
from attnbook.token_selection.real_data.loaders import load
from attnbook.token_selection.real_data.plans import PLANS
from attnbook.token_selection.real_data.setups import parts_of, prepare
from attnlib.randomness import stream
from bookkit.files import written_aside
from bookkit.parser import answered

STORED = Path(__file__).parent / "tables" / "attention_maps.npz"
SHOWN = ("cifar10", "mnist")
N, ETA, CELLS = 200, 0.2, 7
ROWS = 3  # pairs of pictures of a set


class Maps(SimpleNamespace):
    """Of one set: P pairs of a clean sample and a flipped one of the same class.

    pictures: (P, 2, ...) uint8, as published. attention: (P, 3, 7, 7): the clean sample and the flipped one, trained with flipped labels;
    this one's twin. true: (P,) class of both. given: (P,) label on which the flipped sample was trained. answers: (P, 3) what the two
    networks say, in the order of `attention`.
    Of all flipped samples, (flipped,) bool: memorised, the flipped label is reproduced; restored, with its twin's attention, a head each,
    the true label comes back; with_another, the same with the twin's attention of the next one.
    """


def maps_of(name: str, *, data: str | Path | None = None, cache: Path | None = None, seed: int = 0) -> Maps:
    """Train both networks of a set and look. Arguments as those of `prepare`."""
    plan, found = replace(PLANS[f"{name}_lite0"], test=100), load(name, data)  # no test sample is looked at
    setup = prepare(f"{name}_lite0", seed, plan=plan, data=found, cache=cache, progress=True)
    samples = torch.from_numpy(stream(seed, "resampling", 1).permutation(len(setup.pool)))[:N]
    layer, true = setup.pool.subset(samples), setup.pool_labels[samples]
    labels, flipped = nested_flips(true, setup.classes, (0.0, ETA), seed=seed, run=1)
    start = layer.start(scale=0.02, runs=2, seed=seed, run=1)
    weights, _ = train_selection(layer, labels, start, steps=plan.steps[N], step_size=plan.step_size, seed=seed)
    with torch.no_grad():
        attention = layer.attention(weights)
        twin, noisy = layer.logits_of(attention).argmax(-1)
        restored, with_another = (true_labels_back(layer, attention, true, flipped[1], by=by) for by in (0, 1))
    wrong = flipped[1]
    chosen: dict[int, int] = {}
    for i in torch.nonzero(wrong & (noisy == labels[1]) & (twin == true)).flatten().tolist():
        chosen.setdefault(int(true[i]), i)
    pairs = []
    for label, i in list(chosen.items())[:ROWS]:
        clean = int(torch.nonzero(~wrong & (true == label) & (noisy == true)).flatten()[0])
        pairs.append((clean, i))
    where = np.array(pairs)
    pool = parts_of(found, plan, seed)[1][samples.numpy()]
    looked = attention.mean(2)[..., 1:].unflatten(-1, (CELLS, CELLS)).numpy()
    first, then = where.T
    return Maps(
        pictures=found.split(plan.official).x[pool[where]],
        attention=np.stack([looked[1][first], looked[1][then], looked[0][then]], 1).astype(np.float32),
        true=true.numpy()[then],
        given=labels[1].numpy()[then],
        answers=np.stack([noisy[first], noisy[then], twin[then]], 1),
        memorised=(noisy == labels[1])[wrong].numpy(),
        restored=restored.numpy(),
        with_another=with_another.numpy(),
    )


def true_labels_back(
    layer: FrozenLastLayer, attention: torch.Tensor, true: torch.Tensor, wrong: torch.Tensor, *, by: int = 0
) -> torch.Tensor:
    """Which flipped samples get their true label if they, and no others, are given attention of the clean twin: (flipped,) bool.

    attention: (2, n, h, L), the twin's and that with flipped labels; true: (n,); wrong: (n,) bool, the flipped ones. `by`: each gets the
    attention of the flipped sample that comes so many places after it in the draw, 0 its own.
    """
    rows = torch.nonzero(wrong).flatten()
    given = attention[1].clone()
    given[rows] = attention[0, rows.roll(-by)]
    return (layer.logits_of(given).argmax(-1) == true)[rows]


def store(maps: Mapping[str, Maps], path: Path = STORED) -> None:
    """Keep them, written aside and renamed."""
    table = {f"{name}/{field}": value for name, one in maps.items() for field, value in vars(one).items()}
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **table)
    seal(path)


@cache
def stored_maps(path: Path = STORED) -> dict[str, Maps]:
    """The stored ones, by data set."""
    with np.load(sealed(path), allow_pickle=False) as table:
        fields = {name: [key.split("/")[1] for key in table if key.startswith(f"{name}/")] for name in SHOWN}
        return {name: Maps(**{field: table[f"{name}/{field}"] for field in own}) for name, own in fields.items()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.token_selection.real_data.attention_maps")
    parser.add_argument("--data", metavar="FOLDER", help="of published files; default: $ATTNLIB_DATA, else a library")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where the tokens are kept")
    parser.add_argument("--out", type=Path, default=STORED, metavar="FILE", help="default: the package's own table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    store({name: maps_of(name, data=options.data, cache=options.cache) for name in SHOWN}, options.out)


if __name__ == "__main__":
    raise SystemExit(answered("attention_maps", main))
