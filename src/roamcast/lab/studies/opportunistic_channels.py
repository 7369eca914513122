"""Studies of the opportunistic channels work (sections 3.3 and 4.2), with the strategy itself in the
simulator.

`relocation`, figure 7: how long a relocation takes against the number of suppliers. `campus`, figures 10 and
11: the delay of a client that changes its subnet. `balancing`, figures 13 and 14: what load balancing gains
as consumers join. All nodes hear each other unless a link is cut, and the network is fast: the work's was
switched.
"""

import itertools
from typing import Annotated, Any, Literal

import msgspec

from roamcast.event import Event
from roamcast.lab.run.metrics import Metric, StudyMetrics
from roamcast.lab.studies.study import Study
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.units import SECOND, Micros, NodeId, micros

PROJECTION = {"name": "projection", "attributes": ["key"], "payload": True}
LINKS = list[list[NodeId]]


def _world(nodes: int, bitrate: int) -> dict[str, Any]:
    return {
        "nodes": nodes,
        "area": [100.0, 100.0],
        "range": 200.0,
        "mobility": {"model": "static"},
        "radio": {"model": "disk", "bitrate": bitrate},
    }


def _moved(at: float, client: NodeId, here: NodeId, there: NodeId) -> list[dict[str, Any]]:
    """The client hears another from then on, and no longer the one that it heard."""
    return [
        {"at": at, "kind": "heal", "links": [[client, there]]},
        {"at": at, "kind": "cut", "links": [[client, here]]},
    ]


class RelocationStudy(Study, frozen=True):
    """Each supplier is on a machine of its own, with its own broker; the consumer moves from one broker to
    another. The work had a switched network of 100 Mbit/s and PCs of 300 MHz, whose time per message it does
    not give; here every node sends one frame after the other at the radio's bitrate, so only the shape is
    comparable."""

    suppliers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    moves: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8  # to and fro; the figure is their median

    def tables(self, seed: int) -> dict[str, Any]:
        source, destination, consumer = 0, 1, 2
        suppliers = list(range(3, 3 + self.suppliers))
        begin = 30.0  # seconds; the overlay and the registrations are complete by then
        stay = 8.0  # seconds between two moves; chosen by us: a relocation ends before the next begins
        end = begin + stay * self.moves
        # The consumer hears one of the two brokers at a time, and no supplier ever.
        never = [[consumer, node] for node in (destination, *suppliers)]
        faults: list[dict[str, Any]] = [{"at": 0.0, "kind": "cut", "links": never}]
        here, there = source, destination
        for move in range(self.moves):
            faults += _moved(begin + stay * move, consumer, here, there)
            here, there = there, here
        return {
            "scenario": {"name": "relocation", "duration": end + 10.0, "seed": seed},
            "world": _world(3 + self.suppliers, bitrate=2_000_000),
            "roles": {
                "brokers": [source, destination, *suppliers],
                "publishers": suppliers,
                "subscribers": [],
            },
            # Events begin once the overlay stands: the figure is about the move, not about the start. They
            # come at random times: with a fixed period, all moves of a run would meet the same traffic.
            "workload": {
                "rate": 0.5,
                "arrival": "poisson",
                "size": 400,
                "start": begin / 2,
                "stop": end,
                # The consumer's modulator is relocated; its suppliers are those whose events it reads.
                "subscriptions": [{"node": consumer, "modulator": PROJECTION}],
            },
            "strategy": {
                "name": "opportunistic",
                # The work's network is switched: nothing is heard by several at once, so no frame is shared.
                "options": {
                    "broker_update": 5.0,
                    "broker_discovery": 2.0,
                    "discovery": "handoff",
                    "neighbours_wanted": 64,
                    "share_frames": False,
                },
            },
            "underlay": {"name": "ideal"},
            "fault": faults,
        }

    def metrics(self, seed: int) -> StudyMetrics:
        lasted = "CASE WHEN node = 2 AND outcome = 'moved' THEN t - started END"
        return StudyMetrics(
            {
                "relocations": Metric("", "relocations of the consumer", "handoffs", f"COUNT({lasted})", "0"),
                # The median: a move that has to wait behind a topology update says nothing about suppliers.
                "relocation_ms": Metric(
                    "ms",
                    "how long a relocation of the consumer took, median",
                    "handoffs",
                    f"percentile({lasted}, 0.5) / 1e3",
                ),
                "lost": Metric("pairs", "expected pairs never delivered", "", "expected - delivered"),
                "doubled": Metric("deliveries", "deliveries beyond the first", "", "duplicates"),
            }
        )


class Campus(Study, frozen=True):
    """A publisher on H1 in subnet 1; brokers H1, H2 and H3 in subnets 1, 2 and 3, each wired to the others;
    the client first hears the access point of subnet 2, then that of subnet 3. A normal channel (`static`)
    keeps the broker on H2, so that events go from subnet 1 over 2 to 3.

    The work's wireless link is more than twice as slow as its wires. All links here have one bitrate, so the
    wireless way is three hops long. The wired time of an event is that until its last wired host sends it to
    the access point; what follows is wireless.
    """

    mode: Literal["opportunistic", "static"] = "opportunistic"

    def tables(self, seed: int) -> dict[str, Any]:
        h1, h2, h3, client = 0, 1, 2, 3
        second, third = [h2, 4, 5], [h3, 6, 7]  # the ways from the wired hosts to the client
        wires = [(h1, h2), (h1, h3), (h2, h3)]
        linked = {*wires, *itertools.pairwise(second), *itertools.pairwise(third), (client, second[-1])}
        cut = [[a, b] for b in range(8) for a in range(b) if (a, b) not in linked]
        return {
            "scenario": {"name": "campus", "duration": 140.0, "seed": seed},
            "world": _world(8, bitrate=20_000_000),
            "roles": {"brokers": [h1, h2, h3], "publishers": [h1], "subscribers": []},
            "workload": {
                "rate": 2.0,
                "arrival": "poisson",
                "size": 25_000,  # octets: the work's 25 kB
                "start": 15.0,
                "stop": 130.0,
                "subscriptions": [{"node": client, "modulator": PROJECTION}],
            },
            "strategy": {
                "name": "opportunistic",
                "options": {
                    "mode": self.mode,
                    "broker_update": 5.0,
                    "broker_discovery": 2.0,
                    "discovery": "handoff",  # 3.1: "in response to a network-level handoff"
                },
            },
            "underlay": {"name": "ideal"},
            "fault": [
                {"at": 0.0, "kind": "cut", "links": cut},
                *_moved(70.0, client, second[-1], third[-1]),
            ],
        }

    def metrics(self, seed: int) -> StudyMetrics:
        """Before the client moves, from 30 s to 70 s, and after, from 90 s to 130 s."""
        parts = {"wired_ms": "wired", "wireless_ms": "latency - wired", "delay_ms": "latency"}
        made = {}
        for name, since, until in (("before", 30, 70), ("after", 90, 130)):
            then = f"CASE WHEN t >= {since}000000 AND t < {until}000000 THEN"
            for part, column in parts.items():
                made[f"{part}_{name}"] = Metric(
                    "ms",
                    f"{part} {name} the move, mean of the events",
                    "campus_ways",
                    f"SUM({then} {column} END) * 1e0 / NULLIF(COUNT({then} latency END), 0) / 1e3",
                )
            made[f"arrived_{name}"] = Metric(
                "",
                f"share of the events {name} the move that arrived",
                "campus_ways",
                f"COUNT({then} latency END) * 1e0 / NULLIF(COUNT({then} 1 END), 0)",
            )
        ways = """
            SELECT p.run AS run, p.t AS t, p.latency AS latency,
                CASE WHEN p.latency IS NOT NULL THEN w.t - p.t END AS wired
            FROM pairs p
            LEFT JOIN (
                SELECT run, publisher, sequence, MIN(t) AS t FROM transmissions
                WHERE node IN (0, 1, 2) AND (`to` IS NULL OR `to` NOT IN (0, 1, 2))
                GROUP BY run, publisher, sequence
            ) w ON w.run = p.run AND w.publisher = p.publisher AND w.sequence = p.sequence"""
        columns = {"node": "INT", "to": "INT", "publisher": "INT", "sequence": "BIGINT"}
        return StudyMetrics(made, {"campus_ways": ways}, {"transmissions": columns})


class Balancing(Study, frozen=True):
    """A source with the first broker, machines that are willing to be brokers, and consumers that join one
    after the other, each with a modulator of a modelled cost. The adaptive channel has the adaptors
    `load_balancing` and `broker_creation`, and moves modulators by handoffs while events go on; the normal
    one keeps its single broker. What is measured is the brokers' processors.

    Figure 13's modulators are a loop and its events arrays of 100 floats; figure 14's transcode a video whose
    frames come at a fixed rate.
    """

    adaptive: bool = True
    consumers: Annotated[int, msgspec.Meta(ge=1, le=100)] = 16
    machines: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8  # that can run a broker, the source's included
    # A broker with more modulators than this is overloaded (the work: "after 6 consumers have joined").
    modulators_max: Annotated[int, msgspec.Meta(ge=1, le=100)] = 6
    modulator_ms: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 20.0  # for one event
    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 2.0  # events per second
    size: Annotated[int, msgspec.Meta(ge=0, le=50_000)] = 400  # octets: 100 floats

    def tables(self, seed: int) -> dict[str, Any]:
        source = 0
        begin, every = 15.0, 14.0  # seconds: the overlay and the first rows are there; between two that join
        since, until = self._measured()
        cost = round(self.modulator_ms * 1_000)
        share = cost * self.rate / SECOND  # of a broker, for one consumer
        options: dict[str, Any] = {
            "broker_update": 5.0,
            "broker_discovery": 3.0,
            "overload_threshold": min((self.modulators_max + 0.5) * share, 1.0),
            "adaptors": ["topology"],
        }
        if self.adaptive:
            options["adaptors"] = ["topology", "complex", "load_balancing", "broker_creation"]
            options["willing"] = list(range(1, self.machines))
        return {
            "scenario": {"name": "balancing", "duration": until + 30.0, "warmup": since, "seed": seed},
            "world": _world(self.machines + self.consumers, bitrate=100_000_000),
            "roles": {"brokers": [source], "publishers": [source], "subscribers": []},
            "workload": {
                "rate": self.rate,
                "size": self.size,
                "start": begin,
                "stop": until,
                "subscriptions": [
                    {
                        "node": self.machines + number,
                        "from": begin + every * number,
                        "modulator": {"name": WORK, "cost": cost},
                    }
                    for number in range(self.consumers)
                ],
            },
            "strategy": {"name": "opportunistic", "options": options},
            "underlay": {"name": "ideal"},
        }

    def _measured(self) -> tuple[float, float]:
        """For 20 s, from 25 s after the last consumer has joined: readings go ten seconds back."""
        since = 15.0 + 14.0 * self.consumers + 25.0
        return since, since + 20.0

    def metrics(self, seed: int) -> StudyMetrics:
        since, until = map(micros, self._measured())
        return StudyMetrics(
            {
                "brokers": Metric(
                    "nodes",
                    "brokers at the end",
                    "overlay",
                    "SUM(CASE WHEN role <> 'broker' THEN 0"
                    " WHEN change = 'role_on' THEN 1 WHEN change = 'role_off' THEN -1 ELSE 0 END)",
                    "0",
                ),
                "event_ms": Metric(
                    "ms",
                    "until the last consumer has an event, mean of the events",
                    "balancing_events",
                    "SUM(latency) * 1e0 / NULLIF(COUNT(latency), 0) / 1e3",
                ),
                "frame_rate": Metric(
                    "1/s",
                    "events per second that a consumer gets",
                    "deliveries",
                    f"SUM(CASE WHEN t >= {since} AND t < {until} THEN 1 ELSE 0 END) * 1e0"
                    f" / {self.consumers} / 20e0",
                    "0e0",
                ),
                "arrived": Metric("", "delivered over expected", "", "delivered * 1e0 / NULLIF(expected, 0)"),
                "modulators_moved": Metric(
                    "handoffs",
                    "relocations from the beginning on",
                    "handoffs",
                    "SUM(CASE WHEN outcome = 'moved' THEN 1 ELSE 0 END)",
                    "0",
                ),
            },
            {
                "balancing_events": "SELECT run, publisher, sequence, MAX(latency) AS latency"
                " FROM hand_overs GROUP BY run, publisher, sequence"
            },
        )


WORK = "work"


class WorkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cost: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]  # microseconds


class WorkModulator(Modulator):
    def __init__(self, parameters: WorkParameters) -> None:
        self._cost = parameters.cost

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, event.payload, event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return self._cost


MODULATORS.add(WORK, WorkParameters, lambda _, own: WorkModulator(own))
