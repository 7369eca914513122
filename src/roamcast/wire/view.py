"""What a node's page shows, as a document: its status, and what a person looks at for a while.

`runtime/live/report/view.py` fills it in; `gateway/web` gives it to users as JSON. Durations are in seconds.
Lists are bounded: what stands beside a list as `…_total` counts all of it.
"""

from roamcast.wire.status import NodeStatus, StatusPart

KNOWN_SHOWN = 256  # chosen by us, as are the next
STORED_SHOWN = 50
PASSING_SHOWN = 50
LINKS_SHOWN = 256


class OverlayLink(StatusPart, frozen=True, kw_only=True):
    peer: int
    role: str  # this end's part, where the strategy has one: "upstream", "downstream"
    known_for: float


class KnownNode(StatusPart, frozen=True, kw_only=True):
    """A node that the underlay has heard of, neighbours included."""

    number: int
    hops: int | None  # None: there is no route
    next_hop: int | None


class StoredStatus(StatusPart, frozen=True, kw_only=True):
    """An event that is kept for absent and later subscribers."""

    publisher: int
    sequence: int
    topic: str
    size: int  # octets of its payload
    expires_in: float


class PassingEvent(StatusPart, frozen=True, kw_only=True):
    """What became of an event here. Of one that only passes a relay sees the number, not the topic."""

    publisher: int
    sequence: int
    topic: str | None  # None: not known here
    age: float  # since it was last touched
    is_own: bool  # published here
    delivered: int  # to applications of this node
    frames: int  # that carried it from here
    dropped: str  # the last reason, or ""


class NodeLoad(StatusPart, frozen=True, kw_only=True):
    """Counters; a page that asks twice can tell rates."""

    processor_seconds: float
    resident_bytes: int
    frames_sent: int
    bytes_sent: int
    control_bytes_sent: int
    frames_queued: int


class NodeView(StatusPart, frozen=True, kw_only=True):
    status: NodeStatus
    roles: tuple[str, ...]  # of this node, in the strategy: "broker", "leader", …
    links: tuple[OverlayLink, ...]  # of the strategy's overlay
    links_total: int
    known: tuple[KnownNode, ...]
    known_total: int
    stored: tuple[StoredStatus, ...]  # the newest first
    passing: tuple[PassingEvent, ...]  # those last touched first
    load: NodeLoad
