"""A pytest plugin for runs that must end in time: `-p tests.quick`.

Every run with it notes in pytest's cache what each test takes: its own seconds and those of the shared fixtures that it
stands on, whoever came first and paid for them. With `--budget SECONDS` a test is left out, with the reason in its text,
when it is known to take longer than `LIMIT`, asks for patience by a mark of its own, or would begin later than that after
the first of its process. One that does not end within `LIMIT` is stopped and left out too; one that
used to take less than `QUICK` fails. A run that left out everything fails: nothing was checked.
"""

import time
from collections.abc import Generator

import pytest

LIMIT = 10.0  # seconds
QUICK = LIMIT / 30  # whatever else runs on the machine, such a test ends within LIMIT
KEY = "attnlib/seconds"  # in pytest's cache: test -> seconds
LEFT_OUT = "left out of a quick run: "
_fixtures: dict[tuple[str, str], float] = {}  # (file or folder, name) -> seconds it took in this process
_seconds: dict[str, float] = {}
_ran: set[str] = set()  # tests that came to their end
_begun: list[float] = []  # when the first test of this process began


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, help="leave out slow tests, and begin none after so many seconds")


def _known(config: pytest.Config) -> dict[str, float]:
    cache = getattr(config, "cache", None)
    return (cache.get(KEY, None) or {}) if cache else {}


# --- what a test takes ------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _fixtures[fixturedef.baseid, fixturedef.argname] = time.perf_counter() - start


def _takes(item: pytest.Item, own: float) -> float:
    """`own` seconds and those of every shared fixture below `item`."""
    names = set(getattr(item, "fixturenames", ()))
    return own + sum(s for (base, name), s in _fixtures.items() if name in names and item.nodeid.startswith(base))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if (call.when == "call" or call.excinfo) and hasattr(item.ihook, "pytest_timeout_cancel_timer"):
        item.ihook.pytest_timeout_cancel_timer(item=item)  # it would ring while the report is written
    report = yield
    stopped = call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value)
    if call.when == "call" or stopped:
        report.user_properties.append(("seconds", _takes(item, max(call.duration, LIMIT if stopped else 0.0))))
    if stopped and item.config.getoption("budget") is not None and _known(item.config).get(item.nodeid, LIMIT) > QUICK:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"{LEFT_OUT}not done within {LIMIT:g} s")
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds = dict(map(tuple, report.user_properties)).get("seconds")
    if seconds is not None:
        _seconds[report.nodeid] = seconds
    if report.when == "call" and not report.skipped:
        _ran.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # xdist: the workers' reports come to one process
        return
    if _seconds:
        session.config.cache.set(KEY, _known(session.config) | _seconds)
    if session.config.getoption("budget") is not None and session.exitstatus == pytest.ExitCode.OK and not _ran:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# --- a run that ends in time ------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("budget")
    if budget is None:
        return
    if not _begun:
        _begun.append(time.monotonic())
    if time.monotonic() - _begun[0] > budget:
        pytest.skip(f"{LEFT_OUT}the time is up")
    if item.get_closest_marker("timeout") or _known(item.config).get(item.nodeid, 0.0) > LIMIT:
        pytest.skip(f"{LEFT_OUT}takes more than {LIMIT:g} s")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What is left out is counted at the end; a letter for each would fill the screen."""
    return ("skipped", "", "SKIPPED") if report.skipped and LEFT_OUT in str(report.longrepr) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("budget") is not None:
        reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
        late = sum(f"{LEFT_OUT}the time is up" in reason for reason in reasons)
        slow = sum(LEFT_OUT in reason for reason in reasons) - late
        terminalreporter.write_line(f"Left out: {slow} slow tests, {late} for want of time. `make unit` runs them all.")
        if reasons and not _ran:
            terminalreporter.write_line(
                "error: nothing was checked: all tests that were reached are left out", red=True
            )
