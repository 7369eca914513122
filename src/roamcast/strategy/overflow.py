"""Tracing that a table of a strategy is full. The record names the bound that was reached."""

from roamcast.bounded import OnEvicted
from roamcast.event import EventId
from roamcast.host import Host
from roamcast.trace import Dropped, DropReason


def trace_overflow(host: Host, message: str, bound: str, event: EventId | None = None) -> None:
    """`event`: the event that this node no longer has. Leave it out if the table only held information about
    the event: `roamcast why` takes this record as the reason of a loss."""
    publisher, sequence = (None, None) if event is None else event
    host.trace(
        Dropped(host.now(), host.node, DropReason.STORE_FULL, message, publisher, sequence, detail=bound)
    )


def traced(host: Host, message: str, bound: str) -> OnEvicted[object, object]:
    """For a bounded table whose evicted entries lose no event."""
    return lambda key, value: trace_overflow(host, message, bound)
