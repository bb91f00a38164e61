"""A pytest plugin, `-p tests.close_calls`: lists comparisons that pass, but only just, and makes the run fail where there are any.

Another processor adds in another order and rounds otherwise: what uses a quarter of its tolerance here may use all of it there.
It sees three forms: `np.testing.assert_allclose`, `torch.testing.assert_close` of real numbers, and `pytest.approx`. Of each line
that compares it keeps the largest |difference| over the tolerance. Where the largest number that is expected (or 1, for
0) may be off by 1e-4 of itself, it is about chance or a formula's reach, not about rounding, and is left out.
"""

import os
import sys

import numpy as np
import pytest
import torch

ROUNDING, SHARE = 1e-4, 0.25
worst: dict[str, tuple[float, float, str]] = {}  # a line: the share of its tolerance, the tolerance, the test
scalar = type(pytest.approx(1.0))  # lists, mappings and arrays compare their entries by it
numpy_close, torch_close, equals = np.testing.assert_allclose, torch.testing.assert_close, scalar.__eq__


def _note(actual, expected, tolerance) -> None:
    a, b, room = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (actual, expected, tolerance)))
    told = np.isfinite(a) & np.isfinite(b) & (room > 0)
    a, b, room = a[told], b[told], room[told]
    if not a.size or room[np.abs(b).argmax()] >= ROUNDING * (np.abs(b).max() or 1.0):
        return
    share = np.abs(a - b) / room
    if not SHARE < share.max() <= 1:
        return
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or "site-packages" in frame.f_code.co_filename:
        frame = frame.f_back
    place = f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0]
    worst[place] = max(worst.get(place, (0.0, 0.0, "")), (share.max().item(), room[share.argmax()].item(), test))


def _assert_allclose(actual, desired, rtol=1e-7, atol=0, *arguments, **options):
    numpy_close(actual, desired, rtol, atol, *arguments, **options)
    if not np.iscomplexobj(actual):
        _note(actual, desired, atol + rtol * np.abs(np.asarray(desired, dtype=float)))


def _assert_close(actual, expected, *, rtol=None, atol=None, **options):
    torch_close(actual, expected, rtol=rtol, atol=atol, **options)
    if isinstance(actual, torch.Tensor) and actual.is_floating_point():
        usual = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}.get(actual.dtype, (0.0, 0.0))
        rtol, atol = (own if given is None else given for own, given in zip(usual, (rtol, atol), strict=True))
        a, b = (x.detach().double().cpu().numpy() for x in (actual, expected))
        _note(a, b, atol + rtol * np.abs(b))


def _equals(self, actual):
    same = equals(self, actual)
    if same and isinstance(self.expected, float) and not isinstance(actual, bool):
        _note(actual, self.expected, self.tolerance)
    return same


np.testing.assert_allclose, torch.testing.assert_close, scalar.__eq__ = _assert_allclose, _assert_close, _equals


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one tells
        session.config.workeroutput["close_calls"] = worst
    elif worst:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    for place, found in getattr(node, "workeroutput", {}).get("close_calls", {}).items():
        worst[place] = max(worst.get(place, (0.0, 0.0, "")), tuple(found))


def pytest_terminal_summary(terminalreporter) -> None:
    for place, (share, tolerance, test) in sorted(worst.items(), key=lambda row: -row[1][0]):
        terminalreporter.write_line(f"{share:4.0%} of its tolerance, {tolerance:.1e}: {place} {test}")
    terminalreporter.write_line(f"{len(worst)} comparisons use more than {SHARE:.0%} of their tolerance")
