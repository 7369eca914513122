"""Roles, subscriptions and publications: what the seed may choose, and what it may not."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roamcast.errors import ScenarioError
from roamcast.event import Event, EventClass, Publication
from roamcast.scenario import Scenario, load_scenario, scenario_from
from roamcast.scenario.workload import (
    KEYS,
    PublicationPlan,
    arc_filter,
    filter_of,
    publications,
    roles,
    subscriptions,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


def scenario(nodes: int = 10, duration: float = 20.0, seed: int = 1, **tables: Any) -> Scenario:
    return scenario_from(
        {
            "scenario": {"name": "workload", "duration": duration, "seed": seed},
            "world": {"nodes": nodes, "area": [9.0, 9.0], "range": 5.0, "mobility": {"model": "static"}},
            "strategy": {"name": "flooding"},
            **tables,
        }
    )


# Roles


def test_a_role_is_a_count_a_list_or_all() -> None:
    chosen = roles(scenario(roles={"brokers": "all", "publishers": 3, "subscribers": [7, 2]}))
    assert chosen.brokers == list(range(10))
    assert len(set(chosen.publishers)) == 3 and chosen.publishers == sorted(chosen.publishers)
    assert chosen.subscribers == [2, 7]
    assert roles(scenario(roles={"publishers": 0})).publishers == []


def test_the_seed_chooses_and_a_smaller_count_is_part_of_a_larger_one() -> None:
    def publishers(count: int, seed: int = 1) -> set[int]:
        return set(roles(scenario(100, seed=seed, roles={"publishers": count})).publishers)

    assert publishers(10) < publishers(30) < publishers(100) == set(range(100))
    assert publishers(10) != publishers(10, seed=2)


def test_each_role_is_chosen_by_itself() -> None:
    chosen = roles(scenario(100, roles={"brokers": 20, "publishers": 20, "subscribers": 20}))
    assert chosen.brokers != chosen.publishers != chosen.subscribers != chosen.brokers


def test_what_the_file_writes_out_decides_who_subscribes_and_publishes() -> None:
    chosen = roles(
        scenario(
            roles={"publishers": 5, "subscribers": "all"},
            workload={
                "subscriptions": [{"node": 4}, {"node": 1}, {"node": 4, "topic": "a"}],
                "publications": [{"t": 1.0, "node": 3}],
            },
        )
    )
    assert (chosen.publishers, chosen.subscribers) == ([3], [1, 4])
    assert roles(scenario(workload={"subscriptions": []})).subscribers == []


# The share that matches


@given(
    subscribers=st.integers(1, 200),
    match=st.floats(0, 1),
    keys=st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_every_event_matches_the_share_of_subscriptions_up_to_rounding(
    subscribers: int, match: float, keys: list[int]
) -> None:
    filters = [arc_filter(index, subscribers, match) for index in range(subscribers)]
    length = round(match * KEYS)
    for key in keys:
        matching = sum(wanted.matches(Event(0, 0, {"key": key})) for wanted in filters)
        assert matching in (subscribers * length // KEYS, math.ceil(subscribers * length / KEYS))


@pytest.mark.parametrize("match", [0.0, 0.25, 0.5, 0.9999, 1.0])
def test_over_all_keys_each_subscriber_gets_exactly_its_share(match: float) -> None:
    for index in range(3):
        wanted = arc_filter(index, 3, match)
        matching = sum(wanted.matches(Event(0, 0, {"key": key})) for key in range(KEYS))
        assert matching == round(match * KEYS)


def test_the_arcs_of_four_subscribers_by_hand() -> None:
    wanted = [arc_filter(index, 4, 0.5) for index in range(4)]  # from 0, 2500, 5000, 7500; 5000 long
    at = {key: [one.matches(Event(0, 0, {"key": key})) for one in wanted] for key in (0, 4999, 5000, 9999)}
    assert at == {
        0: [True, False, False, True],
        4999: [True, True, False, False],
        5000: [False, True, True, False],
        9999: [False, False, True, True],
    }


def test_generated_subscriptions_stand_from_the_beginning() -> None:
    plans = subscriptions(scenario(roles={"subscribers": [5, 2]}))
    assert [(plan.node, plan.subscription, plan.since, plan.until) for plan in plans] == [
        (2, 0, 0, None),
        (5, 1, 0, None),
    ]


# Publications


def test_periodic_publications_are_evenly_spaced_from_a_random_phase() -> None:
    plans = publications(
        scenario(roles={"publishers": [3, 8]}, workload={"rate": 4.0, "start": 2.0, "stop": 12.0})
    )
    assert plans == sorted(plans, key=lambda plan: (plan.time, plan.node))
    phases = []
    for node in (3, 8):
        times = [plan.time for plan in plans if plan.node == node]
        assert len(times) == 40
        assert all(abs(later - earlier - 250_000) <= 1 for earlier, later in itertools.pairwise(times))
        assert 2_000_000 <= times[0] < 2_250_000 and 11_750_000 <= times[-1] < 12_000_000
        phases.append(times[0])
    assert phases[0] != phases[1]


def test_poisson_publications_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    plans = publications(
        scenario(20, 501.0, roles={"publishers": "all"}, workload={"rate": 2.0, "arrival": "poisson"})
    )
    counts = [sum(plan.node == node for plan in plans) for node in range(20)]
    # 20 counts, each Poisson with mean 1000 (standard deviation 31.6): five standard errors around the mean.
    assert abs(sum(counts) / 20 - 1000) < 5 * math.sqrt(1000 / 20)
    variance = sum((count - 1000) ** 2 for count in counts) / 20
    assert 300 < variance < 2500  # a periodic schedule would have a variance below 1


def test_keys_cover_the_circle_evenly() -> None:
    plans = publications(scenario(1, 5001.0, workload={"rate": 2.0}))
    keys = [plan.publication.attributes["key"] for plan in plans]
    assert all(list(plan.publication.attributes) == ["key"] for plan in plans)
    tenths = [sum(isinstance(key, int) and key // 1000 == tenth for key in keys) for tenth in range(10)]
    assert sum(tenths) == len(keys) == 10_000
    assert all(abs(count - 1000) < 150 for count in tenths)  # five standard deviations


def test_no_rate_no_events() -> None:
    assert publications(scenario(workload={"rate": 0})) == []


def test_another_publisher_leaves_the_events_of_the_others_alone() -> None:
    one = publications(scenario(roles={"publishers": [3]}))
    two = publications(scenario(roles={"publishers": [1, 3]}))
    assert [plan for plan in two if plan.node == 3] == one != []


def test_the_class_of_generated_events() -> None:
    memorized = publications(scenario(workload={"class": "memorized", "lifetime": 5.0}))[0].publication
    assert (memorized.event_class, memorized.lifetime) == (EventClass.MEMORIZED, 5_000_000)
    realtime = publications(scenario(workload={"lifetime": 5.0}))[0].publication
    assert (realtime.event_class, realtime.lifetime) == (EventClass.REALTIME, 0)


def test_written_publications_fall_back_on_the_workload() -> None:
    plans = publications(
        scenario(
            workload={
                "size": 99,
                "lifetime": 7.0,
                "publications": [
                    {"t": 5.0, "node": 1, "attributes": {"level": 5}},
                    {"t": 0.5, "node": 2, "class": "memorized", "to": [4, 3], "multimode": True},
                    {
                        "t": 5.0,
                        "node": 0,
                        "class": "memorized",
                        "lifetime": 1.5,
                        "size": 0,
                        "topic": "a",
                        "type": "b",
                    },
                ],
            }
        )
    )
    assert plans == [
        PublicationPlan(500_000, 2, Publication({}, bytes(99), "", "", 7_000_000, (3, 4), True)),
        PublicationPlan(5_000_000, 0, Publication({}, b"", "a", "b", 1_500_000)),
        PublicationPlan(5_000_000, 1, Publication({"level": 5}, bytes(99))),
    ]


def test_the_conditions_of_a_written_subscription_must_all_hold() -> None:
    entries = [
        {"node": 1, "filter": "level > 3", "topic": "a/+", "type": "alarm", "from": 2.0, "until": 9.0},
        {"node": 0},
    ]
    full = scenario(workload={"subscriptions": entries})
    anything, plan = subscriptions(full)
    assert (plan.node, plan.subscription, plan.since, plan.until) == (1, 0, 2_000_000, 9_000_000)
    assert anything.filter.matches(Event(0, 0)) and anything.since == 0
    fits = Event(0, 0, {"level": 4}, topic="a/b", type="alarm.fire")
    assert plan.filter.matches(fits)
    for misfit in (
        Event(0, 0, {"level": 3}, topic="a/b", type="alarm.fire"),
        Event(0, 0, {"level": 4}, topic="b", type="alarm.fire"),
        Event(0, 0, {"level": 4}, topic="a/b", type="news"),
    ):
        assert not plan.filter.matches(misfit)
    assert full.workload.subscriptions is not None
    assert str(filter_of(full.workload.subscriptions[0])) == str(plan.filter)


def test_an_xpath_subscription_is_read_with_the_schema_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "forum.xsd").write_bytes((EXAMPLES / "golf" / "forum.xsd").read_bytes())
    (tmp_path / "golf.toml").write_text(
        """
        [scenario]
        name = "golf"
        duration = 20.0
        [world]
        nodes = 3
        area = [9.0, 9.0]
        range = 5.0
        [world.mobility]
        model = "static"
        [workload]
        schema = "forum.xsd"
        subscriptions = [
            { node = 1, xpath = "//player[. = 'woods']" },
            { node = 2, xpath = "/PGMFORUM[hole > 10]", filter = "currentrank < 5" },
        ]
        [strategy]
        name = "flooding"
        """
    )
    by_name, by_hole = (plan.filter for plan in subscriptions(load_scenario(tmp_path / "golf.toml")))
    woods = Event(0, 0, {"player": "woods", "hole": 15, "currentrank": 2}, type="PGMFORUM")
    assert by_name.matches(woods) and by_hole.matches(woods)
    assert not by_name.matches(Event(0, 0, {"player": "palmer", "hole": 15}, type="PGMFORUM"))
    assert not by_hole.matches(Event(0, 0, {"hole": 15, "currentrank": 7}, type="PGMFORUM"))
    assert not by_name.matches(Event(0, 0, {"player": "woods"}, type="other"))
    (tmp_path / "forum.xsd").write_bytes(b"<nonsense/>")
    with pytest.raises(ScenarioError, match=r"workload.schema: is .*forum.xsd:1: .*no xs:schema"):
        load_scenario(tmp_path / "golf.toml")


# Sameness


PROGRAM = """
import sys, hashlib
from roamcast.scenario import load_scenario
from roamcast.scenario.world import plan_of
from roamcast.scenario.workload import publications, roles, subscriptions
overrides = ["workload.arrival=poisson", "world.range=[100, 300]", "workload.match=0.3"]
scenario = load_scenario(sys.argv[1], overrides=overrides)
written = [str(plan[:2]) + str(plan.filter) for plan in subscriptions(scenario)]
plan = plan_of(scenario)
links = [column.tobytes() for column in (plan.sender, plan.receiver, plan.start, plan.end)]
print(hashlib.sha256(repr((roles(scenario), written, publications(scenario), links)).encode()).hexdigest())
"""


def test_the_same_seed_gives_the_same_schedule_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(EXAMPLES / "flooding-csma.toml")],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1 and len(printed.pop()) == 65


def test_another_seed_gives_another_schedule() -> None:
    first, second = (load_scenario(EXAMPLES / "flooding-csma.toml", seed=seed) for seed in (1, 2))
    assert publications(first) != publications(second)
    assert roles(first).publishers != roles(second).publishers
