"""What each client may have, and what it must have in the end.

May, at every instant:
- nothing that nobody published, no changed content, nothing on a topic that it never asked for;
- a message of QoS 2 once, if it is subscribed with QoS 2, and never if it was refused (one that its program
  sends once more is another message);
- of QoS 1 and 2, in order per publisher, topic and QoS (MQTT 5.0, section 4.6), unless a node says that
  it has let one pass (`docs/use/promises.md`; counted in `out_of_order`).

Must, once the world has been quiet: whatever was acknowledged (PUBACK, PUBREC) to a publisher with QoS 1 or
2, for every client that had a lasting session and a subscription (SUBACK) before the message was sent, and
ever since. And the newest retained message of a topic for whoever subscribes afterwards.

A will comes once, when its connection has ended without DISCONNECT and its client has been away for the
will's delay, and not otherwise; that of a client with a lasting session must come, also after a crash. A
program on the local socket gets an event once per connection; it must have what was acknowledged while it was
subscribed, and where stores have room also what was acknowledged before. A receipt comes from another node
that has a subscriber, once, until the deadline, and then its publisher is told that it is over.

A node whose disk was full may give a client something twice after a crash, or not have noted its will: it
could note nothing (`is_in_doubt`). What it could not keep comes when it can, in no order with the rest. A
node that says that it has lost its storage (`forgiven`) is out of the second part.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from roamcast.event import Event
from roamcast.filter import Filter

if TYPE_CHECKING:
    from tests.virtual.clients import ModelClient
    from tests.virtual.programs import LocalProgram

AnyClient: TypeAlias = "ModelClient | LocalProgram"
EARLY = 1.0  # seconds that a client may hear of the end of its connection after others have its will
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
        # Of a program's message.
        self.lifetime = 0.0  # seconds
        self.receipts = 0  # that are wanted
        # Of a will: whose, and what became of the connection.
        self.client = ""
        self.delay = 0
        self.connected_at: float | None = None
        self.revoked_at: float | None = None
        self.ended_at: float | None = None
        self.came_at: float | None = None  # to the first who got it

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
        self.out_of_order = 0
        self.deliveries = 0
        self.forgiven: set[str] = set()  # clients whose nodes have lost what they had, and said so
        self.disk_was_full: dict[str, float] = {}  # since when, on the nodes of these clients
        self.sessions_lost = 0
        self.programs: set[str] = set()
        # Whether it waits on its publisher's disk, because the store is full until lifetimes end.
        self.is_waiting: Callable[[Message], bool] = lambda message: False
        self._by_payload: dict[bytes, Message] = {}
        self._clears: dict[str, list[Message]] = defaultdict(list)
        self._subscriptions: dict[str, list[Standing]] = defaultdict(list)
        self._clients: dict[str, AnyClient] = {}
        self.has_room = True  # no store is so small that it pushes out what everyone has had
        self.clocks_jump = False  # then delays of wills do not say when
        self._connected: dict[str, list[float]] = defaultdict(list)
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

    def connected(self, client: AnyClient, now: float) -> None:
        self._clients[client.name] = client
        self._connected[client.name].append(now)

    def confirmed(self, message: Message, node: int, publisher: int) -> None:
        """A receipt has come."""
        if node == publisher or node not in self.takers(message.topic):
            self.problem(f"{message} is confirmed by {node}, where nobody wants it")

    def subscribing(self, client: AnyClient, wanted: str, qos: int) -> None:
        self._clients[client.name] = client
        self._subscriptions[client.name].append(Standing(wanted, qos))

    def subscribed(self, client: AnyClient, wanted: str, reason: int) -> None:
        for one in self._subscriptions[client.name]:
            if one.wanted == wanted and one.since is None and reason < 0x80:
                one.since = client.world.now

    def unsubscribing(self, client: "ModelClient", wanted: str) -> None:
        for one in self._subscriptions[client.name]:
            if one.wanted == wanted and one.until is None:
                one.until = client.world.now

    def disconnected(self, client: AnyClient) -> None:
        if not client.lasting:
            self._end_subscriptions(client)

    def lost_session(self, client: "ModelClient") -> None:
        self.sessions_lost += 1
        self._clients[client.name] = client
        if client.name not in self.forgiven:
            self.problem(f"{client.name} has lost its session")
        self._end_subscriptions(client)

    def received(self, client: AnyClient, topic: str, payload: bytes, now: float) -> None:
        self.deliveries += 1
        message = self._by_payload.get(payload) if payload else None
        if message is None:
            if not self._clears.get(topic) or payload:
                self.problem(f"{client.name} got {payload[:30]!r}, which nobody published")
            return
        subscriptions = self._subscriptions[client.name]
        covering = [one for one in subscriptions if one.covers(topic)]
        if topic != message.topic or not covering:
            self.problem(f"{client.name} got {message} on {topic}, which it did not want")
            return
        if message.came_at is None:
            message.came_at = now
        had = self._had[client.name]
        had[message.number] += 1
        is_exact = message.qos == 2 and not message.retain and [one.qos for one in covering] == [2]
        if is_exact and had[message.number] > 1 and not self.is_in_doubt(client.name, message.client):
            self.problem(f"{client.name} got {message} {had[message.number]} times")
        if message.qos and not message.retain and had[message.number] == 1:
            key = (client.name, message.publisher, message.topic, message.qos)
            if self._last.get(key, -1) > message.number:
                self.out_of_order += 1
                if self.keeps_order and not client.machine.let_pass and client.name not in self.disk_was_full:
                    self.problem(f"{client.name} got {message} after {self._last[key]}")
            else:
                self._last[key] = message.number

    def is_in_doubt(self, *names: str) -> bool:
        """Whether the node of one of these clients had a full disk and has died since: it could not note what
        its clients have had."""
        full = self.disk_was_full.keys() & self._clients.keys() & set(names)
        return any(self._clients[one].machine.deaths[-1:] >= [self.disk_was_full[one]] for one in full)

    def _died_at(self, name: str, at: float) -> bool:
        """Whether a client's node has died at about this time, so that it may not have noted a goodbye."""
        return any(at - 1.0 < died < at + 5.0 for died in self._clients[name].machine.deaths)

    def on_full_disk(self, now: float, *clients: str) -> None:
        self.disk_was_full = dict.fromkeys(clients, now) | self.disk_was_full

    def problem(self, text: str) -> None:
        self._problems.append(text)

    # The answer.

    def takers(self, topic: str) -> set[int]:
        """Nodes on which somebody has ever wanted this."""
        return {
            client.machine.number
            for name, client in self._clients.items()
            if any(one.covers(topic) for one in self._subscriptions[name])
        }

    def problems(self, now: float) -> list[str]:
        lost = (f"lost: {who} has not got {what}" for who, what in self.lost(now))
        refused = (f"{one} was refused, and came" for one in self.messages if self._came_refused(one))
        return [*self._problems, *self._untimely_wills(), *refused, *lost]

    def _came_refused(self, message: Message) -> bool:
        """Its program sends it once more: who has this one has it twice."""
        is_late = message.qos == 2 and message.is_refused and message.came_at is not None
        return is_late and not self.is_in_doubt(message.publisher)

    def _untimely_wills(self) -> list[str]:
        found = []
        for will in self.messages:
            if not will.client or will.came_at is None or self.is_in_doubt(will.client):
                continue
            ended = will.ended_at
            if ended is None or will.came_at < ended - EARLY:
                found.append(f"{will} came while its client was connected")
                continue
            never = will.came_at + EARLY
            back = next((at for at in self._connected[will.client] if at > ended), never)
            if will.revoked_at is not None:
                # One that comes back may overtake its goodbye, which a node with a full store does not read.
                if not self._died_at(will.client, ended) and (self.has_room or will.came_at < back):
                    found.append(f"{will} came although its client said goodbye")
            elif will.delay and not self.clocks_jump and min(back, never) - ended < will.delay - EARLY:
                found.append(f"{will} came although its client was back after {back - ended:.1f} s")
        return found

    def lost(self, now: float) -> list[tuple[str, Message]]:
        """Acknowledged, and not with everyone who must have it."""
        missing = []
        for message in self.messages:
            if not message.qos or message.acknowledged_at is None or message.clears or message.retain:
                continue
            assert message.sent_at is not None
            for name, subscriptions in self._subscriptions.items():
                if name in self.forgiven or self.is_in_doubt(message.client):
                    continue
                gets_stored = self.has_room and name in self.programs
                must = any(
                    one.qos
                    and one.since is not None
                    and (gets_stored or one.since < message.sent_at)
                    and one.until is None
                    and one.covers(message.topic)
                    for one in subscriptions
                )
                if must and not self._had[name][message.number] and not self.is_waiting(message):
                    missing.append((name, message))
        return missing

    def newest_retained(self, topic: str) -> Message | None:
        """The last one that was acknowledged, if none was under way after it."""
        of_topic = [one for one in self.messages if one.topic == topic and one.retain]
        kept = [one for one in of_topic if one.qos and not one.is_refused]
        return kept[-1] if kept and kept[-1].acknowledged_at is not None else None

    def has(self, name: str, message: Message) -> bool:
        return self.times(name, message) > 0

    def times(self, name: str, message: Message) -> int:
        return self._had[name][message.number]

    @property
    def acknowledged_count(self) -> int:
        return sum(one.acknowledged_at is not None for one in self.messages)

    def _end_subscriptions(self, client: AnyClient) -> None:
        for one in self._subscriptions[client.name]:
            if one.until is None:
                one.until = client.world.now
        for wanted, qos in client.wanted.items():
            self._subscriptions[client.name].append(Standing(wanted, qos))
