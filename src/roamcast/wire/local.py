"""The messages between a client and the node on its device, over a local stream socket.

Each message is a 32-bit length and that many octets in the common form (`codec.py`). A client speaks
first (`ClientHello`); every request carries a number of the client's own, and `Done` or `Failed` answers it.
"""

import struct
from collections.abc import Iterator
from typing import Annotated, Generic, TypeVar

import msgspec

from roamcast.errors import WireError
from roamcast.event import Count, Event, Name, Publication, Text
from roamcast.wire.codec import FRAME_BYTES_MAX, Codec
from roamcast.wire.status import NodeStatus

VERSION = 3
FILTER_BYTES_MAX = 8192
PARAMETER_BYTES_MAX = 8192
LENGTH = struct.Struct("!I")


class LocalMessage(
    msgspec.Struct, frozen=True, array_like=True, tag_field="message", forbid_unknown_fields=True
):
    """On the wire an array that begins with the class's number, its `tag`."""


class ClientHello(LocalMessage, frozen=True, tag=1):
    """`addressed`: the client also wants what is sent to this node by name."""

    client: Name
    addressed: bool = False


class PublishRequest(LocalMessage, frozen=True, tag=2):
    """Request 0 wants no answer."""

    request: Count
    publication: Publication


class SubscribeRequest(LocalMessage, frozen=True, tag=3):
    """`number` is the client's own name for the subscription; an existing one is replaced."""

    request: Count
    number: Count
    filter: Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]
    modulator: Name = ""  # applied to the events in a broker; "": events come as they are
    parameters: Annotated[bytes, msgspec.Meta(max_length=PARAMETER_BYTES_MAX)] = b""  # of the modulator


class UnsubscribeRequest(LocalMessage, frozen=True, tag=4):
    request: Count
    number: Count


class AdvertiseRequest(LocalMessage, frozen=True, tag=10):
    """Events of this type will come; until it is withdrawn, or the client leaves."""

    request: Count
    type: Name


class WithdrawRequest(LocalMessage, frozen=True, tag=11):
    request: Count
    type: Name


class StatusRequest(LocalMessage, frozen=True, tag=12):
    """What is this node, and how is it? A `StatusAnswer` comes."""

    request: Count


class StatusAnswer(LocalMessage, frozen=True, tag=13):
    request: Count
    status: NodeStatus


class Welcome(LocalMessage, frozen=True, tag=5):
    node: Count
    name: Name


class Done(LocalMessage, frozen=True, tag=6):
    """`sequence` of the event for a publication, else 0. A memorized event is on disk by now."""

    request: Count
    sequence: Count = 0


class Failed(LocalMessage, frozen=True, tag=7):
    request: Count
    problem: Text


class EventMessage(LocalMessage, frozen=True, tag=8):
    """`subscriptions`: the client's own numbers; none for an event addressed to the node."""

    event: Event
    subscriptions: tuple[Count, ...]
    hops: Count


class MissedEvents(LocalMessage, frozen=True, tag=9):
    """The client read too slowly: this many events were left out at this point of the stream."""

    events: Count


ClientMessage = (
    ClientHello
    | PublishRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | AdvertiseRequest
    | WithdrawRequest
    | StatusRequest
)
NodeMessage = Welcome | Done | Failed | EventMessage | MissedEvents | StatusAnswer

FROM_CLIENT: Codec[ClientMessage] = Codec("client message", VERSION, ClientMessage)
FROM_NODE: Codec[NodeMessage] = Codec("node message", VERSION, NodeMessage)

Message = TypeVar("Message", bound=msgspec.Struct)


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


class Unframer(Generic[Message]):
    """Splits a stream into messages. After all are taken, less than one message is buffered."""

    def __init__(self, codec: Codec[Message]) -> None:
        self._codec = codec
        self._data = b""
        self._at = 0  # octets before this have been consumed

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; WireError where the stream cannot be read any further."""
        self.push(data)
        while (message := self.pop()) is not None:
            yield message

    def push(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data
        self._at = 0

    def pop(self) -> Message | None:
        """The next message, None until it is complete."""
        data, at = self._data, self._at + LENGTH.size
        if at > len(data):
            return None
        (length,) = LENGTH.unpack_from(data, self._at)
        if length > FRAME_BYTES_MAX:
            raise WireError("message length", 0, f"is {length}, at most {FRAME_BYTES_MAX} are allowed")
        if at + length > len(data):
            return None
        self._at = at + length
        return self._codec.decode(data[at : at + length])
