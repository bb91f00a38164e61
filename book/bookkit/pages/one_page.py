"""Running one page through papermill, with a kernel that keeps to itself: the same run gives the same bytes."""

import copy
import hashlib
import json
import logging
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from bookkit.code import NO_CODE, Code
from bookkit.pages.catalogue import UserError
from bookkit.pages.environment import page_environment

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Without the version, which differs between machines. The exporter is for `jupyter nbconvert --to script`.
LANGUAGE_INFO = {
    "file_extension": ".py",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
# Kept of what jupytext notes in a page's header, so that `jupytext --sync` finds the same in both files.
JUPYTEXT = ("default_lexer", "formats", "notebook_metadata_filter")

OUTPUT_LIMIT = 600  # seconds for a cell's last output to arrive: nbclient's 4 are too few on a busy machine
_HERE = "127.0.0.1"
_STARTS = 3  # of a kernel whose ports are taken
_FILES = 128  # with 60 a kernel and whoever speaks with it get stuck; systems allow 256 and more
_LOG_KEPT = 10_000  # last characters of what a dead kernel said
_PAPERMILL_TAGS = ("injected-parameters", "papermill-error-cell-tag")  # of the cells that papermill adds
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# Where jupytext ends a line and no editor does: what follows would leave its cell.
_NO_LINE_ENDS = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")

# A program that fails and a page that asks for its end: the kernel tells neither.
_UNHEARD = re.compile(r"^[ \t]*(?:!.*|(?:exit|quit)\(.*\)[ \t]*$)", re.M)


class PageError(Exception):
    """A page did not run, or printed what must not be published. `str()` is one line: page, cell and error.

    `what` is that line without the page. Where they are known, `cell` is the number of the code cell (of the page's
    own, counted from 1), `traceback` the error in full as plain text, `notebook` the page as far as it ran, normalised.
    """

    def __init__(
        self,
        page: str,
        what: str,
        cell: int | None = None,
        traceback: str | None = None,
        notebook: NotebookNode | None = None,
    ) -> None:
        super().__init__(page, what, cell, traceback, notebook)  # all of them: an error is pickled by its `args`
        self.page, self.what, self.cell, self.traceback, self.notebook = page, what, cell, traceback, notebook

    def __str__(self) -> str:
        return f"{self.page}: {self.what}"


def read_source(source: str) -> NotebookNode:
    """The notebook of a MyST Markdown page, with metadata in its published form and cell ids that repeat.

    The id of a cell is a hash of its text and of how often that text came before, so inserting a cell leaves the ids
    of the others, and with them the diff of the stored notebook, alone.

    Raises `UserError` for what would be lost, a key of the header that no page has and a character that jupytext takes for a line's end;
    and for a line of the shell and a call of `exit` or `quit`, whose end no runner hears.
    """
    if found := _NO_LINE_ENDS.search(source):
        line = source.count("\n", 0, found.start()) + 1
        raise UserError(f"line {line} holds the invisible U+{ord(found[0]):04X}, at which cells break: delete it")
    notebook = jupytext.reads(source, fmt="md:myst")
    if unknown := sorted({*notebook.metadata} - {"kernelspec", "language_info", "jupytext"}):
        raise UserError(f"a page's header holds jupytext and kernelspec; got {unknown[0]}, which would be lost")
    for number, cell in enumerate(code_cells(notebook), start=1):
        if found := _UNHEARD.search(cell.source):
            raise UserError(
                f"code cell {number} holds `{found[0].strip()}`, which no runner of pages hears: a cell that is to fail raises an error, "
                "and a program is run by subprocess.run(..., check=True)"
            )
    own = notebook.metadata.get("jupytext", {})
    header = {"jupytext": kept} if (kept := {key: own[key] for key in JUPYTEXT if key in own}) else {}
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO, **header})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell, own in zip(notebook.cells, cell_ids(notebook), strict=True):
        cell["id"] = own
    return notebook


def cell_ids(notebook: NotebookNode) -> Iterator[str]:
    """The ids that `read_source` gives to cells with these texts."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        text = f"{cell.cell_type}\0{cell.source}"
        seen[text] = seen.get(text, 0) + 1
        yield hashlib.sha256(f"{text}\0{seen[text]}".encode()).hexdigest()[:12]


def run_source(
    source: str,
    page: str = "page",
    code: Code = NO_CODE,
    environment: Mapping[str, str] | None = None,
) -> NotebookNode:
    """Run a page as it stands, from its MyST source, and return it executed and normalised: the same run gives the same bytes.

    The kernel works in an empty private folder, on one thread, and imports the packages of `code` (default: what this
    Python imports); `environment`: further variables for it, as of another processor.

    Raises `PageError` naming page, cell number, error and source line when a cell fails, when the kernel dies, and
    when an output holds a path of this machine.
    """
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as folder:
        executed = run_in_folder(Path(folder), source, {}, page, code, environment)
        refuse_machine_paths(executed, page, also=[Path(folder), *code.homes])
    return executed


def run_in_folder(
    folder: Path,
    source: str,
    parameters: Mapping[str, object],
    page: str,
    code: Code,
    environment: Mapping[str, str] | None = None,
    time_limit: int | None = None,
    saving: bool = True,
    bar: bool = False,
    on_start: Callable[[int], None] = lambda pid: None,
) -> NotebookNode:
    """What build, rerun and sweep share: run a page with a kernel that keeps everything of its own in `folder`.

    `folder` is empty and the caller's to remove; `parameters` replace those of the page, unchecked; `time_limit`: seconds for
    each cell (default: no limit); `saving`: keep the notebook in `folder` after every cell, for the error to tell how far it
    came; `bar`: show a progress bar that bears the name `page`; `on_start` is given the id of the kernel's process.
    The working directory of this process changes meanwhile: one page at a time in a process.

    Raises `PageError`, with the executed part of the notebook, when a cell fails and when the kernel dies. What papermill or
    its kernel raised is its `__cause__`.
    """
    import papermill  # 0.4 s that `make html` need not spend
    from papermill.exceptions import PapermillExecutionError

    # Its remarks are not for readers: parameters are checked before, and every failure ends in an error of ours.
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    try:
        notebook = read_source(source)
    except UserError as error:
        raise PageError(page, str(error)) from error
    except Exception as error:
        what = f"not a MyST Markdown notebook: {type(error).__name__}: {_one_line(error)}"
        raise PageError(page, what) from error
    saved, log = folder / "saved.ipynb" if saving else None, folder / "kernel.log"
    for name in ("work", "ipython", "runtime"):
        (folder / name).mkdir()
    manager = private_kernel_manager(folder, log, page_environment(folder, code, environment), on_start)
    for attempt in range(_STARTS):
        try:
            executed = papermill.execute_notebook(
                copy.deepcopy(notebook),
                saved and str(saved),  # after every cell
                parameters=dict(parameters),
                kernel_name="python3",
                cwd=str(folder / "work"),
                progress_bar=bar and {"desc": page},
                shutdown_kernel="immediate",  # asked politely, a kernel now and then takes 4 s to go
                kernel_manager_class=manager,
                execution_timeout=time_limit,
                iopub_timeout=OUTPUT_LIMIT,
            )
            break
        except PapermillExecutionError as error:
            part, cell = _executed_part(saved)
            if cell is None:  # papermill's own, with the parameters, comes before those that can fail
                cell = error.exec_count - bool(parameters)
            trace = _ANSI.sub("", "\n".join(error.traceback))
            raise PageError(page, _describe(error, cell, trace), cell, trace, part) from error
        except Exception as error:
            # A kernel that dies (out of memory, most often) cannot say where; the notebook saved last can.
            part, cell = _executed_part(saved)
            at = f" in code cell {cell}" if cell else ""
            said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
            last = said.rpartition("\n")[2]
            # A kernel's ports are chosen first and opened later; in between another process may take one.
            if not cell and "Address already in use" in last and attempt + 1 < _STARTS:
                log.unlink()
                continue
            why = f"{type(error).__name__}: {_one_line(error)} {_one_line(last)}".strip()
            raise PageError(page, f"the kernel failed{at}: {why}", cell, said[-_LOG_KEPT:], part) from error
    normalise(executed)
    require_whole(executed, page)
    if (tables := folder / "tables").is_file():
        lines = sorted({*tables.read_text(encoding="utf-8").splitlines()}, key=lambda line: line[66:])
        executed.metadata["tables"] = {line[66:]: line[:64] for line in lines}
    return executed


def require_whole(executed: NotebookNode, page: str) -> None:
    """Raise `PageError` where a cell stopped the page: papermill takes `SystemExit` for a wish, and half a page must not pass for one."""
    for number, cell in enumerate(code_cells(executed), start=1):
        if any(output.output_type == "error" for output in cell.outputs):
            what = f"code cell {number} ended the page with SystemExit: pages run to their last cell"
            raise PageError(page, what, number, notebook=executed)


# --- what comes out ---------------------------------------------------------------------------------------------------


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The page's own code cells: without the one that papermill adds when it is given parameters."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell for cell in cells if "injected-parameters" not in cell.metadata.get("tags", [])]


def _executed_part(saved: Path | None) -> tuple[NotebookNode | None, int | None]:
    """The notebook that papermill saved last, normalised, and the number of the code cell that was begun last."""
    if saved is None:
        return None, None
    try:
        notebook = nbformat.read(saved, as_version=4)
    except Exception:  # not there yet, or cut short by a full disk: what is to be told is another error
        return None, None
    records = [cell.metadata.get("papermill", {}) for cell in code_cells(notebook)]
    begun = [number for number, record in enumerate(records, start=1) if record.get("start_time")]
    normalise(notebook)
    return notebook, begun[-1] if begun else None


def _describe(error, cell: int | None, trace: str) -> str:
    """`PapermillExecutionError` in one line: cell number, error, and the line of the cell that raised it."""
    lines = error.source.splitlines() or [""]
    found = re.search(r"Cell In\s*\[\d+\], line (\d+)", trace)
    number = min(int(found.group(1)), len(lines)) if found else 1
    at = f"line {number}: {lines[number - 1].strip()}"
    return f"code cell {cell} failed with {error.ename}: {_one_line(error.evalue)} [at {at}]"


def normalise(notebook: NotebookNode) -> None:
    """Strip, in place, what differs between two equal runs: timestamps, papermill's records, versions, cuts in what was printed."""
    kept = {"jupytext": notebook.metadata["jupytext"]} if "jupytext" in notebook.metadata else {}
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO, **kept})
    ids: dict[str, int] = {}
    for cell in notebook.cells:
        for record in ("papermill", "execution"):
            cell.metadata.pop(record, None)
        if "outputs" in cell:
            cell.outputs = whole_streams(cell.outputs)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]  # papermill adds an empty list to every cell
        for tag in _PAPERMILL_TAGS:
            if tag in cell.metadata.get("tags", []):  # papermill gives its own cells ids by chance
                cell["id"] = f"{tag}-{added}" if (added := ids.get(tag, 0)) else tag
                ids[tag] = added + 1
    nbformat.validate(notebook)


def whole_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Outputs with neighbouring pieces of one stream joined: where a kernel cuts what is printed depends on its pace."""
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def refuse_machine_paths(notebook: NotebookNode, page: str, also: Sequence[Path] = ()) -> None:
    """Raise `PageError` if a text output holds the home folder, a folder of `also`, or a path of this Python.

    A warning printed by a cell is refused with them: it quotes a temporary file whose name holds a process number.
    """
    folders = {Path(os.path.expanduser("~")), *also, *(p.resolve() for p in also)}
    # A system Python lives in /usr, a word that honest text may hold; an environment's own folder is telling.
    folders |= {prefix for prefix in (Path(sys.prefix),) if len(prefix.parts) > 2}
    paths = "|".join(re.escape(str(folder)) for folder in sorted(folders) if len(folder.parts) > 1)
    found_path = re.compile(rf"(?<![\w.-])(?:{paths})(?![\w.-])|/ipykernel_\d+")
    for number, cell in enumerate(code_cells(notebook), start=1):
        for text in _output_texts(cell):
            if match := found_path.search(text):
                what = (
                    f"code cell {number} prints a path of this machine, {match.group()!r}: "
                    "a published page must be the same everywhere; print a relative name, or silence the warning"
                )
                raise PageError(page, what, number)


def _output_texts(cell: NotebookNode) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield str(output.get("text", ""))
        yield str(output.get("evalue", ""))
        for kind, data in output.get("data", {}).items():
            if not kind.startswith("image/") or kind == "image/svg+xml":
                yield data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def as_text(notebook: NotebookNode) -> str:
    """JSON as stored in the repository: one space of indentation, one final newline, letters unescaped."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


# --- the kernel -------------------------------------------------------------------------------------------------------


def private_kernel_manager(
    folder: Path, log: Path, environment: Mapping[str, str], on_start: Callable[[int], None]
) -> type:
    """A manager of kernels of this Python, with these variables and no others, that write to `log` what goes past the page.

    They call their ordinary end an error now and then, and not into the page. Raises `UserError` where no kernel could be reached, and
    where too few files may be open: otherwise either is found after a minute.
    """
    allowed = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # -1: as many as one likes
    if 0 <= allowed < _FILES:
        raise UserError(f"a page needs {_FILES} open files, and {allowed} are allowed here: ulimit -n 1024")
    try:
        with socket.create_server((_HERE, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=10).close()
    except OSError as error:
        raise UserError(
            f"a page runs in a kernel that is reached over {_HERE}, and nothing reaches it here ({error.strerror or error}): "
            "bring the loopback device up (ip link set lo up), or allow it"
        ) from None
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class PrivateKernelManager(AsyncKernelManager):
        def __init__(self, **options: object) -> None:
            # Left to itself, the file with the kernel's ports and key lies among the temporary files of the machine.
            options["connection_file"] = str(folder / "connection.json")
            # No folder is searched: "python3" is this Python, whatever bears that name in the home folder.
            super().__init__(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]), **options)

        async def _async_start_kernel(self, **options: object) -> None:
            options["env"] = dict(environment)
            with log.open("ab") as file:
                await super()._async_start_kernel(stdout=file, stderr=file, **options)
            on_start(self.provisioner.pid)

        start_kernel = _async_start_kernel

    return PrivateKernelManager
