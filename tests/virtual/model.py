"""What each client may have, and what it must have in the end.

May, at every instant:
- nothing that nobody published, no changed content, nothing on a topic that it never asked for;
- a message of QoS 2 once, if it is subscribed with QoS 2 (a refused one that its program sends once more is
  another message);
- of QoS 1 and 2, in order per publisher, topic and QoS (MQTT 5.0, section 4.6), unless a node says that
  it has let one pass (`docs/use/promises.md`; counted in `out_of_order`).

Must, once the world has been quiet: whatever was acknowledged (PUBACK, PUBREC) to a publisher with QoS 1 or
2, for every client that had a lasting session and a subscription (SUBACK) before the message was sent, and
ever since. And the newest retained message of a topic for whoever subscribes afterwards.

A node whose disk was full may give a client something twice after a crash: it could not note that the client
had it, and what it could not keep comes when it can (`in_doubt`). A node that says that it has lost its
storage (`forgiven`) is out of the second part.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roamcast.event import Event
from roamcast.filter import Filter

if TYPE_CHECKING:
    from tests.virtual.clients import ModelClient

LOG_MAX = 200_000


class Message:
    """One that a client published."""

    def __init__(
        self, number: int, publisher: str, topic: str, qos: int, retain: bool, size: int, clears: bool
    ) -> None:
        self.number, self.publisher, self.topic, self.qos = number, publisher, topic, qos
        self.retain, self.size, self.clears = retain, size, clears
        head = b"%d:%d:" % (qos, number)
        self.payload = b"" if clears else head + b"x" * (size - len(head))
        self.sent_at: float | None = None
        self.acknowledged_at: float | None = None
        self.is_refused = False
        self.tries = 0  # as earlier messages, which were refused

    def __repr__(self) -> str:
        return f"{self.publisher}'s message {self.number} (QoS {self.qos}, {self.topic})"


class Standing:
    """One subscription of one client."""

    def __init__(self, wanted: str, qos: int) -> None:
        self.wanted, self.qos = wanted, qos
        self.filter = Filter.topic(wanted)
        self.since: float | None = None  # SUBACK
        self.until: float | None = None  # UNSUBSCRIBE, or the end of the session

    def covers(self, topic: str) -> bool:
        return self.filter.matches(Event(0, 0, topic=topic))


class Model:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.log: list[Any] = []
        self.keeps_order = False  # not every strategy keeps it; else it is only counted
        self.let_pass: Callable[[], int] = lambda: 0  # how many events the nodes have let pass
        self.out_of_order = 0
        self.deliveries = 0
        self.forgiven: set[str] = set()  # clients whose nodes have lost what they had, and said so
        self.in_doubt: set[str] = set()  # clients whose nodes could not note what they have had
        self.sessions_lost = 0
        self._by_payload: dict[bytes, Message] = {}
        self._clears: dict[str, list[Message]] = defaultdict(list)
        self._subscriptions: dict[str, list[Standing]] = defaultdict(list)
        self._clients: dict[str, ModelClient] = {}
        self._had: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # client, message, times
        self._last: dict[tuple[str, str, str, int], int] = {}  # by client, publisher, topic and QoS
        self._problems: list[str] = []

    # From the clients.

    def note(self, now: float, name: str, packet: Any) -> None:
        if len(self.log) < LOG_MAX:
            self.log.append((round(now, 6), name, repr(packet)[:120]))

    def new_message(
        self, publisher: str, topic: str, qos: int, retain: bool, size: int, clears: bool
    ) -> Message:
        message = Message(len(self.messages), publisher, topic, qos, retain, size, clears)
        self.messages.append(message)
        if clears:
            self._clears[topic].append(message)
        else:
            self._by_payload[message.payload] = message
        return message

    def acknowledged(self, message: Message, now: float) -> None:
        if message.acknowledged_at is None:
            message.acknowledged_at = now

    def refused(self, message: Message) -> None:
        message.is_refused = True

    def refused_connection(self, name: str, reason: int) -> None:
        self.problem(f"{name} was refused with {reason:#x}")

    def subscribing(self, client: "ModelClient", wanted: str, qos: int) -> None:
        self._clients[client.name] = client
        self._subscriptions[client.name].append(Standing(wanted, qos))

    def subscribed(self, client: "ModelClient", wanted: str, reason: int) -> None:
        for one in self._subscriptions[client.name]:
            if one.wanted == wanted and one.since is None and reason < 0x80:
                one.since = client.world.now

    def unsubscribing(self, client: "ModelClient", wanted: str) -> None:
        for one in self._subscriptions[client.name]:
            if one.wanted == wanted and one.until is None:
                one.until = client.world.now

    def disconnected(self, client: "ModelClient") -> None:
        if not client.lasting:
            self._end_subscriptions(client)

    def lost_session(self, client: "ModelClient") -> None:
        self.sessions_lost += 1
        self._clients[client.name] = client
        if client.name not in self.forgiven:
            self.problem(f"{client.name} has lost its session")
        self._end_subscriptions(client)

    def received(self, client: "ModelClient", packet: Any, now: float) -> None:
        self.deliveries += 1
        message = self._by_payload.get(packet.payload) if packet.payload else None
        if message is None:
            if not self._clears.get(packet.topic) or packet.payload:
                self.problem(f"{client.name} got {packet.payload[:30]!r}, which nobody published")
            return
        subscriptions = self._subscriptions[client.name]
        covering = [one for one in subscriptions if one.covers(packet.topic)]
        if packet.topic != message.topic or not covering:
            self.problem(f"{client.name} got {message} on {packet.topic}, which it did not want")
            return
        had = self._had[client.name]
        had[message.number] += 1
        is_exact = message.qos == 2 and not message.retain and [one.qos for one in covering] == [2]
        if is_exact and had[message.number] > 1 and client.name not in self.in_doubt:
            self.problem(f"{client.name} got {message} {had[message.number]} times")
        if message.qos and not message.retain and had[message.number] == 1:
            key = (client.name, message.publisher, message.topic, message.qos)
            if self._last.get(key, -1) > message.number:
                self.out_of_order += 1
                if self.keeps_order and not self.let_pass() and client.name not in self.in_doubt:
                    self.problem(f"{client.name} got {message} after {self._last[key]}")
            else:
                self._last[key] = message.number

    def problem(self, text: str) -> None:
        self._problems.append(text)

    # The answer.

    def problems(self, now: float) -> list[str]:
        return [*self._problems, *(f"lost: {who} has not got {what}" for who, what in self.lost(now))]

    def lost(self, now: float) -> list[tuple[str, Message]]:
        """Acknowledged, and not with everyone who must have it."""
        missing = []
        for message in self.messages:
            if not message.qos or message.acknowledged_at is None or message.clears or message.retain:
                continue
            assert message.sent_at is not None
            for name, subscriptions in self._subscriptions.items():
                if not self._clients[name].lasting or name in self.forgiven:
                    continue
                must = any(
                    one.qos
                    and one.since is not None
                    and one.since < message.sent_at
                    and one.until is None
                    and one.covers(message.topic)
                    for one in subscriptions
                )
                if must and not self._had[name][message.number]:
                    missing.append((name, message))
        return missing

    def newest_retained(self, topic: str) -> Message | None:
        """The last one that was acknowledged, if none was under way after it."""
        of_topic = [one for one in self.messages if one.topic == topic and one.retain]
        kept = [one for one in of_topic if one.qos and not one.is_refused]
        return kept[-1] if kept and kept[-1].acknowledged_at is not None else None

    def has(self, name: str, message: Message) -> bool:
        return self._had[name][message.number] > 0

    @property
    def acknowledged_count(self) -> int:
        return sum(one.acknowledged_at is not None for one in self.messages)

    def _end_subscriptions(self, client: "ModelClient") -> None:
        for one in self._subscriptions[client.name]:
            if one.until is None:
                one.until = client.world.now
        for wanted, qos in client.wanted.items():
            self._subscriptions[client.name].append(Standing(wanted, qos))
