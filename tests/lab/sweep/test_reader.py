"""One reader of sweeps: who asks gets every run once, as it was written, and opens no more than it must."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from tests.lab.storage.object_store import ObjectStore
from tests.lab.sweep.chaos import experiment_in

import roamcast.lab as lab
from roamcast.cli import app
from roamcast.errors import FileError, InputError
from roamcast.lab.notebook import Recorded
from roamcast.lab.run.runs import simulate
from roamcast.lab.storage import Storage, sealed
from roamcast.lab.sweep.experiment import Experiment
from roamcast.lab.sweep.folder import MADE_TABLES, TRACE_TABLES, SweepFolder
from roamcast.lab.sweep.jobs import SweepJob
from roamcast.lab.sweep.sweep import Sweep

PYTHON = sys.executable


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    """Eight runs in segments of their own, and the tables of them all; no Spark."""
    base = tmp_path_factory.mktemp("reader")
    experiment = experiment_in(base, 8)
    with Sweep(experiment, base / "out", resume=False) as made:
        made.claim()
        SweepJob(made.folder.storage, experiment, {}, commit_seconds=0.0).work(range(8), 0)
        made.finish()
    return experiment, base / "out"


@pytest.fixture
def doubled(whole: tuple[Experiment, Path], tmp_path: Path) -> tuple[Path, pa.Table]:
    """Half of the runs stand in a second segment too, one of them in a third; the rows that count."""
    experiment, out = whole
    right = lab.open(out, engine="arrow").deliveries
    copy = Path(shutil.copytree(out, tmp_path / "out"))
    SweepJob(Storage.open(copy), experiment, {}, 60.0).work([0, 1, 2, 3], 0)
    SweepJob(Storage.open(copy), experiment, {}, 60.0).work([3, 4], 0)
    assert len(SweepFolder(copy).segments()) == 10
    return copy, right


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=repr)


def test_a_run_that_stands_in_two_segments_counts_once(doubled: tuple[Path, pa.Table]) -> None:
    out, right = doubled
    assert sum(len(pq.read_table(file)) for file in (out / "deliveries").iterdir()) > len(right) > 0
    found = lab.open(out, engine="arrow")
    assert in_order(found.deliveries) == in_order(right)
    one = right["run"][0].as_py()
    mine = in_order(right.filter(pc.field("run") == one))
    assert in_order(found.table("deliveries", runs=[one])) == mine
    few = found.table("deliveries", runs=[one, "none"], columns=["t", "node"])
    assert few.column_names == ["run", "t", "node"] and len(few) == len(mine)


@pytest.mark.spark
def test_the_same_by_spark(doubled: tuple[Path, pa.Table], whole: tuple[Experiment, Path]) -> None:
    out, right = doubled
    by_spark = lab.open(out)
    assert by_spark.deliveries.count() == len(right)
    assert in_order(by_spark.deliveries.toArrow()) == in_order(right)
    one = right["run"][0].as_py()
    assert by_spark.table("deliveries", runs=[one]).count() == len(right.filter(pc.field("run") == one))
    assert by_spark.metrics.schema["latency_p95"].metadata == {"unit": "s"}
    assert by_spark.runs.schema["workload_rate"].metadata == {"axis": "workload.rate"}
    assert by_spark.deliveries.schema["t"].metadata == {"unit": "us"}


def test_a_made_table_that_was_changed_is_refused(whole: tuple[Experiment, Path], tmp_path: Path) -> None:
    """The auditor's case: a delivery ratio halved by hand."""
    out = Path(shutil.copytree(whole[1], tmp_path / "out"))
    file = out / "metrics" / "metrics.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("delivery_ratio")
    halved = table.set_column(at, table.schema.field(at), pc.divide(table["delivery_ratio"], 2.0))
    pq.write_table(halved, file, compression="zstd")
    with pytest.raises(FileError, match=rf"{file}: has (not the digest|\d+ octets)"):
        _ = lab.open(out, engine="arrow").metrics
    (out / "tables.json").write_bytes((out / "tables.json").read_bytes()[:-20])
    with pytest.raises(FileError, match=r"tables\.json: is no manifest"):
        _ = lab.open(out, engine="arrow").metrics


def test_bytes_are_compared_once_and_again_when_a_file_was_touched(
    whole: tuple[Experiment, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(whole[1], tmp_path / "out"))
    compared: list[str] = []
    check = sealed.SealedFile.check

    def counted(self: sealed.SealedFile, name: str, data: bytes) -> None:
        compared.append(name)
        check(self, name, data)

    monkeypatch.setattr(sealed.SealedFile, "check", counted)
    found = lab.open(out, engine="arrow")
    for _ in range(3):
        assert len(found.deliveries)
    assert len(compared) == len(set(compared)) == len(list((out / "deliveries").iterdir()))
    file = min((out / "deliveries").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(FileError, match=f"{file}: has not the digest"):
        _ = found.deliveries


def test_only_the_files_of_the_runs_that_are_asked_for_are_opened(
    whole: tuple[Experiment, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, out = whole
    found = lab.open(out, engine="arrow")
    wanted = experiment.runs()[5].run
    opened: list[str] = []
    read = Storage.read

    def noted(self: Storage, file: str) -> bytes:
        opened.append(file)
        return read(self, file)

    found.table("deliveries", runs=[wanted])
    monkeypatch.setattr(Storage, "read", noted)
    rows = found.table("deliveries", runs=[wanted])
    single = simulate(experiment.scenario(experiment.runs()[5])).tables["deliveries"]
    assert rows.drop_columns(["run"]).to_pylist() == single.to_pylist() and len(rows)
    (only,) = [file for file in opened if file.startswith("deliveries/")]
    assert only.startswith(f"deliveries/{wanted}")


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed
import roamcast.lab as lab
found = lab.open(sys.argv[1], engine="arrow")
print(len(found.deliveries), found.units("metrics")["latency_p50"], len(found.summary))
print(found.metrics.schema.field("wall_s").type)
"""


def test_arrow_tables_need_no_spark(whole: tuple[Experiment, Path]) -> None:
    command = [PYTHON, "-c", WITHOUT_SPARK, str(whole[1])]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(said[0]) > 0 and said[1] == "s" and int(said[2]) > 0 and said[3] == "double"


def test_names_of_tables_are_known_to_who_checks_types(whole: tuple[Experiment, Path]) -> None:
    """mypy runs over this file, and refuses an `ignore` that ignores nothing."""
    assert set(Recorded.__annotations__) == {*TRACE_TABLES, *MADE_TABLES}
    found = lab.open(whole[1], engine="arrow")
    with pytest.raises(AttributeError, match="has no table nonsense; it has publications"):
        _ = found.nonsense  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="engine: is 'polars'; allowed: spark or arrow"):
        lab.open(whole[1], engine="polars")  # type: ignore[call-overload]


def call(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def in_store(folder: Path, uri: str) -> Storage:
    storage = Storage.open(uri)
    for file in folder.rglob("*"):
        if file.is_file():
            storage.write(file.relative_to(folder).as_posix(), file.read_bytes())
    return storage


def test_why_play_metrics_and_tables_take_uris(
    whole: tuple[Experiment, Path], object_store: ObjectStore, tmp_path: Path
) -> None:
    experiment, out = whole
    plan = experiment.runs()[3]
    swept = in_store(out, object_store.uri("swept"))
    simulate(experiment.scenario(plan)).write(tmp_path / "one")
    single = in_store(tmp_path / "one", object_store.uri("one"))
    expected = call("why", tmp_path / "one")
    assert "expected deliveries did not happen" in expected
    assert call("why", single) == expected
    assert call("why", swept, "--run", plan.run) == call("why", out, "--run", plan.run) == expected
    assert call("play", f"{swept}/", "--no-open").strip() == f"{swept}.play.html"
    assert Storage.open(object_store.uri("")).exists("swept.play.html")
    assert call("metrics", single, "--json") == call("metrics", tmp_path / "one", "--json")
    here, there = (lab.open(place, engine="arrow") for place in (out, str(swept)))
    for name in ("deliveries", "metrics"):
        assert here.table(name) == there.table(name)
