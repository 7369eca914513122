"""Clients of REDS, as the acyclic-overlay work describes them (6.2.4, 6.2.5, table 6.13).

Eight nodes walk on 60 m x 150 m. An event is ten numbers from 0 to 99, a subscription one number: it matches
the events that have it among their ten. Four nodes are the core: each keeps ten subscriptions throughout. The
others begin with five, subscribe about once a second and unsubscribe about once a second, and have at least
one and at most ten. Every 15 s each client publishes a CONTROL event, to which all subscribe; CONTROL events
count in no figure. All intervals are drawn evenly from 0 to twice their mean.

The delivery ratio is that of the core. The ticks of figures 6.21 to 6.23 are the times between two CONTROL
events of a publisher that have reached a subscriber of the core: how many of the events that matched in
between were delivered there. In the work that is shown for one pair, here it is counted over all.
"""

from collections.abc import Iterator
from random import Random
from typing import Annotated, Any, Literal

import msgspec

from roamcast.lab.run.metrics import Metric, StudyMetrics
from roamcast.lab.studies.study import Study
from roamcast.streams import stream
from roamcast.units import NodeId

NODES = 8
CORE = 4
NUMBERS = 100
NUMBERS_OF_AN_EVENT = 10
EVENT_OCTETS = 48  # of payload: ten integers, a sequence number and the sender, four octets each
SUBSCRIPTIONS_MIN, SUBSCRIPTIONS_FIRST, SUBSCRIPTIONS_MAX = 1, 5, 10
SUBSCRIBE_INTERVAL = UNSUBSCRIBE_INTERVAL = 1.0  # seconds, in the mean
CONTROL_INTERVAL = 15.0
WARMUP = 60.0
DRAIN = 15.0  # seconds at the end without publications; ours: what is on its way should not count as lost

Table = dict[str, object]


class Reds(Study, frozen=True):
    rate: Annotated[float, msgspec.Meta(gt=0, le=50)] = 1.0  # events per second and client
    duration: Annotated[float, msgspec.Meta(ge=120, le=3600)] = 660.0  # seconds
    range: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 60.0  # metres
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # share of the frames that the radio loses
    # `published`: REDS on the reactive manager (`reactive.py`), with what the work gives it. `ours`: the
    # strategy `tree`, on the proactive overlay with our additions and recovery.
    protocol: Literal["published", "ours"] = "published"

    def metrics(self, seed: int) -> StudyMetrics:
        """`delivery_ratio` is that of the core."""
        core = f"({', '.join(map(str, _core(seed)))})"
        pairs = f"""
            SELECT p.run AS run, p.publisher AS publisher, p.node AS node, p.sequence AS sequence,
                p.latency AS latency, p.reachable AS reachable
            FROM pairs p
            JOIN publications u ON u.run = p.run AND u.publisher = p.publisher AND u.sequence = p.sequence
            WHERE u.type <> 'CONTROL' AND p.node IN {core}"""
        # A row per tick in which something matched: `tick` counts the CONTROL events that came before.
        ticks = f"""
            SELECT run, COUNT(*) AS matched, COUNT(latency) AS came,
                MAX(CASE WHEN reachable THEN 0 ELSE 1 END) AS is_apart
            FROM (
                SELECT run, publisher, node, latency, reachable, control,
                    SUM(control) OVER (PARTITION BY run, publisher, node ORDER BY sequence) AS tick
                FROM (
                    SELECT run, publisher, node, sequence, latency, reachable, 0 AS control
                    FROM reds_pairs
                    UNION ALL
                    SELECT DISTINCT d.run, d.publisher, d.node, d.sequence, NULL, NULL, 1
                    FROM deliveries d
                    JOIN publications u
                        ON u.run = d.run AND u.publisher = d.publisher AND u.sequence = d.sequence
                    WHERE u.type = 'CONTROL' AND d.node IN {core}
                ) marked
            ) counted
            WHERE control = 0
            GROUP BY run, publisher, node, tick"""
        zero = "SUM(CASE WHEN came = 0 THEN 1 ELSE 0 END)"
        apart = "SUM(CASE WHEN came = 0 THEN is_apart ELSE 0 END)"
        return StudyMetrics(
            {
                "delivery_ratio": Metric(
                    "",
                    "delivered over expected, the core",
                    "reds_pairs",
                    "COUNT(latency) * 1e0 / COUNT(*)",
                ),
                "tick_ratio": Metric(
                    "",
                    "of what matched in a tick, the share that came, mean of the ticks",
                    "reds_ticks",
                    "SUM(came * 1e0 / matched) / COUNT(*)",
                ),
                "zero_share": Metric(
                    "", "share of the ticks in which nothing came", "reds_ticks", f"{zero} * 1e0 / COUNT(*)"
                ),
                "zero_apart": Metric(
                    "",
                    "share of those in which some event had no path",
                    "reds_ticks",
                    f"{apart} * 1e0 / NULLIF({zero}, 0)",
                ),
            },
            {"reds_pairs": pairs, "reds_ticks": ticks},
            {"publications": {"type": "TEXT"}},
        )

    def tables(self, seed: int) -> dict[str, Any]:
        end = self.duration
        subscriptions: list[Table] = [{"node": node, "type": "CONTROL"} for node in range(NODES)]
        publications: list[Table] = []
        core = _core(seed)
        for node in range(NODES):
            random = stream(seed, "reds", "client", node)
            subscriptions += _of_the_core(random, node) if node in core else _changing(random, node, end)
            publications += _published(random, node, self.rate, end - DRAIN)
        is_ours = self.protocol == "ours"
        return {
            "scenario": {
                "name": "reds",
                "duration": end,
                "warmup": WARMUP,
                "seed": seed,
                "modules": [] if is_ours else ["roamcast.lab.studies.reactive"],
            },
            "world": {
                "nodes": NODES,
                "area": [60.0, 150.0],
                "range": self.range,
                "mobility": {"model": "random_waypoint", "speed": [0.5, 1.5], "pause": [20.0, 60.0]},
                "radio": _RADIO | {"loss": self.loss},
            },
            "workload": {"size": EVENT_OCTETS, "subscriptions": subscriptions, "publications": publications},
            "strategy": {
                "name": "tree" if is_ours else "reds",
                "options": {
                    "preset": "walking",
                    "filters_max": NUMBERS + 1,  # REDS lists all
                    "additions": is_ours,
                    "quiet_probes": is_ours,
                    "recovery": "push" if is_ours else "none",
                },
            },
        }


def _core(seed: int) -> list[NodeId]:
    return sorted(stream(seed, "reds", "core").sample(range(NODES), CORE))


_RADIO: Table = {  # IEEE 802.11g: slot 9 µs, DIFS 28 µs, preamble 20 µs and 6 µs of signal extension
    "model": "csma",
    "bitrate": 24_000_000,
    "basic_bitrate": 24_000_000,
    "slot": 9e-6,
    "sifs": 10e-6,
    "difs": 28e-6,
    "preamble": 26e-6,
    "cw_min": 15,
}


def _of_the_core(random: Random, node: NodeId) -> list[Table]:
    return [_wish(node, number) for number in random.sample(range(NUMBERS), SUBSCRIPTIONS_MAX)]


def _changing(random: Random, node: NodeId, end: float) -> list[Table]:
    standing = dict.fromkeys(random.sample(range(NUMBERS), SUBSCRIPTIONS_FIRST), 0.0)
    found: list[Table] = []
    more, fewer = _later(random, 0.0, SUBSCRIBE_INTERVAL), _later(random, 0.0, UNSUBSCRIBE_INTERVAL)
    while min(more, fewer) < end:
        if more <= fewer:
            free = [number for number in range(NUMBERS) if number not in standing]
            if len(standing) < SUBSCRIPTIONS_MAX:
                standing[random.choice(free)] = more
            more = _later(random, more, SUBSCRIBE_INTERVAL)
        else:
            if len(standing) > SUBSCRIPTIONS_MIN:
                number = random.choice(sorted(standing))
                found.append(_wish(node, number) | {"from": standing.pop(number), "until": fewer})
            fewer = _later(random, fewer, UNSUBSCRIBE_INTERVAL)
    return found + [_wish(node, number) | {"from": since} for number, since in standing.items()]


def _published(random: Random, node: NodeId, rate: float, end: float) -> Iterator[Table]:
    at = _later(random, 0.0, 1 / rate)
    while at < end:
        numbers = random.choices(range(NUMBERS), k=NUMBERS_OF_AN_EVENT)
        yield {"t": at, "node": node, "type": "numbers", "attributes": {f"n{each}": True for each in numbers}}
        at = _later(random, at, 1 / rate)
    at = _later(random, 0.0, CONTROL_INTERVAL)
    while at < end:
        yield {"t": at, "node": node, "type": "CONTROL"}
        at = _later(random, at, CONTROL_INTERVAL)


def _wish(node: NodeId, number: int) -> Table:
    return {"node": node, "filter": f"n{number} = TRUE"}


def _later(random: Random, at: float, interval: float) -> float:
    """A later time, on the microsecond grid, that differs from the one before."""
    return round(at + 1e-6 + 2 * interval * random.random(), 6)
