"""The same sweep on a Spark standalone cluster: a master and two workers on loopback, all started here."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pyspark
import pytest

from roamcast.lab.spark import session
from roamcast.lab.spark.java import find_java
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.folder import MADE_TABLES, TRACE_TABLES
from roamcast.lab.sweep.sweep import Progress, sweep

LOOPBACK = "127.0.0.1"
RUNS = 16
START_SECONDS_MAX = 120.0
WALKERS: dict[str, Any] = {
    "scenario": {"name": "walkers", "duration": 60.0, "seed": 1},
    "world": {
        "nodes": 10,
        "area": [300.0, 300.0],
        "range": 120.0,
        "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [1.0, 1.0]},
    },
    "roles": {"publishers": 4},
    "workload": {"rate": 2.0},
    "strategy": {"name": "flooding"},
}
UNSTEADY = {"runs": ["wall_s", "seconds", "attempt"], "metrics": ["wall_s"]}


class Cluster:
    """Each part is a process group of its own: killing a worker's takes its executor along."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[subprocess.Popen[bytes]] = []
        with socket.create_server((LOOPBACK, 0)) as free:
            self.port = int(free.getsockname()[1])
        self.master = f"spark://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        self._launch("master.Master", "--host", LOOPBACK, "--port", str(self.port), "--webui-port", "0")
        self._wait_for(lambda: self._answers(), "the master")
        for number in range(2):
            work = str(self._folder / f"work-{number}")
            self._launch(
                *("worker.Worker", "--host", LOOPBACK, "--webui-port", "0", "--cores", "1"),
                *("--memory", "700m", "--work-dir", work, self.master),
            )
        self._wait_for(lambda: self._log().count("Registering worker") == 2, "both workers")

    def kill_worker(self) -> None:
        os.killpg(self._parts[-1].pid, signal.SIGKILL)

    def stop(self) -> None:
        for part in reversed(self._parts):
            if part.poll() is None:
                os.killpg(part.pid, signal.SIGKILL)
            part.wait()

    def _launch(self, main_class: str, *arguments: str) -> None:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._folder / f"{len(self._parts)}.log").open("wb") as log:
            self._parts.append(
                subprocess.Popen(
                    [script, f"org.apache.spark.deploy.{main_class}", *arguments],
                    env={
                        **os.environ,
                        "JAVA_HOME": str(find_java()),
                        "JAVA_TOOL_OPTIONS": session.QUICK_JAVA,  # for the executors too
                        "SPARK_LOCAL_IP": LOOPBACK,
                    },
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

    def _wait_for(self, ready: Any, what: str) -> None:
        began = time.monotonic()
        while not ready():
            assert time.monotonic() - began < START_SECONDS_MAX, f"{what} did not come up: {self._log()}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        session.stop()  # the next test file wants an embedded one
        made.stop()


def experiment() -> Experiment:
    return experiment_from("cluster", WALKERS, {"world.nodes": [8, 10]}, replications=RUNS // 2)


@pytest.fixture(scope="module")
def local_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    out = tmp_path_factory.mktemp("local") / "out"
    assert sweep(experiment(), out).done == RUNS
    return sorted_tables(out)


def sorted_tables(folder: Path) -> dict[str, list[str]]:
    found = {}
    for name in (*TRACE_TABLES, *MADE_TABLES):
        table = pq.read_table(folder / name).drop_columns(UNSTEADY.get(name, []))
        rows = [row for row in table.to_pylist() if row.get("metric") != "wall_s"]
        found[name] = sorted(repr(sorted(row.items())) for row in rows)
    return found


@pytest.mark.timeout(600)  # five Java processes on the cores of one machine
@pytest.mark.spark
def test_a_cluster_gives_the_same_tables_even_when_it_loses_a_worker(
    local_tables: dict[str, list[str]], cluster: Cluster, tmp_path: Path
) -> None:
    def package(_: int) -> str:
        import roamcast

        return roamcast.__file__

    killed: list[Progress] = []

    def kill_in_the_middle(progress: Progress) -> None:
        if progress.done >= 3 and not killed:
            killed.append(progress)
            threading.Thread(target=cluster.kill_worker).start()

    halved = sweep(experiment(), tmp_path / "halved", cluster.master, progress=kill_in_the_middle)
    assert killed and killed[0].done < RUNS, "killed too late to prove anything"
    assert (halved.done, halved.total) == (RUNS, RUNS)
    assert sorted_tables(tmp_path / "halved") == local_tables
    context = session.session().sparkContext
    assert context.master == cluster.master, "else it proves nothing"
    (place,) = context.parallelize([0], 1).map(package).collect()
    assert "roamcast.zip" in place, "workers run the package that was shipped to them"
