"""docs/study/notebooks.md, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.live.test_network import two_nodes
from tests.lab.sweep.test_cluster import EXPERIMENT, SCENARIO

import roamcast.lab as lab
from roamcast.errors import FileError
from roamcast.lab.run.metrics import METRICS
from roamcast.lab.run.runs import simulate
from roamcast.lab.spark.session import session
from roamcast.lab.sweep.experiment import load_experiment
from roamcast.lab.sweep.sweep import sweep
from roamcast.scenario import load_scenario

PAGE = Path(__file__).parents[2] / "docs" / "study" / "notebooks.md"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("notebook")
    (made / "walkers.toml").write_text(SCENARIO)
    (made / "E.toml").write_text(EXPERIMENT.replace("replications = 8", "replications = 2"))
    assert sweep(load_experiment(made / "E.toml"), made / "out" / "areas").done == 4
    simulate(load_scenario(made / "walkers.toml")).write(made / "out" / "walkers")
    return made


@pytest.mark.spark
def test_the_code_of_the_page_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    parts = CODE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(parts) == 5
    for part in parts:
        exec(part, names)
    said = capsys.readouterr().out
    assert "experiment cluster, schema 2, roamcast" in said and "deliveries" in said
    assert "'t': 'us'" in said and "{'unit': 'us'}" in said
    assert all(
        f"|{name}|" in said.replace(" ", "") for name in ("run|count", "farthest", "mean|ci_low|ci_high")
    )


@pytest.mark.spark
def test_tables_are_the_ones_that_were_written(folder: Path) -> None:
    areas, walkers = lab.open(folder / "out" / "areas"), lab.open((folder / "out" / "walkers").as_uri())
    assert {"deliveries", "runs", "metrics", "summary"} <= set(dir(areas))
    figures = {row["run"]: row for row in areas.metrics.collect()}
    assert len(figures) == areas.runs.count() == 4
    counted = areas.deliveries.where("matched").groupBy("run").count().collect()
    assert {row["run"] for row in counted} == set(figures)
    one = simulate(load_scenario(folder / "walkers.toml"))
    row = walkers.metrics.collect()[0].asDict()
    assert {name: row[name] for name in METRICS if name != "wall_s"} == {
        name: one.metrics[name] for name in METRICS if name != "wall_s"
    }
    for name in walkers.tables[:-2]:
        assert walkers.table(name).count() == len(one.tables[name]), name
    with pytest.raises(AttributeError, match="has no table delivered; it has publications"):
        _ = areas.delivered  # type: ignore[attr-defined]
    with pytest.raises(FileError, match="holds no sweep, run or segment"):
        lab.open(folder / "out" / "areas" / "runs")
    assert lab.open(folder / "out" / "areas", session()).deliveries.count() > 0


@pytest.mark.spark
def test_segments_of_live_nodes_are_tables_too(tmp_path: Path) -> None:
    two_nodes(tmp_path)
    network = lab.open(tmp_path)
    assert network.metrics.select("run", "published", "delivered").collect() == [("r", 4, 2)]
    assert sorted(row["node"] for row in network.deliveries.where("run = 'r'").collect()) == [1, 2]
    assert network.runs.collect()[0]["runtime"] == "live"


def test_importing_the_lab_loads_no_spark() -> None:
    script = "import sys, roamcast.lab; print(sorted({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
