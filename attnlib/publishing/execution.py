"""Running pages: one page through papermill, many pages in parallel, results kept by content.

A result is kept under everything that can change it: the page's source, its parameters, the source of `attnlib`, the
pinned requirements and the Python that runs them. So a changed package can never show an old number.
"""

import copy
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import joblib
import jupytext
import nbformat
from nbformat import NotebookNode
from tqdm import tqdm

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE_INFO = {"name": "python", "pygments_lexer": "ipython3"}  # without the version: it differs between machines

# One thread per kernel, alone or beside others: sums are then added in one order and both give the same digits.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

_STARTS = 3  # of a kernel whose ports are taken
CACHE_LIMIT = "1G"  # a package edit makes every entry stale; the oldest go first


class PageError(Exception):
    """A page did not run, or printed what must not be published. The message names page, cell and error."""


class PagesFailed(Exception):
    """At least one page of a build failed. `str()` holds one line per page."""


@dataclass(frozen=True)
class PageResult:
    """An executed page: its notebook as JSON text, the seconds it took when it ran, and whether it ran just now."""

    notebook: str
    seconds: float
    cached: bool


# --- what a result depends on ---------------------------------------------------------------------------------------


def package_folder() -> Path:
    """The folder of the `attnlib` that this Python imports."""
    return Path(find_spec("attnlib").origin).parent


def tree_hash(folder: Path) -> str:
    """SHA-256 over names and bytes of all files under `folder`, without byte code and hidden files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in inside.parts):
            # Lengths keep "ab" + "c" apart from "a" + "bc".
            content = path.read_bytes()
            digest.update(f"{inside.as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def pins_hash(root: Path) -> str:
    """SHA-256 over `requirements.txt` of `root` and the version and machine type of the running Python."""
    pins = root / "requirements.txt"
    if not pins.is_file():
        raise FileNotFoundError(f"root must hold requirements.txt, whose pins key every result; got {root}")
    machine = f"{sys.version}\0{sys.platform}\0{os.uname().machine}"
    return hashlib.sha256(pins.read_bytes() + machine.encode()).hexdigest()


# --- one page -------------------------------------------------------------------------------------------------------


def read_source(source: str) -> NotebookNode:
    """The notebook of a MyST Markdown page, with metadata in its published form and cell ids that repeat.

    The id of a cell is a hash of its text and of how often that text came before, so inserting a cell leaves the ids
    of the others, and with them the diff of the stored notebook, alone.
    """
    notebook = jupytext.reads(source, fmt="md:myst")
    formats = notebook.metadata.get("jupytext", {}).get("formats")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})
    if formats:
        notebook.metadata["jupytext"] = {"formats": formats}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        text = f"{cell.cell_type}\0{cell.source}"
        seen[text] = seen.get(text, 0) + 1
        cell["id"] = hashlib.sha256(f"{text}\0{seen[text]}".encode()).hexdigest()[:12]
    return notebook


def run_source(
    source: str, parameters: Mapping[str, object] | None = None, page: str = "page", package: Path | None = None
) -> NotebookNode:
    """Run a page from its MyST source and return the executed notebook, normalised: the same run gives the same bytes.

    `parameters` replace those of the page's `parameters` cell (unchecked here: see `rerun`). The kernel works in an
    empty private folder, on one thread, and imports `attnlib` from `package` (default: the one imported here).

    Raises `PageError` naming page, cell number, error and source line when a cell fails, when the kernel dies, and
    when an output holds a path of this machine.
    """
    import papermill  # 0.4 s that `make html` need not spend
    from papermill.exceptions import PapermillExecutionError

    # Its remarks on parameters it cannot parse are not for readers: `rerun` checks them, more strictly.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    package = package or package_folder()
    try:
        notebook = read_source(source)
    except Exception as error:
        raise PageError(f"{page}: not a MyST Markdown notebook: {type(error).__name__}: {_one_line(error)}") from error
    with tempfile.TemporaryDirectory(prefix="attnlib-page-") as folder, _kernel_environment(package, Path(folder)):
        for attempt in range(_STARTS):
            try:
                executed = papermill.execute_notebook(
                    copy.deepcopy(notebook),
                    str(saved := Path(folder) / "saved.ipynb"),  # after every cell
                    parameters=dict(parameters or {}),
                    kernel_name="python3",
                    cwd=str(_fresh(Path(folder) / "work")),
                    progress_bar=False,
                    shutdown_kernel="immediate",  # asked politely, a kernel now and then takes 4 s to go
                    kernel_manager_class=_kernel_logging_to(log := Path(folder) / "kernel.log"),
                )
                break
            except PapermillExecutionError as error:
                raise PageError(f"{page}: {_describe(error)}") from None
            except Exception as error:
                # A kernel that dies (out of memory, most often) cannot say where; the notebook saved last can.
                cells = json.loads(saved.read_text(encoding="utf-8"))["cells"] if saved.exists() else []
                code = [cell["metadata"].get("papermill", {}) for cell in cells if cell["cell_type"] == "code"]
                begun = [number for number, record in enumerate(code, start=1) if record.get("start_time")]
                at = f" in code cell {begun[-1]}" if begun else ""
                last = log.read_text(errors="replace").strip().rpartition("\n")[2] if log.exists() else ""
                # A kernel's ports are chosen first and opened later; in between another process may take one.
                if not begun and "Address already in use" in last and attempt + 1 < _STARTS:
                    log.unlink()
                    continue
                why = f"{type(error).__name__}: {_one_line(error)} {_one_line(last)}".strip()
                raise PageError(f"{page}: the kernel failed{at}: {why}") from error
        # papermill takes `SystemExit` for a wish to stop early; half a page must not be published.
        if any(o.output_type == "error" for cell in executed.cells for o in cell.get("outputs", [])):
            raise PageError(f"{page}: a cell ended the page with SystemExit: pages run to their last cell")
        normalise(executed)
        refuse_machine_paths(executed, page, also=[Path(folder), package.parent])
    return executed


def normalise(notebook: NotebookNode) -> None:
    """Strip, in place, what differs between two equal runs: timestamps, papermill's records, versions."""
    kept = {key: notebook.metadata[key] for key in ("jupytext",) if key in notebook.metadata}
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO, **kept})
    for cell in notebook.cells:
        for record in ("papermill", "execution"):
            cell.metadata.pop(record, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]  # papermill adds an empty list to every cell
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
    nbformat.validate(notebook)


def refuse_machine_paths(notebook: NotebookNode, page: str, also: Sequence[Path] = ()) -> None:
    """Raise `PageError` if a text output holds the home folder, a folder of `also`, or a path of this Python.

    A warning printed by a cell is refused with them: it quotes a temporary file whose name holds a process number.
    """
    folders = {Path.home(), *also, *(p.resolve() for p in also)}
    # A system Python lives in /usr, a word that honest text may hold; an environment's own folder is telling.
    folders |= {prefix for prefix in (Path(sys.prefix),) if len(prefix.parts) > 2}
    paths = "|".join(re.escape(str(folder)) for folder in sorted(folders) if len(folder.parts) > 1)
    found_path = re.compile(rf"(?<![\w.-])(?:{paths})(?![\w.-])|/ipykernel_\d+")
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        for text in _output_texts(cell):
            if match := found_path.search(text):
                raise PageError(
                    f"{page}: code cell {number} prints a path of this machine, {match.group()!r}: "
                    "a published page must be the same everywhere; print a relative name, or silence the warning"
                )


def execute_page(
    source: str,
    parameters: Mapping[str, object] | None,
    package_hash: str,
    pins_hash: str,
    page: str = "page",
    package: Path | None = None,
) -> str:
    """The executed notebook of a page as JSON text. The two hashes only name what the result depends on.

    Raises `PageError`: see `run_source`.
    """
    return as_text(run_source(source, parameters, page, package))


def as_text(notebook: NotebookNode) -> str:
    """JSON as stored in the repository: one space of indentation, one final newline, letters unescaped."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


# --- many pages -----------------------------------------------------------------------------------------------------


def execute_pages(
    pages: Sequence[Path],
    parameters: Mapping[str, object] | None = None,
    jobs: int = 1,
    cache_dir: Path | None = None,
    root: Path | None = None,
    package: Path | None = None,
) -> dict[Path, PageResult]:
    """Run the `.md` sources `pages`, `jobs` at a time in processes of their own, and return a result for each.

    Results come from `cache_dir` where page, parameters, package, pins and Python are what they were (None: no cache).
    A progress bar and one line per page go to stderr. `root` (default: where `package` lies) holds requirements.txt
    and shortens the pages' names in messages.

    Raises `PagesFailed` after all pages have been tried, with one line for each that failed; the results of the
    others are in the cache by then.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be a whole number >= 1; got {jobs}")
    if missing := [str(path) for path in pages if not path.is_file()]:
        raise FileNotFoundError(f"pages must be files that exist; got {', '.join(missing)}")
    package = package or package_folder()
    root = root or package.parent
    key = {"package_hash": tree_hash(package), "pins_hash": pins_hash(root)}
    calls = {
        path: {
            "source": path.read_text(encoding="utf-8"),
            "parameters": dict(parameters or {}),
            "page": path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name,
            "package": package,
            **key,
        }
        for path in pages
    }
    memory = joblib.Memory(cache_dir, verbose=0)
    results: dict[Path, PageResult] = {}
    failures: dict[Path, str] = {}
    with tqdm(total=len(pages), unit="page", file=sys.stderr) as bar:

        def report(path: Path, word: str) -> None:
            bar.write(f"{calls[path]['page']}  {word}", file=sys.stderr)
            bar.update()

        for path, call in calls.items():
            if (kept := _recall(memory, call)) is not None:
                results[path] = kept
                report(path, f"cached (ran {kept.seconds:.1f} s)")
        todo = [path for path in pages if path not in results]
        # Processes, never threads: papermill changes the working directory of its whole process.
        parallel = joblib.Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        for path, outcome in parallel(joblib.delayed(_run_and_keep)(path, memory, calls[path]) for path in todo):
            if isinstance(outcome, PageResult):
                results[path] = outcome
                report(path, f"{outcome.seconds:.1f} s")
            else:
                failures[path] = outcome
                report(path, "FAILED")
    if failures:
        raise PagesFailed("\n".join(failures[path] for path in pages if path in failures))
    if cache_dir is not None:
        memory.reduce_size(bytes_limit=CACHE_LIMIT)
    return {path: results[path] for path in pages}


def _timed_page(
    source: str, parameters: dict, package_hash: str, pins_hash: str, page: str, package: Path
) -> tuple[str, float, str]:
    """What the cache keeps: notebook text, seconds, and a checksum of both (see `_recall`)."""
    start = time.perf_counter()
    text = execute_page(source, parameters, package_hash, pins_hash, page, package)
    seconds = time.perf_counter() - start
    return text, seconds, _checksum(text, seconds)


def _remember(memory: joblib.Memory) -> joblib.memory.MemorizedFunc:
    # Name and place of a page do not change its numbers; `package_hash` stands for the folder's content.
    return memory.cache(_timed_page, ignore=["page", "package"])


def _run_and_keep(path: Path, memory: joblib.Memory, call: dict) -> tuple[Path, PageResult | str]:
    """In a worker process: run the page whatever the cache holds, and keep the result. A failure comes back as text."""
    try:
        (text, seconds, _), _ = _remember(memory).call(**call)
    except PageError as error:
        return path, str(error)
    return path, PageResult(text, seconds, cached=False)


def _recall(memory: joblib.Memory, call: dict) -> PageResult | None:
    """The kept result of `call`, or None. Half-written and garbled entries are thrown away, never trusted."""
    if memory.location is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unreadable entry is no news: the page simply runs again
        try:
            cached = _remember(memory)
            if not cached.check_call_in_cache(**call):
                return None
            entry = cached.call_and_shelve(**call)
        except Exception:
            # joblib's own record is unreadable (its `func_code.py`): nothing in the folder can be relied on.
            shutil.rmtree(memory.location, ignore_errors=True)
            return None
        try:
            text, seconds, checksum = entry.get()
            # A changed byte inside the text unpickles without complaint, so the content is checked too.
            if checksum == _checksum(text, seconds):
                return PageResult(text, seconds, cached=True)
        except Exception:
            pass
        entry.clear()
        return None


def _checksum(text: str, seconds: float) -> str:
    return hashlib.sha256(json.dumps([text, seconds]).encode()).hexdigest()


# --- small things ---------------------------------------------------------------------------------------------------


@contextmanager
def _kernel_environment(package: Path, folder: Path) -> Iterator[None]:
    """Set, for the kernels started inside, threads, import path and private folders; restore on the way out."""
    path = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    changes = {
        **ONE_THREAD,
        "PYTHONPATH": path,  # the kernel imports the very tree that was hashed
        "IPYTHONDIR": str(_fresh(folder / "ipython")),  # a reader's IPython start-up files are not part of the book
        "JUPYTER_RUNTIME_DIR": str(_fresh(folder / "runtime")),
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel "python3" of this environment, not one in the home folder
        "PYTHONWARNINGS": "",  # a strict test run does not make the kernel strict
    }
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _kernel_logging_to(log: Path) -> type:
    """A kernel manager whose kernels write to `log` what goes past the page: they call their ordinary end an error."""
    from jupyter_client.manager import AsyncKernelManager

    class LoggingKernelManager(AsyncKernelManager):
        async def _async_start_kernel(self, **options: object) -> None:
            with log.open("ab") as file:
                await super()._async_start_kernel(stdout=file, stderr=file, **options)

        start_kernel = _async_start_kernel

    return LoggingKernelManager


def _fresh(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _output_texts(cell: NotebookNode) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield str(output.get("text", ""))
        yield str(output.get("evalue", ""))
        for kind, data in output.get("data", {}).items():
            if not kind.startswith("image/") or kind == "image/svg+xml":
                yield data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _describe(error) -> str:
    """`PapermillExecutionError` in one line: cell number, error, and the line of the cell that raised it."""
    lines = error.source.splitlines() or [""]
    trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    found = re.search(r"Cell In\s*\[\d+\], line (\d+)", trace)
    number = min(int(found.group(1)), len(lines)) if found else 1
    at = f"line {number}: {lines[number - 1].strip()}"
    return f"code cell {error.exec_count} failed with {error.ename}: {_one_line(error.evalue)} [at {at}]"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
