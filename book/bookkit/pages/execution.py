"""Running pages: many in parallel, results kept by content. How one page runs: `one_page`.

A result is kept under everything that can change it: the page's source, the source of the book's packages (`code`), the
pinned requirements, the Python that runs them and the environment given to it. So a changed package can never show an old number.
"""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool
from tqdm import tqdm

from bookkit.code import Code, code_of
from bookkit.pages.catalogue import find_root, write_atomically
from bookkit.pages.environment import chosen
from bookkit.pages.one_page import PageError, as_text, run_source
from bookkit.parser import harmless

CACHE_LIMIT = 2**30  # bytes; an edit of the code makes every entry stale: those that were not used for longest go first


class PagesFailed(Exception):
    """At least one page of a build failed. `str()` holds one line per page."""


@dataclass(frozen=True)
class PageResult:
    """An executed page: its notebook as JSON text, the seconds it took when it ran, and whether it ran just now."""

    notebook: str
    seconds: float
    cached: bool


def pins_hash(root: Path) -> str:
    """SHA-256 over the pins of `root`, also those of constraints.txt, and the version and machine type of the running Python."""
    pins = [path for name in ("requirements.txt", "constraints.txt") if (path := root / name).is_file()]
    if not pins or pins[0].name != "requirements.txt":
        raise FileNotFoundError(f"root must hold requirements.txt, whose pins key every result; got {root}")
    machine = f"{sys.version}\0{sys.platform}\0{platform.machine()}"
    return _sha256(b"".join(path.read_bytes() for path in pins) + machine.encode())


def execute_pages(
    pages: Sequence[Path],
    jobs: int = 1,
    cache_dir: Path | None = None,
    root: Path | None = None,
    code: Code | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[Path, PageResult]:
    """Run the `.md` sources `pages`, `jobs` at a time in processes of their own, and return a result for each.

    Results come from `cache_dir` where page, code, pins and Python are what they were (None: no cache).
    A progress bar and one line per page go to stderr. `root` (default: the book around this folder) holds
    requirements.txt and shortens the pages' names in messages; `code`: what the pages import
    (default: as the book says). `environment`: further variables of the kernels, as of another processor.

    Raises `PagesFailed` after all pages have been tried, with one line for each that failed; the results of the
    others are in the cache by then.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be a whole number >= 1; got {jobs}")
    if missing := [str(path) for path in pages if not path.is_file()]:
        raise FileNotFoundError(f"pages must be files that exist; got {', '.join(missing)}")
    root = root or find_root()
    code = code or code_of(root)
    # {}: a page's parameters are those in its source; without this entry all that readers have kept would run again.
    common = [{}, code.hash(), pins_hash(root), {**chosen(), **(environment or {})}]
    results: dict[Path, PageResult] = {}
    failures: dict[Path, str] = {}
    todo = []
    with tqdm(total=len(pages), unit="page", file=sys.stderr) as bar:

        def report(path: Path, word: str) -> None:
            bar.write(harmless(f"{_name(path, root)}  {word}"), file=sys.stderr)
            bar.update()

        for path in pages:
            source = path.read_text(encoding="utf-8")
            entry = None
            if cache_dir is not None:
                entry = cache_dir / f"{_sha256(json.dumps([source, *common], sort_keys=True).encode())}.json"
            if (kept := _recall(entry)) is not None:
                results[path] = kept
                report(path, f"cached (ran {kept.seconds:.1f} s)")
            else:
                call = (source, _name(path, root), code, environment)
                todo.append(joblib.delayed(_run_and_keep)(path, entry, call))
        # Processes, never threads: papermill changes the working directory of its whole process.
        parallel = joblib.Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        try:
            for path, outcome in parallel(todo):
                if isinstance(outcome, PageResult):
                    results[path] = outcome
                    report(path, f"{outcome.seconds:.1f} s")
                else:
                    failures[path] = outcome
                    report(path, "FAILED")
        except BrokenProcessPool:  # which of the unfinished pages was too large, nobody knows
            why = "not run to its end, as a worker process was killed (out of memory?): run again with --jobs 1"
            failures |= {path: f"{_name(path, root)}: {why}" for path in pages if path not in {**results, **failures}}
    if failures:
        raise PagesFailed("\n".join(failures[path] for path in pages if path in failures))
    if cache_dir is not None:
        _shorten(cache_dir)
    return {path: results[path] for path in pages}


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _run_and_keep(path: Path, entry: Path | None, call: tuple) -> tuple[Path, PageResult | str]:
    """In a worker process: run the page and keep the result. A failure comes back as text."""
    start = time.perf_counter()
    try:
        text = as_text(run_source(*call))
    except PageError as error:
        return path, str(error)
    seconds = time.perf_counter() - start
    if entry is not None:
        body = json.dumps([text, seconds])
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, f"{_sha256(body.encode())}\n{body}")
    return path, PageResult(text, seconds, cached=False)


def _recall(entry: Path | None) -> PageResult | None:
    """What is kept under this name, or None. Half-written and garbled entries are never trusted: the page runs again."""
    try:
        checksum, _, body = entry.read_text(encoding="ascii").partition("\n") if entry else ("", "", "")
        if checksum != _sha256(body.encode()):
            return None
        entry.touch()
    except (OSError, ValueError):
        return None
    return PageResult(*json.loads(body), cached=True)


def _shorten(folder: Path) -> None:
    """Delete what was not used for longest, until `CACHE_LIMIT` bytes are left."""
    left = CACHE_LIMIT
    files = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    for path, status in sorted(files, key=lambda file: -file[1].st_mtime):
        left -= status.st_size
        if left < 0:
            path.unlink(missing_ok=True)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
