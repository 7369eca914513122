"""Marks are true: what has none can neither start Spark nor wait for a clock (`conftest.py`)."""

import socket
import subprocess
import time

import pytest


def test_a_test_without_mark_cannot_start_spark() -> None:
    with pytest.raises(pytest.fail.Exception, match="has no mark spark"):
        subprocess.Popen(["/opt/spark/bin/spark-submit"])


def test_a_test_without_mark_cannot_wait_nor_open_a_radio() -> None:
    with pytest.raises(pytest.fail.Exception, match="has no mark realtime"):
        time.sleep(60)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as radio,
        pytest.raises(pytest.fail.Exception, match="has no mark realtime"),
    ):
        radio.bind(("127.0.0.1", 0))


@pytest.mark.realtime
def test_a_test_with_the_mark_can() -> None:
    time.sleep(0.06)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as radio:
        radio.bind(("127.0.0.1", 0))
