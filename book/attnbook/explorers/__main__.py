"""Write the data of the explorers: `python -m attnbook.explorers [NAME ...]`, all of them without a name.

Each module of this package with a function `data() -> dict` gives one file, `book/assets/explorers/data/NAME.js`: a classic
script in the oldest syntax, because pages are also opened from disk and a browser that cannot run the explorer must not
stumble over its data. The same package gives the same bytes.
"""

import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import attnbook.explorers
from attnbook.stored import seal
from bookkit.pages.catalogue import write_atomically
from bookkit.parser import answered

FOLDER = Path(__file__).parents[2] / "assets" / "explorers" / "data"
LIMIT = 500_000  # bytes


def sources() -> dict[str, Callable[[], dict]]:
    """Name -> `data` of all modules of this package that have one."""
    names = sorted(module.name for module in pkgutil.iter_modules(attnbook.explorers.__path__) if module.name[0] != "_")
    modules = {name: importlib.import_module(f"attnbook.explorers.{name}") for name in names}
    return {name: module.data for name, module in modules.items() if hasattr(module, "data")}


def script(name: str, data: dict) -> str:
    """The data as a script. Raises ValueError where they are too large or hold what JSON lacks (NaN, infinity)."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"), sort_keys=True, default=_plain)
    except ValueError as error:
        raise ValueError(f"data of {name}: {error}; write missing values as None") from None
    made = f'(window.attentionCheckedData = window.attentionCheckedData || {{}})["{name}"] = {text};\n'
    if len(made.encode()) > LIMIT:
        raise ValueError(
            f"data of {name} have {len(made.encode())} bytes; at most {LIMIT} are allowed: fewer points or digits"
        )
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise ValueError(f"{type(value).__name__} cannot be written as JSON")


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Write the files asked for; returns the exit status."""
    known = sources()
    if unknown := [name for name in arguments if name not in known]:
        print(f"error: no data for {', '.join(unknown)}; there are {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments or known:
        started = time.perf_counter()
        try:
            text = script(name, known[name]())
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        path = folder / f"{name}.js"
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        if not same:
            write_atomically(path, text)
            seal(path)
        print(
            f"{path.name}  {len(text.encode())} bytes, made in {time.perf_counter() - started:.1f} s{', unchanged' if same else ''}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(answered("explorers", lambda: main(sys.argv[1:])))
