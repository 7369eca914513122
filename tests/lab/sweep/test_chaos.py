"""What can happen to a sweep's folder and to the processes that fill it: each fault is named, and either
healed by resuming or refused. A wrong figure never comes out. `tests/torture/` does it at
length, with full disks and object stores."""

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result
from tests.lab.sweep.chaos import TABLES, damaged_in_every_way, experiment_in, same_rows, steady

from roamcast.cli import app
from roamcast.errors import FileError, InputError, RoamcastError
from roamcast.lab.spark.session import session
from roamcast.lab.sweep import check
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
from roamcast.lab.sweep.results import read_results
from roamcast.lab.sweep.sweep import sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of eighteen short runs, each in a segment of its own, made without Spark."""
    base = tmp_path_factory.mktemp("whole")
    experiment = experiment_in(base, 18)
    folder = SweepFolder(base / "out")
    folder.claim(experiment)
    SweepJob(folder.storage, experiment, {}, commit_seconds=0.0).work(range(18), 0)
    assert len(folder.segments()) == 18
    return base


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> tuple[Experiment, Path]:
    shutil.copytree(whole, tmp_path / "base")
    return experiment_in(tmp_path / "base", 18), tmp_path / "base" / "out"


@pytest.mark.spark
def test_deleted_cut_changed_emptied_and_foreign_files_are_named_and_healed(
    whole: Path, copy: tuple[Experiment, Path]
) -> None:
    experiment, out = copy
    before = read_results(whole / "out")
    assert before.values("delivery_ratio", 0), "else nothing much is compared"
    faults = damaged_in_every_way(out)
    result = sweep(experiment, out, resume=True)
    for file in faults:
        assert [line for line in result.mended if line.startswith(f"{file}: ")], f"{file} is not named"
    assert len(result.mended) == len(faults) and result.done == 18
    assert steady(read_results(out)) == steady(before)
    assert same_rows(out, whole / "out")
    assert sweep(experiment, out, resume=True).mended == [], "and then it is whole"


def test_figures_are_right_or_refused_before_anything_is_healed(copy: tuple[Experiment, Path]) -> None:
    _, out = copy
    before = read_results(out)
    for table in ("deliveries", "expected"):
        for file in (out / table).iterdir():
            file.unlink()
    assert read_results(out) == before, "what was measured before it was written does not need the rows"
    manifest = min((out / "manifest").iterdir())
    manifest.write_bytes(manifest.read_bytes()[:-10])
    with pytest.raises(FileError, match=str(manifest)):
        read_results(out)


@pytest.mark.spark
def test_a_changed_table_is_refused_by_whoever_reads_it(copy: tuple[Experiment, Path]) -> None:
    _, out = copy
    file = min((out / "deliveries").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    folder = SweepFolder(out)
    with pytest.raises(FileError, match=f"{file}: has not the digest"):
        check.table_of(session(), folder, "deliveries")


@pytest.mark.spark
def test_a_figure_that_sparks_sql_does_not_confirm_is_an_error_with_run_and_metric(
    copy: tuple[Experiment, Path],
) -> None:
    _, out = copy
    folder = SweepFolder(out)
    records = list(folder.records().values())[:3]
    check.check_figures(session(), folder, records, ["pairs"])
    delivered = records[1].figures["delivered"]
    assert delivered is not None
    records[1].figures["delivered"] = delivered + 1
    with pytest.raises(RoamcastError, match=rf"of run {records[1].run}, delivered is \d+ as .* and \d+ by"):
        check.check_figures(session(), folder, records, ["pairs"])


def test_a_sample_is_drawn_from_large_sweeps_only(copy: tuple[Experiment, Path]) -> None:
    _, out = copy
    records = list(SweepFolder(out).records().values())
    assert check.sample("f", records, "sample")[0] == [] and check.sample("f", records, "none")[0] == []
    assert check.sample("f", records, "all") == (records, None)
    many, sources = check.sample("f", records * 6, "sample")
    assert len(many) == 4 and sources is not None and "pairs" in sources


# A sweep whose first tasks kill, one after the other, their worker, Java and the driver. Each leaves a note.
DEADLY = """
import os, signal, sys, time
from pathlib import Path
from tests.lab.sweep.chaos import experiment_in
from roamcast.lab.sweep import sweep as module

BASE, DRIVER = Path(sys.argv[1]), os.getpid()

def kill(victim, process):
    (BASE / victim).touch()
    os.kill(process, signal.SIGKILL)
    time.sleep(600)  # its death takes this process along

class Deadly(module.SweepJob):
    def work(self, items, deaths):
        if not (BASE / "worker").exists():
            kill("worker", os.getpid())
        committed = super().work(items[:4], deaths)
        if not (BASE / "java").exists():
            java = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
            kill("java", int(java))
        if not (BASE / "driver").exists():
            kill("driver", DRIVER)
        return committed

module.SweepJob = Deadly
module.sweep(experiment_in(BASE, 18), BASE / "out", "local[1]")
"""


@pytest.mark.timeout(600)  # two Java processes, one after the other
@pytest.mark.spark
def test_a_killed_worker_a_killed_java_and_a_killed_driver_lose_nothing(tmp_path: Path, whole: Path) -> None:
    """Each in the middle of the same sweep; `tests/torture/` kills at random moments."""
    driver = subprocess.run(
        [sys.executable, "-c", DEADLY, tmp_path], capture_output=True, timeout=560, check=False
    )
    assert driver.returncode == -signal.SIGKILL, driver.stderr[-2000:]
    assert {"worker", "java", "driver"} <= {path.name for path in tmp_path.iterdir()}
    done = SweepFolder(tmp_path / "out").records()
    assert len(done) == 8, "four before Java died, four before the driver died"
    result = sweep(experiment_in(tmp_path, 18), tmp_path / "out", resume=True)
    assert (result.done, result.failed, result.ran, result.mended) == (18, 0, 10, [])
    assert same_rows(tmp_path / "out", whole / "out")
    assert steady(read_results(tmp_path / "out")) == steady(read_results(whole / "out"))
    assert list((tmp_path / "out").rglob(".*")) == []


def test_a_disk_that_takes_no_more_is_named_by_the_worker(tmp_path: Path) -> None:
    """A limit on file sizes is what an ordinary user has in place of a full disk."""
    experiment_in(tmp_path, 1)
    script = f"""
import resource, signal, sys
from pathlib import Path
from tests.lab.sweep.chaos import experiment_in
from roamcast.lab.sweep.folder import SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
base = Path(sys.argv[1])
experiment, folder = experiment_in(base, 1), SweepFolder(base / "out")
folder.claim(experiment)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
SweepJob(folder.storage, experiment, {{}}, 10.0).work([0], 0)
"""
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert f"FileError: {tmp_path}/out/" in last and "cannot be written: File too large" in last
    assert read_results(tmp_path / "out").runs == [], "what was not committed is not there"


@pytest.mark.spark
def test_a_refused_master_claims_nothing(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path, 2)
    for master in ("local[0]", "nonsense", "spark://127.0.0.1:9"):
        with pytest.raises(InputError, match="master"):
            sweep(experiment, tmp_path / "out", master)
        assert not (tmp_path / "out").exists()


def test_storage_that_workers_and_driver_do_not_share_is_said(tmp_path: Path) -> None:
    """The workers' manifests are on another disk: their names come back, and are not found here."""
    from roamcast.lab.sweep.sweep import Sweep

    experiment = experiment_in(tmp_path, 1)
    with Sweep(experiment, tmp_path / "out", resume=False) as made:
        made.claim()
        committed = made.job().work([0], 0)
        made.check_is_seen([*committed, "/elsewhere/manifest/x.json"])
    for manifest in (tmp_path / "out" / "manifest").iterdir():
        manifest.unlink()
    with (
        Sweep(experiment, tmp_path / "out", resume=True) as made,
        pytest.raises(FileError, match=r"not seen here; allowed: storage that every machine sees"),
    ):
        made.check_is_seen(committed)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_scheme_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    experiment_in(tmp_path, 1)
    (tmp_path / "E.toml").write_text(
        '[experiment]\nname = "links"\nscenario = "links.toml"\n[axes]\n"workload.rate" = [2.0]\n'
    )
    refused = call("sweep", tmp_path / "E.toml", "--out", "ftp://host/o")
    assert refused.exit_code == 2 and "scheme ftp" in refused.stderr and "allowed" in refused.stderr


def test_tables_have_columns_that_sql_needs_no_quotes_for(whole: Path) -> None:
    from roamcast.lab.sweep.summary import AxisColumns

    axes: dict[str, list[Any]] = {"world.nodes": [5, 6], "seed": ["a"], "world_nodes": [1]}
    given = Experiment("n", {}, Path(), {key: tuple(values) for key, values in axes.items()}, (1,), {})
    assert AxisColumns(given).names == {
        "world.nodes": "world_nodes",
        "seed": "axis_seed",
        "world_nodes": "axis_world_nodes",
    }


def test_every_table_that_is_written_has_rows(whole: Path) -> None:
    files = list((whole / "out").rglob("*.parquet"))
    assert files and all(pq.ParquetFile(file).metadata.num_rows for file in files)
    assert {file.parent.name for file in files} < set(TABLES), "and some tables have none"
