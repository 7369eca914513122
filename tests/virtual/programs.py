"""Programs on the local socket in virtual time, through the real codec: each message is a call.

A program has no session: when its connection ends it connects again and subscribes again, and gets what is
memorized then. It repeats what was refused, and nothing else: what was not answered when the connection ended
may have been published or not. What it says and hears goes to the `Model`.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.virtual.clients import AGAIN
from tests.virtual.model import Message
from tests.virtual.network import StreamEnd, VirtualSocket
from tests.virtual.timeline import LOCAL_PORT

from roamcast.event import PAYLOAD_BYTES_MAX, EventId, Publication
from roamcast.filter import Filter
from roamcast.units import SECOND
from roamcast.wire.exchange import NODE_NAME
from roamcast.wire.local import (
    FROM_CLIENT,
    FROM_NODE,
    AnswerMessage,
    AskRequest,
    ClientHello,
    ClientMessage,
    DeliveryMessage,
    Done,
    Failed,
    LargeEventMessage,
    NodeMessage,
    Over,
    PublishRequest,
    SubscribeRequest,
    Unframer,
    Welcome,
    framed,
)

if TYPE_CHECKING:
    from tests.virtual.nodes import VirtualMachine, VirtualWorld

GRACE = 2.0  # seconds after its deadline in which an inquiry must be over: a busy node reads it late


class Asked:
    """An inquiry for receipts."""

    def __init__(self, message: Message, until: float, wanted: int) -> None:
        self.message, self.until, self.wanted = message, until, wanted
        self.nodes: list[int] = []  # whose receipts have come
        self.is_over = False


class LocalProgram(asyncio.Protocol):
    lasting = False
    qos = 1

    def __init__(self, world: "VirtualWorld", machine: "VirtualMachine", name: str) -> None:
        self.world, self.machine, self.name = world, machine, name
        self.model = world.model
        self.is_wanted = True
        self.is_connected = False
        self.wanted: dict[str, int] = {}  # filters, with the QoS that they are worth
        self.asked: list[Asked] = []
        self.refused = 0
        self._to_repeat = 0
        self._open: dict[int, Message] = {}  # publications that are not answered
        self._subscribing: dict[int, str] = {}
        self._inquiries: dict[int, Asked] = {}  # on this connection
        self._had_here: set[EventId] = set()  # on this connection
        self._request = 0
        self._unframer: Unframer[Any] = Unframer(FROM_NODE)
        self._stream: StreamEnd | None = None
        self._connects()

    # What the program does.

    def publish(self, topic: str, *, lifetime: float = 0.0, size: int = 0, receipts: int = 0) -> Message:
        """With `receipts` it wants to hear of so many nodes that have handed it over, within 20 seconds."""
        message = self.model.new_message(self.name, topic, int(lifetime > 0), False, size, False)
        message.lifetime = lifetime
        message.receipts = receipts
        if self.is_connected:
            self._send(message)
        return message

    def subscribe(self, wanted: str) -> None:
        self.wanted[wanted] = self.qos
        self.model.subscribing(self, wanted, self.qos)
        if self.is_connected:
            self._ask_for(wanted)

    def leave(self, *, politely: bool = True) -> None:
        self.is_wanted = False
        self.drop()

    def come(self) -> None:
        if not self.is_wanted:
            self.is_wanted = True
            self._connects()

    def drop(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    @property
    def is_idle(self) -> bool:
        return self.is_connected and not (
            self._open or self._subscribing or self._to_repeat or self._inquiries
        )

    # The connection.

    def _connects(self) -> None:
        if not self.is_wanted or self._stream is not None:
            return
        network = self.world.network
        opened = VirtualSocket(network, self.world.outside, self.machine.address)
        try:
            opened.connect((self.machine.address, LOCAL_PORT))
            self._stream = network.connect(self.world.outside, opened, self)
        except ConnectionRefusedError:
            opened.close()
            self.world.call_later(AGAIN, self._connects)

    def connection_made(self, transport: Any) -> None:
        self._unframer = Unframer(FROM_NODE)
        self._say(ClientHello(self.name))

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self.model.note(self.world.now, self.name, message)
            self._on_message(message)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exception: Exception | None) -> None:
        if self.is_connected:
            self.model.disconnected(self)
        self._stream = None
        self.is_connected = False
        self._open.clear()
        self._subscribing.clear()
        self._inquiries.clear()
        self._had_here.clear()
        self.world.call_later(AGAIN, self._connects)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    # Messages.

    def _on_message(self, message: NodeMessage) -> None:
        match message:
            case Welcome():
                self.is_connected = True
                for wanted in self.wanted:
                    self._ask_for(wanted)
            case Done(request) if request in self._subscribing:
                self.model.subscribed(self, self._subscribing.pop(request), 0)
            case Done(request) if request in self._open:
                self.model.acknowledged(self._open.pop(request), self.world.now)
            case Failed(request) if request in self._open:
                self._on_refused(self._open.pop(request))
                self._inquiries.pop(request, None)
            case DeliveryMessage(event) | LargeEventMessage(event):
                payload = message.payload if isinstance(message, LargeEventMessage) else event.payload
                if event.id in self._had_here:
                    self.model.problem(f"{self.name} got {payload[:30]!r} twice on one connection")
                self._had_here.add(event.id)
                self.model.received(self, event.topic, payload, self.world.now)
            case AnswerMessage(request, event) if request in self._inquiries:
                self._on_receipt(self._inquiries[request], event.publisher, event.attributes.get(NODE_NAME))
            case Over(request, total) if request in self._inquiries:
                asked = self._inquiries.pop(request)
                asked.is_over = True
                if total != len(asked.nodes):
                    self.model.problem(f"{asked.message}: {total} receipts are said, {asked.nodes} came")
            case _:
                self.model.problem(f"{self.name} got {message!r}"[:200])

    def _on_receipt(self, asked: Asked, node: int, name: object) -> None:
        self.model.confirmed(asked.message, node, self.machine.number)
        if node in asked.nodes or len(asked.nodes) == asked.wanted or name != f"node-{node}":
            self.model.problem(f"{asked.message}: a receipt of {name} ({node}) after {asked.nodes}")
        if self.world.now > asked.until + GRACE:
            self.model.problem(f"{asked.message}: a receipt of {node} after the deadline")
        asked.nodes.append(node)

    def _on_refused(self, message: Message) -> None:
        self.refused += 1
        self.model.refused(message)
        if message.lifetime:
            self._to_repeat += 1
            self.world.call_later(0.5 * (1 + message.tries), self._once_more, message)

    def _once_more(self, message: Message) -> None:
        self._to_repeat -= 1
        again = self.publish(
            message.topic, lifetime=message.lifetime, size=message.size, receipts=message.receipts
        )
        again.tries = 1 + message.tries

    # Private.

    def _send(self, message: Message) -> None:
        assert message.size <= PAYLOAD_BYTES_MAX, "larger ones go in parts, which this program does not speak"
        lifetime = int(message.lifetime * SECOND)
        publication = Publication({}, message.payload, message.topic, lifetime=lifetime)
        request = self._next_request()
        self._open[request] = message
        message.sent_at = self.world.now
        if not message.receipts:
            self._say(PublishRequest(request, publication))
            return
        within = 20.0
        asked = self._inquiries[request] = Asked(message, self.world.now + within, message.receipts)
        self.asked.append(asked)
        self._say(AskRequest(request, publication, int(within * SECOND), message.receipts, receipts=True))
        self.world.call_later(within + GRACE, self._check_over, request, asked)

    def _check_over(self, request: int, asked: Asked) -> None:
        if self._inquiries.get(request) is asked:
            self.model.problem(f"{asked.message}: its deadline has passed, and nobody said so")

    def _ask_for(self, wanted: str) -> None:
        request = self._next_request()
        self._subscribing[request] = wanted
        number = 1 + list(self.wanted).index(wanted)
        self._say(SubscribeRequest(request, number, Filter.topic(wanted).encode()))

    def _next_request(self) -> int:
        self._request += 1
        return self._request

    def _say(self, message: ClientMessage) -> None:
        if self._stream is not None:
            self._stream.write(framed(FROM_CLIENT.encode(message)))
