"""The authors' study at full size, ten seeds instead of one: stored trainings, and the command that makes them again.

    python -m attnlib train [--heads 1 2 4 8] [--runs 10] [-o FOLDER] [--threads 2]

trains 1, 2, 4 and 8 heads for 500 001 steps of Adam on the authors' data. A finished file is kept, an unfinished one goes on where
it stopped. The stored files hold circuits and mean losses at about 60 log-spaced steps and the final state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attnlib import checks
from attnlib.in_context.experiment import Experiment
from attnlib.in_context.training import History, TrainingDiverged, load_history, train

__all__ = ["HEADS", "RUNS", "experiment", "load", "main", "path_of"]

HEADS = (1, 2, 4, 8)
RUNS = 10
_RECORDS = 60
TABLES = Path(__file__).parent / "tables"


def experiment(heads: int, runs: int = RUNS, steps: int = 500_001) -> Experiment:
    """The authors' setting (d = 5, L = 40, batches of 128, Adam at 0.001, random start), `runs` runs from seed 0."""
    return Experiment(heads=heads, runs=runs, steps=steps, records=_RECORDS)


def path_of(heads: int, folder: Path = TABLES) -> Path:
    """Where the training of `heads` heads is stored."""
    return folder / f"heads_{heads}.safetensors"


@cache
def load(heads: int) -> History:
    """The stored training of 1, 2, 4 or 8 heads. Raises ValueError for another number of heads."""
    if heads not in HEADS:
        raise ValueError(
            f"heads must be one of {', '.join(map(str, HEADS))}, the stored trainings; got {heads!r}: use train"
        )
    return load_history(path_of(heads))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `attnlib train`."""
    parser = argparse.ArgumentParser(prog="attnlib train", description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, nargs="+", default=list(HEADS), metavar="H", help="numbers of heads")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="R", help=f"runs of each, default {RUNS}")
    parser.add_argument("--steps", type=int, default=500_001, metavar="S", help="steps, default 500001")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads over runs")
    parser.add_argument(
        "-o", dest="folder", type=Path, default=TABLES, metavar="FOLDER", help="default: the package's own"
    )
    options = parser.parse_args(arguments)
    try:
        checks.whole_number("--threads", options.threads, at_least=1)
        studies = [experiment(heads, options.runs, options.steps) for heads in options.heads]
        if not options.folder.is_dir():
            raise ValueError(f"-o must be a folder that exists; got {str(options.folder)!r}: make it first")
        for study in studies:
            path = path_of(study.heads, options.folder)
            train(study, checkpoint=path, threads=options.threads, progress=True)
            print(f"{path.name}: {study.runs} runs of {study.steps} steps", file=sys.stderr)
    except (ValueError, TrainingDiverged) as error:
        print(f"attnlib: error: {error}", file=sys.stderr)
        return 2
    return 0
