"""Scenario files: what is read, and what every kind of bad input is told."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from roamcast import strategy
from roamcast.errors import FileError, ScenarioError
from roamcast.event import EventClass
from roamcast.scenario import load_scenario, parsed_override, read_tables, scenario_from, with_settings
from roamcast.scenario.model import MotionFormat, RecordedTrace
from roamcast.strategy.flooding import Flooding
from roamcast.world.formats import MOTION_FORMATS
from roamcast.world.mobility import RandomWaypoint
from roamcast.world.radio import CsmaRadio, DiskRadio, IdealRadio

EXAMPLES = Path(__file__).parents[2] / "examples"

# The example of the design, word for word but for the strategy, which is not there yet.
DESIGN = """
[scenario]
name = "walkers"
duration = 600.0          # simulated seconds
warmup = 30.0             # left out of the metrics
seed = 1

[world]
nodes = 100
area = [1000.0, 1000.0]   # metres
range = 250.0             # metres

[world.mobility]
model = "random_waypoint"
speed = [1.0, 20.0]
pause = [10.0, 10.0]      # seconds

[world.radio]
model = "ideal"
bitrate = 2_000_000
loss = 0.0

[roles]
brokers = "all"
publishers = 10
subscribers = 60

[workload]
rate = 2.0                # events per second and publisher
size = 256                # payload bytes
match = 1.0
class = "realtime"        # or "memorized", kept for
lifetime = 0.0            # seconds

[strategy]
name = "flooding"
[strategy.options]

[[fault]]
at = 120.0
kind = "crash"
nodes = [4]
"""


def tables(**changes: Any) -> dict[str, Any]:
    """A small scenario; `changes` are dotted keys with `__` for the dot."""
    small: dict[str, Any] = {
        "scenario": {"name": "small", "duration": 20.0},
        "world": {
            "nodes": 4,
            "area": [100.0, 100.0],
            "range": 50.0,
            "mobility": {"model": "static"},
        },
        "strategy": {"name": "flooding"},
    }
    return with_settings(small, [(key.replace("__", "."), value) for key, value in changes.items()])


def without(source: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    left = with_settings(source, [])
    for key in keys:
        *path, name = key.split(".")
        table = left
        for step in path:
            table = table[step]
        del table[name]
    return left


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    path = tmp_path / "walkers.toml"
    path.write_text(DESIGN)
    scenario = load_scenario(path)
    assert scenario.scenario.name == "walkers"
    assert (scenario.nodes, scenario.seed) == (100, 1)
    assert (scenario.duration, scenario.warmup, scenario.stop) == (600_000_000, 30_000_000, 599_000_000)
    assert scenario.world.mobility == RandomWaypoint(speed=(1.0, 20.0), pause=(10.0, 10.0))
    assert scenario.world.radio == IdealRadio()
    assert scenario.workload.event_class is EventClass.REALTIME
    assert scenario.fault[0].nodes == (4,)
    assert scenario.underlay.name is None and scenario.underlay.parsed() is None


def test_what_is_left_out_has_its_default() -> None:
    scenario = scenario_from(tables())
    assert scenario.roles.publishers == 1 and scenario.roles.subscribers == scenario.roles.brokers == "all"
    assert scenario.workload.rate == 1.0 and scenario.workload.size == 256
    assert scenario.world.radio == IdealRadio()
    assert scenario.strategy.parsed() == strategy.options_type("flooding")()


def test_options_are_read_as_the_parts_own_type() -> None:
    scenario = scenario_from(
        tables(strategy__options={"hop_limit": 3}, underlay={"name": "beacons", "options": {"interval": 2}})
    )
    assert msgspec.to_builtins(scenario.strategy.parsed())["hop_limit"] == 3
    assert msgspec.to_builtins(scenario.underlay.parsed())["interval"] == 2.0


def test_whole_numbers_stand_for_numbers() -> None:
    scenario = scenario_from(tables(world__range=[50, 80], world__area=[100, 100], scenario__duration=20))
    assert scenario.world.range == (50.0, 80.0)


def test_the_radio_models_share_bitrate_and_loss() -> None:
    for name, kind in (("ideal", IdealRadio), ("disk", DiskRadio), ("csma", CsmaRadio)):
        radio = scenario_from(tables(world__radio={"model": name, "bitrate": 1e6, "loss": 0.1})).world.radio
        assert isinstance(radio, kind) and (radio.bitrate, radio.loss) == (1e6, 0.1)


def test_the_run_is_shorter_than_the_default_stop_needs() -> None:
    assert scenario_from(tables(scenario__duration=1.0)).stop == 500_000
    assert scenario_from(tables(scenario__duration=2.0)).stop == 1_000_000
    assert scenario_from(tables(workload__stop=20.0)).stop == 20_000_000


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_examples_are_read_and_survive_the_trip_through_a_trace(path: Path) -> None:
    scenario = load_scenario(path)
    again = scenario_from(json.loads(scenario.to_json()), base=path.parent)
    assert again == scenario
    assert scenario_from(scenario.to_dict(), base=path.parent) == scenario
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    assert "base" not in scenario.to_dict()


def test_a_full_scenario_survives_the_trip_through_a_trace() -> None:
    scenario = scenario_from(
        tables(
            workload={
                "class": "memorized",
                "lifetime": 5.0,
                "arrival": "poisson",
                "subscriptions": [{"node": 1, "filter": "level > 3", "from": 2.0, "until": 9.0}],
                "publications": [
                    {
                        "t": 3.0,
                        "node": 2,
                        "attributes": {"level": 5, "x": 1.5, "on": True, "text": "é"},
                        "to": [3],
                        "multimode": True,
                        "class": "realtime",
                    }
                ],
            },
            fault=[{"at": 1.0, "kind": "cut", "links": [[0, 1]]}],
        )
    )
    assert scenario_from(json.loads(scenario.to_json())) == scenario


# Settings


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("world.nodes=50", ("world.nodes", 50)),
        ("strategy.name=tree", ("strategy.name", "tree")),
        ("strategy.name = 'tree'", ("strategy.name", "tree")),
        ("world.area=[1.0, 2.0]", ("world.area", [1.0, 2.0])),
        ("roles.brokers=all", ("roles.brokers", "all")),
        ("a.b=c=d", ("a.b", "c=d")),
        ("a.b=", ("a.b", "")),
        ("a.b=1\nc = 2", ("a.b", "1\nc = 2")),
        ("a.b={x = 1}", ("a.b", {"x": 1})),
    ],
)
def test_a_setting_is_a_dotted_key_and_a_toml_value_or_a_bare_text(
    text: str, setting: tuple[str, Any]
) -> None:
    assert parsed_override(text) == setting


@pytest.mark.parametrize("text", ["world.nodes", "=5", "world..nodes=5", ".nodes=5"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"is no setting; allowed: key=value"):
        parsed_override(text)


def test_settings_and_seed_replace_what_the_file_says() -> None:
    scenario = load_scenario(
        EXAMPLES / "walkers.toml",
        seed=7,
        overrides=["world.nodes=50", "roles.subscribers=all", "scenario.seed=3", "workload.match=0.5"],
    )
    assert (scenario.seed, scenario.nodes) == (7, 50)
    assert scenario.roles.subscribers == "all" and scenario.workload.match == 0.5


def test_settings_leave_the_tables_they_are_applied_to_alone() -> None:
    before = tables()
    with_settings(before, [("world.nodes", 9), ("world.mobility.model", "random_walk")])
    assert before == tables()


def test_another_strategy_drops_the_options_of_the_one_it_replaces() -> None:
    class Other(msgspec.Struct, frozen=True):
        depth: int = 1

    strategy.STRATEGIES.add("other", Other, Flooding)
    file = tables(strategy__options={"jitter": 0.1})
    try:
        scenario = scenario_from(file, settings=[("strategy.options.depth", 4), ("strategy.name", "other")])
        assert scenario.strategy.parsed() == Other(4)
    finally:
        strategy.STRATEGIES.remove("other")
    same = scenario_from(file, settings=[("strategy.name", "flooding")])
    assert same.strategy.options == {"jitter": 0.1}


def test_another_model_keeps_the_keys_it_has_too() -> None:
    file = tables(
        world__mobility={"model": "random_walk", "speed": [2.0, 3.0], "step": 5.0},
        world__radio={"model": "disk", "loss": 0.1, "delay": 0.5},
    )
    scenario = scenario_from(
        file, settings=[("world.mobility.model", "random_waypoint"), ("world.radio.model", "csma")]
    )
    assert scenario.world.mobility == RandomWaypoint(speed=(2.0, 3.0))
    assert scenario.world.radio == CsmaRadio(loss=0.1)


def test_an_unknown_setting_is_told_like_an_unknown_key() -> None:
    problem = (
        r"^.*walkers.toml: world.nodez: is no known key \(did you mean `nodes`\?\); allowed: nodes, area"
    )
    with pytest.raises(ScenarioError, match=problem):
        load_scenario(EXAMPLES / "walkers.toml", overrides=["world.nodez=5"])
    with pytest.raises(ScenarioError, match=r"wrold: is no known key \(did you mean `world`\?\)"):
        load_scenario(EXAMPLES / "walkers.toml", overrides=["wrold.nodes=5"])
    with pytest.raises(ScenarioError, match=r"world.nodes.x: cannot be set: world.nodes is 100, not a table"):
        load_scenario(EXAMPLES / "walkers.toml", overrides=["world.nodes.x=5"])


# Files that are no scenario


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no\.toml: cannot be read: No such file"):
        load_scenario(tmp_path / "no.toml")
    with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
        load_scenario(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[scenario]\nname = \n", "bad.toml:2: is no TOML: Invalid value at column 8"),
        (b"[scenario]\n\nname = 'x", "bad.toml:3: is no TOML"),
        (b"[scenario]\nname = 'a'\nname = 'b'\n", "bad.toml:3: is no TOML: Cannot overwrite a value"),
        (b"[scenario]\nname = '\xff'\n", "bad.toml:2: is not UTF-8 text"),
        (b"x = " + b"[" * 100_000, "bad.toml: nests its values too deeply"),
    ],
)
def test_a_file_that_is_no_toml_is_told_with_its_line(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text)
    with pytest.raises(FileError) as caught:
        read_tables(path)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(caught.value)


# Impossible values, by table

SUBSCRIPTION = {"node": 1, "filter": "level > 3"}
PUBLICATION = {"t": 1.0, "node": 1}
CRASH = {"at": 1.0, "kind": "crash", "nodes": [1]}
CUT = {"at": 1.0, "kind": "cut", "nodes": [1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenario__duration": 0}, "scenario.duration: is 0; allowed: a number above 0"),
        ({"scenario__duration": "long"}, 'scenario.duration: is "long"; allowed: a number above 0'),
        ({"scenario__warmup": 20}, "scenario.warmup: is 20; allowed: less than the duration, 20 s"),
        ({"scenario__warmup": -1}, "scenario.warmup: is -1; allowed: a number from 0"),
        ({"scenario__seed": 1.5}, "scenario.seed: is 1.5; allowed: a whole number"),
        ({"scenario__version": 2}, "scenario.version: is 2; allowed: 1"),
        ({"scenario__name": ""}, 'scenario.name: is ""; allowed: a text of at least 1 characters'),
        (
            {"scenario__nmae": "x"},
            "scenario.nmae: is no known key (did you mean `name`?); allowed: name, dur",
        ),
        ({"base": "x"}, "base: is no known key"),
        ({"world__nodes": 0}, "world.nodes: is 0; allowed: a whole number from 1 to 10,000"),
        ({"world__nodes": 10_001}, "world.nodes: is 10001; allowed: a whole number from 1 to 10,000"),
        ({"world__range": -5}, "world.range: is -5; allowed: a number above 0"),
        ({"world__range": [80, 50]}, "world.range: is [80.0, 50.0]; allowed: [min, max] with min <= max"),
        ({"world__range": [80]}, "world.range: is [80]; allowed: a number above 0"),
        ({"world__range": [0, 50]}, "world.range[0]: is 0; allowed: a number above 0"),
        ({"world__range": float("nan")}, "world.range: is nan; allowed: a finite number"),
        ({"world__area": [100]}, "world.area: is [100]; allowed: a list of 2 values, each a number above 0"),
        ({"world__area": 100}, "world.area: is 100; allowed: a list of 2 values, each a number above 0"),
        (
            {"world__contacts": "plan.csv"},
            "world.mobility: stands beside world.contacts; allowed: links from",
        ),
        ({"world__mobility__model": "teleport"}, 'world.mobility.model: is "teleport"; allowed: "static"'),
        (
            {"world__mobility__speed": [1, 2]},
            "world.mobility.speed: is no known key; allowed: model, positions",
        ),
        (
            {"world__mobility__positions": [[1, 1]]},
            "world.mobility.positions: has 1 points; allowed is one per",
        ),
        (
            {"world__mobility": {"model": "random_waypoint", "speed": [0, 5]}},
            "world.mobility.speed: is [0, 5]",
        ),
        ({"world__mobility": {"model": "trace"}}, "world.mobility.file: is missing; it must be a text"),
        (
            {"world__mobility": {"model": "trace", "file": "x", "format": "gps"}},
            'world.mobility.format: is "gps"; allowed: "bonnmotion", "cabs", "csv"',
        ),
        ({"world__mobility": {"model": "trace", "file": "x"}}, "world.area: stands beside a recorded trace"),
        ({"world__radio": {"model": "fm"}}, 'world.radio.model: is "fm"; allowed: "ideal", "disk" or "csma"'),
        (
            {"world__radio": {"model": "csma", "loss": 2}},
            "world.radio.loss: is 2; allowed: a number from 0 to 1",
        ),
        (
            {"world__radio": {"model": "csma", "cw_max": 7}},
            "world.radio.cw_max: is 7; allowed: at least cw_min",
        ),
        (
            {"world__radio": {"model": "disk", "delay": [0.2, 0.1]}},
            "world.radio.delay: is [0.2, 0.1]; allowed: [min, max] with min <= max",
        ),
        (
            {"world__radio": {"model": "disk", "delay": [0.1, 61]}},
            "world.radio.delay[1]: is 61; allowed: a number",
        ),
        ({"world__radio": {"model": "disk", "delay": -1}}, "world.radio.delay: is -1; allowed: a number"),
        ({"world__radio": {"model": "disk", "delay": [1]}}, "world.radio.delay: is [1]; allowed: "),
        ({"world__radio": {"model": "disk", "slot": 1}}, "world.radio.slot: is no known key"),
        ({"roles__publishers": 5}, "roles.publishers: is 5; allowed: at most the 4 nodes there are"),
        ({"roles__publishers": [0, 4]}, "roles.publishers[1]: is 4; allowed: a node number from 0 to 3"),
        ({"roles__publishers": [2, 1, 2]}, "roles.publishers[2]: is 2, which the list has already"),
        (
            {"roles__brokers": "some"},
            'roles.brokers: is "some"; allowed: a whole number from 0 to 10,000 or a l',
        ),
        ({"roles__publishers": -1}, "roles.publishers: is -1; allowed: a whole number from 0"),
        ({"roles__subscribers": [-1]}, "roles.subscribers[0]: is -1; allowed: a whole number"),
        ({"workload__rate": -1}, "workload.rate: is -1; allowed: a number from 0"),
        (
            {"workload__rate": 100_000, "roles__publishers": 4, "scenario__duration": 1e3},
            "workload.rate: is 100000",
        ),
        ({"workload__match": 1.5}, "workload.match: is 1.5; allowed: a number from 0 to 1"),
        ({"workload__size": 60_001}, "workload.size: is 60001; allowed: a whole number from 0 to 60,000"),
        ({"workload__class": "urgent"}, 'workload.class: is "urgent"; allowed: "realtime" or "memorized"'),
        ({"workload__class": "memorized"}, "workload.lifetime: is 0; allowed: above 0 seconds for memorized"),
        ({"workload__arrival": "bursty"}, 'workload.arrival: is "bursty"; allowed: "periodic" or "poisson"'),
        ({"workload__start": 19.5}, "workload.start: is 19.5; allowed: not after the stop at 19 s"),
        ({"workload__stop": 21}, "workload.stop: is 21; allowed: within the duration, 0 to 20 s"),
        (
            {"workload__subscriptions": [SUBSCRIPTION, SUBSCRIPTION | {"node": 4}]},
            "workload.subscriptions[1].node: is 4; allowed: a node number from 0 to 3",
        ),
        (
            {"workload__subscriptions": [SUBSCRIPTION | {"from": 5.0, "until": 5.0}]},
            "workload.subscriptions[0].until: is 5; allowed: later than `from`, 5 s",
        ),
        (
            {"workload__subscriptions": [SUBSCRIPTION | {"from": 25.0}]},
            "workload.subscriptions[0].from: is 25; allowed: within the duration",
        ),
        ({"workload__subscriptions": [{"filter": "a = 1"}]}, "workload.subscriptions[0].node: is missing"),
        (
            {"workload__subscriptions": [SUBSCRIPTION | {"filter": "level >"}]},
            'workload.subscriptions[0].filter: is "level >": ',
        ),
        (
            {"workload__subscriptions": [SUBSCRIPTION | {"xpath": "/alarm[level > floor]"}]},
            'workload.subscriptions[0].xpath: is "/alarm[level > floor]": `>` at character 14 is outside',
        ),
        (
            {"workload__schema": "missing.xsd"},
            'workload.schema: is "missing.xsd": missing.xsd: cannot be read: No such file',
        ),
        (
            {"workload__subscriptions": [SUBSCRIPTION | {"topic": "a/#/b"}]},
            'workload.subscriptions[0].topic: is "a/#/b": ',
        ),
        (
            {"workload__publications": [PUBLICATION | {"node": 9}]},
            "workload.publications[0].node: is 9; allowed",
        ),
        (
            {"workload__publications": [PUBLICATION | {"t": 20.0}]},
            "workload.publications[0].t: is 20; allowed: b",
        ),
        (
            {"workload__publications": [PUBLICATION | {"to": [4]}]},
            "workload.publications[0].to[0]: is 4; allowed",
        ),
        (
            {"workload__publications": [PUBLICATION | {"topic": "a/+"}]},
            'workload.publications[0].topic: is "a/+": ',
        ),
        (
            {"workload__publications": [PUBLICATION | {"multimode": True}]},
            "workload.publications[0].multimode: is true without `to`",
        ),
        (
            {"workload__publications": [PUBLICATION | {"class": "memorized"}]},
            "workload.publications[0].lifetime: is 0; allowed: above 0",
        ),
        (
            {"workload__publications": [PUBLICATION | {"lifetime": 5.0}]},
            'workload.publications[0].lifetime: is 5 beside class "realtime"',
        ),
        (
            {"workload__publications": [PUBLICATION | {"attributes": {"a": 1, "b": [1]}}]},
            "workload.publications[0].attributes.b: is [1]; allowed: true or false or a whole number",
        ),
        (
            {"workload__publications": [PUBLICATION | {"attributes": {"a": 2**63}}]},
            "workload.publications[0].attributes",
        ),
        ({"strategy__name": "floding"}, 'strategy.name: is "floding" (did you mean `flooding`?); allowed: '),
        ({"strategy__options__jiter": 1}, "strategy.options.jiter: is no known key (did you mean `jitter`?)"),
        ({"strategy__options__jitter": -1}, "strategy.options.jitter: is -1; allowed: a number from 0 to 10"),
        ({"underlay__name": "olsrr"}, 'underlay.name: is "olsrr"'),
        (
            {"strategy": {"name": "chapar"}, "underlay__name": "ideal"},
            'underlay.name: is "ideal", but chapar needs an underlay that names relays, its brokers (or '
            'strategy.options.brokers = "all"); allowed: ',
        ),
        ({"underlay__options": {"interval": 1}}, "underlay.options: is given without underlay.name"),
        (
            {"underlay": {"name": "beacons", "options": {"interval": 0}}},
            "underlay.options.interval: is 0; allowed: a number from 0.01 to 3,600",
        ),
        ({"fault": [CRASH | {"at": 21.0}]}, "fault[0].at: is 21; allowed: within the duration"),
        (
            {"fault": [CRASH | {"kind": "explode"}]},
            'fault[0].kind: is "explode"; allowed: "crash", "restart", "c',
        ),
        ({"fault": [CRASH | {"nodes": [4]}]}, "fault[0].nodes[0]: is 4; allowed: a node number from 0 to 3"),
        ({"fault": [CRASH | {"nodes": []}]}, "fault[0].nodes: is missing; it must be a list of node numbers"),
        (
            {"fault": [CRASH | {"links": [[0, 1]]}]},
            "fault[0].links: stands beside kind crash; allowed: with cut",
        ),
        (
            {"fault": [CRASH, CRASH | {"at": 2.0}]},
            "fault[1].nodes: names node 1, which is down already at 2.0 s",
        ),
        (
            {"fault": [CRASH | {"kind": "restart"}]},
            "fault[0].nodes: names node 1, which is not down at 1.0 s",
        ),
        ({"fault": [CUT | {"links": [[0, 1]]}]}, "fault[0]: of kind cut needs either nodes or links"),
        ({"fault": [{"at": 1.0, "kind": "heal"}]}, "fault[0]: of kind heal needs either nodes or links"),
        (
            {"fault": [CUT | {"kind": "heal"}]},
            "fault[0]: changes nothing: every link it names is not cut at 1.0",
        ),
        ({"fault": [CUT, CUT]}, "fault[1]: changes nothing: every link it names is cut already at 1.0 s"),
        (
            {"fault": [{"at": 1.0, "kind": "cut", "links": [[1, 1]]}]},
            "fault[0].links[0][1]: is 1, which the list",
        ),
        (
            {"fault": [{"at": 1.0, "kind": "cut", "links": [[1]]}]},
            "fault[0].links[0]: is [1]; allowed: a list of 2",
        ),
        ({"fault": [{"kind": "cut"}]}, "fault[0].at: is missing; it must be a number"),
    ],
)
def test_an_impossible_value_is_told_with_key_value_and_what_is_allowed(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from(tables(**changes), source="s.toml")
    assert str(caught.value).startswith(f"s.toml: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("scenario", "scenario: is missing; it must be a table"),
        ("world", "world: is missing; it must be a table"),
        ("strategy", "strategy: is missing; it must be a table"),
        ("scenario.name", "scenario.name: is missing; it must be a text"),
        ("scenario.duration", "scenario.duration: is missing; it must be a number above 0"),
        ("world.nodes", "world.nodes: is missing; it must be a whole number"),
        ("world.area", "world.area: is missing; it must be [width, height] in metres"),
        ("world.range", "world.range: is missing; it must be metres"),
        ("world.mobility", "world.mobility: is missing; it must be a table, or world.contacts a plan's file"),
        ("world.mobility.model", 'world.mobility.model: is missing; it must be "static", "random_waypoint"'),
        ("strategy.name", "strategy.name: is missing; it must be a text"),
    ],
)
def test_what_must_be_there_is_asked_for(key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from(without(tables(), key))
    assert str(caught.value).startswith(message)


def test_the_error_names_the_file_as_the_user_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.toml").write_text(DESIGN.replace("range = 250.0", "range = -5"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as caught:
        load_scenario("s.toml")
    assert caught.value.where == "s.toml: world.range"
    assert caught.value.problem.startswith("is -5; allowed: a number above 0")


def test_every_format_that_can_be_read_can_be_named() -> None:
    assert set(get_args(MotionFormat)) == set(MOTION_FORMATS)
    assert RecordedTrace(file="x").format is None


# The page that documents the file


def test_the_documentation_names_every_key() -> None:
    page = (EXAMPLES.parent / "docs" / "study" / "scenario.md").read_text()
    missing = [key for key in _all_keys() if f"`{key}`" not in page]
    assert missing == []


def _all_keys() -> list[str]:
    from msgspec import inspect

    from roamcast.scenario.model import ScenarioTables

    found: dict[str, None] = {}

    def walk(info: object) -> None:
        match info:
            case inspect.StructType():
                for field in info.fields:
                    found[field.encode_name] = None
                    walk(field.type)
            case inspect.UnionType():
                for choice in info.types:
                    walk(choice)
            case inspect.CollectionType():
                walk(info.item_type)

    for table in inspect.type_info(ScenarioTables).fields:  # type: ignore[attr-defined]
        walk(table.type)
    return list(found)
