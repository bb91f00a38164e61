"""The command `attnlib real`: label noise on a published data set, or on pictures of your own, from one line to one table.

    attnlib real cifar10 --backbone lite0 -o mine.json      a published set, its files in $ATTNLIB_DATA or fetched by a library
    attnlib real PICTURES -o mine.json                      a folder with a subfolder of pictures for each class

An estimate comes first. Each finished seed and n is kept; the same command goes on where it stopped. At the end the table is shown: test
accuracy, fit of flipped labels, and the fraction of copying F with interval and outcome by the rule of `trial`.
"""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnbook.files import require_writable
from attnbook.token_selection.real_data import backbones, trial
from attnbook.token_selection.real_data.experiment import train_selection
from attnbook.token_selection.real_data.lite0 import NETS
from attnbook.token_selection.real_data.loaders import DATA_SETS, RealData, load, load_pictures, told
from attnbook.token_selection.real_data.plans import PLANS, Plan, own_pictures
from attnbook.token_selection.real_data.setups import fixed_backbone, processed
from attnbook.token_selection.real_data.tables import TABLES, ResultTable, left_to_do, remake
from attnbook.token_selection.real_data.vit import ViTShape, train_vit
from attnlib import checks
from attnlib.device import resolve
from bookkit.parser import Parser

FIXED = ("random_features", "lite0", "lite2", "mpnet")  # backbones by the end of a plan's name
_BESIDES = 1.3  # tests along the path, reach and the linear head, as a factor on the time of the steps


def plan_of(what: str, backbone: str | None, authors: bool) -> tuple[str, str | None]:
    """Name of the plan, and folder or hub name of a pretrained model where `backbone` is one. Raises ValueError for what is neither.

    what: a set or a plan; anything else is a folder of pictures, which takes the plans of CIFAR-10.
    """
    base = what if what in PLANS else "cifar10"
    known = {
        one: f"{base}_{one}" for one in FIXED if f"{base}_{one}" in PLANS and (base == what or one.startswith("lite"))
    }
    asked = backbone or ""
    outside = "/" in asked or asked in backbones.BACKBONES.values() or (asked and Path(asked).is_dir())
    encoder = backbone if outside and asked not in known else None
    if asked and not encoder and asked not in known:
        model = "the folder or hub name (with a /) of a pretrained ViT or BERT"
        ours = f"one of {', '.join(known)}" if known else "left out"
        raise ValueError(f"--backbone must be {ours} for {what}, or {model}; got {backbone!r}")
    name = known.get(asked, base)
    if encoder and f"{base}_pretrained{'_authors' * authors}" in PLANS:
        name = f"{base}_pretrained"
    name += "_authors" * authors
    if name not in PLANS:
        raise ValueError(f"--authors must go with a pretrained backbone for {what}; got {backbone}")
    return name, encoder


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def estimate(
    plan: Plan, data: RealData, todo: Sequence[tuple[int, int]], *, encoder: str | None, cache: Path | None, device: Any
) -> dict[str, float]:
    """Seconds of features, phase 1 and phase 2 for the (seed, n) `todo`, from four pictures and a few steps on random tokens.

    Raises what a backbone raises that is not there.
    """
    seeds, sizes = len({seed for seed, _ in todo}), {size for _, size in todo}
    n = max(64, *sizes)
    labels = (torch.arange(n) % data.classes).to(device)
    splits = [data.split(name).x for name in {plan.official, *filter(None, plan.test_split.split("+"))}]
    features = first = 0.0
    if encoder:
        folder = backbones.local_copy(encoder)
        model = backbones.load_classifier(data.kind, data.classes, folder).to(device)
        length = plan.max_length
        if data.kind == "image":
            inputs = {"pixel_values": processed(backbones.load_image_processor(folder), splits[0][:4]).to(device)}
            per_picture = _seconds(lambda: backbones.last_layer_input(model, inputs)) / 4
            features = seeds * per_picture * (plan.phase1 + plan.pool + (plan.test or 1000))
            length = backbones.last_layer_input(model, inputs).shape[1]
        tokens = torch.randn(4, length, model.config.hidden_size, device=device)
        layer = backbones.frozen_last_layer(model, tokens).subset(torch.arange(n) % 4)
    else:
        if plan.fixed:
            backbone = fixed_backbone(plan, cache)
            if missing := sum(map(backbone.missing, splits)):
                with torch.no_grad():
                    features = missing * _seconds(lambda: backbone.compute(splits[0][:4])) / 4
        shape = ViTShape(classes=data.classes, **plan.shape)
        tokens = torch.rand(n, *shape.sample, device=device)
        train = functools.partial(train_vit, tokens[:64], labels[:64], shape)
        model = train(epochs=1)  # the first step is slower
        first = seeds * plan.epochs * plan.phase1 / 64 * _seconds(lambda: train(epochs=4)) / 4
        layer = model.freeze(tokens)

    def step(size: int) -> float:
        part, wanted = layer.subset(torch.arange(size)), labels[:size].expand(len(plan.noise), size)
        start = part.start(runs=len(wanted))
        work = functools.partial(train_selection, part, wanted, start, batch=plan.batch[size])
        work(steps=1)  # the first is slower
        return _seconds(lambda: work(steps=3)) / 3

    each = {size: plan.steps[size] * step(size) for size in sizes}
    return {"features": features, "phase 1": first, "phase 2": _BESIDES * sum(each[size] for _, size in todo)}


def shown(table: ResultTable, n: int) -> str:
    """What a table found at one n: accuracies, fit, F of attention and of a new linear head, interval and outcome by the rule."""
    levels, classes = table.noise_levels, trial.classes_of(table)
    lines = [f"n = {n}, {len(table.seeds(n))} seeds".ljust(20) + "".join(f"{f'eta {eta:g}':>9}" for eta in levels)]
    for name, what in (("accuracy", "test_accuracy"), ("fit", "fit_noisy"), ("linear head", "linear_head")):
        values = 100 * table.final(what, n)
        lines.append(f"{name}, %".ljust(20) + "".join("        -" if np.isnan(v) else f"{v:9.1f}" for v in values))
    found = table.values("test_accuracy", n)[..., -1], table.values("linear_head", n)
    with np.errstate(divide="ignore", invalid="ignore"):  # without meaning at the accuracy of a guess
        own, linear = (float(trial.fraction_of_copying(one, levels, classes).mean()) for one in found)
    if len(table.seeds(n)) < trial.SEEDS:
        said = f"{own:.2f}, no interval: the rule asks for {trial.SEEDS} seeds (--seeds 0 1 2 3 4)"
    else:
        judged = trial.judge(trial.trial_of(table, n))
        because = f", {judged.because}" if judged.because else ""
        said = f"{own:.2f} [{judged.fraction.low:.2f}, {judged.fraction.high:.2f}], {judged.outcome}{because}"
    return "\n".join([*lines, f"F {said}; F of the linear head {linear:.2f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit codes are those of `told`."""
    parser = Parser(prog="attnlib real", description=__doc__.splitlines()[0])
    sets = ", ".join(DATA_SETS)
    parser.add_argument("what", metavar="FOLDER|SET", help=f"pictures, a subfolder for each class; or one of {sets}")
    parser.add_argument("--backbone", metavar="B", help=f"{', '.join(FIXED)}, or folder or hub name of a model")
    parser.add_argument("--authors", action="store_true", help="train as the authors' code does")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="default: those of the plan")
    parser.add_argument("--n", type=int, nargs="+", metavar="N", help="training samples; for a folder default 200")
    parser.add_argument("--noise", type=float, nargs="+", metavar="ETA", help="from 0; default 0 0.1 0.2 0.4")
    parser.add_argument("-o", dest="out", type=Path, metavar="FILE", help="the table; of a set default the package's")
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu (default), cuda, cuda:N or auto")
    parser.add_argument("--dry-run", action="store_true", help="check, say what would be done and how long, and stop")
    parser.add_argument("--data", metavar="FOLDER", help="of published files; default $ATTNLIB_DATA, else a library")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="of features; default $ATTNLIB_CACHE")
    parser.add_argument("--threads", type=int, default=1, help="of torch, default 1")
    asked = parser.parse_args(arguments)
    torch.set_flush_denormal(True)  # a saturated softmax has gradients below 1e-38, which take twice the time
    return told("attnlib real", lambda: _run(asked))


def _run(asked: Any) -> None:
    torch.set_num_threads(checks.whole_number("--threads", asked.threads, at_least=1, at_most=1024))
    folder = None if asked.what in PLANS else Path(asked.what).expanduser()
    if folder and not folder.is_dir():
        raise ValueError(f"{asked.what!r} is neither a folder nor one of {', '.join(DATA_SETS)} or their plans")
    name, encoder = plan_of(asked.what, asked.backbone or ("lite0" if folder else None), asked.authors)
    if not PLANS[name].shape and not encoder:
        other = f", or {asked.what} --backbone mpnet" if f"{name}_mpnet" in PLANS else ""
        model = f"folder or hub name (the paper's is {backbones.BACKBONES[PLANS[name].kind]!r})"
        raise ValueError(f"--backbone must name a pretrained model for {name}, {model}{other}")
    device = resolve(asked.device)
    ready = asked.out.suffix == ".json" and asked.out.resolve().parent.is_dir() if asked.out else not folder
    if not ready:
        raise ValueError(f"-o must name a .json file in a folder that exists; got {asked.out}")
    side = NETS[PLANS[name].fixed].size if PLANS[name].fixed in NETS else 224  # what the backbone takes
    data = load_pictures(folder, side, progress=True) if folder else load(PLANS[name].data or name, asked.data)
    plan = own_pictures(PLANS[name], len(data.split("all")), asked.n or (200,)) if folder else PLANS[name]
    plan = replace(plan, noise=tuple(asked.noise or plan.noise), sizes=tuple(asked.n or plan.sizes))
    name = name.replace("cifar10", "own", 1) if folder else name
    seeds, out = asked.seeds or plan.all_seeds, asked.out or TABLES / f"{name}.json"
    require_writable(out)
    options = {"encoder": encoder, "cache": asked.cache, "device": device}
    todo = left_to_do(name, plan, data, seeds, plan.sizes, out, device)
    print(
        f"{name}, {data.classes} classes: phase 1 {plan.phase1} samples, pool {plan.pool}, test {plan.test or 'the official set'}; n = "
        f"{', '.join(map(str, plan.sizes))}; {len(todo)} of {len(seeds) * len(plan.sizes)} runs are left"
    )
    if todo:
        minutes = {what: seconds / 60 for what, seconds in estimate(plan, data, todo, **options).items()}
        parts = ", ".join(f"{what} {each:.1f}" for what, each in minutes.items())
        print(f"about {sum(minutes.values()):.1f} minutes: {parts}", flush=True)
    if asked.dry_run:
        return
    if encoder:
        options["encoder_name"] = Path(encoder).resolve().name if Path(encoder).is_dir() else encoder
    table = remake(name, plan=plan, data=data, seeds=seeds, out=out, progress=True, **options)
    print("\n".join(shown(table, n) for n in plan.sizes))
