"""The lab on a Spark Connect server: no Java of our own, no `sparkContext`, no RDDs."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from tests.lab.spark.servers import ConnectServer
from tests.lab.sweep.test_cluster import WALKERS

from roamcast import lab
from roamcast.errors import RoamcastError
from roamcast.lab.recordings.contacts import contacts, read_plan
from roamcast.lab.spark import session
from roamcast.lab.spark.settings import SparkSettings
from roamcast.lab.sweep.experiment import experiment_from
from roamcast.lab.sweep.sweep import sweep

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    made = ConnectServer(tmp_path, {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "1g"})
    session.stop()  # a process has one session
    try:
        made.start()
        yield made.master
    finally:
        session.stop()
        made.stop()


@pytest.mark.timeout(600)
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of grpc
def test_contacts_a_sweep_and_a_notebook_on_spark_connect(server: str, tmp_path: Path) -> None:
    summary = contacts(DATA / "sample.csv", 250.0, tmp_path / "plan.parquet", master=server)
    spark = session.session()
    assert session.is_remote(spark) and "SPARK_CONNECT_MODE_ENABLED" in os.environ
    assert len(read_plan(tmp_path / "plan.parquet")) == summary.contacts > 0
    done = sweep(
        experiment_from("remote", WALKERS, {"world.nodes": [10]}, replications=2),
        tmp_path / "out",
        server,
        verify="all",
    )
    assert (done.done, done.total, done.verified) == (2, 2, 2)
    opened = lab.open(tmp_path / "out")
    figures = pq.read_table(tmp_path / "out" / "metrics").column("delivered").to_pylist()
    found = opened.deliveries.groupBy("run").count().toArrow()
    assert len(found) == len(figures) == 2 and min(figures) > 0
    with pytest.raises(RoamcastError, match=r"^Spark gave up: .*Path does not exist: .*/none"):
        session.with_session(None, lambda spark: spark.read.parquet(str(tmp_path / "none")).count())
    assert session.session(server) is spark, "the session that runs is used"


def test_a_server_that_does_not_answer_is_said_at_once() -> None:
    with pytest.raises(RoamcastError, match=r"sc://127.0.0.1:1 does not answer .*Spark Connect server"):
        session._connected("sc://127.0.0.1:1", SparkSettings())
