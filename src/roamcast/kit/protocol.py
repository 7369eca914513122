"""What every protocol layer is made of: timers that know their action, messages that know their label, and
one place that encodes, decodes, drops and traces.

A layer derives from `MessageLayer` (beside `Strategy` or `Underlay`), makes its parts with `self.messenger`
or with its host, and fills `handlers`. So no layer has to find out which timer fired, or to label a frame by
hand.

Not here: when to pass a message on (`relay.py`), when to send it again (`confirm.py`), what to ask for
(`repair.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from roamcast.errors import WireError
from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, Layer, SendFailure
from roamcast.trace import Dropped, DropReason
from roamcast.units import Micros, NodeId
from roamcast.wire import Codec

Key = TypeVar("Key")

Handlers: TypeAlias = Mapping[type[Any], Callable[[NodeId, Any], object]]
"""What to do with a message, by its class: called with the sender and the message."""

OnFailure: TypeAlias = Callable[[SendFailure], None]


class Timer:
    """One action at one time. Setting it again moves it."""

    __slots__ = ("_host", "due")

    def __init__(self, host: Host, action: Callable[[], object]) -> None:
        self._host = host
        self.due = action

    def at(self, when: Micros) -> None:
        self._host.set_timer(self, when)

    def after(self, wait: Micros) -> None:
        self._host.set_timer(self, self._host.now() + wait)

    def within(self, most: Micros) -> None:
        """After a random wait below `most`: nodes that see the same thing should not all send together."""
        self.after(random_below(self._host, most))

    def cancel(self) -> None:
        self._host.cancel_timer(self)


class Timers(Generic[Key]):
    """One action for each key, each at a time of its own; the action is called with the key."""

    __slots__ = ("_host", "action")

    def __init__(self, host: Host, action: Callable[[Key], object]) -> None:
        self._host = host
        self.action = action

    def at(self, key: Key, when: Micros) -> None:
        self._host.set_timer(KeyedTimer(self, key), when)

    def after(self, key: Key, wait: Micros) -> None:
        self._host.set_timer(KeyedTimer(self, key), self._host.now() + wait)

    def cancel(self, key: Key) -> None:
        self._host.cancel_timer(KeyedTimer(self, key))


class KeyedTimer(tuple[Any, Any]):
    """The name of one of several timers: a pair, because a host compares names."""

    __slots__ = ()

    def __new__(cls, timers: Timers[Key], key: Key) -> "KeyedTimer":
        return tuple.__new__(cls, (timers, key))

    def due(self) -> None:
        timers, key = self
        timers.action(key)


class WireMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message knows the name and the kind under which queues and traces count it. A protocol gives each of
    its messages a tag; one that carries an event says so by `event_id`."""

    name: ClassVar[str]
    kind: ClassVar[Kind] = Kind.CONTROL

    @property
    def event_id(self) -> EventId | None:
        """The event that is carried, if any."""
        return None


AnyMessage = TypeVar("AnyMessage", bound=WireMessage)


class Messenger(Generic[AnyMessage]):
    """How the parts of one layer send, decode and drop."""

    def __init__(self, host: Host, codec: Codec[AnyMessage]) -> None:
        self.host = host
        self.node = host.node
        self._codec = codec

    def send(
        self,
        message: AnyMessage,
        to: NodeId | None = None,
        *,
        own: bool = True,
        like: WireMessage | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """To one neighbour, or to all who hear it. `own`: not on behalf of another node."""
        frame = self.frame(message, own=own, like=like)
        if to is None:
            self.host.broadcast(frame)
        else:
            self.host.unicast(to, frame, on_failure)

    def frame(self, message: AnyMessage, *, own: bool = True, like: WireMessage | None = None) -> Frame:
        """`like`: the message that it carries, under whose name and kind it is counted."""
        label: WireMessage = message if like is None else like
        return Frame(self._codec.encode(message), label.kind, label.name, label.event_id, own)

    def decode(self, payload: bytes) -> AnyMessage | None:
        """None, and a record in the trace, if the octets are no message."""
        try:
            return self._codec.decode(payload)
        except WireError as error:
            self.drop(DropReason.WIRE, self._codec.name, detail=str(error))
            return None

    def drop(
        self,
        reason: DropReason,
        message: str,
        event: EventId | None = None,
        *,
        detail: str = "",
        to: NodeId | None = None,
    ) -> None:
        """`event`: the event that this node no longer has, or does not pass on."""
        trace_drop(self.host, reason, message, event, detail=detail, to=to)

    def overflow(self, message: str, bound: str, event: EventId | None = None) -> None:
        """A table is full; see `trace_overflow`."""
        trace_overflow(self.host, message, bound, event)


class MessageLayer(Layer):
    """A layer that speaks messages: what arrives is decoded and given to its handler, or dropped."""

    # Filled by the layer's constructor, once its parts are made.
    handlers: Handlers
    note_sender: Callable[[NodeId], object] | None = None  # of each message, before it is handled

    def __init__(self, host: Host, codec: Codec[Any]) -> None:
        self.host = host
        self.messenger: Messenger[Any] = Messenger(host, codec)
        self._decode = codec.decode

    def on_receive(self, sender: NodeId, payload: bytes) -> None:
        # Every frame comes through here, so `Messenger.decode` is not called for those that are well.
        try:
            message = self._decode(payload)
        except WireError:
            self.messenger.decode(payload)
            return
        if self.note_sender is not None:
            self.note_sender(sender)
        self.handlers[type(message)](sender, message)

    def on_timer(self, name: Any) -> None:
        name.due()


def random_below(host: Host, most: Micros) -> Micros:
    """A random time from 0 up to, and without, `most`."""
    return int(host.random.random() * most)


def trace_drop(
    host: Host,
    reason: DropReason,
    message: str,
    event: EventId | None = None,
    *,
    detail: str = "",
    to: NodeId | None = None,
) -> None:
    publisher, sequence = (None, None) if event is None else event
    host.trace(Dropped(host.now(), host.node, reason, message, publisher, sequence, detail=detail, to=to))


def trace_overflow(host: Host, message: str, bound: str, event: EventId | None = None) -> None:
    """A table is full; the record names the bound. `event`: the event that this node no longer has. Leave it
    out if the table only held information about the event: `roamcast why` takes this record as the reason of
    a loss."""
    trace_drop(host, DropReason.STORE_FULL, message, event, detail=bound)


def overflow_traced(host: Host, message: str, bound: str) -> Callable[[object, object], object]:
    """An `on_evicted` for a bounded table (`tables.py`) whose evicted entries lose no event."""
    return lambda key, value: trace_overflow(host, message, bound)
