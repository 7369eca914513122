"""Scenarios with more in them than one writes by hand; `{ made = "churn" }` in a file of the net."""

from collections.abc import Sequence
from random import Random
from typing import Any

TEXTS = ("north", "south", "northern", "so%uth", "", "west end")
MODULATORS = (
    {"name": "projection", "attributes": ["value"], "payload": True},
    {"name": "aggregate", "attribute": "value", "every": 3},
    {"name": "condition", "sql": "value > 20"},
    {"name": "net_work", "cost": 30_000},
    {"name": "net_work", "cost": 5_000, "fails_after": 12},
)


def churn(*, nodes: int = 12, wishes: int = 8, seed: int = 1, stops: Sequence[int] = ()) -> dict[str, Any]:
    """Subscriptions of every kind that come and go, among walkers of whom some crash."""
    random = Random(seed)
    down = [{"at": 32.0, "kind": "crash", "nodes": stops}, {"at": 37.0, "kind": "restart", "nodes": stops}]
    return {
        "scenario": {"name": "churn", "duration": 45.0, "warmup": 2.0},
        "world": {
            "nodes": nodes,
            "area": [350.0, 350.0],
            "range": 140.0,
            "mobility": {"model": "random_waypoint", "speed": [0.5, 3.0], "pause": [0.0, 10.0]},
            "radio": {"model": "csma", "loss": 0.05},
        },
        "workload": {
            "size": 80,
            "subscriptions": [
                {"node": node, **stretch(random, wish), **condition(random)}
                for node in range(nodes)
                for wish in range(wishes)
            ],
            "publications": [publication(random, nodes, 2.0 + 0.3 * number) for number in range(130)],
        },
        "fault": [
            {"at": 14.0, "kind": "crash", "nodes": [1, 4]},
            {"at": 20.0, "kind": "restart", "nodes": [1, 4]},
            {"at": 22.0, "kind": "cut", "nodes": [0, 1, 2, 3]},
            {"at": 32.0, "kind": "heal", "nodes": [0, 1, 2, 3]},
            *(down if stops else ()),
        ],
    }


def roaming(*, seed: int = 1) -> dict[str, Any]:
    """Clients with modulators on the way from broker to broker, while brokers crash and frames are lost."""
    random = Random(seed)
    nodes, brokers = 16, [0, 1, 2, 3, 4]
    faults = []
    for number in range(6):
        at, node = 12.0 + 7.3 * number, brokers[number % 5]
        faults += [{"at": at, "kind": "crash", "nodes": [node]}]
        faults += [{"at": at + 1.5 + 2 * (number % 3), "kind": "restart", "nodes": [node]}]
    return {
        "scenario": {"name": "roaming", "duration": 70.0, "warmup": 5.0, "modules": ["net_work"]},
        "world": {
            "nodes": nodes,
            "area": [450.0, 450.0],
            "range": 150.0,
            "mobility": {"model": "random_waypoint", "speed": [6.0, 15.0], "pause": [0.0, 3.0]},
            "radio": {"model": "disk", "bitrate": 1_000_000, "loss": 0.15},
        },
        "roles": {"brokers": brokers},
        "workload": {
            "size": 120,
            "subscriptions": [
                {
                    "node": node,
                    **stretch(random, wish),
                    **({"filter": "value > 5"} if wish else {}),
                    **({"modulator": random.choice(MODULATORS)} if random.random() < 0.7 else {}),
                }
                for node in range(5, nodes)
                for wish in range(2)
            ],
            "publications": [publication(random, nodes, 5.0 + 0.2 * number) for number in range(300)],
        },
        "fault": sorted(faults, key=lambda fault: fault["at"]),
    }


def registers() -> dict[str, Any]:
    """So many different filters that tables of them are kept in another way."""
    tables = churn(nodes=10, seed=4)
    tables["workload"]["subscriptions"] = [
        {"node": node, "filter": f"a{node}x{wish} = {wish}", "from": float(wish % 9)}
        for node in range(10)
        for wish in range(20)
    ]
    for number, publication in enumerate(tables["workload"]["publications"]):
        publication["attributes"] = {f"a{number % 10}x{number % 20}": number % 20, "value": number}
    return tables


def stretch(random: Random, wish: int) -> dict[str, float]:
    """From when to when a subscription stands; the first of a node from the beginning to the end."""
    if wish == 0:
        return {}
    since = round(random.uniform(0.0, 30.0), 3)
    return {"from": since} | ({"until": round(since + random.uniform(1.0, 14.0), 3)} if wish % 2 else {})


def condition(random: Random) -> dict[str, str]:
    number, other = random.randrange(60), random.randrange(60)
    text = random.choice(TEXTS)
    choices: list[dict[str, str]] = [
        {"filter": f"value = {number}"},
        {"filter": f"value BETWEEN {min(number, other)} AND {max(number, other)} AND place = '{text}'"},
        {"filter": f"value IN ({number}, {other}, 7) OR place LIKE '{text[:2]}%'"},
        {"filter": f"place LIKE '%{text[-2:]}' AND NOT value < {number}"},
        {"filter": f"place >= '{text}' AND place < 'x'"},
        {"filter": f"place IN ('north', '{text}') AND heat > {number / 4}"},
        {"filter": f"place IS NULL OR heat <= {number / 2} OR ok = FALSE"},
        {"filter": f"place LIKE 'n_rth%' AND place LIKE '%n' AND value <> {number}"},
        {"topic": random.choice(("room/+/heat", "room/#", f"room/{number % 4}/heat", "+/1/#"))},
        {"type": random.choice(("reading", "alarm"))},
        {"type": "reading", "topic": "room/#", "filter": f"value >= {number} AND ok = TRUE"},
    ]
    return random.choice(choices)


def publication(random: Random, nodes: int, at: float) -> dict[str, Any]:
    number = random.randrange(60)
    attributes: dict[str, Any] = {"value": number}
    if random.random() < 0.7:
        attributes["place"] = random.choice(TEXTS)
    if random.random() < 0.5:
        attributes["heat"] = number / 4 + 0.25
    if random.random() < 0.5:
        attributes["ok"] = number % 2 == 0
    found: dict[str, Any] = {"t": round(at, 3), "node": random.randrange(nodes), "attributes": attributes}
    if random.random() < 0.4:
        found["topic"] = f"room/{number % 4}/heat"
    if random.random() < 0.4:
        found["type"] = "alarm" if number % 3 else "reading"
    if random.random() < 0.4:
        found |= {"class": "memorized", "lifetime": random.choice((2.0, 10.0, 40.0))}
    if random.random() < 0.1:
        found |= {"to": sorted(random.sample(range(nodes), 2)), "multimode": random.random() < 0.5}
    return found
