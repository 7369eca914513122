"""Clients of REDS on the tree, as the acyclic-overlay work describes them (6.2.4, 6.2.5, table 6.13).

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
from dataclasses import replace
from random import Random
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from roamcast.lab.run.runs import RunResult
from roamcast.lab.run.tables import Expected, records
from roamcast.lab.studies.study import Study
from roamcast.streams import stream
from roamcast.trace import Delivered, Published
from roamcast.units import NodeId, micros

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
Pair = tuple[NodeId, NodeId]
"""A publisher and a node of the core."""


class Tick(msgspec.Struct):
    """Of one publisher and one node of the core: what matched, what came, and had some event no path?"""

    matched: int = 0
    came: int = 0
    is_apart: bool = False


class Reds(Study, frozen=True):
    READINGS: ClassVar[tuple[str, ...]] = ("delivery_ratio", "tick_ratio", "zero_share", "zero_apart")

    rate: Annotated[float, msgspec.Meta(gt=0, le=50)] = 1.0  # events per second and client
    duration: Annotated[float, msgspec.Meta(ge=120, le=3600)] = 660.0  # seconds
    range: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 60.0  # metres
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # share of the frames that the radio loses
    # `published`: REDS on the protocol of the work, without recovery. `ours`: with our additions.
    protocol: Literal["published", "ours"] = "published"

    def run(self, seed: int) -> RunResult:
        """`delivery_ratio` is that of the core."""
        result = self.measured(self.simulation(seed))
        core = set(_core(seed))
        came = {(each.publisher, each.sequence, each.node) for each in records(result.tables, Delivered)}
        published = {(each.publisher, each.sequence): each for each in records(result.tables, Published)}
        counted = [
            each
            for each in records(result.tables, Expected)
            if each.node in core
            and published[each.publisher, each.sequence].type != "CONTROL"
            and published[each.publisher, each.sequence].t >= micros(WARMUP)
        ]
        hits = sum((each.publisher, each.sequence, each.node) in came for each in counted)
        ticks = [tick for tick in _ticks(counted, came, published) if tick.matched]
        zero = [tick for tick in ticks if not tick.came]
        result.metrics["delivery_ratio"] = hits / len(counted)
        result.metrics["tick_ratio"] = sum(tick.came / tick.matched for tick in ticks) / len(ticks)
        result.metrics["zero_share"] = len(zero) / len(ticks)
        result.metrics["zero_apart"] = sum(tick.is_apart for tick in zero) / len(zero) if zero else None
        # Without its tables: the metric over them is the delivery ratio of all.
        return replace(result, tables={})

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
            "scenario": {"name": "reds", "duration": end, "warmup": WARMUP, "seed": seed},
            "world": {
                "nodes": NODES,
                "area": [60.0, 150.0],
                "range": self.range,
                "mobility": {"model": "random_waypoint", "speed": [0.5, 1.5], "pause": [20.0, 60.0]},
                "radio": _RADIO | {"loss": self.loss},
            },
            "workload": {"size": EVENT_OCTETS, "subscriptions": subscriptions, "publications": publications},
            "strategy": {
                "name": "tree",
                "options": {
                    "preset": "walking",
                    "filters_max": NUMBERS + 1,  # REDS lists all
                    "additions": is_ours,
                    "quiet_probes": is_ours,
                    "recovery": "push" if is_ours else "none",
                },
            },
        }


def _ticks(
    counted: list[Expected],
    came: set[tuple[NodeId, int, NodeId]],
    published: dict[tuple[NodeId, int], Published],
) -> Iterator[Tick]:
    matched: dict[Pair, dict[int, Expected]] = {}
    for each in counted:
        matched.setdefault((each.publisher, each.node), {})[each.sequence] = each
    for (publisher, node), events in sorted(matched.items()):
        tick = Tick()
        for (origin, sequence), event in sorted(published.items()):
            if origin != publisher:
                continue
            if sequence in events:
                tick.matched += 1
                tick.came += (publisher, sequence, node) in came
                tick.is_apart |= not events[sequence].reachable
            elif event.type == "CONTROL" and (publisher, sequence, node) in came:
                yield tick
                tick = Tick()
        yield tick


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
    """To the microsecond, and never the same instant again."""
    return round(at + 1e-6 + 2 * interval * random.random(), 6)
