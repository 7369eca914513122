"""Sweeps on an embedded session: complete, restartable, and honest about what failed."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from scipy import stats
from tests.lab.sweep.broken_runs import some_fail_and_are_mended

from roamcast.errors import InputError
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.run.runs import simulate
from roamcast.lab.run.tables import TABLES
from roamcast.lab.spark.session import session
from roamcast.lab.spark.settings import TASK_FAILURES_MAX
from roamcast.lab.sweep.experiment import Experiment, experiment_from
from roamcast.lab.sweep.folder import MADE_TABLES, TRACE_TABLES, RunRecord, SweepFolder
from roamcast.lab.sweep.jobs import BATCH_SECONDS, CLUSTER_CORES, Item, SweepJob, batched
from roamcast.lab.sweep.summary import spread
from roamcast.lab.sweep.sweep import Progress, Sweep, sweep

WALKERS: dict[str, Any] = {
    "scenario": {"name": "walkers", "duration": 20.0, "warmup": 2.0, "seed": 3},
    "world": {
        "nodes": 8,
        "area": [300.0, 300.0],
        "range": 120.0,
        "mobility": {"model": "random_waypoint", "speed": [1.0, 20.0], "pause": [1.0, 1.0]},
    },
    "roles": {"publishers": 2, "subscribers": 5},
    "workload": {"rate": 2.0, "size": 32, "match": 0.5},
    "strategy": {"name": "flooding"},
}
# What a clock or a second try changes.
UNSTEADY = {"runs": ["wall_s", "seconds", "attempt"], "metrics": ["wall_s"]}


AXES: dict[str, list[Any]] = {
    "world.area": [[300.0, 300.0], [600.0, 600.0]],
    "workload.rate": [1.0, 2.5],
}


def walkers(replications: int = 3, axes: dict[str, list[Any]] = AXES) -> Experiment:
    return experiment_from("areas", WALKERS, axes, replications=replications)


def sorted_tables(folder: Path) -> dict[str, list[str]]:
    """Every table of a sweep, row by row, without what is not steady."""
    found = {}
    for name in (*TRACE_TABLES, *MADE_TABLES):
        if not (folder / name).exists():  # no run has a row of it
            continue
        table = pq.read_table(folder / name).drop_columns(UNSTEADY.get(name, []))
        rows = [row for row in table.to_pylist() if row.get("metric") != "wall_s"]
        found[name] = sorted(repr(sorted(row.items())) for row in rows)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep to which nothing happened."""
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    seen: list[Progress] = []
    result = sweep(walkers(), folder, progress=seen.append, verify="all")
    assert (result.done, result.failed, result.total, result.ran) == (12, 0, 12, 12)
    assert result.verified == 12, "Spark's SQL gave the same figures, to the last digit"
    assert seen[0] == (0, 0, 12, None) and seen[-1] == (12, 0, 12, 0.0)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    return folder


@pytest.mark.spark
def test_the_pipelines_metrics_are_the_single_runs(undisturbed: Path) -> None:
    experiment = walkers()
    rows = pq.read_table(undisturbed / "metrics").to_pylist()
    assert [row["run"] for row in rows] == [plan.run for plan in experiment.runs()]
    assert sum(row["delivered"] for row in rows) > 100
    for plan, row in zip(experiment.runs(), rows, strict=True):
        single = simulate(experiment.scenario(plan)).metrics
        assert single["expected"], "else nothing much is compared"
        del single["wall_s"]
        assert {name: row[name] for name in single} == single
        assert [type(row[name]) for name in single] == [type(value) for value in single.values()]
        assert (row["cell"], row["seed"], row["workload_rate"]) == (
            plan.cell,
            plan.seed,
            plan.axes["workload.rate"],
        )
        assert msgspec.json.decode(row["world_area"]) == plan.axes["world.area"]


@pytest.mark.spark
def test_the_trace_tables_hold_every_run_once(undisturbed: Path) -> None:
    experiment = walkers()
    plan = experiment.runs()[4]
    single = simulate(experiment.scenario(plan)).tables
    for kind in TABLES:
        if not (undisturbed / kind.TABLE).exists():
            assert len(single[kind.TABLE]) == 0, "empty tables, and no others, are not written"
            continue
        table = pq.read_table(undisturbed / kind.TABLE)
        mine = table.filter(pa.compute.equal(table["run"], plan.run)).to_pylist()
        assert [row.pop("run") for row in mine] == [plan.run] * len(single[kind.TABLE])
        assert mine == single[kind.TABLE].to_pylist()
    spark_rows = session().read.parquet(str(undisturbed / "transmissions")).count()
    assert spark_rows == pq.read_table(undisturbed / "transmissions").num_rows


@pytest.mark.spark
def test_a_file_says_where_it_comes_from(undisturbed: Path) -> None:
    (file, *_) = (undisturbed / "deliveries").iterdir()
    found = pq.read_schema(file)
    assert found.metadata[b"roamcast.schema"] == b"2" and found.metadata[b"roamcast.version"]
    assert found.metadata[b"roamcast.experiment"].decode() == walkers().fingerprint
    assert found.field("t").metadata[b"unit"] == b"us"
    metrics = pq.read_schema(undisturbed / "metrics" / "metrics.parquet")
    assert metrics.field("latency_p50").metadata[b"unit"] == b"s"
    assert metrics.field("world_area").metadata[b"axis"] == b"world.area"


@pytest.mark.spark
def test_the_summary_is_mean_deviation_and_students_interval(undisturbed: Path) -> None:
    metrics = pq.read_table(undisturbed / "metrics").to_pylist()
    rows = pq.read_table(undisturbed / "summary").to_pylist()
    assert len(rows) == 4 * len(METRICS)
    for row in rows:
        values = [m[row["metric"]] for m in metrics if m["cell"] == row["cell"]]
        values = [value for value in values if value is not None]
        assert row["count"] == len(values)
        if len(values) == 3 and min(values) < max(values):
            low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
            assert row["mean"] == pytest.approx(sum(values) / 3)
            assert row["std"] == pytest.approx(stats.tstd(values))
            assert (row["ci_low"], row["ci_high"]) == (pytest.approx(low), pytest.approx(high))


def test_a_spread_by_hand() -> None:
    assert spread([]).mean is None
    assert (spread([4.0]).mean, spread([4.0]).std, spread([4.0]).ci_low) == (4.0, None, None)
    three = spread([1.0, 2.0, 3.0])
    assert (three.mean, three.std) == (2.0, 1.0)
    assert three.ci_high == pytest.approx(2.0 + 4.302652729911275 / 3**0.5)  # t(0.975, 2), from tables


@pytest.mark.spark
def test_a_folder_belongs_to_one_experiment(undisturbed: Path, tmp_path: Path) -> None:
    before = sorted_tables(undisturbed)
    with pytest.raises(InputError, match="--resume"):
        sweep(walkers(), undisturbed)
    with pytest.raises(InputError, match="--resume"):
        sweep(walkers(replications=4), undisturbed)  # the same experiment, with more seeds
    for resume in (False, True):
        with pytest.raises(InputError, match="holds another experiment"):
            sweep(walkers(axes={"world.nodes": [5]}), undisturbed, resume=resume)
    assert sorted_tables(undisturbed) == before
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="holds something else"):
        sweep(walkers(), tmp_path, resume=True)
    with pytest.raises(InputError, match="is a file"):
        sweep(walkers(), tmp_path / "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.spark
def test_three_of_forty_fail_and_are_run_again_when_their_cause_is_mended(tmp_path: Path) -> None:
    some_fail_and_are_mended(tmp_path, 40)  # `make torture` plays two hundred


def claimed(tmp_path: Path, experiment: Experiment) -> SweepFolder:
    folder = SweepFolder(tmp_path / "out")
    folder.check(experiment, resume=False)
    folder.claim(experiment)
    return folder


def job(folder: SweepFolder, experiment: Experiment) -> SweepJob:
    return SweepJob(folder.storage, experiment, {}, 60.0)


def test_running_a_run_again_doubles_nothing(tmp_path: Path) -> None:
    """A worker that was thought dead commits after all; and a worker that died had committed some."""
    experiment = walkers(1)
    folder = claimed(tmp_path, experiment)
    work = job(folder, experiment)
    work.work([0, 1], 0)
    assert work.work([0, 1, 2], 1) != [], "the batch is repeated after a death"
    assert [len(segment.runs) for segment in folder.segments()] == [2, 1], "what was there is not run again"
    work.work([1, 2, 3], 0)
    assert len(folder.records()) == 4
    assert folder.mend(digests=True) == [] and len(folder.segments()) == 1, "run 0 is to be run again"
    table = pq.read_table(tmp_path / "out" / "publications")
    assert sorted(set(table["run"].to_pylist())) == sorted(folder.records())
    again = simulate(experiment.scenario(experiment.run(1))).tables["publications"]
    assert len(table.filter(pa.compute.equal(table["run"], experiment.run(1).run))) == len(again)


def test_a_run_that_kills_its_workers_is_given_up_before_spark_gives_the_sweep_up(tmp_path: Path) -> None:
    experiment = walkers(1)
    folder = claimed(tmp_path, experiment)
    job(folder, experiment).work([0, 1], TASK_FAILURES_MAX - 1)
    (record,) = folder.records().values()  # the other one gets another task
    assert record.run == experiment.runs()[0].run
    assert record.status == "failed" and record.error is not None and "died 3 times" in record.error


def test_runs_by_number_are_the_runs() -> None:
    for experiment in (walkers(), walkers(2, {"world.nodes": [5, 6, 7], "workload.rate": [1.0, 2.0]})):
        plans = experiment.runs()
        assert [experiment.run(number) for number in range(len(plans))] == plans


def test_batches_hold_each_item_once_longest_first_and_end_small() -> None:
    items = [[Item(number, 1.0 + number % 7) for number in range(1000)], [Item(0, 5000.0), Item(1, 0.1)]]
    made = batched(items, workers=4)
    for job_number, of_job in enumerate(items):
        done = [number for batch in made if batch.job == job_number for number in batch.items]
        assert sorted(done) == list(range(len(of_job)))
    weights = [batch.weight for batch in made]
    assert weights == sorted(weights, reverse=True) and weights[-1] <= 8
    assert made[0] == (1, (0,), 5000.0), "the longest item is alone and first"
    assert len(made) < 120 and max(len(batch.items) for batch in made) <= 256, "4,000 s, of 60 s at most"


def test_on_a_cluster_batches_are_cut_by_time_whatever_cores_are_seen_at_the_start() -> None:
    """With dynamic allocation a cluster of 400 cores answered 2, and used 33 (the audit's D7)."""
    short, long = (
        [Item(number, 0.5) for number in range(3_000)],
        [Item(number, 30.0) for number in range(3_000)],
    )
    for items, least in ((short, 250), (long, 1_500)):
        made = batched([items], CLUSTER_CORES, BATCH_SECONDS[0])
        assert len(made) >= least and sum(len(batch.items) for batch in made) == 3_000
        assert max(batch.weight for batch in made) <= BATCH_SECONDS[1]
    assert min(batch.weight for batch in batched([short], CLUSTER_CORES, BATCH_SECONDS[0])[:-1]) == 5.0
    assert len(batched([[Item(n, 0.5) for n in range(100_000)]], CLUSTER_CORES, BATCH_SECONDS[0])) < 2_500


def test_one_seed_of_each_cell_comes_first_and_the_longest_cell_next(tmp_path: Path) -> None:
    """A rate of 100 took 52 times as long as one of 0.5, and was planned last (D8)."""
    axes: dict[str, list[Any]] = {"workload.rate": [0.5, 0.6, 100.0, 0.7], "world.nodes": [8, 9]}
    experiment = walkers(25, axes)
    with Sweep(experiment, tmp_path / "out", resume=False) as made:
        made.claim()
        first = [item.number for item in made.next()]
        assert first == [cell * 25 for cell in range(8)]
        records: list[tuple[RunRecord, dict[str, pa.Table]]] = []
        for number in first:
            plan = experiment.run(number)
            seconds = 26.0 if plan.axes["workload.rate"] == 100.0 else 0.5
            records.append((RunRecord(run=plan.run, status="ok", seconds=seconds, attempt=1), {}))
        made.folder.commit(records, [])
        rest = made.next()
        assert len(rest) == 192
        batches = batched([rest], 2)
        longest = {number for cell in (4, 5) for number in range(cell * 25 + 1, cell * 25 + 25)}
        done = [number for batch in batches for number in batch.items]
        assert set(done[: len(longest)]) == longest and batches[0].items[0] in longest
    few = walkers(3)
    with Sweep(few, tmp_path / "few", resume=False) as made:
        assert len(made.next()) == 12, "not worth a second Spark job"
