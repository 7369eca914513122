"""What all tests share: how much Hypothesis tries, Spark's memory, and marks that are true.

`spark` marks what starts Spark, `realtime` what waits for a clock; `make check` leaves both out. A test that
does so without the mark fails here, whatever it asserts.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

# A slow machine is no failure; and CI must not fail today on what it passed yesterday. At a developer's
# desk every run draws new examples, and what fails becomes a named test.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Small data: a machine of 4 GB shall bear two workers and all the Java processes of a cluster.
os.environ["SPARK_DRIVER_MEMORY"] = "1g"
os.environ["SPARK_EXECUTOR_MEMORY"] = "600m"
os.environ["SPARK_DAEMON_MEMORY"] = "256m"

_running: pytest.Item | None = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


def _guard(owner: Any, name: str, mark: str, concerns: Callable[..., bool]) -> None:
    """Let a function of the standard library fail the test that calls it without the mark."""
    function = getattr(owner, name)

    def guarded(*arguments: Any, **named: Any) -> Any:
        if _running is not None and _running.get_closest_marker(mark) is None and concerns(*arguments):
            pytest.fail(f"{_running.nodeid} calls {owner.__name__}.{name} and has no mark {mark}")
        return function(*arguments, **named)

    setattr(owner, name, guarded)


def _starts_java(_: object, command: Any, *__: object) -> bool:
    return not isinstance(command, str | bytes) and "spark-" in os.fspath(command[0])


def _opens_a_radio(opened: socket.socket, address: Any) -> bool:
    return opened.family == socket.AF_INET and opened.type == socket.SOCK_DGRAM


_guard(subprocess.Popen, "__init__", "spark", _starts_java)
_guard(socket.socket, "bind", "realtime", _opens_a_radio)
_guard(time, "sleep", "realtime", lambda *_: True)
