"""Whatever stands in the tables, the answer is a scenario or one line, never another exception."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.scenario import Scenario, scenario_from, with_settings

SMALL: dict[str, Any] = {
    "scenario": {"name": "small", "duration": 20.0},
    "world": {"nodes": 4, "area": [100.0, 100.0], "range": 50.0, "mobility": {"model": "static"}},
    "strategy": {"name": "flooding"},
}
KEYS = [
    *("scenario", "scenario.duration", "scenario.name", "scenario.seed"),
    *("world", "world.nodes", "world.range", "world.area", "world.contacts"),
    *("world.mobility", "world.mobility.model", "world.mobility.positions", "world.mobility.file"),
    *("world.radio", "world.radio.model", "world.radio.loss"),
    *("roles", "roles.brokers", "roles.publishers"),
    *("workload", "workload.rate", "workload.subscriptions", "workload.publications"),
    "workload.schema",
    *("strategy", "strategy.name", "strategy.options", "strategy.options.jitter"),
    *("underlay", "underlay.name", "underlay.options", "fault"),
]
ENTRY_KEYS = [
    *("t", "node", "filter", "xpath", "topic", "type", "from", "until"),
    *("attributes", "class", "lifetime", "to", "multimode", "size"),
]
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
ATTRIBUTES = st.dictionaries(st.text(max_size=200), VALUES, max_size=3)


@given(st.lists(st.tuples(st.sampled_from(KEYS) | st.text(min_size=1, max_size=9), VALUES), max_size=3))
@settings(max_examples=150, deadline=None)
def test_any_values_make_a_scenario_or_one_line(changes: list[tuple[str, Any]]) -> None:
    answer = scenario_or_error({}, changes)
    if isinstance(answer, Scenario):
        assert scenario_from(answer.to_dict()) == answer
    else:
        assert "\n" not in str(answer)


@given(
    st.sampled_from(["subscriptions", "publications"]),
    st.dictionaries(st.sampled_from(ENTRY_KEYS), VALUES | ATTRIBUTES, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_any_entry_makes_a_scenario_or_one_line(kind: str, entry: dict[str, Any]) -> None:
    smallest = {"node": 0} if kind == "subscriptions" else {"node": 0, "t": 1.0}
    answer = scenario_or_error({"workload": {kind: [smallest | entry]}}, [])
    if isinstance(answer, InputError):
        assert "\n" not in str(answer)
        assert answer.where.startswith(f"workload.{kind}[0]")


def scenario_or_error(more: dict[str, Any], changes: list[tuple[str, Any]]) -> Scenario | InputError:
    try:
        return scenario_from(with_settings(SMALL | more, changes))
    except InputError as error:
        return error
