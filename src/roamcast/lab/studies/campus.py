"""End-to-end delay of a client that changes its subnet (opportunistic channels, section 3.3, figures 10, 11).

The strategy itself runs in the simulator. A publisher on H1 in subnet 1; brokers H1, H2 and H3 in subnets 1,
2 and 3, each wired to the others; the client first hears the access point of subnet 2, then that of subnet
3. A normal channel (`static`) keeps the broker on H2, so that events go from subnet 1 over 2 to 3.

The work's wireless link is more than twice as slow as its wires. All links here have one bitrate, so the
wireless way is several hops long: `wireless_hops`. The wired time of an event is that until its last wired
host sends it to the access point; what follows is wireless.
"""

import itertools
from typing import Annotated, Literal

import msgspec

from roamcast.lab.studies.study import STUDIES, Study
from roamcast.runtime.sim.simulation import Simulation
from roamcast.scenario import scenario_from
from roamcast.trace import Delivered, Published, Trace, Transmitted
from roamcast.units import micros

H1, H2, H3, CLIENT = 0, 1, 2, 3
WIRED = (H1, H2, H3)
FIRST_RELAY = 4
BEGIN, MOVE, AGAIN, END = 30.0, 70.0, 90.0, 130.0  # seconds: measured from BEGIN to MOVE, from AGAIN to END


class CampusParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["opportunistic", "static"] = "opportunistic"
    wireless_hops: Annotated[int, msgspec.Meta(ge=1, le=8)] = 3
    size: Annotated[int, msgspec.Meta(ge=100, le=50_000)] = 25_000  # octets: the work's 25 kB
    bitrate: Annotated[int, msgspec.Meta(ge=100_000, le=1_000_000_000)] = 20_000_000
    rate: Annotated[float, msgspec.Meta(gt=0, le=100)] = 2.0


def run(parameters: CampusParameters, seed: int) -> dict[str, float | None]:
    trace = Simulation(scenario_from(_tables(parameters, seed))).run().trace
    figures: dict[str, float | None] = {}
    for name, since, until in (("before", BEGIN, MOVE), ("after", AGAIN, END)):
        wired, wireless, expected = _split(trace, micros(since), micros(until))
        figures[f"wired_ms_{name}"] = _mean_ms(wired)
        figures[f"wireless_ms_{name}"] = _mean_ms(wireless)
        figures[f"delay_ms_{name}"] = _mean_ms([a + b for a, b in zip(wired, wireless, strict=True)])
        figures[f"arrived_{name}"] = len(wired) / expected if expected else None
    return figures


def _split(trace: Trace, since: int, until: int) -> tuple[list[int], list[int], int]:
    """Wired and wireless time of each event published then, and how many there were."""
    published = {p.sequence: p.t for p in trace.of(Published) if since <= p.t < until}
    left: dict[int, int] = {}
    for sent in trace.of(Transmitted):
        if sent.sequence in published and sent.node in WIRED and sent.to not in WIRED:
            left.setdefault(sent.sequence, sent.t)
    wired, wireless = [], []
    for came in trace.of(Delivered):
        if came.sequence in published:
            wired.append(left[came.sequence] - published[came.sequence])
            wireless.append(came.t - left[came.sequence])
    return wired, wireless, len(published)


def _mean_ms(times: list[int]) -> float | None:
    return sum(times) / len(times) / 1_000 if times else None


def _tables(parameters: CampusParameters, seed: int) -> dict[str, object]:
    relays = parameters.wireless_hops - 1
    second = [H2, *range(FIRST_RELAY, FIRST_RELAY + relays)]
    third = [H3, *range(FIRST_RELAY + relays, FIRST_RELAY + 2 * relays)]
    nodes = FIRST_RELAY + 2 * relays
    wires = [(H1, H2), (H1, H3), (H2, H3)]
    ways = [*itertools.pairwise(second), *itertools.pairwise(third)]
    here, there = (CLIENT, second[-1]), (CLIENT, third[-1])
    linked = {tuple(sorted(pair)) for pair in [*wires, *ways, here]}
    cut = [[a, b] for b in range(nodes) for a in range(b) if (a, b) not in linked]
    return {
        "scenario": {"name": "campus", "duration": END + 10.0, "seed": seed},
        "world": {
            "nodes": nodes,
            "area": [100.0, 100.0],
            "range": 200.0,
            "mobility": {"model": "static"},
            "radio": {"model": "disk", "bitrate": parameters.bitrate},
        },
        "roles": {"brokers": [H1, H2, H3], "publishers": [H1], "subscribers": []},
        "workload": {
            "rate": parameters.rate,
            "arrival": "poisson",
            "size": parameters.size,
            "start": BEGIN / 2,
            "stop": END,
            "subscriptions": [
                {
                    "node": CLIENT,
                    "modulator": {"name": "projection", "attributes": ["key"], "payload": True},
                }
            ],
        },
        "strategy": {
            "name": "opportunistic",
            "options": {"mode": parameters.mode, "broker_update": 5.0, "broker_discovery": 2.0},
        },
        "underlay": {"name": "ideal"},
        "fault": [
            {"at": 0.0, "kind": "cut", "links": cut},
            {"at": MOVE, "kind": "heal", "links": [list(there)]},
            {"at": MOVE, "kind": "cut", "links": [list(here)]},
        ],
    }


STUDIES.add(
    Study(
        "campus",
        CampusParameters,
        run,
        tuple(
            f"{what}_{when}"
            for what in ("wired_ms", "wireless_ms", "delay_ms", "arrived")
            for when in ("before", "after")
        ),
    )
)
