"""The parameters of `opportunistic`, in seconds where times."""

from typing import Annotated, Any, Literal

import msgspec

Period = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]

Capacity = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class OpportunisticOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Section 4.1: `static` changes neither overlay nor home brokers after the beginning,
    # `static-opportunistic` only home brokers; `best` knows the physical network at every instant.
    mode: Literal["opportunistic", "static", "static-opportunistic", "best"] = "opportunistic"
    broker_update: Period = 50.0  # neighbour discovery and topology propagation of each broker
    broker_discovery: Period = 10.0  # nearest-broker search of each client
    overload_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8  # of a broker's capacity
    overload_control: bool = True  # False: the nearest broker, however loaded (figures 13, 14)
    # `ring`: expanding ring search; `routes`: brokers known by now, at the distances the underlay tells.
    discovery: Literal["ring", "routes"] = "ring"
    ring_max: Annotated[int, msgspec.Meta(ge=1, le=16)] = 5  # hops
    ring_wait: Annotated[float, msgspec.Meta(ge=0.001, le=10)] = 0.2  # per hop of the ring, for answers
    # A ring that found so many brokers is wide enough; those found are the broker's neighbours.
    neighbours_wanted: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3
    handoff: Literal["strict", "loose"] = "strict"  # loose: without the promises of section 2.4
    handoff_timeout: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 10.0
    home_timeout: Period = 10.0  # a client whose home broker is silent for so long chooses another by itself
    registration_lifetime: Period = 120.0  # a consumer whose home broker is silent for so long is forgotten
    # Events that cannot be delivered: who decides how long they wait, and how long real-time ones may.
    discard: str = "lifetime"
    keep_realtime: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    # Of a broker's processor, in `sim`: a modulator's cost divided by it is the time it takes. `capacities`
    # has the nodes that differ, by number.
    capacity: Capacity = 1.0
    capacities: dict[str, Capacity] = {}
    modulator_limit: Annotated[float, msgspec.Meta(gt=0, le=600)] = 1.0  # for one event; then it is cut off
    # What `path_hops_mean` compares: between brokers (figures 7, 8), or from producers to consumers (10–12).
    paths: Literal["brokers", "clients"] = "clients"

    def underlay_options(self) -> dict[str, Any]:
        return {}
