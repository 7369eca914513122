"""The port: all that a protocol may touch.

A protocol layer is written once, without I/O. Each layer of each node has its own `Host`; `sim`,
`emulate` and `live` implement it, tests use a `FakeHost`. The comments here are promises, and
`tests/contract/` checks them on every runtime.
"""

from collections.abc import Callable, Hashable, MutableMapping
from enum import Enum, IntEnum
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from roamcast.event import EventId
from roamcast.trace import Record
from roamcast.units import Micros, NodeId

TimerName: TypeAlias = Hashable
"""Any object that a host can compare and keep. A layer gets it back when the time has come. The timers of
`kit/protocol.py` are their own names; plug-ins may use strings or tuples. One without `__eq__` is the
cheapest name of all."""


class Channel(IntEnum):
    """Which layer a frame belongs to. It travels beside the payload (a UDP port, a leading octet), so
    that a payload can be another protocol's packet bit for bit (RFC 3626)."""

    UNDERLAY = 0
    STRATEGY = 1


class Kind(IntEnum):
    """Control goes before data in every queue; metrics count them apart."""

    CONTROL = 0
    DATA = 1


class SendFailure(Enum):
    """Why the link layer gave a unicast frame up."""

    QUEUE_FULL = "queue_full"  # our own send queue had no room: it says nothing about the neighbour
    LINK = "link"  # sent, as often as the link layer does, and never acknowledged


class Frame(msgspec.Struct, frozen=True, gc=False):  # a struct is made six times as fast as a named tuple
    """What a layer hands to the radio: the payload, and a label for queue and trace that is not sent."""

    payload: bytes
    kind: Kind
    message: str  # the message's name in the trace, e.g. "flood", "hello"
    event: EventId | None = None  # the event carried, if any
    own: bool = True  # for the sender's own operation, or on behalf of others (`own_control_ratio`)


class Position(NamedTuple):
    """Metres and metres per second in the local plane."""

    x: float
    y: float
    vx: float
    vy: float


class Host(Protocol):
    """One layer's view of its node and of the one-hop radio."""

    node: NodeId
    # One seeded stream per node and layer: a new draw here moves no draw elsewhere.
    random: Random
    # What survives a crash. Everything else in a layer is volatile. A write is durable on return.
    stable: MutableMapping[str, bytes]

    def now(self) -> Micros:
        """The instant of the input being handled. It stands still until the handler returns."""
        ...

    def set_timer(self, name: TimerName, at: Micros) -> None:
        """Call `on_timer(name)` once, at `at` or later, never before. Setting a name again moves it."""
        ...

    def cancel_timer(self, name: TimerName) -> None:
        """Forget a timer. Cancelling one that is not set is no error."""
        ...

    def broadcast(self, frame: Frame) -> None:
        """Hand one frame to the radio. No promise that anyone hears it."""
        ...

    def unicast(
        self, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None] | None = None
    ) -> None:
        """Send to one neighbour. `on_failure` is called later, at most once, if the link layer gives up.

        Silence is no proof of arrival: the receiver may crash after its acknowledgement.
        """
        ...

    def airtime(self, octets: int) -> Micros:
        """About how long a frame with such a payload keeps the medium busy, usual wait before it included.
        Where nobody can tell, a runtime assumes a usual radio."""
        ...

    def position(self) -> Position | None:
        """Where this node is and how it moves; None where nobody can tell."""
        ...

    def trace(self, record: Record) -> None:
        """Add one record to the run's trace."""
        ...


class CoreTimer:
    """A timer of the node's core on the host of a layer: the runtime calls `due`, and not the layer."""

    __slots__ = ("due",)

    def __init__(self, due: Callable[[], None]) -> None:
        self.due = due


class Layer:
    """What a host calls. Never while another call into the same node is still running.

    A layer overrides what it needs. `on_neighbour_*` and `on_acquainted` reach the underlay only: it decides
    what a neighbour is, the other layers ask it.
    """

    def on_start(self) -> None:
        """The node has booted; timers may be set and frames sent from here on."""

    def on_stop(self) -> None:
        """The node stops in good order: say so, if the protocol has a word for it. Nobody may count on it: a
        crash comes without. What is sent here still leaves; nothing more is handed to a layer afterwards,
        unless it `is_leaving`."""

    @property
    def is_leaving(self) -> bool:
        """Since `on_stop`: whether an answer is awaited. A runtime waits for a moment, not for ever."""
        return False

    def on_timer(self, name: TimerName) -> None:
        """A timer is due."""

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        """A frame arrived whole. Its content is hostile until decoded."""

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        """The host itself noticed a new one-hop link (a contact plan, a link-layer report)."""

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        """The host itself noticed that a one-hop link is gone."""

    def on_acquainted(self, neighbour: NodeId) -> None:
        """Frames of this node are handed over from now on, and those before were not: live nodes that meet
        for the first time prove themselves first. Who speaks periodically may want to speak again."""
