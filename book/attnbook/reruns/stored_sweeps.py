"""The small finished sweeps that pages show: kept in the package, each with the command that made it, remade by one command.

    python -m attnbook.reruns.stored_sweeps            # all of them: some minutes
    python -m attnbook.reruns.stored_sweeps one_run_many_runs

Reading needs pandas and pyarrow (table) or xarray and h5netcdf (array), no more: a page opened in Colab reads them too.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbook.stored import seal, sealed
from bookkit.files import written_aside
from bookkit.parser import answered

if TYPE_CHECKING:
    import pandas
    import xarray

TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Recipe:
    """How a stored sweep is made."""

    page: str
    grid: str  # file in notebooks/params
    forms: tuple[str, ...] = ("parquet", "nc")  # what is kept of it: table, array
    batched: bool = False

    def command(self, name: str) -> str:
        """The line that a reader types to make it again."""
        line = f"python -m attnlib sweep {self.page} notebooks/params/{self.grid} -o {name}"
        return f"{line} --batched" if self.batched else line


STORED = {
    "one_run_many_runs": Recipe("single_head/02_two_steps", "02_two_steps.one_run_many_runs.grid.yml"),
    "norm_and_step": Recipe("single_head/02_two_steps", "02_two_steps.norm_and_step.grid.yml", ("nc",), batched=True),
}


def stored_table(name: str) -> pandas.DataFrame:
    """The table of a stored sweep, one row per point; `attrs["command"]` made it. Raises ValueError for an unknown name."""
    path = _path(name, "parquet")
    import pandas

    return pandas.read_parquet(path)


def stored_array(name: str) -> xarray.Dataset:
    """The labelled array of a stored sweep; `attrs["command"]` made it. Raises ValueError for an unknown name."""
    path = _path(name, "nc")
    import xarray

    return xarray.load_dataset(path, engine="h5netcdf")


def _path(name: str, form: str) -> Path:
    known = [other for other, recipe in STORED.items() if form in recipe.forms]
    if name not in known:
        raise ValueError(f"name must be one of the stored sweeps {', '.join(known)}; got {name!r}")
    return sealed(TABLES / f"{name}.{form}")


def remake(name: str, root: Path, tables: Path = TABLES, *, progress: bool = False) -> None:
    """Run a stored sweep again and keep its results, with the command, in `tables`. `root` is the repository."""
    from bookkit.sweeps import sweep

    recipe = STORED[name]
    with tempfile.TemporaryDirectory() as folder:
        grid = root / "notebooks" / "params" / recipe.grid
        found = sweep(
            recipe.page,
            grid,
            Path(folder) / name,
            batched=recipe.batched,
            notebooks="none",
            progress=progress,
            root=root,
        )
        if found.status.done != found.status.total:
            raise RuntimeError(
                f"{name}: {found.status.total - found.status.done} points have no result; nothing is stored"
            )
        _store(found, name, recipe, tables)


def _store(found: Any, name: str, recipe: Recipe, tables: Path) -> None:
    table, array = found.table, found.array
    table.attrs = {"command": recipe.command(name)}
    array.attrs["command"] = recipe.command(name)
    small = {"zlib": True, "complevel": 9, "shuffle": True}
    packed = {  # texts as arrays of characters: as texts of any length a word repeated in every cell would be most of the file
        key: small if values.dtype.kind in "biuf" else {"dtype": "S1", **small}
        for key, values in array.data_vars.items()
    }
    if "parquet" in recipe.forms:
        with written_aside(tables / f"{name}.parquet") as path:
            table.to_parquet(path, index=False, compression="zstd")
    if "nc" in recipe.forms:
        with written_aside(tables / f"{name}.nc") as path:
            array.to_netcdf(path, engine="h5netcdf", encoding=packed)
    seal(*(tables / f"{name}.{form}" for form in recipe.forms))


def main() -> None:
    """The command line."""
    from bookkit.pages.catalogue import find_root

    parser = argparse.ArgumentParser(description="Make the stored sweeps again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(STORED)}; all when left out")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in STORED]:
        parser.error(f"NAME must be one of {', '.join(STORED)}; got {unknown[0]!r}")
    for name in names or STORED:
        remake(name, find_root(Path.cwd()), progress=True)


if __name__ == "__main__":
    raise SystemExit(answered("stored_sweeps", main))
