"""What is said on the internal system channel: by monitor, broker manager and client manager (section
3.3)."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from roamcast.units import Micros, NodeId


class BrokerDiscovered(NamedTuple):
    """A client found a broker nearer than its home (2.4, step 1), or came into another network whose broker
    that is (channels, 3.1). Distances from the client, in the unit of `BrokerManager.path`."""

    client: NodeId
    candidate: NodeId
    distance: float
    home_distance: float
    load: float  # of the candidate, as a share of its capacity


class Measured(NamedTuple):
    """One reading of a resource monitor. What `values` holds is said in `monitor.py`, per kind."""

    kind: str
    node: NodeId
    values: Mapping[str, int | float]


class TimeCame(NamedTuple):
    """A period of the broker ended, e.g. "broker_update"."""

    name: str
    now: Micros


class NeighboursFound(NamedTuple):
    """The search for neighbours has ended, and the broker's own row says what it found."""


class Overloaded(NamedTuple):
    """A broker has more to do than it can, and found no other with room."""

    broker: NodeId
    load: float


SystemEvent: TypeAlias = BrokerDiscovered | Measured | TimeCame | NeighboursFound | Overloaded
