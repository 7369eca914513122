from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from tests.lab.sweep.chaos import experiment_in

from roamcast.errors import FileError, InputError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.lab.groups.grouping import CostModel, Grouping, GroupingCost, group_subscriptions, parse_ks
from roamcast.lab.groups.job import Reach, count_matched
from roamcast.lab.run.tables import TABLES, RunInfo, table, tables, with_run
from roamcast.lab.run.tables import write as write_run
from roamcast.lab.sweep.folder import OK, RunRecord, SweepFolder
from roamcast.strategy.odmrp.grouping.channels import group, united
from roamcast.strategy.odmrp.summary.geometry import DEFAULT
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary
from roamcast.trace import Published, Subscribed, Trace
from roamcast.units import SECOND

PLAYERS = ["woods", "palmer", "els"]


def subscriptions(nodes: int = 18) -> list[Subscribed]:
    """Three kinds of brokers, told apart by all they say."""
    texts = [
        "player = 'woods' AND holescore <= {}",
        "hole BETWEEN 10 AND 18 AND kind = 'board' AND rank <= {}",
        "station LIKE 'north%' AND wind > 30 AND gusts >= {}",
    ]
    rows = [
        Subscribed(0, node, 1, str(Filter.sql(texts[node % 3].format(4 + node // 3 % 2))), True)
        for node in range(nodes)
    ]
    # One changes its mind after ten seconds, and one is gone from there on.
    rows.append(Subscribed(10 * SECOND, 0, 1, rows[0].filter, False))
    rows.append(Subscribed(10 * SECOND, 1, 2, str(Filter.sql("hole = 3")), True))
    return rows


def publications(count: int = 60) -> list[Published]:
    random = Random(3)
    rows = []
    for number in range(count):
        attributes: dict[str, Any] = random.choice(
            [
                {"player": random.choice(PLAYERS), "holescore": random.randint(2, 7), "hole": 3},
                {"hole": random.randint(1, 18), "kind": "board", "rank": random.randint(1, 10)},
                {"station": "north 1", "wind": random.randint(20, 50), "gusts": random.randint(1, 9)},
            ]
        )
        rows.append(published(number * SECOND // 2, number % 4, number, attributes))
    rows.append(published(40 * SECOND, 5, 1, {"player": "woods", "holescore": 1}, destinations=(7,)))
    return rows


def published(
    t: int, publisher: int, sequence: int, attributes: dict[str, Any], destinations: tuple[int, ...] = ()
) -> Published:
    text = msgspec.json.encode(attributes).decode()
    return Published(t, publisher, sequence, "realtime", 0, 100, "", "", text, destinations, False)


def write(folder: Path, subscribed: list[Subscribed], events: list[Published]) -> Path:
    made = Trace()
    for record in (*subscribed, *events):
        made.records[type(record)].append(record)
    write_run(tables(made), RunInfo(name="golf", strategy="odmrp", seed=1, nodes=18, duration=SECOND), folder)
    return folder


def by_hand(
    subscribed: list[Subscribed], events: list[Published], members: dict[int, int], model: CostModel
) -> tuple[int, int, int, float]:
    """Matched, noise, control and total, one pair at a time."""
    summaries = {
        node: Summary.of([Filter.parse(row.filter) for row in subscribed if row.node == node and row.stands])
        for node in members
    }
    groups = {number: [node for node in members if members[node] == number] for number in members.values()}
    wanted = {number: united(summaries[node] for node in nodes) for number, nodes in groups.items()}
    matched = reached = 0
    for row in events:
        if row.destinations:
            continue
        event = Event(row.publisher, row.sequence, msgspec.json.decode(row.attributes))
        reached_nodes = [
            node
            for number, nodes in groups.items()
            if wanted[number].matches(EventDigest.of(event))
            for node in nodes
            if node != row.publisher
        ]
        reached += len(reached_nodes)
        for node in members:
            standing: dict[int, str] = {}
            for subscription in subscribed:
                if subscription.node == node and subscription.t <= row.t:
                    standing.pop(subscription.subscription, None)
                    if subscription.stands:
                        standing[subscription.subscription] = subscription.filter
            if node != row.publisher and any(Filter.parse(text).matches(event) for text in standing.values()):
                matched += 1
                assert node in reached_nodes
    control = 0
    for publisher in {row.publisher for row in events if not row.destinations}:
        times = [row.t for row in events if row.publisher == publisher and not row.destinations]
        control += len(groups) * int((max(times) - min(times)) / 1e6 // model.refresh_interval + 1)
    return matched, reached - matched, control, reached + model.control_cost * control


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Grouping, list[tuple[str, int, int]]]:
    folder = tmp_path_factory.mktemp("grouping")
    write(folder / "run", subscriptions(), publications())
    steps: list[tuple[str, int, int]] = []
    result = group_subscriptions(
        folder / "run", ks=[1, 3], out=folder / "out", progress=lambda *step: steps.append(step)
    )
    return folder, result, steps


@pytest.mark.spark
def test_spark_finds_the_groups_that_the_broker_finds(grouped: tuple[Path, Grouping, Any]) -> None:
    folder, result, _ = grouped
    members = pq.read_table(folder / "out" / "members.parquet").to_pylist()
    found: dict[int, list[int]] = {}
    for row in members:
        if row["k"] == 3:
            found.setdefault(row["group"], []).append(row["node"])
    texts: dict[int, list[Filter]] = {}
    for row in subscriptions():
        if row.stands:
            texts.setdefault(row.node, []).append(Filter.parse(row.filter))
    summaries = {node: Summary.of(filters) for node, filters in texts.items()}
    expected = group("k_means", summaries, k=3, random=Random(1))
    assert sorted(map(tuple, found.values())) == [each.members for each in expected]
    assert (result.brokers, result.events) == (18, 60)
    assert result.costs[1].sizes == (6, 6, 6) and result.costs[0].sizes == (18,)


@pytest.mark.spark
def test_costs_are_those_counted_by_hand(grouped: tuple[Path, Grouping, Any]) -> None:
    folder, result, steps = grouped
    rows = pq.read_table(folder / "out" / "members.parquet").to_pylist()
    for cost in result.costs:
        members = {row["node"]: row["group"] for row in rows if row["k"] == cost.k}
        expected = by_hand(subscriptions(), publications(), members, CostModel())
        assert (cost.matched, cost.noise, cost.control, cost.total) == expected
    assert result.costs[0].noise > result.costs[1].noise  # else there is no choice to make
    assert result.best == min(result.costs, key=lambda each: each.total).k
    written = pq.read_table(folder / "out" / "costs.parquet").to_pylist()
    assert [row["total"] for row in written] == [each.total for each in result.costs]
    assert [row["k"] for row in written if row["best"]] == [result.best]
    assert sorted(path.name for path in folder.iterdir()) == ["out", "run"]
    assert ("k-means", 2, 2) in steps and steps[-1] == ("costs", 2, 2)


@pytest.mark.spark
def test_runs_of_a_sweep_are_grouped_together_and_reached_apart(tmp_path: Path) -> None:
    """Two runs of one experiment: the costs are those of the runs, added."""
    subscribed, events = subscriptions(), publications()
    folder = SweepFolder(tmp_path / "sweep")
    folder.claim(experiment_in(tmp_path / "base", 1))
    rows = {kind.TABLE: table(kind, []) for kind in TABLES}
    rows |= {"subscriptions": table(Subscribed, subscribed), "publications": table(Published, events)}
    for run in ("0000-1-aaaaaaaa", "0000-2-bbbbbbbb"):
        counts = {name: len(each) for name, each in rows.items() if len(each)}
        record = RunRecord(run=run, status=OK, seconds=1.0, attempt=1, rows=counts)
        folder.commit([(record, rows)], [])
    result = group_subscriptions(tmp_path / "sweep", ks=[1, 99], model=CostModel(control_cost=0.0))
    alone = by_hand(subscribed, events, dict.fromkeys(range(18), 0), CostModel(control_cost=0.0))
    (cost,) = result.costs  # there are not 99 brokers
    assert (cost.matched, cost.noise, cost.control, cost.total) == tuple(2 * figure for figure in alone)
    assert cost.sizes == (36,) and cost.groups == 1


@pytest.mark.spark
def test_a_filter_that_cannot_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [*subscriptions(), Subscribed(0, 3, 9, "a >", True)], publications())
    with pytest.raises(FileError, match=r"run: node 3 has the filter a >: "):
        group_subscriptions(folder)


def test_an_event_that_cannot_be_read_is_a_problem_of_its_batch() -> None:
    rows = [msgspec.structs.replace(publications()[0], attributes="{"), publications()[1]]
    events = with_run(table(Published, rows), "x").append_column("groups", pa.array([[0], None]))
    groups = pa.Table.from_pylist(
        [{"k": 1, "run": "x", "number": 0, "members": 7, "summary": Summary.of([EVERYTHING]).encode()}]
    )
    (batch,) = Reach(groups, DEFAULT, (1,))(events.to_batches())
    (row,) = batch.to_pylist()
    assert row["reached"] == 7
    assert row["problem"].startswith("run x: event 0:0 has attributes that are no JSON object of values: ")


EVERYTHING = Filter.everything()


def test_bad_input_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no sweep, run or segment"):
        group_subscriptions(tmp_path)
    (tmp_path / "there").write_text("full")
    with pytest.raises(InputError, match="is a file; allowed: a new or empty folder"):
        group_subscriptions(tmp_path, out=tmp_path / "there")
    for text in ("0", "1..999", "x", "1..", "3..1", ""):
        with pytest.raises(InputError, match=r"^k: is .*allowed: "):
            parse_ks(text)
    assert [parse_ks("3"), parse_ks("1..3"), parse_ks("1,4")] == [[3], [1, 2, 3], [1, 4]]
    with pytest.raises(InputError, match=r"^refresh: is 0"):
        group_subscriptions(tmp_path, model=CostModel(refresh_interval=0.0))


def test_the_answer_as_text_and_as_json() -> None:
    costs = [
        GroupingCost(1, 1, (18,), 126, 469, 24, 835.0),
        GroupingCost(9, 9, (2,) * 9, 126, 99, 216, 2385.0),
    ]
    found = Grouping(costs, 1, 18, 60)
    assert found.to_text().splitlines() == [
        "k  groups  matched  noise  control  total  sizes",
        "1       1      126    469       24    835  18",
        "9       9      126     99      216   2385  2 2 2 2 2 2 2 2 …",
        "18 brokers, 60 events; 1 groups would have cost least",
    ]
    read = msgspec.json.decode(found.to_json())
    assert read["best"] == 1 and read["costs"][0]["sizes"] == [18]


def test_matched_counts_subscriptions_as_they_stand() -> None:
    rows = [
        Subscribed(0, 1, 1, "a = 1", True),
        Subscribed(5, 1, 1, "a = 1", False),
        Subscribed(5, 2, 1, "a = 1", True),
        Subscribed(7, 2, 2, "a > 0", True),  # the same broker twice is one delivery
        Subscribed(0, 9, 1, "a = 1", True),  # the publisher itself
    ]
    events = [published(t, 9, t, {"a": 1}) for t in (4, 5, 8)]
    later = msgspec.structs.replace(published(1, 9, 99, {"a": 1}), event_class="memorized", lifetime=4)
    found = count_matched(table(Subscribed, rows), with_run(table(Published, [*events, later]), ""))
    assert found.to_pylist() == [{"matched": 1 + 1 + 1 + 2}]
