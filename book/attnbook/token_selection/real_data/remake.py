"""Make the stored tables again: ``python -m attnbook.token_selection.real_data.remake SET [--seeds 0 1 ...] [--n 20 200 ...]``.

Every finished (seed, n) is written at once; a run that was interrupted goes on where it stopped. Seed by seed: phase 1 of a
seed is trained once for all its n.
"""

import argparse
import datetime
import importlib.metadata
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attnbook.token_selection.real_data.backbones import progress_bar
from attnbook.token_selection.real_data.experiment import NoiseStudy
from attnbook.token_selection.real_data.loaders import DATA_SETS, told
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.setups import Rows, Setup, prepare
from attnbook.token_selection.real_data.tables import (
    TABLES,
    add_cell,
    cell_record,
    check_settings,
    hits_record,
    read_table,
    stored_tables,
)
from bookkit.parser import answered


def _versions(pretrained: bool) -> dict[str, str]:
    names = ("attnlib", "torch", "numpy", *(("transformers", "tokenizers") if pretrained else ("scikit-learn",)))
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def settings_of(name: str, plan: Plan, backbone: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """What a stored table says about how it was measured: plain values, no paths."""
    phase2 = {
        "trained": "query weight and bias and key weight of the last layer, from normal weights of s.d. 0.02, bias zero",
        "optimiser": "Adam, no weight decay, 20 warm-up steps, then linear to a tenth",
        "step_size": plan.step_size,
        "steps": {str(n): steps for n, steps in plan.steps.items()},
        "batch": {str(n): batch or "all" for n, batch in plan.batch.items()},
    }
    if plan.schedule:
        phase2["optimiser"] = "AdamW without weight decay, no warm-up, linear to zero"
        phase2["trained"] = phase2["trained"].replace("0.02", f"{plan.schedule['start_scale']:.3g}")
        phase2["epoch"] = "all samples, the last batch smaller"
    parts = {"phase 1": plan.phase1, "pool": plan.pool, "test": plan.test or "the official test split"}
    if plan.test_split and (plan.test is not None or plan.balanced):
        parts["test_split"] = plan.test_split
    if plan.balanced:
        parts["balanced"] = "equally many samples of each class"
    pretrained = "weights_sha256" in backbone
    return {
        "command": f"python -m attnbook.token_selection.real_data.remake {name}"
        + (" --encoder FOLDER --encoder-name NAME" if pretrained else ""),
        "date": datetime.date.today().isoformat(),
        "versions": _versions(plan.kind == "text" or pretrained),
        "data": DATA_SETS[plan.data or name].recorded,
        "official_split": plan.official,
        "rows": rows.counts,
        "sha256": rows.files,
        "tested": rows.tested,
        "parts": parts,
        "backbone": dict(backbone),
        "phase1": {"optimiser": "AdamW", "step_size": plan.head_step_size, "epochs": plan.epochs, "batch": 64}
        | ({"confidence": plan.confidence} if plan.confidence else {}),
        "phase2": phase2,
        "max_length": plan.max_length or None,
    }


def run_cell(setup: Setup, plan: Plan, n: int, seed: int) -> NoiseStudy:
    """Phase 2 of one (seed, n), at all noise levels."""
    steps = plan.steps[n]
    recorded = [step for step in plan.recorded if step < steps]
    return setup.study(
        n, plan.noise, seed=seed, step_size=plan.step_size, steps=steps, batch=plan.batch[n], recorded=recorded,
        **plan.schedule,
    )  # fmt: skip


def remake(
    name: str,
    *,
    seeds: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    folder: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Path:
    """Run every (seed, n) cell of a data set that is not stored yet, and return the table's path.

    seeds: None takes those of the plan. folder: where the table is written; None: inside the package. options: see `prepare`.
    Raises ValueError for an n that the plan has no horizon for, or a stored table with other settings.
    """
    plan = PLANS[name]
    seeds = range(plan.first_seed, plan.first_seed + plan.seeds) if seeds is None else seeds
    sizes = tuple(sizes or plan.sizes)
    for n in sizes:
        if n not in plan.steps or n > plan.pool:
            raise ValueError(f"n must be one of {', '.join(map(str, plan.sizes))} for {name}; got {n}")
    folder = Path(folder or TABLES)
    done = read_table(name, folder) if name in stored_tables(folder) else None
    finished = {(cell.n, cell.seed) for cell in done.cells} if done else set()
    todo = [(seed, n) for seed in seeds for n in sizes if (n, seed) not in finished]
    prepared: dict[int, Setup] = {}  # of the seed at work
    for seed, n in progress_bar(todo, name, progress):
        if seed not in prepared:
            prepared.clear()  # frees the last seed's caches first
            prepared[seed] = prepare(name, seed, plan=plan, progress=progress, **options)
        setup = prepared[seed]
        settings = settings_of(name, plan, setup.backbone, setup.rows)
        if done is not None:  # before the work, not after it
            old = {"settings": done.settings, "noise_levels": done.noise_levels}
            check_settings(old, {"settings": settings, "noise_levels": plan.noise}, folder / f"{name}.json")
        begin = time.process_time()
        study = run_cell(setup, plan, n, seed)
        record = cell_record(study, seconds=time.process_time() - begin) | {"rows_sha256": setup.rows.drawn}
        record |= hits_record(study.hits, setup.rows.test)
        add_cell(name, settings, plan.noise, record, folder)
    return folder / f"{name}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit codes are those of `told`."""
    parser = argparse.ArgumentParser(prog="python -m attnbook.token_selection.real_data.remake", description=__doc__)
    parser.add_argument("name", choices=tuple(PLANS), metavar="SET", help=", ".join(PLANS))
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="default: those of the set's plan")
    parser.add_argument("--n", type=int, nargs="+", dest="sizes", metavar="N", help="default: all of the set's sizes")
    parser.add_argument("--encoder", metavar="FOLDER", help="folder or hub name of a pretrained ViT or BERT-like model")
    parser.add_argument("--encoder-name", default="", metavar="NAME", help="what the table calls it")
    parser.add_argument(
        "--data", metavar="FOLDER", help="of published files; default: $ATTNLIB_DATA, else through a library"
    )
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where encoded texts and pictures are kept")
    parser.add_argument("--out", type=Path, dest="folder", metavar="FOLDER", help="default: the package's own tables")
    parser.add_argument("--threads", type=int, default=1, help="of torch, default 1")
    options = vars(parser.parse_args(arguments))
    torch.set_num_threads(max(1, options.pop("threads")))
    torch.set_flush_denormal(True)  # a saturated softmax has gradients below 1e-38, which take twice the time

    def work() -> None:
        path = remake(**options, progress=True)
        table = read_table(path.stem, path.parent)
        for n in table.sizes:
            mean, spread = table.final("test_accuracy", n)
            shown = "  ".join(f"{100 * m:5.1f} +- {100 * s:.1f}" for m, s in zip(mean, spread, strict=True))
            print(f"{table.name} n={n} ({len(table.seeds(n))} seeds), eta {table.noise_levels}: {shown}")

    return told("remake", work)


if __name__ == "__main__":
    raise SystemExit(answered("remake", main))
