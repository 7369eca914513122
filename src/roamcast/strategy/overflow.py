"""A table of a strategy is full: the trace says so, by the name of the bound."""

from roamcast.bounded import OnEvicted
from roamcast.event import EventId
from roamcast.host import Host
from roamcast.trace import Dropped, DropReason


def trace_overflow(host: Host, message: str, bound: str, event: EventId | None = None) -> None:
    """`event`: the one that this node no longer has. Not one that a table merely spoke of: `why` takes it for
    the reason of a loss."""
    publisher, sequence = (None, None) if event is None else event
    host.trace(
        Dropped(host.now(), host.node, DropReason.STORE_FULL, message, publisher, sequence, detail=bound)
    )


def traced(host: Host, message: str, bound: str) -> OnEvicted[object, object]:
    """For a bounded table with whose entries no event is lost."""
    return lambda key, value: trace_overflow(host, message, bound)
