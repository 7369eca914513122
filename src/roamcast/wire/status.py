"""The status document of a node: plain data, the same for the command line, JSON and any page that shows it.

`runtime/live/report/status.py` fills it in; it travels over the local socket (`wire/local.py`). Durations are
in seconds. Lists are bounded: what stands beside a list as `…_total` counts all of it. `NodeView` is the same
and what a person looks at for a while, for a node's page (`gateway/web`).
"""

import msgspec

PEERS_SHOWN = 256  # of those last heard; chosen by us, so that a document fits a message of the local socket
FILTERS_SHOWN = 50  # this and the next: chosen by us
KNOWN_SHOWN = 256
STORED_SHOWN = 50
PASSING_SHOWN = 50
LINKS_SHOWN = 256
NAMES_SHOWN = 1_024


class StatusPart(msgspec.Struct, frozen=True, kw_only=True):
    """Fields go by name, so that a client and a node of neighbouring versions understand each other."""


class NodeProblem(StatusPart, frozen=True, kw_only=True):
    """Something that an operator should look at."""

    level: str  # "error": something does not work; "warning": something may not
    text: str


class InterfaceStatus(StatusPart, frozen=True, kw_only=True):
    name: str
    address: str  # "" without one
    is_up: bool  # and has an address
    port: int  # of the air, shared
    own_port: int  # 0 while it is away
    mode: str
    peers: int = 0  # heard now, and reached by it
    trouble: str = ""  # why it is not used now


class PeerStatus(StatusPart, frozen=True, kw_only=True):
    """A node that was heard directly, and lately."""

    number: int
    address: str  # of IPv6 with the interface: fe80::1%wlan0
    port: int
    is_up: bool  # heard within the last seconds
    is_neighbour: bool  # by the underlay: a link in both directions
    age: float  # since it was last heard
    known_for: float  # since it was first heard, or heard again after it was gone
    quality: float | None  # share of the last intervals in which it was heard; None: too new to say
    links: int  # TCP links with it
    frames_received: int
    bytes_received: int
    frames_sent: int  # to it alone; broadcasts are not counted for anyone
    bytes_sent: int
    interface: str = ""  # by which it is reached
    also_by: tuple[str, ...] = ()  # others by which it could be reached now
    other: str = ""  # "strategy" or "underlay", if it has another one: neither understands the other


class ReasonCount(StatusPart, frozen=True, kw_only=True):
    reason: str  # the label in metrics and traces
    words: str
    count: int
    last_minute: int


class Misfit(StatusPart, frozen=True, kw_only=True):
    """A device that is heard and cannot take part with us as it is."""

    address: str
    node: int | None  # None: it could not say, or was not believed
    kind: str  # "group", "version", "strategy", "underlay", "settings", "program", "clock", "identity"
    problem: str
    age: float  # since it was last noticed
    frames: int


class NodeStatus(StatusPart, frozen=True, kw_only=True):
    problems: tuple[NodeProblem, ...]  # errors first
    version: str  # of the program
    number: int
    name: str
    public_key: str  # hexadecimal
    uptime: float
    strategy: str
    underlay: str
    is_broker: bool
    group: tuple[str, ...]  # ids of the group keys; the first seals
    is_encrypted: bool
    content_keys: int
    interfaces: tuple[InterfaceStatus, ...]
    peers: tuple[PeerStatus, ...]  # those last heard first
    peers_total: int
    misfits: tuple[Misfit, ...]
    clients: dict[str, int]  # by gateway
    subscriptions: tuple[str, ...]  # filters
    subscriptions_total: int
    events_published: int
    events_delivered: int
    events_stored: int
    storage: str  # the file; "" without one
    drops: tuple[ReasonCount, ...]  # frames and events that this node gave up
    refused: tuple[ReasonCount, ...]  # frames that came and were not accepted
    revoked: tuple[int, ...] = ()  # devices that are excluded
    broker_load: float | None = None  # share of its capacity that is taken; None: it says nothing of that
    names: dict[int, str] = {}  # what nodes are called, this one included


class WayStep(StatusPart, frozen=True, kw_only=True):
    ago: float
    what: str  # "published", "arrived", "sent", "dropped", "delivered"
    peer: int | None  # from whom it arrived, to whom it was sent; None: broadcast, or nobody
    detail: str


class EventWay(StatusPart, frozen=True, kw_only=True):
    """What this node knows of one event's way, the oldest step first."""

    publisher: int
    sequence: int
    is_stored: bool
    remembered_for: float  # how far back this node's memory reaches
    steps: tuple[WayStep, ...]
    steps_total: int
    names: dict[int, str] = {}  # of the nodes in it, where they are known


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
