"""Whole emulations: real nodes, real time. Few and short, because each takes its seconds, and all at the same
time: each has its own namespaces, and they mostly wait."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roamcast.daemon.config import load_config
from roamcast.errors import ScenarioError
from roamcast.lab.live.network import read_network, read_one
from roamcast.lab.run import runs
from roamcast.lab.run.tables import records
from roamcast.lab.why.answer import LossReason, counts
from roamcast.lab.why.inquest import explain
from roamcast.runtime.emulate.collect import Circumstances
from roamcast.runtime.emulate.conductor import FILE, Configuration
from roamcast.runtime.emulate.emulation import Emulation, EmulationResult
from roamcast.scenario import Scenario, scenario_from
from roamcast.scenario.workload import roles
from roamcast.trace import Delivered, HandedOff, Moved, Published, Trace
from roamcast.units import SECOND

pytestmark = pytest.mark.realtime


def line(nodes: int, duration: float, **others: Any) -> Scenario:
    places = [[30.0 * node, 0.0] for node in range(nodes)]
    tables: dict[str, Any] = {
        "scenario": {"name": "line", "duration": duration, "warmup": 1.8},
        "world": {"nodes": nodes, "area": [30.0 * nodes, 1.0], "range": 40.0}
        | {"mobility": {"model": "static", "positions": places}, "radio": {"model": "disk"}},
        "roles": {"publishers": "all"},
        "workload": {"rate": 2.0, "size": 100},
        "strategy": {"name": "flooding"},
    }
    return scenario_from(tables | others)


# What the tests below ask for, by their names. The first of them starts all that are wanted.


def played_line_of_three(folder: Path) -> tuple[runs.RunResult, list[float]]:
    """Two runs in one, because starting costs the most: whole, then cut, then healed."""
    faults = [
        {"at": 3.55, "kind": "cut", "links": [[1, 2]]},
        {"at": 5.05, "kind": "heal", "links": [[1, 2]]},
    ]
    shares: list[float] = []
    return runs.emulate(line(3, 8.0, fault=faults), shares.append, folder), shares


def played_modulator(_: Path) -> EmulationResult:
    pairs = {"name": "aggregate", "attribute": "level", "every": 2}
    workload = {
        "subscriptions": [{"node": 1, "filter": "level > 3", "modulator": pairs}],
        "publications": [{"t": 3.0 + 0.5 * n, "node": 0, "attributes": {"level": 5}} for n in range(8)],
    }
    strategy = {"strategy": {"name": "opportunistic"}, "underlay": {"name": "beacons"}}
    return Emulation(line(2, 8.0, workload=workload, **strategy)).run()


def played_moving_home(_: Path) -> EmulationResult:
    """A-B-C becomes B-A-C: the consumer on C is handed off from the broker on B to the one on A, between two
    events of a window."""
    thirds = {"name": "aggregate", "attribute": "level", "every": 3}
    publications = [{"t": 6.0 + 0.5 * n, "node": 0, "attributes": {"level": 5}} for n in range(30)]
    tables: dict[str, Any] = {
        "workload": {"subscriptions": [{"node": 2, "modulator": thirds}], "publications": publications},
        "roles": {"brokers": [0, 1]},
        "strategy": {
            "name": "opportunistic",
            "options": {"broker_update": 1.0, "broker_discovery": 1.0, "overload_control": False},
        },
        "underlay": {"name": "olsr", "options": {"hello_interval": 0.5, "tc_interval": 1.0}},
        "world": {"nodes": 3, "area": [10.0, 10.0], "range": 40.0}
        | {"mobility": {"model": "static"}, "radio": {"model": "disk"}},
        "fault": [
            {"at": 0.0, "kind": "cut", "links": [[0, 2]]},
            {"at": 10.2, "kind": "heal", "links": [[0, 2]]},
            {"at": 10.2, "kind": "cut", "links": [[1, 2]]},
        ],
    }
    return Emulation(line(3, 26.0, **tables)).run()


def played_killed_node(_: Path) -> EmulationResult:
    faults = [{"at": 3.0, "kind": "crash", "nodes": [1]}, {"at": 4.0, "kind": "restart", "nodes": [1]}]
    workload = {
        "class": "memorized",
        "lifetime": 60.0,
        "size": 50,
        "publications": [{"t": 2.5, "node": 1}, {"t": 3.5, "node": 1}, {"t": 3.6, "node": 0}],
    }
    return Emulation(line(2, 12.0, fault=faults, workload=workload, strategy={"name": "epidemic"})).run()


PLAYED: dict[str, Callable[[Path], Any]] = {
    "test_a_line_of_three_delivers_everything_and_a_cut_is_a_cut": played_line_of_three,
    "test_a_scenarios_modulator_makes_its_products_on_the_way": played_modulator,
    "test_a_consumers_home_follows_it_along_a_line_and_its_modulator_keeps_its_state": played_moving_home,
    "test_a_killed_node_comes_back_with_what_was_memorized": played_killed_node,
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulations") / "traces"


@pytest.fixture(scope="module")
def emulations(
    request: pytest.FixtureRequest, namespaces: None, traces: Path
) -> Iterator[dict[str, Future[Any]]]:
    wanted = {item.name for item in request.session.items} & PLAYED.keys()
    with ThreadPoolExecutor(len(PLAYED)) as threads:
        yield {name: threads.submit(PLAYED[name], traces) for name in sorted(wanted)}


@pytest.fixture
def emulated(request: pytest.FixtureRequest, emulations: dict[str, Future[Any]]) -> Any:
    """The emulation of this test."""
    return emulations[request.node.name].result()


def same_as_live(emulated: runs.RunResult, traces: Path) -> None:
    """Compares the figures of the same time: emulated nodes start a while before instant 0."""
    whole = read_one(str(traces)).result

    def first(result: runs.RunResult) -> int:
        counted = {(r.publisher, r.sequence): r.t for r in records(result.tables, Published)}
        return min(t for event, t in counted.items() if event in common)

    common = {(r.publisher, r.sequence) for r in records(emulated.tables, Published)}
    began = first(whole) - first(emulated)
    since, until = ((began + t) / SECOND for t in (emulated.info.warmup, emulated.info.duration))
    (live,) = read_network(str(traces), since=since, until=until)
    there, here = emulated.metrics, live.result.metrics
    for name in ("published", "expected", "delivered", "duplicates", "misdelivered", "hops_mean"):
        assert here[name] == there[name], name
    for name in ("control_messages", "data_messages", "control_bytes", "data_bytes"):
        ours, theirs = here[name], there[name]
        assert ours is not None and theirs is not None and abs(ours - theirs) <= 0.05 * theirs + 200, name
    # An application's own stamps are those of the node, and the way through its socket.
    latency, theirs = here["latency_p50"], there["latency_p50"]
    assert latency is not None and theirs is not None and 0 < latency <= theirs + 0.05
    assert here["reachable_ratio"] is None and live.remarks == ()


def test_a_line_of_three_delivers_everything_and_a_cut_is_a_cut(
    emulated: tuple[runs.RunResult, list[float]], traces: Path
) -> None:
    """The nodes' own traces, read as those of a live network, give the same figures as far as a live network
    knows them."""
    result, shares = emulated
    metrics = result.metrics
    same_as_live(result, traces)
    assert result.info.runtime == "emulate"
    places = {(knot.node, knot.x, knot.y) for knot in records(result.tables, Moved)}
    assert places == {(0, 0.0, 0.0), (1, 30.0, 0.0), (2, 60.0, 0.0)}, "the ether says where nodes are"
    assert max(knot.t for knot in records(result.tables, Moved)) >= result.info.duration
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1
    assert metrics["duplicates"] == metrics["misdelivered"] == 0
    # From 1.8 s to 7 s, every half second from 0.098 s (node 0), 0.464 s (node 1) and 0.181 s (node 2).
    assert metrics["published"] == 10 + 11 + 10
    assert metrics["expected"] == 2 * 31
    # During the cut each node publishes three events, and node 2 hears nobody and nobody hears it.
    assert metrics["reachable_ratio"] == pytest.approx(1 - 3 * 4 / 62, abs=0.04)
    reachable = metrics["delivery_ratio_reachable"]
    assert reachable is not None
    if result.remark is None:
        # After the cut nodes 1 and 2 may have to prove themselves to each other again: one event each way.
        assert reachable >= 0.95
    missing = explain(result.tables, result.info)
    assert LossReason.UNKNOWN not in counts(missing)
    # The cut is over within the limit's deadline, so a strategy that keeps events could have served them.
    found = counts(missing)
    assert found.get(LossReason.NO_PATH, 0) + found.get(LossReason.NOT_SENT, 0) >= len(missing) - 4
    air = metrics["air_bytes"]
    data = metrics["data_bytes"]
    assert air is not None and data is not None and air > data + 42  # headers are around what the node counts


def test_a_scenarios_modulator_makes_its_products_on_the_way(emulated: EmulationResult) -> None:
    assert emulated.circumstances.refused == ()
    delivered = emulated.trace.of(Delivered)
    assert 0 < len(delivered) <= 4  # of eight events: one product for every two
    assert all(record.matched for record in delivered)  # although no product has a level


def test_a_consumers_home_follows_it_along_a_line_and_its_modulator_keeps_its_state(
    emulated: EmulationResult,
) -> None:
    """Products have the identity of the event that completes their window."""
    # On a busy machine B may start late, and its home is on A before that.
    since = [one for one in emulated.trace.of(HandedOff) if one.t > 10 * SECOND]
    moved = [one for one in since if one.node == 2 and one.outcome == "moved"]
    assert [(one.source, one.destination) for one in moved][:1] == [(1, 0)]
    completed = [record.sequence for record in emulated.trace.of(Delivered)]
    assert completed == list(range(2, 30, 3))  # none twice, none begun anew


def test_a_killed_node_comes_back_with_what_was_memorized(emulated: EmulationResult) -> None:
    # Then come up to 1.7 s until the next digest, and the machine's own delays.
    if emulated.circumstances.restart_delay > 4 * SECOND:
        pytest.skip("this machine is too busy: the node was not back in time")
    # Node 1 is down at 3.5 s and publishes nothing; what node 0 publishes meanwhile waits for it.
    published = {(r.publisher, r.t // SECOND) for r in emulated.trace.of(Published)}
    assert published == {(1, 2), (0, 3)}
    delivered = {(r.publisher, r.node) for r in emulated.trace.of(Delivered)}
    assert delivered == {(1, 0), (0, 1)}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("victim", "number"),
    [("lab", signal.SIGKILL), ("conductor", signal.SIGKILL), ("lab", signal.SIGINT)],
    ids=["lab killed", "conductor killed", "interrupted"],
)
def test_nothing_is_left_when_a_part_is_killed(tmp_path: Path, victim: str, number: int) -> None:
    program = (
        "from roamcast.runtime.emulate.emulation import Emulation\n"
        "from test_emulation import line\n"
        "Emulation(line(2, 60.0)).run()\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    lab = subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(parts(tmp_path)) >= 4)  # conductor, ether, two nodes
        # The oldest of that name: a child just forked still has its parent's words.
        conductor = min(process for process, words in parts(tmp_path).items() if "emulate.stage" in words)
        os.kill(lab.pid if victim == "lab" else conductor, number)
        lab.wait(20)
    finally:
        lab.kill()
        lab.wait()
    eventually(lambda: not parts(tmp_path))
    eventually(lambda: not list(tmp_path.iterdir()))


def eventually(holds: Callable[[], bool], within: float = 60.0) -> None:
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def parts(folder: Path) -> dict[int, str]:
    """The processes that work in a folder, by their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"{folder}/" in words:
                found[int(entry.name)] = words
    return found


def test_what_only_a_simulation_can_do_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"underlay\.name"):
        Emulation(line(3, 5.0, underlay={"name": "ideal"}))


def test_nodes_are_brokers_as_the_scenario_says(tmp_path: Path) -> None:
    configuration = Configuration(line(3, 5.0, roles={"brokers": [1]}), tmp_path / "traces", epoch=0)
    for node in range(3):
        configuration.write(node, tmp_path / str(node))
    loaded = [load_config(tmp_path / str(node) / FILE).node.broker for node in range(3)]
    assert loaded == [False, True, False]


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"world.nodes: is 251; an emulation takes at most 250"):
        Emulation(line(251, 5.0))


def test_a_machine_that_was_too_slow_says_so() -> None:
    scenario = line(3, 5.0)

    def result(play: int, publish: int, *others: Any) -> EmulationResult:
        circumstances = Circumstances(play, 10 * play, publish, *others)
        return EmulationResult(scenario, roles(scenario), Trace(), circumstances, 1.0)

    assert result(19_000, 19_000).remark is None
    late = result(45_000, 1_000).remark
    assert late is not None and "too slow" in late and "45 ms" in late
    assert result(1_000, 45_000).remark is not None
    refused = result(0, 0, ("node 3: subscription: no",)).remark
    assert refused is not None and "node 3: subscription: no" in refused
    assert result(0, 0, (), 7).remark is not None
    assert result(0, 0, (), 0, ("node 1: a handler raised an error",)).remark is not None
