"""Three laptops that run flood watch: latency on four topologies (opportunistic overlays, figures 15 to 17).

The producer and a broker are on A, a broker on B, the client on C; every 200 time units the topology
changes. The traffic is that of `examples/flood`, without its hydrology: a grid of 100 x 100 comes in and
one goes out, or a tenth of one, for the processor time that the runoff model takes. Capacities are the
laptops' clock rates.

Two quantities are not in the work. The radio's bitrate is derived only from its 1000 ms for full data from A
to C: 340 kbit/s for grids of 32-bit floats, which is 680 kbit/s for the work's doubles (100 x 100 of those
are more than one event may carry), about what Java and TCP achieved on 802.11b. The rate of events is the
highest that the static path on B-A-C can carry: A sends each event twice there and needs 1.9 s for it.
Without a queue at A three hops would take three times as long as one, not six times as in the work.
"""

from typing import Annotated, Literal

import msgspec

from roamcast.event import Event
from roamcast.lab.studies.study import STUDIES, Study
from roamcast.modulator import MODULATORS, Content, Modulator
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.streams import stream
from roamcast.trace import Delivered, Published, Trace
from roamcast.units import SECOND, Micros, NodeId

A, B, C = 0, 1, 2
TOPOLOGIES = ("a_b_c", "a_b_c_a", "a_c_b", "b_a_c")
GRID_OCTETS = 100 * 100 * 4
RUNOFF_COST: Micros = 18_000  # 100 x 100 cells, 12 steps, 150 ns on A
PAPER = ["topology", "complex", "load_balancing"]  # adaptors
SETTLING = 0.1  # the first share of each topology's time, left out while the overlay adapts; chosen by us


class TestbedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["opportunistic", "static"] = "opportunistic"
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0  # of the grid that the client wants
    placement: bool = False  # with the adaptor that moves a modulator to where it saves traffic
    topology_time: Annotated[float, msgspec.Meta(ge=20, le=10_000)] = 200.0  # seconds
    interval: Annotated[float, msgspec.Meta(gt=0, le=100)] = 2.0  # seconds between events
    bitrate: Annotated[int, msgspec.Meta(ge=100_000, le=1_000_000_000)] = 340_000


class PartParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    share: Annotated[float, msgspec.Meta(gt=0, le=1)]


class PartOfGrid(Modulator):
    """Gives as many octets and takes as much time as the runoff model."""

    def __init__(self, parameters: PartParameters) -> None:
        self._octets = round(parameters.share * GRID_OCTETS)

    def process(self, event: Event) -> Content | None:
        return Content(event.attributes, event.payload[: self._octets], event.topic, event.type)

    def cost(self, event: Event) -> Micros:
        return RUNOFF_COST


def run(parameters: TestbedParameters, seed: int) -> dict[str, float | None]:
    """Mean latency in milliseconds and share arrived on each topology, without its settling time."""
    if "part_of_grid" not in MODULATORS.names():
        MODULATORS.add("part_of_grid", PartParameters, lambda _, own: PartOfGrid(own))
    simulation = Simulation(scenario_from(_tables(parameters, seed)))
    trace = simulation.run().trace
    figures: dict[str, float | None] = {}
    arrived = total = 0
    for number, topology in enumerate(TOPOLOGIES):
        begin = parameters.topology_time * number
        since, until = begin + SETTLING * parameters.topology_time, begin + parameters.topology_time
        found = latencies(trace, C, round(since * SECOND), round(until * SECOND))
        on_time = [latency for latency in found if latency is not None]
        figures[f"latency_ms_{topology}"] = sum(on_time) / len(on_time) / 1_000 if on_time else None
        arrived, total = arrived + len(on_time), total + len(found)
    return {**figures, "arrived": arrived / total}


def latencies(trace: Trace, consumer: NodeId, since: Micros, until: Micros) -> list[Micros | None]:
    """The latency of each event published in `[since, until)` to the consumer; None: it never arrived."""
    came: dict[tuple[NodeId, int], Micros] = {}
    for delivered in trace.of(Delivered):
        if delivered.node == consumer:
            came.setdefault((delivered.publisher, delivered.sequence), delivered.t)
    found: list[Micros | None] = []
    for published in trace.of(Published):
        if since <= published.t < until:
            at = came.get((published.publisher, published.sequence))
            found.append(None if at is None else at - published.t)
    return found


def links(topology_time: float) -> list[dict[str, object]]:
    """The four topologies as faults: links cut and healed in a network where all could hear each other."""
    changes: list[tuple[float, str, list[int]]] = [
        (0.0, "cut", [A, C]),
        (topology_time, "heal", [A, C]),
        (2 * topology_time, "cut", [A, B]),
        (3 * topology_time, "heal", [A, B]),
        (3 * topology_time, "cut", [B, C]),
    ]
    return [{"at": at, "kind": kind, "links": [link]} for at, kind, link in changes]


def _tables(parameters: TestbedParameters, seed: int) -> dict[str, object]:
    end = 4 * parameters.topology_time
    count = int(end / parameters.interval)
    phase = stream(seed, "events").random()  # of the sender against the changes of topology
    return {
        "scenario": {"name": "testbed", "duration": end + 60.0, "seed": seed},
        "world": {
            "nodes": 3,
            "area": [100.0, 100.0],
            "range": 200.0,
            "mobility": {"model": "static"},
            "radio": {"model": "disk", "bitrate": parameters.bitrate},
        },
        "roles": {"brokers": [A, B], "publishers": [A], "subscribers": [C]},
        "workload": {
            "publications": [
                {"t": round((k + phase) * parameters.interval, 6), "node": A, "size": GRID_OCTETS}
                for k in range(count)
            ],
            "subscriptions": [{"node": C, "modulator": {"name": "part_of_grid", "share": parameters.share}}],
        },
        "strategy": {
            "name": "opportunistic",
            "options": {
                "mode": parameters.mode,
                "broker_update": 5.0,
                "broker_discovery": 1.0,
                "adaptors": [*PAPER, "placement"] if parameters.placement else PAPER,
                "capacities": {str(A): 1.0, str(B): 1.7},
            },
        },
        "underlay": {"name": "ideal"},
        "fault": links(parameters.topology_time),
    }


STUDIES.add(
    Study(
        "testbed", TestbedParameters, run, (*(f"latency_ms_{topology}" for topology in TOPOLOGIES), "arrived")
    )
)
