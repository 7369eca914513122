"""Duration of a relocation against the number of suppliers (opportunistic channels, section 3.3, figure 7).

Measured with the strategy's own handoff in the simulator. Each supplier is on a machine of its own, with
its own broker; the consumer moves from one broker to another, and its relocation is the trace's
`HandedOff`. The paper had a switched network of 100 Mbit/s and PCs of 300 MHz, whose time per message it
does not give; here every node sends one frame after the other at the radio's bitrate, so only the shape is
comparable.
"""

import statistics
from typing import Annotated

import msgspec

from roamcast.lab.studies.study import STUDIES, Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, HandedOff, Published

SOURCE, DESTINATION, CONSUMER, FIRST_SUPPLIER = 0, 1, 2, 3
STANDS_AT = 30.0  # seconds; the overlay and the registrations are complete by then
STAY = 8.0  # seconds between two moves; chosen by us: a relocation must end before the next begins


class RelocationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    suppliers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    bitrate: Annotated[int, msgspec.Meta(ge=100_000, le=1_000_000_000)] = 2_000_000
    rate: Annotated[float, msgspec.Meta(ge=0, le=1_000)] = 0.5  # events per second and supplier
    moves: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8  # to and fro; the figure is their median


def run(parameters: RelocationParameters, seed: int) -> dict[str, float | None]:
    trace = Simulation(scenario_from(_tables(parameters, seed))).run().trace
    moved = [h for h in trace.of(HandedOff) if h.node == CONSUMER and h.outcome == "moved"]
    delivered = [(d.publisher, d.sequence) for d in trace.of(Delivered) if d.node == CONSUMER]
    return {
        "relocations": float(len(moved)),
        # The median: a move that has to wait behind a topology update says nothing about suppliers.
        "relocation_ms": statistics.median(h.t - h.started for h in moved) / 1_000 if moved else None,
        "relocation_ms_mean": statistics.fmean(h.t - h.started for h in moved) / 1_000 if moved else None,
        "lost": float(len(trace.of(Published)) - len(set(delivered))),
        "doubled": float(len(delivered) - len(set(delivered))),
    }


def _tables(parameters: RelocationParameters, seed: int) -> dict[str, object]:
    suppliers = list(range(FIRST_SUPPLIER, FIRST_SUPPLIER + parameters.suppliers))
    end = STANDS_AT + STAY * parameters.moves
    return {
        "scenario": {"name": "relocation", "duration": end + 10.0, "seed": seed},
        "world": {
            "nodes": FIRST_SUPPLIER + parameters.suppliers,
            "area": [100.0, 100.0],
            "range": 200.0,
            "mobility": {"model": "static"},
            "radio": {"model": "disk", "bitrate": parameters.bitrate},
        },
        "roles": {
            "brokers": [SOURCE, DESTINATION, *suppliers],
            "publishers": suppliers,
            "subscribers": [],
        },
        # Events begin once the overlay stands: the figure is about the move, not about the start. They come
        # at random times: with a fixed period, all moves of a run would meet the same traffic.
        "workload": {
            "rate": parameters.rate,
            "arrival": "poisson",
            "size": 400,
            "start": STANDS_AT / 2,
            "stop": end,
            # What is relocated is its modulator, and the suppliers are those whose events that reads.
            "subscriptions": [
                {
                    "node": CONSUMER,
                    "modulator": {"name": "projection", "attributes": ["key"], "payload": True},
                }
            ],
        },
        "strategy": {
            "name": "opportunistic",
            # The work's network is switched: nothing is heard by several at once, so no frame is shared.
            "options": {
                "broker_update": 5.0,
                "broker_discovery": 2.0,
                "neighbours_wanted": 64,
                "share_frames": False,
            },
        },
        "underlay": {"name": "ideal"},
        "fault": _faults(parameters.moves, suppliers),
    }


def _faults(moves: int, suppliers: list[int]) -> list[dict[str, object]]:
    """The consumer hears one of the two brokers at a time, and no supplier ever."""
    never = [[CONSUMER, node] for node in (DESTINATION, *suppliers)]
    faults: list[dict[str, object]] = [{"at": 0.0, "kind": "cut", "links": never}]
    here, there = SOURCE, DESTINATION
    for move in range(moves):
        at = STANDS_AT + STAY * move
        faults.append({"at": at, "kind": "heal", "links": [[CONSUMER, there]]})
        faults.append({"at": at, "kind": "cut", "links": [[CONSUMER, here]]})
        here, there = there, here
    return faults


STUDIES.add(
    Study(
        "relocation",
        RelocationParameters,
        run,
        ("relocations", "relocation_ms", "relocation_ms_mean", "lost", "doubled"),
    )
)
