"""The authors' study at full size, ten seeds instead of one: stored trainings, and the command that makes them again.

    python -m attnlib train [STUDY ...] [--runs R] [--steps S] [--threads N] [--device D] [-o FOLDER]

| study | what is trained |
|---|---|
| `heads_1`, `heads_2`, `heads_4`, `heads_8` | the authors' notebook: d = 5, L = 40, batches of 128, Adam at 0.001, 500 001 steps |
| `rates` | two heads at four other learning rates, five runs each, everything else as above |

A finished file is kept, an unfinished one goes on where it stopped. Files hold circuits and mean losses at about 60 log-spaced steps
and the final state. Threads share the runs of a study; what is left of them trains other studies beside it.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from attnbook.in_context.resumable import load_history, train_resumable
from attnbook.stored import seal, sealed
from attnlib import checks
from attnlib.device import resolve
from attnlib.extras import progress_bar
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import History, TrainingDiverged
from attnlib.kernels.batches import on_threads
from bookkit.parser import Parser

HEADS = (1, 2, 4, 8)
RUNS = 10
RATES = (1e-2, 3e-3, 3e-4, 1e-4)
STUDIES = (*(f"heads_{heads}" for heads in HEADS), "rates")
_RUNS_PER_RATE = 5
_RECORDS = 60
_STEPS = 500_001
TABLES = Path(__file__).parent / "tables"


def experiment(heads: int, runs: int = RUNS, steps: int = _STEPS) -> Experiment:
    """The authors' setting, `runs` runs from seed 0."""
    return Experiment(heads=heads, runs=runs, steps=steps, records=_RECORDS)


def rates_experiment(runs: int = _RUNS_PER_RATE, steps: int = _STEPS) -> Experiment:
    """Two heads, `runs` runs at each of `RATES`, rate by rate; runs number 100, 101, ... of seed 0."""
    rates = tuple(rate for rate in RATES for _ in range(runs))
    return experiment(2, len(rates), steps).replace(learning_rate=rates, first_run=100)


def path_of(study: str, folder: Path = TABLES) -> Path:
    """Where a study is stored."""
    return folder / f"{study}.safetensors"


@cache
def load(heads: int) -> History:
    """The stored training of 1, 2, 4 or 8 heads."""
    return load_history(sealed(path_of(f"heads_{heads}")))


@cache
def load_rates() -> History:
    """The stored training of two heads at other learning rates: `experiment.learning_rate` says which run has which."""
    return load_history(sealed(path_of("rates")))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `attnlib train`."""
    parser = Parser(prog="attnlib train", description=__doc__.splitlines()[0])
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help=f"one or more of {', '.join(STUDIES)}; default: all"
    )
    parser.add_argument("--runs", type=int, metavar="R", help=f"runs, default {RUNS} ({_RUNS_PER_RATE} of each rate)")
    parser.add_argument("--steps", type=int, default=_STEPS, metavar="S", help=f"steps, default {_STEPS}")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="threads, default: as many as cores"
    )
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu (default), cuda, cuda:N or auto")
    parser.add_argument(
        "-o", dest="folder", type=Path, default=TABLES, metavar="FOLDER", help="default: the package's own"
    )
    options = parser.parse_args(arguments)
    try:
        checks.whole_number("--threads", options.threads, at_least=1)
        if not options.folder.is_dir():
            raise ValueError(f"-o must be a folder that exists; got {str(options.folder)!r}: make it first")
        wanted = {name: _study(name, options.runs, options.steps) for name in options.studies or STUDIES}
        resolve(options.device)
        _train_all(wanted, options.folder, options.threads, options.device)
    except (ValueError, TrainingDiverged) as error:
        print(f"attnlib: error: {error}", file=sys.stderr)
        return 2
    return 0


def _train_all(wanted: Mapping[str, Experiment], folder: Path, threads: int, device: str) -> None:
    beside = max(1, threads // min(study.runs for study in wanted.values()))
    with progress_bar(True, sum(study.steps for study in wanted.values()), "studies", unit="step") as bar:

        def one(name: str) -> None:
            study, seen, path = wanted[name], 0, path_of(name, folder)
            before = path.read_bytes() if path.is_file() else b""

            def watch(step: int) -> None:
                nonlocal seen
                bar.update(step - seen)
                seen = step

            train_resumable(
                study, path, threads=min(threads, study.runs), device=device, watch=watch,
                about={"command": f"python -m attnlib train {name}"},
            )  # fmt: skip
            bar.update(study.steps - seen)
            if path.read_bytes() != before:
                seal(path, path.with_suffix(".json"))
            print(f"{name}: {study.runs} runs of {study.steps} steps", file=sys.stderr)

        longest_first = sorted(wanted, key=lambda name: -wanted[name].heads * wanted[name].runs * wanted[name].steps)
        try:
            on_threads(one, longest_first, beside)
        except KeyboardInterrupt as end:
            end.args = ("interrupted; the files hold what was done, the same command goes on from there",)
            raise


def _study(name: str, runs: int | None, steps: int) -> Experiment:
    checks.one_of("STUDY", name, STUDIES)
    if name == "rates":
        return rates_experiment(_RUNS_PER_RATE if runs is None else runs, steps)
    return experiment(int(name.removeprefix("heads_")), RUNS if runs is None else runs, steps)
