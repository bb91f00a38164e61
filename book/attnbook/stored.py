"""The one door to the tables that come with the package: what is read is what its program wrote.

`stored.sha256`, beside this module, has a line for each file as sha256sum writes it: `cd book/attnbook && sha256sum -c stored.sha256`.
Only the programs of `MAKERS` write there, by `seal`; nobody edits a table or the list by hand. Whoever reads a table asks `sealed`.
A table that an option writes elsewhere is its owner's: it has no seal.
"""

import hashlib
import os
import threading
from pathlib import Path

from bookkit.files import written_aside

HOME = Path(__file__).resolve().parent
ASSETS = HOME.parent / "assets"  # data that scripts read, in the repository
LIST = HOME / "stored.sha256"
# By the beginning of a path, the longer first, the program that makes it; {} is the file's name without its ending.
MAKERS = {
    "../assets/explorers/": "python -m attnbook.explorers {}",
    "../assets/story/": "python -m attnbook.story",
    "certified/tables/hard_heads.json": "python -m attnbook.certified.hard_heads",
    "certified/tables/boundary_cells.json": "python -m attnbook.certified.boundary_range",
    "certified/": "attnlib certify --full",
    "in_context/deeper_and_wider/": "python -m attnbook.in_context.deeper_and_wider.training",
    "in_context/tables/trap.npz": "python -m attnbook.in_context.trap_study",
    "in_context/": "attnlib train {}",
    "single_head/phase_diagram/": "python -m attnbook.single_head.phase_diagram.{}",
    "token_selection/heat_map/": "python -m attnbook.token_selection.heat_map.study",
    "token_selection/real_data/effective.json": "python -m attnbook.token_selection.real_data.effective SET ...",
    "token_selection/real_data/tables/attention_maps.npz": "python -m attnbook.token_selection.real_data.attention_maps",
    "token_selection/real_data/tables/digits_study.npz": "python -m attnbook.token_selection.real_data.digits",
    "token_selection/real_data/tables/end_to_end/cifar10": "python -m attnbook.token_selection.real_data.end_to_end cifar10",
    "token_selection/real_data/tables/end_to_end/mnist": "python -m attnbook.token_selection.real_data.end_to_end mnist",
    "token_selection/real_data/": "attnlib real {}",
}
_read: dict[str, str] = {}
_one_at_a_time = threading.Lock()


def tables_read() -> dict[str, str]:
    """The tables that this process has read, by their path in the package, and the SHA-256 of each."""
    return dict(sorted(_read.items()))


def sealed(path: str | Path) -> Path:
    """The path of a table, to be read: its content is that of its line in `LIST`. Compared once in a process.

    A file that lies elsewhere, or is not there, passes. Raises ValueError for a table that is not as its program wrote it.
    """
    path = Path(path)
    if not _ours(path) or not path.is_file():
        return path
    name = _name(path)
    if name not in _read:
        found = _hash(path)
        if seals().get(name) != found:
            raise ValueError(
                f"the stored table {name} is not as its program wrote it ({LIST.name} has another SHA-256, or none): it was edited or "
                f"cut short. Take it from the repository again, or remove it and run {maker(name)}"
            )
        _read[name] = found
        if note := os.environ.get("BOOKKIT_TABLES"):  # in the kernel of a page, whose notebook keeps it
            with open(note, "a", encoding="utf-8", newline="\n") as file:
                file.write(f"{found}  {name}\n")
    return path


def seal(*paths: str | Path) -> None:
    """Write the lines of files that were just made. To be called by the program that made them, and by nobody else."""
    made = {_name(Path(path)): _hash(Path(path)) for path in paths if _ours(Path(path))}
    with _one_at_a_time:
        if made:
            there = sorted((name, value) for name, value in (seals() | made).items() if (HOME / name).is_file())
            with written_aside(LIST) as temporary:
                text = "".join(f"{value}  {name}\n" for name, value in there)
                temporary.write_text(text, encoding="utf-8", newline="\n")
            _read.update((name, value) for name, value in made.items() if name in _read)


def seals() -> dict[str, str]:
    """SHA-256 by path in the package. Raises ValueError for a list that holds anything else."""
    lines = [line.split("  ") for line in LIST.read_text(encoding="utf-8").splitlines()]
    if bad := [line for line in lines if len(line) != 2 or len(line[0]) != 64]:
        raise ValueError(f"{LIST.name} must hold lines of sha256sum; got {'  '.join(bad[0])!r}: take it from git again")
    return {name: value for value, name in lines}


def maker(name: str) -> str:
    """The command that makes a table. Raises KeyError for one that no program makes."""
    for begin, command in MAKERS.items():
        if name.startswith(begin):
            return command.format(Path(name).stem)
    raise KeyError(name)


def _ours(path: Path) -> bool:
    return any(path.resolve().is_relative_to(home) for home in (HOME, ASSETS))


def _name(path: Path) -> str:
    return Path(os.path.relpath(path.resolve(), HOME)).as_posix()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
