"""The runs of one plan, cell by cell, into one table; an interrupted run goes on where it stopped. The command is in `door`."""

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
from attnbook.token_selection.real_data.loaders import DATA_SETS, RealData, load
from attnbook.token_selection.real_data.plans import PLANS, Plan
from attnbook.token_selection.real_data.selection import check_noise_levels
from attnbook.token_selection.real_data.setups import Rows, Setup, prepare
from attnbook.token_selection.real_data.tables import (
    TABLES,
    ResultTable,
    add_cell,
    cell_record,
    check_settings,
    hits_record,
    read_table,
)
from attnlib import checks


def _versions(pretrained: bool) -> dict[str, str]:
    names = ("attnlib", "torch", "numpy", *(("transformers", "tokenizers") if pretrained else ("scikit-learn",)))
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def settings_of(name: str, plan: Plan, backbone: Mapping[str, Any], rows: Rows, data: RealData) -> dict[str, Any]:
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
    pretrained, known = "weights_sha256" in backbone, DATA_SETS.get(plan.data or name)
    return {
        "command": f"attnlib real {name if known else 'FOLDER'}" + (" --backbone MODEL" if pretrained else ""),
        "date": datetime.date.today().isoformat(),
        "versions": _versions(plan.kind == "text" or pretrained),
        **({"data": known.recorded} if known else {"data": data.name, "class_names": list(data.class_names)}),
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


def _checked(
    name: str, plan: Plan, backbone: Mapping[str, Any], rows: Rows, data: RealData, device: Any, out: Path
) -> dict:
    """The settings of a run, which must be those of the file that is there."""
    own = settings_of(name, plan, backbone, rows, data)
    if str(device) != "cpu":
        own["device"] = f"{torch.device(device).type}, float32"
    if out.is_file():
        done = read_table(out.stem, out.parent)
        old = {"name": done.name, "settings": done.settings, "noise_levels": done.noise_levels}
        check_settings(old, {"name": name, "settings": own, "noise_levels": plan.noise}, out)
    return own


def left_to_do(
    name: str, plan: Plan, data: RealData, seeds: Sequence[int], sizes: Sequence[int], out: Path, device: Any = "cpu"
) -> list[tuple[int, int]]:
    """The (seed, n) that a table does not hold yet. Raises ValueError for what cannot be run, or for a file with other settings."""
    for n in sizes:
        if n not in plan.steps or n > plan.pool:
            raise ValueError(f"n must be one of {', '.join(map(str, plan.steps))} for {name}; got {n}")
        check_noise_levels(plan.noise, n)
    seeds = [checks.whole_number("seed", seed, at_least=0) for seed in seeds]
    done = read_table(out.stem, out.parent) if out.is_file() else None
    finished = {(cell.seed, cell.n) for cell in done.cells} if done else set()
    todo = [(seed, n) for seed in seeds for n in sizes if (seed, n) not in finished]
    if todo:
        rows = Rows.of(data, plan, seeds[0])
        _checked(name, plan, done.settings["backbone"] if done else {}, rows, data, device, out)
    return todo


def remake(
    name: str,
    *,
    plan: Plan | None = None,
    data: RealData | str | Path | None = None,
    seeds: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    out: Path | None = None,
    progress: bool = False,
    device: Any = "cpu",
    **options: Any,
) -> ResultTable:
    """Run every (seed, n) cell of a plan that its table does not hold yet, and return the table.

    plan: None takes that of `PLANS`. data, device, options: see `prepare`. seeds, sizes: None takes those of the plan. out: the table's
    file; None: that of the package. Each finished cell is written at once; phase 1 of a seed is trained once for all its n.
    Raises as `left_to_do`.
    """
    plan, out = plan or PLANS[name], out or TABLES / f"{name}.json"
    found = data if isinstance(data, RealData) else load(plan.data or name, data)
    seeds = plan.all_seeds if seeds is None else seeds
    todo = left_to_do(name, plan, found, seeds, sizes or plan.sizes, out, device)
    prepared: dict[int, Setup] = {}  # of the seed at work
    for seed, n in progress_bar(todo, name, progress):
        if seed not in prepared:
            prepared.clear()  # frees the last seed's caches first
            prepared[seed] = prepare(name, seed, plan=plan, data=found, progress=progress, device=device, **options)
        setup = prepared[seed]
        settings = _checked(name, plan, setup.backbone, setup.rows, found, device, out)  # before the work, not after it
        begin = time.process_time()
        study = run_cell(setup, plan, n, seed)
        record = cell_record(study, seconds=time.process_time() - begin) | {"rows_sha256": setup.rows.drawn}
        add_cell(out, name, settings, plan.noise, record | hits_record(study.hits, setup.rows.test))
    return read_table(out.stem, out.parent)
