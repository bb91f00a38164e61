"""Kernels that are copies of one process: each its own, in its page's folder, and none outlives the run that it is part of."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Two kernels of which each says what it sees; then this process is killed while they live.
RUN = """
import os, signal
from jupyter_client.manager import start_new_kernel
from bookkit.pages.forked import fork_kernels

SEEN = "import os, sys; print(os.getpid(), os.getcwd(), os.environ['PAGE'], 'json.tool' in sys.modules, os.environ['MPLBACKEND'],"
SEEN += "os.path.dirname('{here}') in sys.path, 'left' in dir(), sep='|'); left = 1"

if __name__ == "__main__":
    fork_kernels(["json.tool"])
    for page in ("one", "two"):
        manager, client = start_new_kernel(cwd="{folder}", env=os.environ | {{"PAGE": page}})
        heard = []
        client.execute_interactive(SEEN, output_hook=lambda message: heard.append(message["content"].get("text", "")), timeout=60)
        print("".join(heard).strip(), flush=True)
        if page == "one":
            client.stop_channels(); manager.shutdown_kernel()
            print(manager.is_alive(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork: kernels start as Jupyter starts them")
def test_each_kernel_is_its_own_and_ends_with_the_run(tmp_path: Path) -> None:
    (script := tmp_path / "run.py").write_text(RUN.format(folder=tmp_path, here=script))
    (long := tmp_path / ("x" * 100)).mkdir()  # longer than the name of a socket may be
    environment = os.environ | {"TMPDIR": str(long)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    one, ended, two = done.stdout.splitlines()
    pid, *seen = one.split("|")
    inline = "module://matplotlib_inline.backend_inline"
    assert seen == [str(tmp_path), "one", "True", inline, "False", "False"]
    assert ended == "False"
    other, *seen = two.split("|")
    assert other != pid
    assert seen == [str(tmp_path), "two", "True", inline, "False", "False"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(int(other), 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the second kernel outlives the run")
