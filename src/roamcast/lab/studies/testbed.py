"""Three laptops that run flood watch: latency on four topologies (opportunistic overlays, figures 15 to 17).

The producer and a broker are on A, a broker on B, the client on C; every 200 time units the topology changes.
The application is the real one (`flood/`): a grid of rain goes out, the runoff model runs as the client's
modulator in a broker and keeps the water's depth, and C gets the depth of the whole area or of a tenth.

- **One channel.** The laptops were in one room, and filters of MAC addresses made the topologies: who is
  filtered out is sensed all the same. So here: `csma`, and a cut that hides frames and not the carrier.
- **Slower machines.** Clock rates 1, 1.7 and 0.7 GHz. They count for the runoff model on A and B, and on all
  three for every octet that comes in (`handling`: serialization and routing in Java, on each hop).

Three quantities are not in the work. The radio's bitrate is derived from its 1000 ms for full data from A to
C: 340 kbit/s for grids of 32-bit floats, which is 680 kbit/s for the work's doubles (100 x 100 of those are
more than one event may carry). The rate of events: the static way on B-A-C has each event on the channel
three times and needs 2.84 s for it, so the channel is full at an event every 2.84 s. And `handling`: 200
cycles per octet, so that a grid takes 8 ms on A, and on C 3 ms longer.
"""

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from roamcast.event import Publication
from roamcast.lab.run.metrics import Metric, StudyMetrics
from roamcast.lab.studies.flood import rain
from roamcast.lab.studies.flood.runoff import register_runoff
from roamcast.lab.studies.study import Study
from roamcast.runtime.sim.medium import Medium, Receive
from roamcast.runtime.sim.simulation import Simulation
from roamcast.streams import stream
from roamcast.units import Micros, NodeId, micros

A, B, C = 0, 1, 2
CLOCKS = {A: 1.0, B: 1.7, C: 0.7}  # GHz
TOPOLOGIES = ("a_b_c", "a_b_c_a", "a_c_b", "b_a_c")
TENTH = {"top": 45, "left": 30, "bottom": 65, "right": 80}  # 20 x 50 of 100 x 100 cells
PAPER = ["topology", "complex", "load_balancing"]  # adaptors
SETTLING = 0.1  # the first share of each topology's time, left out while the overlay adapts; chosen by us


class Testbed(Study, frozen=True):
    # `placement`: opportunistic, with the adaptor that moves a modulator to where it saves traffic.
    mode: Literal["opportunistic", "static", "placement"] = "opportunistic"
    part: Literal["whole", "tenth"] = "whole"  # of the area that the client wants
    topology_time: Annotated[float, msgspec.Meta(ge=20, le=10_000)] = 200.0  # seconds
    interval: Annotated[float, msgspec.Meta(gt=0, le=100)] = 3.0  # seconds between events
    bitrate: Annotated[int, msgspec.Meta(ge=100_000, le=1_000_000_000)] = 340_000
    handling: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 200  # ns per octet that comes in, at 1 GHz

    def simulation(self, seed: int) -> Simulation:
        register_runoff()
        simulation = super().simulation(seed)
        engine = simulation.engine
        for cut in links(self.topology_time):  # filters hide frames, not the carrier
            engine.at(micros(cut.at), partial(_sense_all_the_same, simulation), None)
        machines = Machines(simulation, self.handling)
        engine.at(0, machines.take_over, simulation.medium)
        events = int(4 * self.topology_time / self.interval)
        phase = stream(seed, "events").random()  # of the sender against the changes of topology
        gauge = rain.hourly()
        for number in range(events):
            # The storm is as long as the run; fewer events skip evenly.
            grid = rain.publication(number * rain.EVENTS // events, gauge)
            engine.at(micros((number + phase) * self.interval), partial(_send, simulation), grid)
        return simulation

    def metrics(self, seed: int) -> StudyMetrics:
        """Of each topology's time the first share is left out, while the overlay adapts."""
        made, counted = {}, []
        for number, topology in enumerate(TOPOLOGIES):
            begin = self.topology_time * number
            since, until = micros(begin + SETTLING * self.topology_time), micros(begin + self.topology_time)
            counted.append(f"t >= {since} AND t < {until}")
            then = f"CASE WHEN {counted[-1]} THEN latency END"
            made[f"latency_ms_{topology}"] = Metric(
                "ms",
                f"publication to delivery on {topology}, mean",
                "pairs",
                f"SUM({then}) * 1e0 / NULLIF(COUNT({then}), 0) / 1e3",
            )
        then = f"CASE WHEN {' OR '.join(counted)} THEN"
        made["arrived"] = Metric(
            "",
            "share of the events that arrived",
            "pairs",
            f"COUNT({then} latency END) * 1e0 / NULLIF(COUNT({then} 1 END), 0)",
        )
        return StudyMetrics(made)

    def tables(self, seed: int) -> dict[str, Any]:
        changes = links(self.topology_time)
        wanted = {"name": "runoff"} | ({"box": TENTH} if self.part == "tenth" else {})
        return {
            "scenario": {"name": "testbed", "duration": 4 * self.topology_time + 60.0, "seed": seed},
            "world": {
                "nodes": 3,
                "area": [100.0, 100.0],
                "range": 200.0,
                "mobility": {"model": "static"},
                # Sensing is a matter of its own, so that it stays when a link is cut. An event is one frame
                # here; 802.11 repeats pieces of 1,500 octets, and eight tries of one take less time than one
                # of ours.
                "radio": {"model": "csma", "bitrate": self.bitrate, "sense": 2.0, "retries": 1},
            },
            "roles": {"brokers": [A, B], "publishers": [A], "subscribers": [C]},
            "workload": {
                "publications": [],  # `simulation` makes them: they have content
                "subscriptions": [{"node": C, "filter": "quantity = 'rain'", "modulator": wanted}],
            },
            "strategy": {
                "name": "opportunistic",
                "options": {
                    "mode": "static" if self.mode == "static" else "opportunistic",
                    "broker_update": 5.0,
                    "broker_discovery": 1.0,
                    "dissemination": "overlay",
                    "adaptors": [*PAPER, "placement"] if self.mode == "placement" else PAPER,
                    "capacities": {str(node): CLOCKS[node] for node in (A, B)},
                },
            },
            "underlay": {"name": "ideal"},
            "fault": [{"at": one.at, "kind": one.kind, "links": [list(one.link)]} for one in changes],
        }


def _send(simulation: Simulation, publication: Publication) -> None:
    sender = simulation.nodes[A]
    assert sender is not None
    sender.publish(publication)


def _sense_all_the_same(simulation: Simulation, _: None) -> None:
    sensed = simulation.playback.sensed
    assert sensed is not simulation.links
    for one, other in ((A, B), (A, C), (B, C)):
        sensed.cut(one, other, False)
        sensed.cut(other, one, False)


class Machines:
    """What a laptop does with each octet that comes in, one frame after the other, before it is handled."""

    def __init__(self, simulation: Simulation, handling: int) -> None:
        self._engine = simulation.engine
        self._handling = handling
        self._busy_until: dict[NodeId, Micros] = dict.fromkeys(CLOCKS, 0)

    def take_over(self, medium: Medium) -> None:
        """Once the nodes have booted."""
        for receivers in medium.receivers.values():
            for node, receive in enumerate(receivers) if self._handling else ():
                assert receive is not None
                receivers[node] = partial(self._on_frame, node, receive)

    def _on_frame(self, node: NodeId, receive: Receive, sender: NodeId, payload: bytes) -> None:
        takes = round(len(payload) * self._handling / CLOCKS[node] / 1_000)
        at = self._busy_until[node] = max(self._engine.now, self._busy_until[node]) + takes
        self._engine.at(at, lambda frame: receive(*frame), (sender, payload))


class LinkChange(NamedTuple):
    at: float
    kind: Literal["cut", "heal"]
    link: tuple[NodeId, NodeId]


def links(topology_time: float) -> list[LinkChange]:
    """The four topologies, from a network where all could hear each other."""
    return [
        LinkChange(0.0, "cut", (A, C)),
        LinkChange(topology_time, "heal", (A, C)),
        LinkChange(2 * topology_time, "cut", (A, B)),
        LinkChange(3 * topology_time, "heal", (A, B)),
        LinkChange(3 * topology_time, "cut", (B, C)),
    ]
