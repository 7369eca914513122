"""What all tests share: how much Hypothesis tries, one Spark for all that need one, marks that are true, and
a last line that names what this machine could not test.

`spark` marks what starts Spark, `realtime` what waits for a clock, `long` what computes for long; `make
check` leaves them out. A test that starts Spark or waits without the mark fails here, whatever it asserts.
"""

import ast
import gc
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# A slow machine is no failure; and CI must not fail today on what it passed yesterday. At a developer's
# desk every run draws new examples, and what fails becomes a named test.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Small data: a machine of 4 GB shall bear two workers and all the Java processes of a cluster.
os.environ["SPARK_DRIVER_MEMORY"] = "1g"
os.environ["SPARK_EXECUTOR_MEMORY"] = "600m"
os.environ["SPARK_DAEMON_MEMORY"] = "256m"

# The garbage collector looks at young objects after 5,000 new ones, not 700, and at older ones more seldom
# (chosen by us): tests make whole networks, and next to nothing of one is garbage before the test ends.
gc.set_threshold(5_000, 20, 10)

LONG = ("tests/scenarios/", "tests/lab/studies/")  # whole networks

# One Spark: starting Java and warming it up takes twenty seconds of processor time.


class OneWorkerHasSpark(LoadFileScheduling):  # type: ignore[misc]
    """Files go to whichever worker is free, except that one worker gets all tests that use Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        test = nodeid.partition("[")[0].rpartition("::")[2]
        return "spark" if test in _tests_with_spark(self.config.rootpath / file) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return OneWorkerHasSpark(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives as long as this process: half a million objects, which every full pass of the
    garbage collector would look at again. It had a sixth of the processor time of whole networks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before those without the asked-for marks are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark first, or the other workers would wait for its end. Then the files that wait for a clock: they
    leave the processor to Spark. Then those that compute for long; the many short ones come last, so that all
    workers end at the same time. Otherwise files stay in their order, and whole."""
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(_turn(item), turns.get(item.path, len(TURNS)))
    items.sort(key=lambda item: turns[item.path] if _turn(item) else 0)


TURNS = ("spark", "realtime", "long")


def _turn(item: pytest.Item) -> int:
    return next((turn for turn, mark in enumerate(TURNS) if item.get_closest_marker(mark)), len(TURNS))


@cache
def _tests_with_spark(file: Path) -> frozenset[str]:
    """The tests of a file that have the mark, alone or with their file. By the text: who deals tests out to
    workers knows their names only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and _has_mark(node)]
    return frozenset(test.name for test in tests if marks or any(map(_has_mark, test.decorator_list)))


def _has_mark(node: ast.AST) -> bool:
    return "pytest.mark.spark" in ast.unparse(node)


# What was skipped, and for want of what.


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: a machine without a program or a right is silent on whole subjects otherwise."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        named = "; ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
        terminalreporter.write_line(f"skipped here: {named}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """A skipped test's report has the file, the line and the reason; one that is expected to fail has not."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
    return " ".join(said.removeprefix("Skipped: ").split())


# Marks that are true.

_running: pytest.Item | None = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


def _guard(owner: Any, name: str, marks: tuple[str, ...], concerns: Callable[..., bool]) -> None:
    """Let a function of the standard library fail the test that calls it without one of the marks.

    Threads are left alone: those of Spark outlive the tests that started them.
    """
    function = getattr(owner, name)

    def guarded(*arguments: Any, **named: Any) -> Any:
        test = _running if threading.current_thread() is threading.main_thread() else None
        if test is not None and concerns(*arguments) and not any(map(test.get_closest_marker, marks)):
            pytest.fail(f"{test.nodeid} calls {owner.__name__}.{name} and has no mark {marks[0]}")
        return function(*arguments, **named)

    setattr(owner, name, guarded)


def _starts_java(_: object, command: Any, *__: object) -> bool:
    return not isinstance(command, str | bytes) and "spark-" in os.fspath(command[0])


def _opens_a_radio(opened: socket.socket, address: Any) -> bool:
    return opened.family == socket.AF_INET and opened.type == socket.SOCK_DGRAM


_guard(subprocess.Popen, "__init__", ("spark",), _starts_java)
_guard(socket.socket, "bind", ("realtime",), _opens_a_radio)
_guard(time, "sleep", ("realtime", "spark"), lambda seconds: seconds > 0.05)  # `subprocess` sleeps for less
