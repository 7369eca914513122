"""The example of `docs/develop/writing-a-strategy.md`, in all worlds: suites, simulation, sweep, emulation,
live."""

import asyncio
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "gossip"
sys.path.insert(0, str(ROOT))

from tests.runtime.emulate.conftest import what_is_missing  # noqa: E402
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until  # noqa: E402

from roamcast import plugins  # noqa: E402
from roamcast.broker.core import Delivery  # noqa: E402
from roamcast.daemon.config import load_config  # noqa: E402
from roamcast.event import Publication  # noqa: E402
from roamcast.filter import Filter  # noqa: E402
from roamcast.lab.run import runs  # noqa: E402
from roamcast.lab.sweep.experiment import experiment_from, load_experiment  # noqa: E402
from roamcast.lab.sweep.sweep import sweep  # noqa: E402
from roamcast.scenario import load_scenario, read_tables, scenario_from  # noqa: E402
from roamcast.sealing import GroupKey, Identity  # noqa: E402
from roamcast.strategy import STRATEGIES  # noqa: E402
from roamcast.testing import Network, mesh  # noqa: E402
from roamcast.testing.contract import BestEffortContract, StrategyContract  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    """For these tests alone: others speak of every strategy that there is."""
    plugins.load_modules(["gossip"], FOLDER, "modules")
    yield
    for root in list(plugins._beside):
        plugins._forget(root)


class TestGossip(BestEffortContract):
    strategy = "gossip"
    formed = 1.0


class TestCertainGossip(StrategyContract):
    """Without silence gossip is flooding, and keeps its promises."""

    strategy = "gossip"
    options = {"probability": 1.0}
    formed = 1.0


def test_some_nodes_stay_silent_and_spare_transmissions() -> None:
    sent = {}
    for probability in (0.0, 0.5, 1.0):
        options = {"probability": probability, "certain_hops": 0}
        network = Network(20, "gossip", links=mesh(20), options=options)
        for _ in range(20):
            network.publish(0)
            network.run(1.0)
        sent[probability] = len(network.frames())
    assert sent[0.0] == 20 and sent[1.0] == 20 * 20
    assert 20 * 7 < sent[0.5] < 20 * 14


def test_it_is_under_eighty_lines_and_the_page_shows_it_whole() -> None:
    source = (FOLDER / "gossip.py").read_text()
    assert len(source.splitlines()) < 80
    page = (ROOT / "docs" / "develop" / "writing-a-strategy.md").read_text()
    for name, language in (("gossip.py", "python"), ("square.toml", "toml"), ("compare.toml", "toml")):
        blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        assert (FOLDER / name).read_text() in blocks, (
            f"docs/develop/writing-a-strategy.md does not show {name} as it is"
        )


def test_it_is_simulated_from_its_scenario_file() -> None:
    metrics = runs.simulate(
        load_scenario(FOLDER / "square.toml", overrides=["scenario.duration=15.0"])
    ).metrics
    ratio = metrics["delivery_ratio"]
    assert ratio is not None and ratio > 0.8
    assert metrics["duplicates"] == metrics["misdelivered"] == 0


@pytest.mark.spark
def test_it_is_compared_with_two_others_by_a_sweep_on_spark(tmp_path: Path) -> None:
    """From a copy that is gone when the workers run: they have the code that the driver read."""
    for file in FOLDER.glob("*.*"):
        (tmp_path / file.name).write_text(file.read_text().replace('"gossip"', '"hearsay"'))
    (tmp_path / "gossip.py").rename(tmp_path / "hearsay.py")
    short = (tmp_path / "square.toml").read_text().replace("duration = 60.0", "duration = 12.0")
    (tmp_path / "square.toml").write_text(short)
    compare = (tmp_path / "compare.toml").read_text().replace("replications = 3", "replications = 1")
    (tmp_path / "compare.toml").write_text(compare)
    experiment = load_experiment(tmp_path / "compare.toml")
    (tmp_path / "hearsay.py").unlink()
    ended = sweep(experiment, tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "runs").to_pylist()
    assert (ended.done, ended.failed) == (6, 0), [row["error"] for row in rows]
    figures = pq.read_table(tmp_path / "out" / "metrics").to_pylist()
    crowded = {row["strategy_name"]: row for row in figures if row["world_area"] == "[400.0,400.0]"}
    assert set(crowded) == {"hearsay", "flooding", "epidemic"}
    assert crowded["hearsay"]["data_messages"] < crowded["flooding"]["data_messages"]
    assert all(row["delivery_ratio"] > 0.5 for row in crowded.values())


@pytest.mark.spark
def test_a_plugin_that_a_worker_lacks_fails_its_runs_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported here from a folder that no worker looks into."""
    text = (FOLDER / "gossip.py").read_text().replace('"gossip"', '"only_here"')
    (tmp_path / "only_here.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("only_here")
    tables = read_tables(FOLDER / "square.toml")
    tables["scenario"] |= {"duration": 12.0}
    del tables["scenario"]["modules"]
    ended = sweep(experiment_from("lacking", tables, {"strategy.name": ["only_here"]}), tmp_path / "out")
    STRATEGIES.remove("only_here")
    (row,) = pq.read_table(tmp_path / "out" / "runs").to_pylist()
    assert (ended.done, ended.failed) == (0, 1)
    assert re.match(
        r"module 'only_here' \(.*only_here.py\): cannot be imported: .*on the worker", row["error"]
    )


@pytest.mark.realtime
def test_it_is_emulated() -> None:
    if (missing := what_is_missing()) is not None:
        pytest.skip(f"cannot emulate here: {missing}")
    tables: dict[str, Any] = {
        "scenario": {"name": "line", "duration": 6.0, "warmup": 1.8, "modules": ["gossip"]},
        "world": {"nodes": 3, "area": [90.0, 1.0], "range": 40.0, "radio": {"model": "disk"}}
        | {"mobility": {"model": "static", "positions": [[30.0 * node, 0.0] for node in range(3)]}},
        "roles": {"publishers": "all"},
        "workload": {"rate": 2.0, "size": 100},
        "strategy": {"name": "gossip"},
    }
    result = runs.emulate(scenario_from(tables, FOLDER))
    metrics = result.metrics
    assert metrics["published"] and metrics["duplicates"] == metrics["misdelivered"] == 0
    ratio = metrics["delivery_ratio"]
    assert ratio is not None and (result.remark is not None or ratio > 0.9)


@pytest.mark.realtime
def test_it_runs_live() -> None:
    async def play() -> None:
        port = free_port()
        wanted = [settings(port=port, strategy="gossip") for _ in range(2)]
        async with running(*wanted) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.sql("level > 3"))
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            await until(lambda: session.publish(Publication({"level": 5})) and got)
            assert {delivery.event.attributes["level"] for delivery in got} == {5}

    asyncio.run(play())


def test_a_nodes_file_finds_it_beside_itself(tmp_path: Path) -> None:
    text = (FOLDER / "gossip.py").read_text().replace('"gossip"', '"whispers"')
    (tmp_path / "whispers.py").write_text(text)
    identity, group = Identity.generate().to_text(), GroupKey.generate().to_text()
    (tmp_path / "node.toml").write_text(
        f'[node]\nmodules = ["whispers"]\n[keys]\nidentity = "{identity}"\ngroup = ["{group}"]\n'
        '[strategy]\nname = "whispers"\noptions = { probability = 0.5 }\n'
    )
    assert load_config(tmp_path / "node.toml").strategy.name == "whispers"


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "develop" / "writing-a-strategy.md").read_text()
    (block,) = re.findall(r"```python\n(import gossip.*?)```", page, re.DOTALL)
    (tmp_path / "test_gossip.py").write_text(block)
    (tmp_path / "gossip.py").write_text((FOLDER / "gossip.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and " passed" in ended.stdout, ended.stdout
