"""Generated source becomes a module, and numba keeps its machine code between processes.

What lies on the disk is read only where its checksum is right. A damaged file is made again: nobody needs to know of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import pickle
import platform
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from attnlib.kernels import _reads
from attnlib.kernels.dispatch import log, without_numba

# Of numba's configuration, what makes other machine code and is not in its own key, which has the processor and its features.
SWITCHES = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "USING_SVML")

QUIET = "ATTNLIB_QUIET"  # set where what is said would stand in a page: that something is compiled is then said at level INFO

_temporary: list[tempfile.TemporaryDirectory] = []


def _wanted() -> Path:
    """The folder asked for by ATTNLIB_CACHE, or the user's cache folder."""
    if named := os.environ.get("ATTNLIB_CACHE"):
        return Path(named).expanduser() / "kernels"
    users = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")  # Linux, Windows
    return (Path(users) if users else Path.home() / ".cache") / "attnlib" / "kernels"


def _is_private(folder: Path) -> bool:
    """Nobody else may write here: what lies in the folder is run."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def cache_folder() -> Path:
    """A writable folder for generated sources and machine code: the wanted one, or a temporary one if that cannot be used."""
    try:
        folder = _wanted()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder):
            with tempfile.TemporaryFile(dir=folder):
                return folder
    except (OSError, RuntimeError):  # no home, read-only, full
        pass
    if not _temporary:
        _temporary.append(tempfile.TemporaryDirectory(prefix="attnlib-kernels-"))
    return Path(_temporary[0].name)


def _name(name: str, text: str) -> str:
    """Of the module made from a source: it tells all that shapes the machine code, down to the modules that the source reads.

    numba's own cache key sees only the file's time and the processor.
    """
    import llvmlite
    import numba

    switches = [str(getattr(numba.config, name, None)) for name in SWITCHES]
    makers = " ".join([platform.python_version(), numba.__version__, llvmlite.__version__, *switches])
    return f"attnlib_{name}_{hashlib.sha256(f'{makers} {_reads.digest(text)}'.encode()).hexdigest()[:16]}"


def _write(path: Path, text: bytes) -> None:
    """Write once: the file's time is part of numba's cache key, so a second process must not write it again."""
    if path.exists() and path.read_bytes() == text:
        return
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.replace(partial, path)
    except BaseException as error:
        Path(partial).unlink(missing_ok=True)
        # Windows lets nobody replace a file that another process reads; what it reads is what would be written.
        if not (isinstance(error, PermissionError) and path.exists() and path.read_bytes() == text):
            raise


@functools.cache
def _sealed_cache() -> type[Any]:
    """numba's cache of a function, whose files end with a checksum. One that is damaged counts as not there, and is made again.

    That something is compiled is said before it begins.
    """
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    def checked(content: bytes) -> bytes:
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise OSError("a damaged file")  # which numba takes for one that was removed meanwhile
        return content

    class Files(IndexDataCacheFile):
        def _dump(self, obj: object) -> bytes:
            content: bytes = super()._dump(obj)
            return content + hashlib.sha256(content).digest()  # what follows a pickle is not read

        def _load_index(self) -> dict[Any, str]:
            try:
                with open(self._index_path, "rb") as file:
                    pickle.load(file)  # numba's version
                    checked(file.read())
                index: dict[Any, str] = super()._load_index()
            except Exception:  # a damaged pickle raises anything
                return {}
            return index

        def _load_data(self, name: str) -> object:
            return pickle.loads(checked(Path(self._data_path(name)).read_bytes()))

    class Cache(FunctionCache):
        def __init__(self, function: object, name: str) -> None:
            super().__init__(function)
            self.what = name
            stamp = self._impl.locator.get_source_stamp()
            self._cache_file = Files(self._cache_path, self._impl.filename_base, stamp)

        def load_overload(self, *wanted: object) -> object:
            if (found := super().load_overload(*wanted)) is None:
                level = logging.INFO if os.environ.get(QUIET) else logging.WARNING
                log.log(
                    level, "compiling the loop %s for this processor: some seconds, kept for the next time", self.what
                )
            return found

        def save_overload(self, *compiled: object) -> None:
            with contextlib.suppress(OSError):  # the disk is full: it runs all the same
                super().save_overload(*compiled)

    return Cache


@functools.cache
def module(name: str, text: str) -> ModuleType:
    """The generated source `text`, imported from a file whose name tells its content, what it imports and its makers' versions.

    Raises ImportError with the command to type if numba is not installed, or what to unset if it is switched off.
    """
    if reason := without_numba():
        raise ImportError(f"compiled loops need numba: {reason}")
    full = _name(name, text)
    path = cache_folder() / f"{full}.py"
    _write(path, text.encode())
    spec = importlib.util.spec_from_file_location(full, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[full] = made  # before the code runs: numba looks the module up when it reloads its cache
    code = compile(text, path, "exec", dont_inherit=True)
    exec(code, vars(made))  # as importlib does, which would trust a damaged .pyc
    cached = _sealed_cache()
    for function in vars(made).values():
        if isinstance(getattr(function, "_cache", None), cached.__base__):
            function._cache = cached(function.py_func, name)
    return made


@functools.cache
def loops(file: str, name: str) -> ModuleType:
    """The source called `name` in the folder of `file`, as `module` makes it."""
    folder = Path(file).parent
    return module(folder.name, (folder / name).read_text(encoding="utf-8"))
