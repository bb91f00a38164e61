"""A page opened in Colab works: alone in an empty folder, with Colab's packages, `attnlib` fetched by the page itself.

The first page of each part with a paper and of the reruns is installed for in a fresh environment and runs to its end (other parts
need no other packages; all pages begin with the same text, and `make nbval` runs them in full with the book's own packages).
Packages as in Colab's machines of August 2026. Torch is the release that the book pins, where Colab holds 2.11.0.

COLAB_PYTHON=path/to/python3.13 pytest tests/test_colab.py takes that interpreter, Colab's own torch, and runs every page to
its end: so does the weekly workflow.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bookkit.pages.catalogue import find_pages
from bookkit.pages.stored_outputs import compare_outputs
from bookkit.pages.tolerances import read as tolerances_of
from bookkit.settings import settings
from tests.house import REPOSITORY

pytestmark = pytest.mark.weekly

ROOT = Path(__file__).resolve().parents[1]
PAGES = find_pages(ROOT)
PYTHON = os.environ.get("COLAB_PYTHON", sys.executable)
PINS = {
    "numpy": "2.1.3",
    "pandas": "2.2.3",
    "matplotlib": "3.10.0",
    "ipython": "7.34.0",
    "ipykernel": "6.17.1",
    "torch": "2.11.0" if "COLAB_PYTHON" in os.environ else "2.13.0",
    "scipy": "1.16.3",
    "clarabel": "0.11.1",  # comes to Colab with cvxpy
    "scikit-learn": "1.6.1",
    "numba": "0.61.2",
    "llvmlite": "0.44.0",
    "safetensors": "0.6.2",
    "pyarrow": "18.1.0",  # the stored sweeps of the page on many runs: table
    "xarray": "2025.12.0",  # and array
    "h5netcdf": "1.7.3",
    "h5py": "3.15.1",
}


def runs_to_its_end(page) -> bool:
    if "COLAB_PYTHON" in os.environ:
        return True
    part = settings(ROOT).parts.get(page.source.parent.name)
    first = min(other.name for other in PAGES if other.source.parent == page.source.parent)
    return page.name == first and (part is None or bool(part.paper))


def base_environment() -> Path:
    """An environment with `PINS` and without `attnlib`, made once (a minute) and kept under _build/."""
    pins = [f"{name}=={version}" for name, version in PINS.items()]
    version = subprocess.run([PYTHON, "-VV"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256("\n".join([*pins, version]).encode()).hexdigest()[:12]
    folder = ROOT / "_build" / f"colab-env-{key}"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers need the same one
        if not (folder / "complete").is_file():  # absent, or an earlier attempt was killed
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([PYTHON, "-m", "venv", "--symlinks", str(folder)], check=True)
            options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
            command = [str(folder / "bin" / "python"), "-m", "pip", "install", *options, *pins]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.fail(
                    f"Colab's packages could not be installed; is there a network? pip said:\n{done.stderr[-2000:]}"
                )
            (folder / "complete").touch()
    return folder


def make_environment(environment: Path) -> Path:
    """A fresh environment that sees Colab's packages and into which a page can install."""
    subprocess.run([PYTHON, "-m", "venv", "--symlinks", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (shared,) = base_environment().glob("lib/python*/site-packages")
    (packages / "colab.pth").write_text(f"{shared}\n")
    return environment


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """This working tree as a git repository of one commit: what GitHub would hold if it were pushed now."""
    folder = tmp_path_factory.mktemp("clone")
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "--all"], [*author, "commit", "--quiet", "-m", "the working tree"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    return folder


def kernel_environment(tmp_path: Path, clone: Path, python: Path) -> dict[str, str]:
    """Of the kernel `colab`: the repository's address leads to `clone`, and nothing of the running tests shows through."""
    folder = tmp_path / "jupyter" / "kernels" / "colab"
    folder.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Colab", "language": "python"}))
    ours = "PYTHONPATH PYTHONWARNINGS PYTHONHOME VIRTUAL_ENV MPLBACKEND IPYTHONDIR JUPYTER_PATH".split()
    ours += "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS".split()
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{clone.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": REPOSITORY,
    }


@pytest.mark.timeout(7200)  # the installation, for which the other workers wait, and a page on a machine however busy
@pytest.mark.parametrize("page", [page for page in PAGES if runs_to_its_end(page)], ids=lambda page: page.name)
def test_a_page_runs_alone_with_colabs_packages(page, clone: Path, tmp_path: Path, monkeypatch) -> None:
    colab, empty = make_environment(tmp_path / "environment"), tmp_path / "empty"
    empty.mkdir()
    shutil.copy(page.stored, empty)
    python = colab / "bin" / "python"
    environment = kernel_environment(tmp_path, clone, python)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    def says(code: str) -> subprocess.CompletedProcess:
        command = [str(python), "-c", code]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(command, cwd=empty, env=clean, capture_output=True, text=True, check=False)

    def execute(notebook):
        where = {"metadata": {"path": str(empty)}}
        client = NotebookClient(notebook, kernel_name="colab", timeout=3600, startup_timeout=600, resources=where)
        return client.execute(env=environment)  # raises on error

    # Before: Colab's versions, and no attnlib.
    versions = says(f"from importlib.metadata import version as v; print(*map(v, {[*PINS]}))")
    assert [found.split("+")[0] for found in versions.stdout.split()] == list(PINS.values()), versions.stderr
    assert "No module named 'attnlib'" in says("import attnlib").stderr

    stored = nbformat.read(page.stored, as_version=4)
    fresh = execute(nbformat.read(empty / page.stored.name, as_version=4))

    # After: attnlib came from the page's first cell, and the page shows what is stored.
    where = Path(says("import attnlib; print(attnlib.__file__)").stdout.strip())
    assert where.is_relative_to(colab), where
    pairs = [(old, new) for old, new in zip(stored.cells, fresh.cells, strict=True) if old.cell_type == "code"]
    differences = {
        f"code cell {count}": found
        for count, (old, new) in enumerate(pairs, start=1)
        # The first cell installs here, and pip may speak; the last tells versions.
        if count > 1 and "nbval-ignore-output" not in old.metadata.get("tags", [])
        if (found := compare_outputs(old.outputs, new.outputs, tolerances_of(page.stored), count))
    }
    assert differences == {}

    # Run again, the first cell finds the package and says nothing.
    installation = nbformat.v4.new_notebook(cells=[pairs[0][0]], metadata=stored.metadata)
    assert execute(installation).cells[0].outputs == []
    assert [path.name for path in empty.iterdir()] == [page.stored.name]
