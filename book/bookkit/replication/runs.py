"""The claims of a page at many seeds: its cells run one seed after the other in one process, and figures are not drawn.

A page spends half of its time on a kernel, on importing libraries, and on figures that nobody looks at here. What it computes is
the same: a test compares with the stored page, at the stored seed.

    python -m bookkit.replication.runs PAGE.md FOLDER SEED ...    leaves FOLDER/SEED.json, the check records, one by one
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bookkit.code import Code
from bookkit.pages.catalogue import Page, UserError, one_line, write_atomically
from bookkit.pages.environment import page_environment
from bookkit.pages.one_page import code_cells, read_source
from bookkit.parser import answered
from bookkit.results import CLAIMS_TYPE


def runs(page: Page, seeds: Sequence[int], folder: Path, code: Code, jobs: int) -> Iterator[list[dict[str, Any]] | str]:
    """The check records at each seed, or in words why there are none; what lies in `folder` already is not run again.

    `jobs` processes share the seeds, each on one thread. One that is ended takes nothing along but its last seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [seed for seed in seeds if not (folder / f"{seed}.json").is_file()]

    def judge(some: Sequence[int]) -> str:
        with tempfile.TemporaryDirectory(prefix="replicate-") as private:
            given = [page.source.resolve(), folder.resolve(), *some]
            environment = page_environment(Path(private), code, {"MPLBACKEND": "agg"})
            command = [sys.executable, "-m", "bookkit.replication.runs", *map(str, given)]
            done = subprocess.run(command, cwd=private, env=environment, capture_output=True, text=True, check=False)
        return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""

    with ThreadPoolExecutor(jobs) as pool:
        said = "; ".join(filter(None, pool.map(judge, filter(None, (missing[k::jobs] for k in range(jobs))))))
    for seed in seeds:
        path = folder / f"{seed}.json"
        yield json.loads(path.read_text(encoding="utf-8")) if path.is_file() else said


def judged(cells: Sequence[Any], seed: int) -> list[dict[str, Any]]:
    """The check records that the cells leave, with `seed` after the cell of parameters. Raises what a cell raises."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from matplotlib import pyplot

    InteractiveShell.clear_instance()
    shell, found = InteractiveShell.instance(user_ns={}), []
    for cell in cells:
        given = f"\nseed = {seed}" if "parameters" in cell.metadata.get("tags", []) else ""
        with capture_output() as shown:
            result = shell.run_cell(cell.source + given)
        result.raise_error()
        found += [record for output in shown.outputs for record in output.data.get(CLAIMS_TYPE, [])]
        pyplot.close("all")
    return found


def main() -> None:
    """One process: a page, a folder, seeds."""
    source, folder, *seeds = sys.argv[1:]
    cells = code_cells(read_source(Path(source).read_text(encoding="utf-8")))
    for seed in map(int, seeds):
        try:
            found = judged(cells, seed)
        except Exception as error:
            raise UserError(f"seed {seed} failed, {type(error).__name__}: {one_line(error)}") from error
        write_atomically(Path(folder) / f"{seed}.json", json.dumps(found, sort_keys=True))


if __name__ == "__main__":
    raise SystemExit(answered("replicate", main))
