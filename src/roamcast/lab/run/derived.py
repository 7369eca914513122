"""Tables that the lab computes from a trace after the run, beside the records of `trace.py`.

No runtime writes them, so no strategy can influence them. A run's folder holds both kinds.
"""

from typing import ClassVar

from roamcast.trace import RECORDS, Record
from roamcast.units import Micros, NodeId


class Derived(Record, frozen=True):
    """One row of a table that was computed from a trace."""


class OverlayJudged(Derived, frozen=True):
    """One row if the strategy has overlay links: cycles and partitions of its graph (`overlay_graph.py`)."""

    TABLE: ClassVar[str] = "overlay_health"
    cycles: int  # instants of change after which the overlay had a cycle
    excess_partitions: float | None  # time average of overlay components beyond the physical ones


class Reached(Derived, frozen=True):
    """One row per event that somebody received: whom its frames reached (`expected.py`)."""

    TABLE: ClassVar[str] = "reached"
    publisher: NodeId
    sequence: int
    nodes: int  # that received a frame with it, the publisher apart
    unwanted: int  # of those, where it was not expected: nobody there wanted it
    relayed: int  # of the unwanted, that sent it on


class Expected(Derived, frozen=True):
    """Ground truth: `node` should get the event (`expected.py`).

    A real-time event expects the subscriptions that stand when it is published, a memorized one also
    those made within its lifetime; explicit destinations are expected always.
    """

    TABLE: ClassVar[str] = "expected"
    publisher: NodeId
    sequence: int
    node: NodeId
    since: Micros  # publication, or the later subscription that made it expected
    reachable: bool  # a path in the contact graph at publish time
    hops: int | None  # length of the shortest such path


DERIVED: tuple[type[Derived], ...] = (OverlayJudged, Expected, Reached)
TABLES: tuple[type[Record], ...] = (*RECORDS, *DERIVED)  # everything in the folder of a run, in this order
