"""The parameters of `opportunistic`, in seconds where times, and how long undeliverable events wait.

`[strategy.options] discard` names the function that decides about an event that cannot be delivered now
(section 2.3, future work). An application adds its own before its node starts:
`DISCARDS["mine"] = lambda event, age, options: ...`, true for an event that shall wait no longer. It is asked
about events that wait for a node out of reach, not about those on their way.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from roamcast.errors import InputError, ScenarioError
from roamcast.event import Count, Event, EventClass
from roamcast.strategy.opportunistic.adaptation.adaptors import check
from roamcast.strategy.opportunistic.adaptation.services import Limits
from roamcast.units import Micros, NodeId, micros

Period = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]

Capacity = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class OpportunisticOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Section 4.1: `static` changes neither overlay nor home brokers after the beginning,
    # `static-opportunistic` only home brokers; `best` knows the physical network at every instant.
    mode: Literal["opportunistic", "static", "static-opportunistic", "best"] = "opportunistic"
    broker_update: Period = 50.0  # neighbour discovery and topology propagation of each broker
    broker_discovery: Period = 10.0  # nearest-broker search of each client
    # `prompt`: also soon after the underlay reports that routes have changed (section 2.4). `handoff`: only
    # if the client is attached to another node then, the network's own handoff (channels, 3.1).
    discovery: Literal["periodic", "prompt", "handoff"] = "periodic"
    # Who is near, by the underlay's routes or by expanding ring search (2.3, step 1).
    search: Literal["routes", "ring"] = "routes"
    # How brokers hear of each other's links (2.3, step 2): by rows that all nodes pass on at once, or as the
    # paper has it, from neighbour to neighbour in the overlay, one step in each period.
    propagation: Literal["flood", "neighbours"] = "flood"
    overload_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8  # of a broker's capacity
    overload_control: bool = True  # False: the nearest broker, however loaded (figures 13, 14)
    ring_max: Annotated[int, msgspec.Meta(ge=1, le=16)] = 5  # hops, how far a broker looks for neighbours
    # A ring that found so many brokers is wide enough; those found are the broker's neighbours.
    neighbours_wanted: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3
    # Section 2.4, step 3. `loose`: nobody is asked before the client moves. `stateless`: likewise, and its
    # modulators begin anew.
    handoff: Literal["strict", "loose", "stateless"] = "strict"
    # How long a handoff waits for an answer.
    handoff_timeout: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 10.0
    home_timeout: Period = 10.0  # a client whose home broker is silent for so long chooses another by itself
    registration_lifetime: Period = 300.0  # a consumer whose home broker is silent for so long is forgotten
    # `overlay`: events go by messages along the overlay's paths alone, as in the paper. `adaptive`: one is
    # flooded if it is for many, is memorized, or somebody cannot be reached.
    dissemination: Literal["adaptive", "overlay"] = "adaptive"
    # Several datagrams in one frame, one frame for several neighbours, floods to many. False: each datagram
    # by itself and at once, as on the switched network of opportunistic channels.
    share_frames: bool = True
    # How long an event that cannot be delivered waits, in brokers and in its producer. `lifetime`: a
    # memorized one for its lifetime, a real-time one for `keep_realtime`. `realtime`: a real-time one is
    # dropped after some seconds.
    discard: str = "lifetime"
    keep_realtime: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0  # how long a real-time event waits
    # Of a broker's processor, in `sim`: a modulator's cost divided by it is the time it takes.
    capacity: Capacity = 1.0
    capacities: dict[str, Capacity] = {}  # of nodes that differ, by number: { "3" = 2.0 }
    modulator_limit: Annotated[float, msgspec.Meta(gt=0, le=600)] = 1.0  # for one event; then it is cut off
    # The adaptation layer: which adaptors decide (the paper's prototype has these three), and with what.
    adaptors: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = (
        "topology",
        "complex",
        "load_balancing",
    )
    monitor_period: Period = 1.0  # between two readings of a broker's load
    # Between two tries of `load_balancing`.
    adaptation_rest: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 3.0
    # What `complex` compares: hops of the overlay's paths, or the time that pings take (channels, 3.1).
    path_by: Literal["hops", "latency"] = "hops"
    placement_gain: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1  # a move saves at least this share
    # Nodes that are no brokers and would become some: all, none, or a list of their numbers.
    willing: Literal["none", "all"] | Annotated[tuple[Count, ...], msgspec.Meta(max_length=10_000)] = "none"
    idle_load: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2  # a broker made at run time ends …
    idle_time: Period = 30.0  # … when its load was below `idle_load` for so long
    directory: Literal["own"] | Count = "own"  # broker information: each broker's own table, or one node's
    memory: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 64_000_000  # octets a broker may use for queues
    # Which paths `path_hops_mean` averages: between brokers (figures 7, 8) or from producers to consumers
    # (`clients`), both by the brokers' tables, or those that messages with events took (figures 10–12).
    paths: Literal["brokers", "clients", "events"] = "clients"

    def __post_init__(self) -> None:
        if self.discard not in DISCARDS:
            allowed = ", ".join(sorted(DISCARDS))
            raise InputError("strategy.options.discard", f"is {self.discard!r}; allowed: {allowed}")
        check(self.adaptors)
        for key in self.capacities:
            if not key.isdecimal():
                raise ScenarioError("strategy.options.capacities", f"has {key!r}; allowed: numbers of nodes")

    def nodes_named(self) -> Iterator[tuple[str, NodeId]]:
        """The nodes that the options name, so that it can be checked that they exist."""
        if not isinstance(self.directory, str):
            yield "directory", self.directory
        if not isinstance(self.willing, str):
            yield from (("willing", node) for node in self.willing)
        yield from (("capacities", int(key)) for key in self.capacities)

    def check_brokers(self, brokers: Collection[NodeId]) -> None:
        if not brokers:
            raise ScenarioError("roles.brokers", "names nobody; allowed: one node at least is a broker")
        both = [] if isinstance(self.willing, str) else [node for node in self.willing if node in brokers]
        if both:
            problem = f"names node {both[0]}, which is a broker; allowed: nodes without that role"
            raise ScenarioError("strategy.options.willing", problem)
        without = [int(key) for key in self.capacities if int(key) not in brokers]
        if without and self.willing == "none":
            problem = f"names node {without[0]}, which is no broker; allowed: brokers and willing nodes"
            raise ScenarioError("strategy.options.capacities", problem)

    def is_over(self, event: Event, age: Micros) -> bool:
        """Whether an event that waits for its way to open shall wait no longer.

        A memorized event never outlives its lifetime, whatever the application's function says; where that
        function raises, the event waits as if there were none.
        """
        if event.event_class is EventClass.MEMORIZED and age >= event.lifetime:
            return True
        try:
            return bool(DISCARDS[self.discard](event, age, self))
        except Exception:  # an application's code may raise anything; its node goes on
            return _by_lifetime(event, age, self)

    def limits(self) -> Limits:
        return Limits(
            overload=self.overload_threshold,
            overload_control=self.overload_control,
            idle=self.idle_load,
            idle_for=micros(self.idle_time),
            placement_gain=self.placement_gain,
            by_latency=self.path_by == "latency",
            rest=micros(self.adaptation_rest),
        )

    def active_adaptors(self) -> tuple[str, ...]:
        """Those that may act in this mode: the static approach only builds its first overlay."""
        static = self.mode == "static"
        return tuple(name for name in self.adaptors if not static or name == "topology")

    def is_willing(self, node: NodeId) -> bool:
        """Whether a node that is no broker would be one."""
        return self.willing == "all" or (self.willing != "none" and node in self.willing)

    def underlay_options(self) -> dict[str, Any]:
        """The link layer notices a broken link within milliseconds, HELLOs within six seconds."""
        return {"link_layer_notification": True, "lost_hold": 0.0}


Discard: TypeAlias = Callable[[Event, Micros, OpportunisticOptions], bool]


def _by_lifetime(event: Event, age: Micros, options: OpportunisticOptions) -> bool:
    """Memorized events wait for their lifetime, real-time ones for `keep_realtime`."""
    if event.event_class is EventClass.MEMORIZED:
        return age >= event.lifetime
    return age >= micros(options.keep_realtime)


def _memorized_only(event: Event, age: Micros, options: OpportunisticOptions) -> bool:
    return event.event_class is not EventClass.MEMORIZED or age >= event.lifetime


DISCARDS: dict[str, Discard] = {"lifetime": _by_lifetime, "realtime": _memorized_only}
