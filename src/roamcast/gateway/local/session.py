"""One client of the local socket: its requests become calls on doors, its events messages.

Each subscription has a door of its own, so each gets every event once, and what is memorized when it
begins: two subscriptions of one program are as independent as those of two.

No I/O here: the server moves the octets, an in-process client passes the messages as they are.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.broker.store import StoreFullError
from roamcast.errors import InputError, WireError
from roamcast.event import EventClass
from roamcast.filter import Filter
from roamcast.modulator import ModulatorSpec
from roamcast.units import NodeId
from roamcast.wire.local import (
    ClientHello,
    ClientMessage,
    Done,
    EventMessage,
    Failed,
    NodeMessage,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
    Welcome,
)

SUBSCRIPTIONS_MAX = 10_000  # of one client


class LocalNode(Protocol):
    """What a gateway needs of a running node."""

    @property
    def number(self) -> NodeId: ...

    @property
    def name(self) -> str: ...

    @property
    def applications(self) -> Applications: ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything said so far would survive a crash."""
        ...


class LocalSession:
    def __init__(self, node: LocalNode, send: Callable[[NodeMessage], None]) -> None:
        self._node = node
        self._send = send
        self._door: ApplicationSession | None = (
            None  # for publications, and for what is addressed to the node
        )
        self._subscriptions: dict[int, ApplicationSession] = {}  # by the client's number

    def on_message(self, message: ClientMessage) -> None:
        """WireError if the client does not keep to the protocol; it is then to be cut off."""
        if isinstance(message, ClientHello):
            if self._door is not None:
                raise WireError("hello", 0, "came twice")
            self._door = self._node.applications.open(
                partial(self._on_delivery, ()), addressed=message.addressed
            )
            self._send(Welcome(self._node.number, self._node.name))
            return
        if self._door is None:
            raise WireError("client message", 0, "came before the hello")
        try:
            match message:
                case PublishRequest():
                    self._publish(self._door, message)
                case SubscribeRequest():
                    self._subscribe(message)
                case UnsubscribeRequest():
                    self._unsubscribe(message.number)
                    self._send(Done(message.request))
        except (InputError, StoreFullError, WireError) as error:
            # Request 0 asked for no answer, but a refusal is never kept secret.
            self._send(Failed(message.request, str(error)[:1000]))

    def close(self) -> None:
        for number in sorted(self._subscriptions):
            self._unsubscribe(number)
        if self._door is not None:
            self._door.close()
            self._door = None

    def _publish(self, door: ApplicationSession, message: PublishRequest) -> None:
        event = door.publish(
            message.attributes,
            payload=message.payload,
            topic=message.topic,
            type=message.type,
            event_class=EventClass.MEMORIZED if message.lifetime else EventClass.REALTIME,
            lifetime=message.lifetime,
            destinations=message.destinations,
            multimode=message.multimode,
            sealed=message.sealed,
        )
        if not message.request:
            return
        done = Done(message.request, event.sequence)
        if message.lifetime:
            self._node.when_durable(lambda: self._send(done))
        else:
            self._send(done)

    def _subscribe(self, message: SubscribeRequest) -> None:
        wanted = Filter.decode(message.filter)
        modulator = ModulatorSpec(message.modulator, message.parameters) if message.modulator else None
        if modulator is not None:
            self._node.applications.node.check_modulator(modulator)  # before the answer
        self._unsubscribe(message.number)
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise InputError("subscription", f"is one too many; a client may have {SUBSCRIPTIONS_MAX}")
        door = self._node.applications.open(partial(self._on_delivery, (message.number,)))
        self._subscriptions[message.number] = door
        self._send(Done(message.request))  # before the stored events that match
        door.subscribe(wanted, modulator)

    def _unsubscribe(self, number: int) -> None:
        door = self._subscriptions.pop(number, None)
        if door is not None:
            door.close()

    def _on_delivery(self, numbers: tuple[int, ...], delivery: Delivery) -> None:
        self._send(EventMessage(delivery.event, numbers, delivery.hops))
