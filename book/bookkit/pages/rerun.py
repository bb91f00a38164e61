"""Rerun a page with other parameters, on papermill.

``python -m bookkit rerun PAGE -p name value -f params.yml -o out.ipynb`` (or ``-o out.html``, to be read in a browser)

Everything that can be wrong with the request is found before a kernel starts. The result is written in one step at the
end, so a page that fails, or is interrupted, leaves nothing under the asked name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from bookkit.pages.catalogue import Page, UserError, find_pages, one_line, resolve_page, write_atomically
from bookkit.pages.parameters import (
    NUMBER,
    check_parameters,
    number_from_text,
    page_parameters,
    require_room,
    value_from_text,
)
from bookkit.parser import program

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from bookkit.pages.one_page import PageError

T = TypeVar("T")
ROOM = 64 << 20  # bytes; the largest page is a tenth of it
LARGEST_YAML, LARGEST_NOTEBOOK = 256 << 10, 256 << 20  # bytes; YAML is read at about 100 kB a second

# nbconvert's own template asks four hosts for scripts: MathJax 2, RequireJS, jQuery and Mermaid. None is of use here.
_TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_jquery -%}{%- endblock -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}<style>{{ resources.formulas | safe }}</style>{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
"""


class RunError(RuntimeError):
    """The page ran and failed. The first line of the message names page, cell and error; the cell's source follows."""


def rerun(
    given: str, assignments: Sequence[tuple[str, str]], file: Path | None, output: Path, root: Path, force: bool = False
) -> Page:
    """Execute the page `given` with parameters from `file` (YAML), overridden by `assignments`, and write `output`.

    A file that is there is replaced with `force` only; where it is a link, what it leads to is.

    Raises `UserError` (before a kernel starts) for a bad page, parameter, parameter file or output path, and `RunError`
    when the page itself fails; then no file is left. When the disk filled up meanwhile, `RunError` says where the result is kept.
    """
    page = resolve_page(given, root)
    values = read_parameter_file(file) if file is not None else {}
    values |= typed_assignments(page, assignments)
    values = check_parameters(page, values)
    check_output(output, root, force)
    require_room(page, [values], root)
    try:
        notebook = run_page(page, values)
    except KeyboardInterrupt as end:
        end.args = ("interrupted; nothing was written",)
        raise
    if output.suffix == ".html":
        text = as_html(notebook, page.name, root)
    else:
        from bookkit.pages.one_page import as_text

        text = as_text(notebook)
    try:
        write_atomically(output.resolve(), text.rstrip("\n") + "\n")
    except OSError as error:
        kept = Path(tempfile.mkdtemp(prefix="rerun-")) / output.name
        kept.write_text(text, encoding="utf-8", newline="\n")
        raise RunError(f"output {output} cannot be written ({error.strerror}): the result is kept in {kept}") from error
    return page


def typed_assignments(page: Page, assignments: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Command-line values by the types the page declares. Unknown names are left for `check_parameters` to refuse."""
    known = {parameter.name: parameter for parameter in page_parameters(page)}
    values: dict[str, Any] = {}
    for name, text in assignments:
        if name in values:
            raise UserError(f"parameter {name} is given twice with -p: keep one")
        values[name] = value_from_text(known[name], text) if name in known else text
    return values


def read_parameter_file(path: Path, what: str = "parameter file", example: str = "n: 200") -> dict[str, Any]:
    """The mapping in a YAML file. Raises `UserError` when it cannot be read, is not YAML, or is not a mapping.

    Of YAML's scalars it takes those that mean the same in every version and library: decimal numbers as `number_from_text` reads
    them, true, false, null and texts. So 0100, 1:30, yes, 1_000 and a date are texts, and where a number is due they are refused.
    A key given twice in one mapping is refused too, as YAML forbids it; so are aliases, of which a short file may hold billions.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar[dict] = {}
        yaml_constructors: ClassVar[dict] = {
            f"tag:yaml.org,2002:{kind}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]
            for kind in ("str", "seq", "map")
        } | {None: yaml.SafeLoader.construct_undefined}

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()
                raise UserError(
                    f"{what} {path}, line {event.start_mark.line + 1}: write out what *{event.anchor} stands for"
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if (key.tag, key.value) in seen:
                    line = key.start_mark.line + 1
                    raise UserError(f"{what} {path} gives {key.value!r} twice, again in line {line}: keep one")
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    words = {"true": True, "false": False, "null": None, "~": None, "": None}

    def scalar(loader: Loader, node: yaml.ScalarNode) -> Any:
        text = loader.construct_scalar(node)
        return words[text.lower()] if text.lower() in words else number_from_text(text)

    Loader.add_implicit_resolver("!known", re.compile("(true|false|null|~|)\\Z", re.I), [*"tTfFnN~", ""])
    Loader.add_implicit_resolver("!known", NUMBER, list("-+.0123456789iInN"))
    Loader.add_constructor("!known", scalar)
    text = read_text(path, what, LARGEST_YAML)
    try:
        content = yaml.load(text, Loader)
    except UserError:
        raise
    except RecursionError:
        raise UserError(f"{what} {path} nests its lists and mappings too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise UserError(f"{what} {path} is not YAML: {one_line(error)}") from error
    if not isinstance(content, dict):
        found = "nothing" if content is None else f"a {type(content).__name__}"
        raise UserError(f"{what} {path} must hold a mapping, lines like `{example}`; it holds {found}")
    return content


def read_text(path: Path, what: str, most: int) -> str:
    """The text of a file that somebody names. Raises `UserError` where it cannot be read, is no text, or has over `most` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UserError(f"{what} {path} is larger than {most >> 10} kB: is it the right one?")
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{what} {path} is not UTF-8 text: {one_line(error)}") from error


def check_output(output: Path, root: Path, force: bool = False) -> None:
    """Refuse, with a `UserError`, an output that is neither notebook nor HTML, cannot be written, or would overwrite a page or work."""
    if output.suffix not in (".ipynb", ".html"):
        raise UserError(f"output must end in .ipynb, or in .html to be read in a browser; got {output}")
    folder = Path(os.path.realpath(output)).parent if output.is_symlink() else output.parent
    if not folder.is_dir():
        raise UserError(f"output folder {folder} does not exist: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"output folder {folder} is not writable")
    if output.exists() and not output.is_file():
        what = "folder" if output.is_dir() else "device or a pipe"
        raise UserError(f"output {output} is a {what}, not a file: choose another name")
    if Path(os.path.realpath(output)).is_symlink():
        raise UserError(f"output {output} is a link that leads back to itself: choose another name")
    if output.resolve() in {page.stored.resolve() for page in find_pages(root)}:
        raise UserError(f"output {output} is a stored page of the book: choose another name")
    if output.exists() and not force:
        raise UserError(f"output {output} is there already: give another name, or --force to replace it")
    if (free := shutil.disk_usage(output.resolve().parent).free) < ROOM:
        raise UserError(
            f"output folder {folder} must have {ROOM >> 20} MB of free space; it has {free >> 20}: make room first"
        )


def run_page(page: Page, values: dict[str, Any]) -> NotebookNode:
    """Execute a page with checked parameters and return it, its parameters recorded under ``metadata.papermill``.

    Raises `UserError` for a page that no runner takes, `RunError` when a cell fails or the kernel dies; `KeyboardInterrupt`
    passes through.
    """
    from bookkit.code import NO_CODE
    from bookkit.pages.one_page import PageError, read_source, run_in_folder

    source = page.source.read_text(encoding="utf-8")
    read_source(source)  # what no runner takes of a page is refused before a kernel starts
    kernels: list[int] = []

    def stop() -> None:
        print(file=sys.stderr)  # the bar stands in this line
        for pid in kernels:
            with suppress(OSError):  # a kernel has a session of its own, but on Windows; or it has gone
                getattr(os, "killpg", os.kill)(pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    with tempfile.TemporaryDirectory(prefix="rerun-", ignore_cleanup_errors=True) as folder:

        def execute() -> NotebookNode:
            # Not saved while the page runs: after an interrupt this thread may still live when the folder is removed.
            return run_in_folder(
                Path(folder), source, values, page.name, NO_CODE, saving=False, bar=True, on_start=kernels.append
            )

        try:
            executed = interruptible(execute, stop)
        except PageError as error:
            raise RunError(f"page {told(error)}") from error
    executed.metadata["papermill"] = {"parameters": values, "input_path": f"{page.name}.md", "output_path": None}
    return executed


def told(error: PageError) -> str:
    """What a reader is told of a page that failed: its cell in full where one raised an error."""
    from papermill.exceptions import PapermillExecutionError

    match error.__cause__:
        case PapermillExecutionError() as raised:
            first = (raised.source.strip().splitlines() or [""])[0]
            what = one_line(f"{raised.ename}: {raised.evalue}" if raised.evalue else raised.ename, width=400)
            indented = "\n".join(f"    {line}" for line in raised.source.splitlines())
            return f"{error.page}, code cell {error.cell} (`{first}`): {what}\n{indented}"
        case Exception():  # it died, or never answered
            return f"{error.page}: the kernel died while the page ran ({error.what})"
    return str(error)


def interruptible(work: Callable[[], T], on_interrupt: Callable[[], None]) -> T:
    """`work()`, ended by Ctrl-C at once: it runs in a thread of its own, and this one only waits.

    nbclient takes the interrupt for itself where it can, in the main thread: it then stops its kernel, which may answer first, may
    be found dead first, or may keep it waiting; and an event loop can lose an interrupt. In another thread it cannot.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        return work()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # to be raised by whoever waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        on_interrupt()
        raise


def as_html(notebook: NotebookNode, title: str, root: Path) -> str:
    """An executed notebook as one HTML file that any browser opens: code and outputs, pictures and formulas.

    Nothing is fetched: formulas are drawn, and their font, where the clone `root` has it, is inside.
    """
    from nbconvert import HTMLExporter

    from bookkit.formulas.drawing import style, with_formulas

    folder = root / "book" / "assets" / "formulas"
    formulas = style(folder) if folder.is_dir() else ""
    exporter = HTMLExporter(raw_template=_TEMPLATE, exclude_input_prompt=True, exclude_output_prompt=True)
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}, "formulas": formulas})
    return with_formulas(body)


def read_notebook(path: Path) -> NotebookNode:
    """A notebook from disk. Raises `UserError` when it is missing, truncated, or not a notebook."""
    import nbformat

    text = read_text(path, "notebook", LARGEST_NOTEBOOK)
    try:
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat raises its own, json's, and plain AttributeError for JSON that is no notebook
        raise UserError(f"{path} is not a whole notebook: {one_line(error)}") from error
    return notebook


def named_results(path: Path) -> dict[str, Any]:
    """The named results stored in an executed notebook. Raises `UserError` when there are none."""
    from bookkit.results import read_results

    notebook = read_notebook(path)
    try:
        results = read_results(notebook)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} holds no readable named results: {one_line(error)}") from error
    if not results:
        raise UserError(f"{path} holds no named results: execute the page first ({program()} rerun)")
    return results
