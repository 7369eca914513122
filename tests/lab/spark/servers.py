"""Spark's servers for tests, on loopback: a standalone cluster with two workers, and Spark Connect.

Each part is a process group of its own: killing a worker's takes its executor along.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark

from roamcast.lab.spark.java import find_java
from roamcast.lab.spark.session import QUICK_JAVA

LOOPBACK = "127.0.0.1"
START_SECONDS_MAX = 240.0


class _Servers:
    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = environment or {}
        self._parts: list[subprocess.Popen[bytes]] = []
        with socket.create_server((LOOPBACK, 0)) as free:
            self.port = int(free.getsockname()[1])

    def stop(self) -> None:
        for part in reversed(self._parts):
            if part.poll() is None:
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()

    def _launch(self, script: str, *arguments: str) -> None:
        command = [str(Path(pyspark.__file__).parent / "bin" / script), *arguments]
        own = self._folder / f"machine-{len(self._parts)}"  # no two machines have the same working folder
        own.mkdir()
        with (self._folder / f"{len(self._parts)}.log").open("wb") as log:
            self._parts.append(
                subprocess.Popen(
                    command,
                    env={
                        **os.environ,
                        "JAVA_HOME": str(find_java()),
                        "JAVA_TOOL_OPTIONS": QUICK_JAVA,  # for the executors too
                        "SPARK_LOCAL_IP": LOOPBACK,
                        "SPARK_LOCAL_DIRS": str(own / "scratch"),
                        **self._environment,
                    },
                    cwd=own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), 1.0).close()
        except OSError:
            return False
        return True

    def _log(self) -> str:
        return (self._folder / "0.log").read_text(errors="replace")

    def _wait_for(self, ready: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not ready():
            assert time.monotonic() - began < START_SECONDS_MAX, f"{what} did not come up: {self._log()}"
            time.sleep(0.1)


class Cluster(_Servers):
    """A standalone master and two workers of one core. They share no folder."""

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        name = "org.apache.spark.deploy"
        self._launch(
            *("spark-class", f"{name}.master.Master", "--host", LOOPBACK),
            *("--port", str(self.port), "--webui-port", "0"),
        )
        self._wait_for(self._answers, "the master")
        for _ in range(2):
            self._launch(
                *("spark-class", f"{name}.worker.Worker", "--host", LOOPBACK, "--webui-port", "0"),
                *("--cores", "1", "--memory", "700m", "--work-dir", "work", self.master),
            )
        self._wait_for(lambda: self._log().count("Registering worker") == 2, "both workers")

    def kill_worker(self) -> None:
        os.killpg(self._parts[-1].pid, signal.SIGKILL)


class ConnectServer(_Servers):
    @property
    def master(self) -> str:
        return f"sc://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        self._launch(
            *("spark-submit", "--master", "local[2]"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--conf", f"spark.connect.grpc.binding.port={self.port}", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.sql.shuffle.partitions=2", "spark-internal"),
        )
        self._wait_for(self._answers, "the Connect server")
