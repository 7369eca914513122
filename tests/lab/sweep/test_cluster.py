"""The same sweep on a Spark standalone cluster, as docs/study/clusters.md has it: a master and two workers on
loopback that share nothing but an object store, with a packed environment. All are started here."""

import hashlib
import os
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from pyspark import SparkContext
from tests.lab.spark.servers import Cluster
from tests.lab.storage.object_store import (  # noqa: F401
    ObjectStore,
    object_store,
    running_object_store,
)

from roamcast.cli import app
from roamcast.event import Event
from roamcast.lab.live.archive import Archived, archive
from roamcast.lab.recordings.contacts import read_plan
from roamcast.lab.spark import package, session, settings
from roamcast.lab.spark.session import mapped
from roamcast.lab.storage import Storage
from roamcast.lab.sweep import sweep as sweeps
from roamcast.lab.sweep.experiment import load_experiment
from roamcast.lab.sweep.folder import MADE_TABLES, TRACE_TABLES
from roamcast.lab.sweep.sweep import Progress, sweep
from roamcast.world.crossings import contact_plan
from roamcast.world.formats import read_motion

DATA = Path(__file__).parents[2] / "data"
RUNS = 16
SCENARIO = """
scenario = { name = "walkers", duration = 60.0, seed = 1 }
roles = { publishers = 4 }
workload = { rate = 2.0 }
strategy = { name = "flooding" }

[world]
nodes = 10
area = [300.0, 300.0]
range = 120.0
mobility = { model = "random_waypoint", speed = [1.0, 20.0], pause = [1.0, 1.0] }
"""
EXPERIMENT = f"""
experiment = {{ name = "cluster", scenario = "walkers.toml", replications = {RUNS // 2} }}
axes = {{ "world.nodes" = [8, 10] }}
"""
WALKERS: dict[str, Any] = tomllib.loads(SCENARIO)
UNSTEADY = {"runs": ["wall_s", "seconds", "attempt"], "metrics": ["wall_s"]}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    running_object_store: ObjectStore,  # noqa: F811
) -> Iterator[Cluster]:
    # Workers have an interpreter without packages.
    path = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"
    made = Cluster(tmp_path_factory.mktemp("cluster"), {**running_object_store.environment, "PATH": path})
    try:
        made.start()
        yield made
    finally:
        session.stop()  # the next test file wants an embedded one
        settings.ask((), None, ui=False, event_log=None)
        made.stop()


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "walkers.toml").write_text(SCENARIO)
    (folder / "E.toml").write_text(EXPERIMENT)
    return folder / "E.toml"


@pytest.fixture(scope="module")
def local_tables(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    out = tmp_path_factory.mktemp("local") / "out"
    assert sweep(load_experiment(experiment), out, verify="none").done == RUNS
    return sorted_tables(Storage.open(out))


def sorted_tables(folder: Storage) -> dict[str, list[str]]:
    found = {}
    for name in (*TRACE_TABLES, *MADE_TABLES):
        parts = [pq.read_table(pa.BufferReader(folder.read(file))) for file in folder.files(name)]
        if parts:
            table = pa.concat_tables(parts).drop_columns(UNSTEADY.get(name, []))
            rows = [row for row in table.to_pylist() if row.get("metric") != "wall_s"]
            found[name] = sorted(repr(sorted(row.items())) for row in rows)
    return found


@pytest.fixture(scope="module")
def packed(pytestconfig: pytest.Config) -> Path:
    """Packed once for each set of versions: it takes some fifteen seconds."""
    assert pytestconfig.cache is not None
    made_of = [Path(package.__file__).read_text(), sys.version]
    made_of += [f"{each.name} {each.version}" for each in package.with_needed()]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    file = pytestconfig.cache.mkdir("environment") / f"{digest}.tar.gz"
    if not file.exists():
        for earlier in file.parent.iterdir():
            earlier.unlink()
        assert package.main([str(file)]) == 0
    return file


def roamcast(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(900)  # five Java processes on the cores of one machine
@pytest.mark.spark
def test_workers_that_share_only_an_object_store_give_the_same_tables(
    local_tables: dict[str, list[str]],
    experiment: Path,
    cluster: Cluster,
    object_store: ObjectStore,  # noqa: F811
    packed: Path,
) -> None:
    assert packed.stat().st_size < 150e6
    store = Storage.open(object_store.uri("areas"))
    on_cluster = ("--master", cluster.master, "--archives", f"{packed}#environment")
    said = roamcast("sweep", experiment, "--out", store, *on_cluster, "--conf", "spark.task.cpus=1")
    assert f"{RUNS} of {RUNS} runs ended well" in said
    assert sorted_tables(store) == local_tables

    groups = object_store.uri("groups")
    assert "would have cost least" in roamcast("groups", store, "--k", "1", "--out", groups, *on_cluster)
    assert list(Storage.open(groups).files()) == ["costs.parquet", "members.parquet"]

    events = object_store.uri("events")
    archive([Archived(n, Event(1, n, {"level": n})) for n in range(9)], events)
    assert roamcast("archive", "query", "level > 5", "--archive", events, *on_cluster).endswith("3 events\n")

    spark = session.session()
    assert spark.sparkContext.master == cluster.master, "else it proves nothing"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "200", "not the cores of the driver"

    def place(_: int) -> tuple[set[str], str, str]:
        import roamcast

        modules = [sys.modules[name] for name in package.PACKAGES if name in sys.modules]
        places = {str(Path(str(module.__file__)).resolve().parents[1]) for module in modules}
        return places, roamcast.__file__, str(Path.cwd())

    sites, packages, folders = zip(*mapped(spark, place, range(8)), strict=True)
    for site, folder in zip(sites, folders, strict=True):
        assert site == {f"{folder}/environment/site"}, "all packages are of the archive"
    assert all("/roamcast-" in each and ".zip/" in each for each in packages), "the package was shipped"
    assert all("/machine-" in each for each in folders), "workers are in folders of their own"

    source = Storage.open(object_store.uri(""))
    source.write("sample.csv", (DATA / "sample.csv").read_bytes())
    plan = object_store.uri("plan.parquet")
    said = roamcast("contacts", object_store.uri("sample.csv"), "--range", 250, "--out", plan, *on_cluster)
    motion = read_motion(DATA / "sample.csv")
    here = contact_plan(motion.shifted(-motion.begins), 250.0, motion.ends - motion.begins)
    assert f"{len(here)} contacts of {here.nodes} nodes" in said
    assert read_plan(plan).start.tolist() == here.start.tolist()
    assert {file for file in source.files() if "plan" in file} == {"plan.parquet", "plan.names.csv"}


@pytest.mark.timeout(600)
@pytest.mark.spark
def test_a_cluster_gives_the_same_tables_even_when_it_loses_a_worker(
    local_tables: dict[str, list[str]],
    experiment: Path,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "POLL_SECONDS", 0.02)  # all runs may take less than the usual time
    killed: list[Progress] = []

    def kill_in_the_middle(progress: Progress) -> None:
        # Short runs are committed together, so that few are done says little; that tasks run says enough.
        context = SparkContext._active_spark_context
        if killed or context is None or getattr(context, "_jsc", None) is None:
            return  # it is about to start
        tracker = context.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        if any(stage is not None and stage.numActiveTasks for stage in stages):
            killed.append(progress)
            threading.Thread(target=cluster.kill_worker).start()

    out = tmp_path / "halved"
    halved = sweep(load_experiment(experiment), out, cluster.master, progress=kill_in_the_middle)
    assert killed and killed[0].done < RUNS, "killed too late to prove anything"
    assert (halved.done, halved.total) == (RUNS, RUNS)
    assert sorted_tables(Storage.open(out)) == local_tables
    assert session.session().sparkContext.master == cluster.master, "else it proves nothing"
