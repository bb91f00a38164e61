"""A pytest plugin for runs that must end in time: `-p tests.quick --budget SECONDS`.

A test that would begin later than that after the first of its process is left out, with the reason in its text, and so is one that
asks for patience by a mark `timeout` of its own. A run that left out everything fails: nothing was checked.
"""

import time

import pytest

LEFT_OUT = "left out of a quick run: "
_begun: list[float] = []  # when the first test of this process began


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, required=True, help="begin no test so many seconds after the first")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _begun[:] = _begun or [time.monotonic()]
    if time.monotonic() - _begun[0] > item.config.getoption("budget"):
        pytest.skip(f"{LEFT_OUT}the time is up")
    if item.get_closest_marker("timeout"):
        pytest.skip(f"{LEFT_OUT}asks for patience")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What is left out is counted at the end; a letter for each would fill the screen."""
    return ("skipped", "", "SKIPPED") if report.skipped and LEFT_OUT in str(report.longrepr) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):  # xdist: the workers' reports come to one process
        return
    left_out = sum(LEFT_OUT in str(report.longrepr) for report in reporter.stats.get("skipped", []))
    reporter.write_line(f"\nLeft out: {left_out} slow or late tests. `make unit` runs them all.")
    if left_out and session.exitstatus == pytest.ExitCode.OK and not reporter.stats.get("passed"):
        reporter.write_line("error: nothing was checked: all tests that were reached are left out", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
