"""What happened: the records of a run, one schema for all runtimes.

Records are flat, typed and stamped with the host's clock; they hold what a metric or `why` needs; they are
not a log. Each class is one table; `lab/run/tables.py` turns them into Arrow and Parquet, beside
what `lab/run/tables.py` computes from them. Times are integer microseconds since the run began.
"""

from enum import Enum
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec

from roamcast.units import Micros, NodeId

SCHEMA = 3
"""Of the tables; it grows when a table or a column is added or changes. 1 (Roamcast 0.2) had no `motion`,
2 no `attainable` and no `limits`."""

NodeSet: TypeAlias = Annotated[int, "a set of nodes, bit n for node n; in tables a list of numbers"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of a trace."""

    TABLE: ClassVar[str]


class Published(Record, frozen=True):
    """An application published an event."""

    TABLE: ClassVar[str] = "publications"
    t: Micros
    publisher: NodeId
    sequence: int
    event_class: str  # "realtime" or "memorized"
    lifetime: Micros
    size: int  # payload octets
    topic: str
    type: str
    attributes: str  # JSON object
    destinations: tuple[NodeId, ...]
    multimode: bool


class Subscribed(Record, frozen=True):
    """An application subscribed (`stands`) or unsubscribed. A crash does not end a subscription."""

    TABLE: ClassVar[str] = "subscriptions"
    t: Micros
    node: NodeId
    subscription: int
    filter: str  # the canonical text of the filter
    stands: bool


class Delivered(Record, frozen=True):
    """An event was handed to the application. One record each, repeats and misdeliveries too."""

    TABLE: ClassVar[str] = "deliveries"
    t: Micros
    node: NodeId
    publisher: NodeId
    sequence: int
    hops: int  # radio hops of this copy
    # By the application's own filters, tried one by one, not by the broker's index; true for a node that
    # the event names as its destination.
    matched: bool


class Transmitted(Record, frozen=True):
    """One attempt to send one frame, and its outcome at each node in range.

    `received`, `collided` and `faded` are known where the medium is known (sim, the emulator's ether).
    For a unicast frame they are about the addressee alone.
    """

    TABLE: ClassVar[str] = "transmissions"
    t: Micros  # when the attempt began
    node: NodeId
    to: NodeId | None  # None: broadcast
    kind: str  # "control" or "data"
    message: str
    size: int  # octets as handed to the radio, without link-layer headers
    attempt: int  # 1 for the first; link-layer retries count up
    airtime: Micros
    publisher: NodeId | None  # of the event carried
    sequence: int | None
    own: bool
    received: NodeSet
    collided: NodeSet  # in range, but hit by another transmission or transmitting itself
    faded: NodeSet  # in range, but lost by the radio model's random loss, or out of range before the end
    layer: str = "strategy"  # whose frame it is: "underlay" or "strategy"


class OnAir(Record, frozen=True):
    """One attempt of one link-layer frame, whatever it carried, as the emulator's ether saw it.

    Beside `Transmitted`, which has the frames of Roamcast's own layers: several of those may share a
    datagram, and ARP or TCP acknowledgements belong to none. Empty where there is no ether.
    """

    TABLE: ClassVar[str] = "air"
    t: Micros  # when the attempt began
    node: NodeId
    to: NodeId | None  # None: a group address
    protocol: str  # "arp", "udp", "tcp", "icmp", "igmp", "ipv6", "other"
    octets: int  # of the Ethernet frame, its header included, its checksum not
    attempt: int
    airtime: Micros
    received: NodeSet
    collided: NodeSet
    faded: NodeSet


class DropReason(Enum):
    """Why a layer or the radio gave a frame or an event up."""

    QUEUE_FULL = "queue_full"  # the radio's send queue was at its bound
    RETRIES = "retries"  # unicast: every attempt went unacknowledged
    NOT_IN_RANGE = "not_in_range"  # unicast to a node that is no neighbour
    NO_ROUTE = "no_route"  # the underlay knew no route to its destination
    CRASHED = "crashed"  # was queued in a node that crashed
    EXPIRED = "expired"  # its lifetime or its hop limit ended
    WIRE = "wire"  # could not be decoded
    SEAL = "seal"  # a sealed frame that was not opened: forged, replayed, of a sender not proven yet
    STORE_FULL = "store_full"  # a bounded table pushed it out, or had no room
    SUPERSEDED = "superseded"  # a newer retained event of its topic took its place in the store
    STALE = "stale"  # came by a route that its sender has and this node has dropped
    MODULATOR = "modulator"  # a consumer's function failed and runs no more
    FALSE_POSITIVE = "false_positive"  # a summary matched by mistake; no exact filter here does


class Dropped(Record, frozen=True):
    """A frame or event that this node gave up."""

    TABLE: ClassVar[str] = "drops"
    t: Micros
    node: NodeId
    reason: DropReason
    message: str
    publisher: NodeId | None = None
    sequence: int | None = None
    to: NodeId | None = None
    detail: str = ""


class LinkChanged(Record, frozen=True):
    """The contact plan, as played: `receiver` can or can no longer hear `sender`."""

    TABLE: ClassVar[str] = "links"
    t: Micros
    sender: NodeId
    receiver: NodeId
    both: bool  # the reverse direction changes too, at the same instant
    up: bool


class Moved(Record, frozen=True):
    """A knot of a node's path: from one knot to the next it moves on a straight line at constant speed.

    Written by the runtimes that know where nodes are. Before its first and after its last knot a node is
    absent; the last knot may lie at or beyond the end of the run, so that the last piece is whole.
    """

    TABLE: ClassVar[str] = "motion"
    t: Micros
    node: NodeId
    x: float  # metres, to the micrometre: the same digits on every machine
    y: float
    present: bool  # false: absent from here to the next knot


class FaultHappened(Record, frozen=True):
    """A crash or restart of a node, or a cut or heal of the link between `node` and `peer`."""

    TABLE: ClassVar[str] = "faults"
    t: Micros
    kind: str  # "crash", "restart", "cut", "heal"
    node: NodeId
    peer: NodeId | None = None


class OverlayChanged(Record, frozen=True):
    """A strategy's own structure changed: links of the overlay, repairs, roles."""

    TABLE: ClassVar[str] = "overlay"
    t: Micros
    node: NodeId
    # "link_up", "link_down", "repaired", "neighbour_up", "neighbour_down", "role_on", "role_off", "grouped",
    # "handled": a control message, as the study `managed` counts it
    change: str
    peer: NodeId | None = None
    # "broker", "mpr", "leader", …; of a link, where a strategy records it at both ends, this end's part:
    # "downstream" or "upstream"; of "handled", for whose operation: "own" or "others".
    role: str = ""
    # How long a repair took, in milliseconds; of "grouped", how many channels a publisher's broker has now;
    # of "handled", octets.
    value: float | None = None


class HandedOff(Record, frozen=True):
    """A handoff of a client from one home broker to another; it may have failed."""

    TABLE: ClassVar[str] = "handoffs"
    t: Micros  # when it ended
    node: NodeId  # the client
    source: NodeId
    destination: NodeId
    started: Micros
    producers: int  # brokers that were asked to send elsewhere
    # "moved"; "refused" or "aborted": nothing had changed; "rolled_back": everything was changed back;
    # "resumed": the destination was lost; "superseded": the client had chosen another home by itself.
    outcome: str


class LoadSampled(Record, frozen=True):
    """The load of a broker's modulators in the last `span`; spans follow each other without gaps."""

    TABLE: ClassVar[str] = "loads"
    t: Micros
    node: NodeId
    load: float  # modulator time over the span, as a share of the broker's capacity
    clients: int  # those with modulators
    queued: int  # pieces of work that wait or are being done
    span: Micros


class PathsSampled(Record, frozen=True):
    """At one instant, the lengths of shortest paths over all pairs of brokers that have one."""

    TABLE: ClassVar[str] = "paths"
    t: Micros
    kind: str  # "network": physical shortest paths; "overlay": physical length of the overlay's paths
    pairs: int
    hops: int  # sum over the pairs


RECORDS: tuple[type[Record], ...] = (
    Published,
    Subscribed,
    Delivered,
    Transmitted,
    OnAir,
    Dropped,
    LinkChanged,
    Moved,
    FaultHappened,
    OverlayChanged,
    HandedOff,
    LoadSampled,
    PathsSampled,
)


AnyRecord = TypeVar("AnyRecord", bound=Record)


class Trace:
    """The records of one run, a list per table, in the order in which they happened."""

    def __init__(self) -> None:
        self.records: dict[type[Record], list[Record]] = {kind: [] for kind in RECORDS}

    def add(self, record: Record) -> None:
        self.records[type(record)].append(record)

    def of(self, kind: type[AnyRecord]) -> list[AnyRecord]:
        """The records of one table, typed."""
        return self.records[kind]  # type: ignore[return-value]
