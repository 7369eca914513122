"""Ways through the pipeline that each need a Spark of their own: a full disk, an object store from the
command to the page, a notebook's own session, a Java that is killed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.spark.test_session import run
from tests.lab.storage.object_store import ObjectStore, object_store, running_object_store
from tests.lab.sweep.chaos import LINKS, experiment_in
from tests.lab.sweep.test_chaos import call
from tests.lab.test_notebook import folder

from roamcast.errors import RoamcastError
from roamcast.lab.storage import Storage
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.sweep import sweep

__all__ = ["folder", "object_store", "running_object_store"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.spark
def test_a_full_disk_is_said_with_the_file_and_healed_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    experiment = experiment_in(tmp_path, 40)
    with pytest.raises(RoamcastError) as caught:
        sweep(experiment, small_disk / "out")
    text = str(caught.value)
    assert f"{small_disk}/out/" in text and "No space left on device" in text and "--resume" in text
    assert "\n" not in text
    shutil.copytree(small_disk / "out", tmp_path / "out")
    assert sweep(experiment, tmp_path / "out", resume=True).done == 40


@pytest.mark.spark
def test_a_sweep_into_an_object_store_from_the_command_to_the_page(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    (tmp_path / "0.csv").write_text("time,i,j,state\n0,0,1,up\n")
    (tmp_path / "links.toml").write_text(LINKS)
    (tmp_path / "E.toml").write_text(
        '[experiment]\nname = "links"\nscenario = "links.toml"\nreplications = 2\n'
        '[axes]\n"workload.rate" = [2.0, 4.0]\n'
    )
    uri = object_store.uri("links", scheme="s3a")
    # In a process of its own: Spark's workers have the environment that Java was started with.
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "roamcast",
        "sweep",
        str(tmp_path / "E.toml"),
        "--out",
        uri,
        "--verify",
        "all",
    ]
    swept = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert swept.returncode == 0, swept.stderr
    assert f"4 of 4 runs ended well and are in {uri}; 4 were run now, 4 measured again" in swept.stdout
    assert not list(tmp_path.glob("s3a*")), "no folder of that name"
    assert call("sweep", tmp_path / "E.toml", "--out", uri).exit_code == 2
    shown = call("report", uri)
    assert shown.exit_code == 0 and shown.stdout.strip() == "s3://study/links/report.html"
    assert b"runs measured" in Storage.open(uri).read("report.html")
    lost = next(name for name in Storage.open(uri).files("publications"))
    Storage.open(uri).delete(lost)
    (line,) = SweepFolder(uri).mend(digests=True)
    assert line.startswith(f"s3://study/links/{lost}: is missing")


@pytest.mark.spark
def test_a_notebooks_own_session_gets_the_package(folder: Path) -> None:
    script = f"""
from pyspark.sql import SparkSession
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
from roamcast import lab
from roamcast.lab.spark.session import session
from roamcast.lab.spark.session import mapped
assert session() is spark
def place(_):
    import roamcast
    return roamcast.__file__
print(mapped(spark, place, [0])[0])
print(lab.open({str(folder / "out" / "areas")!r}).deliveries.sparkSession is spark)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    package, ours = done.stdout.split()
    assert ".zip/roamcast/" in package and ours == "True"


@pytest.mark.spark
def test_work_goes_on_when_java_is_killed() -> None:
    script = """
        from pyspark import SparkContext
        from roamcast.errors import RoamcastError
        from roamcast.lab.spark.session import with_session
        deaths = []
        def dies(spark):
            if len(deaths) < limit:
                deaths.append(spark)
                SparkContext._gateway.proc.kill()
            return spark.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).sum()
        limit = 1
        print(with_session(None, dies))
        limit = 3
        try:
            with_session(None, dies, "what stands is kept")
        except RoamcastError as error:
            print(len(deaths), error)
    """
    said = "3 Spark gave up: Java ended (killed?); what stands is kept"
    assert run(script).stdout.splitlines() == ["10", said]  # PySpark's threads complain of it, too
