"""For all tests. Before anything imports Triton: without a GPU its programs run in the interpreter, on tensors of the CPU."""

import os
import signal

import pytest
import torch

# A shell that starts a command in the background (`make test &`, nohup) tells it to ignore Ctrl-C; tests of Ctrl-C must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("ATTNLIB_QUIET", "1")  # as on pages: whether a loop is in the cache already changes no output

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def one_thread():
    """Sums are added in the order of a page's kernel, which has one thread. Numbers below 1e-308, which `remake` takes for 0, are back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.set_flush_denormal(False)
