"""The messages between a client and the node on its device, over a local stream socket.

Each message is a 32-bit length and that many octets in the common form (`codec.py`). A client speaks
first (`ClientHello`); every request carries a number of the client's own, and `Done` or `Failed` answers it.

A payload above the bound of an event goes to the node in parts, a few of which may be on their way
(`LargeRequest`); to a client it goes in one message.

A program without Unix sockets uses a node by a port of the loopback, and a file that says it may. The file
holds the port and a random token of the node's present run. Whoever can read the file may use the
node, as whoever may open the socket does. Both sides prove that they know the token before anything else is
said, and neither sends it: a program that took the port while the node was away learns nothing.

    client: | nonce 256 |
    node:   | nonce 256 | proof 256 |
    client: | proof 256 |
"""

import hmac
import struct
from collections.abc import Iterator
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

from roamcast.chunks import CHUNK_BYTES, DIGEST_BYTES
from roamcast.errors import WireError
from roamcast.event import (
    COUNT_MAX,
    LARGE_BYTES_MAX,
    NUMBER_BYTES,
    PAYLOAD_BYTES_MAX,
    Count,
    Event,
    Name,
    Publication,
    Text,
)
from roamcast.wire.codec import FRAME_BYTES_MAX, Codec
from roamcast.wire.exchange import NAMED_MAX
from roamcast.wire.status import EventWay, NodeStatus

VERSION = 4
FILTER_BYTES_MAX = 8192
PARAMETER_BYTES_MAX = 8192
LENGTH = struct.Struct("!I")
SKIPPED_BYTES_MAX = 64 * 1024 * 1024  # a longer message is no mistake of an honest client; chosen by us
LARGE_MESSAGE_BYTES_MAX = LARGE_BYTES_MAX + FRAME_BYTES_MAX  # of a node
PARTS_AHEAD = 16  # parts of a payload that a client may send before the node has published them
BEGINNING_BYTES = 16  # of a message: version, tag and request are in there


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


class LargeRequest(LocalMessage, frozen=True, tag=30):
    """A publication whose payload, `size` octets, follows in `PayloadPart`s; `frame` is all else. It is
    answered after the last part."""

    request: Count
    frame: Publication
    size: Count
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class PayloadPart(LocalMessage, frozen=True, tag=31):
    """The next `CHUNK_BYTES` octets of a `LargeRequest`, or the last."""

    request: Count
    octets: Annotated[bytes, msgspec.Meta(max_length=CHUNK_BYTES)]


class PartsPublished(LocalMessage, frozen=True, tag=32):
    """How many parts of a `LargeRequest` are in the mesh."""

    request: Count
    parts: Count


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


class WayRequest(LocalMessage, frozen=True, tag=14):
    """Which way did this event go, as far as the node knows? A `WayAnswer` comes."""

    request: Count
    publisher: Count
    sequence: Count


class WayAnswer(LocalMessage, frozen=True, tag=15):
    request: Count
    way: EventWay


class RevokeRequest(LocalMessage, frozen=True, tag=16):
    """A device is lost: no member shall accept its frames. `undo`: it was found."""

    request: Count
    device: Count
    undo: bool = False


class ForgetRequest(LocalMessage, frozen=True, tag=17):
    """Another device has this number from now on: its key is pinned anew."""

    request: Count
    device: Count


class AskRequest(LocalMessage, frozen=True, tag=20):
    """Publish, and bring what comes back within so many microseconds: an `AnswerMessage` each, then `Over`.
    Replies of applications, or with `receipts` what nodes say that it reached: so many, or those named."""

    request: Count
    publication: Publication
    within: Count
    answers: Count
    receipts: bool = False
    named: Annotated[tuple[Name, ...], msgspec.Meta(max_length=NAMED_MAX)] = ()


class QueryRequest(LocalMessage, frozen=True, tag=21):
    """What has the mesh memorized? An `AnswerMessage` for each event, then `Over`."""

    request: Count
    filter: Annotated[bytes, msgspec.Meta(max_length=FILTER_BYTES_MAX)]
    within: Count
    latest: bool
    limit: Count


class EndRequest(LocalMessage, frozen=True, tag=22):
    """No more answers to an earlier `AskRequest` or `QueryRequest`."""

    request: Count
    ended: Count


class AnswerMessage(LocalMessage, frozen=True, tag=23):
    """`after`: microseconds from the request to this answer; of a query the age of the event."""

    request: Count
    event: Event
    hops: Count
    after: Count


class Over(LocalMessage, frozen=True, tag=24):
    """The last answer has come. `total`: as many as there were; of a query as many as were found."""

    request: Count
    total: Count


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


class DeliveryMessage(LocalMessage, frozen=True, tag=8):
    """`subscriptions`: the client's own numbers; none for an event addressed to the node."""

    event: Event
    subscriptions: tuple[Count, ...]
    hops: Count


class LargeEventMessage(LocalMessage, frozen=True, tag=33):
    """An event with a large payload, which travels beside it."""

    event: Event
    subscriptions: tuple[Count, ...]
    hops: Count
    payload: Annotated[bytes, msgspec.Meta(max_length=LARGE_BYTES_MAX)]


class MissedEvents(LocalMessage, frozen=True, tag=9):
    """The client read too slowly: this many events were left out at this point of the stream."""

    events: Count


ClientMessage = (
    ClientHello
    | PublishRequest
    | LargeRequest
    | PayloadPart
    | SubscribeRequest
    | UnsubscribeRequest
    | AdvertiseRequest
    | WithdrawRequest
    | StatusRequest
    | WayRequest
    | RevokeRequest
    | ForgetRequest
    | AskRequest
    | QueryRequest
    | EndRequest
)
NodeMessage = (
    Welcome
    | Done
    | Failed
    | DeliveryMessage
    | LargeEventMessage
    | PartsPublished
    | MissedEvents
    | StatusAnswer
    | WayAnswer
    | AnswerMessage
    | Over
)

FROM_CLIENT: Codec[ClientMessage] = Codec("client message", VERSION, ClientMessage)
FROM_NODE: Codec[NodeMessage] = Codec("node message", VERSION, NodeMessage, bytes_max=LARGE_MESSAGE_BYTES_MAX)

Message = TypeVar("Message", bound=msgspec.Struct)


def framed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def framed_pieces(message: NodeMessage) -> list[bytes]:
    """What a node writes: one piece, or two of which the second is the large payload itself, not a copy."""
    if not isinstance(message, DeliveryMessage) or len(message.event.payload) <= PAYLOAD_BYTES_MAX:
        return [framed(FROM_NODE.encode(message))]
    event, subscriptions, hops = message.event, message.subscriptions, message.hops
    without = msgspec.structs.replace(event, payload=b"")
    begins = FROM_NODE.encode(LargeEventMessage(without, subscriptions, hops, b""))
    assert begins.endswith(b"\xc4\x00")  # an empty binary in MessagePack; a long one begins with 0xc6
    begins = begins[:-2] + b"\xc6" + LENGTH.pack(len(event.payload))
    return [LENGTH.pack(len(begins) + len(event.payload)) + begins, event.payload]


class UnreadableMessageError(WireError):
    """One message that cannot be read; the stream goes on behind it. `request` is the number that it seems to
    have, 0 if there is none."""

    def __init__(self, field: str, octet: int, problem: str, request: int = 0) -> None:
        super().__init__(field, octet, problem)
        self.request = request


class Unframer(Generic[Message]):
    """Splits a stream into messages. After all are taken, less than one message is buffered.

    A message that is longer than allowed, up to `SKIPPED_BYTES_MAX`, is passed over without being kept.
    """

    def __init__(self, codec: Codec[Message]) -> None:
        self._codec = codec
        self._data = b""
        self._at = 0  # octets before this have been consumed
        self._skipped = 0  # octets still to come of a message that is too long
        self._more: list[bytes] = []  # of a message that is not whole: joined once, when it is
        self._lacking = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; WireError where the stream cannot be read any further."""
        self.push(data)
        while (message := self.pop()) is not None:
            yield message

    def push(self, data: bytes) -> None:
        if self._skipped:
            passed = min(self._skipped, len(data))
            self._skipped -= passed
            data = data[passed:]
        if self._lacking > len(data):
            self._lacking -= len(data)
            self._more.append(data)
            return
        self._lacking = 0
        if self._more:
            data = b"".join([*self._more, data])
            self._more.clear()
        self._data = self._data[self._at :] + data
        self._at = 0

    def pop(self) -> Message | None:
        """The next message, None until it is complete; `UnreadableMessageError` for one that cannot be read,
        another `WireError` where the stream cannot be read any further."""
        data, at = self._data, self._at + LENGTH.size
        if at > len(data) or self._lacking:
            return None
        (length,) = LENGTH.unpack_from(data, self._at)
        if length > SKIPPED_BYTES_MAX:
            raise WireError("message length", 0, f"is {length}, at most {self._codec.bytes_max} are allowed")
        if length > self._codec.bytes_max:
            self._pass_over(at, length)
            return None
        if at + length > len(data):
            self._lacking = at + length - len(data)
            return None
        self._at = at + length
        octets = data[at : at + length]
        try:
            return self._codec.decode(octets)
        except WireError as error:
            if not self._codec.is_of_this_version(octets):
                raise
            raise UnreadableMessageError("client message", 0, error.problem, _request_in(octets)) from None

    def _pass_over(self, at: int, length: int) -> None:
        """Pass over a message that is too long, once its beginning is here, which has the request's
        number."""
        data = self._data
        if len(data) - at < BEGINNING_BYTES:
            return
        request = _request_in(data[at : at + BEGINNING_BYTES])
        passed = min(length, len(data) - at)
        self._at, self._skipped = at + passed, length - passed
        problem = f"has {length} octets, at most {self._codec.bytes_max} are allowed"
        raise UnreadableMessageError("client message", 0, problem, request)


def _request_in(octets: bytes) -> int:
    """The second item of the array: a message's request, if it has one. Octets behind it do not matter."""
    try:
        if octets[1] >> 4 != 0x9:  # an array of up to 15 items, as all messages are
            return 0
        value = msgspec.msgpack.decode(
            b"\x92" + octets[2 : 2 + 1 + NUMBER_BYTES][: 1 + _number_octets(octets[3])]
        )
        return value[1] if 0 <= value[1] <= COUNT_MAX else 0
    except (IndexError, TypeError, msgspec.DecodeError, ValueError):
        return 0


def _number_octets(first: int) -> int:
    """How many octets an unsigned number takes in MessagePack, by its first octet."""
    return {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.get(first, 1)


LOOPBACK = "127.0.0.1"
SUFFIX = ".token"
NONCE_BYTES = PROOF_BYTES = TOKEN_BYTES = 32
TEXT_LENGTH_MAX = 200  # far above ours
_MARK = "roamcast-token"


class AccessToken(NamedTuple):
    port: int
    secret: bytes

    @classmethod
    def from_text(cls, text: str) -> "AccessToken":
        match text.split():
            case [mark, port, secret] if mark == _MARK and port.isascii() and port.isdigit():
                try:
                    octets = bytes.fromhex(secret)
                except ValueError:
                    octets = b""
                if len(octets) == TOKEN_BYTES and len(port) < 6 and 0 < int(port) <= 65_535:
                    return cls(int(port), octets)
        raise WireError("token file", 0, "is none that a node wrote")

    def to_text(self) -> str:
        return f"{_MARK} {self.port} {self.secret.hex()}\n"

    def node_proof(self, of_client: bytes, of_node: bytes) -> bytes:
        return hmac.digest(self.secret, b"node" + of_client + of_node, "sha256")

    def client_proof(self, of_client: bytes, of_node: bytes) -> bytes:
        return hmac.digest(self.secret, b"client" + of_client + of_node, "sha256")


def is_proof(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)
