"""The one environment in which a page runs, whoever starts it: build, rerun, sweep, `notebooks`, nbval.

A kernel inherits nothing of the shell but what is listed here, so that no variable of a container, a server or a reader's profile
changes an output. What may change one because somebody asks for it (`CHOSEN`) is part of the name of every kept result.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from bookkit.code import NO_CODE, Code

FOLDERS = ("ATTNLIB_CACHE", "ATTNLIB_DATA")
# What a process needs in order to run, and where it finds and keeps files: no number depends on it.
INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE",
    "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "WINDIR", "PROCESSOR_ARCHITECTURE", "HF_HOME",
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "CUDA_VISIBLE_DEVICES", *FOLDERS,
)  # fmt: skip

# Another processor or another implementation, asked for by name: `processors`, and docs/kernels.md.
CHOSEN = (
    "ATTNLIB_KERNELS", "ATTNLIB_SHAKE", "TRITON_INTERPRET", "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NPY_DISABLE_CPU_FEATURES", "BOOKKIT_THREADS",
)  # fmt: skip
TABLES = "BOOKKIT_TABLES"  # a file to which a book's code adds a line for each stored table that it reads, as sha256sum writes it
OWN = "BOOKKIT_PAGE_"  # a book's own variables for its pages: `CHOSEN` as well

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def chosen() -> dict[str, str]:
    """Of this process, the variables that ask pages to compute otherwise."""
    return {name: value for name, value in os.environ.items() if name in CHOSEN or name.startswith(OWN)}


def page_environment(folder: Path, code: Code = NO_CODE, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables of a page's kernel; `folder` holds what is its alone, `further` replaces what is said here.

    One thread, alone or beside others: sums are then added in one order and give the same digits.
    """
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    kept |= {
        name: os.path.abspath(kept[name]) for name in FOLDERS if kept.get(name)
    }  # a page runs in a folder of its own
    asked = chosen()
    fixed = {
        **dict.fromkeys(_THREADS, asked.get("BOOKKIT_THREADS", "1")),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": str(folder / "ipython"),  # a reader's start-up files and profiles are not part of the book
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        TABLES: str(folder / "tables"),
        "ATTNLIB_QUIET": "1",  # that loops are compiled is for who waits, not for the page
        "PYTHONPATH": code.search_path,  # the kernel imports the very tree that was hashed
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONWARNINGS": "",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    return {**kept, **asked, **fixed, **dict(_style(folder)), **(further or {})}


def _style(folder: Path) -> Iterator[tuple[str, str]]:
    """matplotlib's own defaults, not those of a file in the home folder; without room in the home folder, it would say so in the page."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not all(map(_takes_a_file, [os.path.expanduser("~"), *([cache] if os.path.isdir(cache) else [])])):
        yield "MPLCONFIGDIR", str(folder / "matplotlib")
    found = find_spec("matplotlib")
    if found is not None and found.origin is not None:
        yield "MATPLOTLIBRC", str(Path(found.origin).parent / "mpl-data" / "matplotlibrc")


def _takes_a_file(folder: str | Path) -> bool:
    """Whether there is room for a list of fonts: a disk may be full, or a quota reached."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
    except OSError:
        return False
    return True
