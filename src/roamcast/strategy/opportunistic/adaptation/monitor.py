"""The resource monitor of one node (overlays, 3.3; the RMS of the channels, 2.2).

Readings, by kind:
- `load`: `now`, `load` (modulator time as a share of capacity, and on a real machine what else takes its
  processor), `was_made` (1 for a broker made at run time),
  `retiring` (1 while it gives its clients away)
- `memory`: `now`, `octets` (left of what the option `memory` allows for messages that wait, or of a real
  machine's memory if that is less)
- `distance`: `now`, `home`, `hops` (of the node as a client: its home broker, and how far it is)
- `location`: `now`, `x`, `y` (metres; of a node that knows its own place)
- `modulator`: `now`, `client`, `access` (the broker nearest to it), `octets_in`, `octets_out`, `took`
  (microseconds), all since the reading before
- `topology`: `now`, `brokers` (known), `neighbours` (of this broker); read only when a broker came or went,
  or one's neighbours changed
- `latency`: `peer`, `micros` (half of a round trip to a neighbour, as the channels measure it)
- `bandwidth`: `peer`, `octets` (per second to a neighbour, as the largest messages lately went)
- `handoff`: `client`, `broker` (a client came into another broker's network)

An application may add kinds of its own (`add`). A reading that comes from another node has the names of its
kind and finite values, or is thrown away.

Whoever wants readings says which: adaptors of the same node by a function (`SystemChannel.subscribe`), other
nodes by a filter in SQL over the values, which travels here and is applied here, at the source. What nobody
wants is not sent. A watch ends when it has not been said again for `WATCH_LIFETIME`.

A filter may span several kinds: beside the values of its own kind it sees the last reading of each kind in
`JOINED`, by kind and name. "Only when the network topology changes and when the broker's own current CPU load
exceeds 80%" (channels, 2.2) is a watch of `topology` with `load_load > 0.8`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.strategy.base import Machine, MachineCounters
from roamcast.strategy.opportunistic.adaptation.events import Measured, SystemChannel
from roamcast.strategy.opportunistic.messages import (
    PEERS_MAX,
    Latencies,
    Measure,
    Ping,
    Pong,
    Reading,
    StreamMessage,
    Unwatch,
    Watch,
)
from roamcast.strategy.opportunistic.modulators import WINDOW
from roamcast.units import SECOND, Micros, NodeId

WATCH_LIFETIME: Micros = 120 * SECOND
WATCHES_MAX = 256
PONG_WITHIN: Micros = 2 * SECOND  # and one more second for a node that was asked to ping others
QUESTIONS_MAX = 1_024  # that are open at the same time, of one kind

Reply = TypeVar("Reply")

Send = Callable[[NodeId, StreamMessage], object]
OnMeasured = Callable[[Mapping[NodeId, Micros]], object]

Values = Mapping[str, int | float]

KINDS = {
    "load": ("now", "load", "was_made", "retiring"),
    "memory": ("now", "octets"),
    "distance": ("now", "home", "hops"),
    "location": ("now", "x", "y"),
    "topology": ("now", "brokers", "neighbours"),
    "modulator": ("now", "client", "access", "octets_in", "octets_out", "took"),
    "latency": ("peer", "micros"),
    "bandwidth": ("peer", "octets"),
    "handoff": ("client", "broker"),
}
JOINED = ("load", "memory", "distance", "location", "topology")  # a node has one reading of each


@dataclass
class Installed:
    kind: str
    wanted: Filter
    until: Micros


@dataclass
class Asked:
    """A watch of ours at another node."""

    kind: str
    condition: bytes
    said_at: Micros = 0


class ResourceMonitor:
    def __init__(self, host: Host, channel: SystemChannel, send: Send) -> None:
        self._host = host
        self._channel = channel
        self._send = send
        self._sources: dict[str, Callable[[], Iterable[Values]]] = {}
        self._watches: dict[tuple[NodeId, int], Installed] = {}
        self._asked: dict[tuple[NodeId, int], Asked] = {}  # our own watches elsewhere
        self._numbers = 0
        self._last: dict[str, int | float] = {}  # of the kinds in `JOINED`, as filters see them

    def add(self, kind: str, read: Callable[[], Iterable[Values]]) -> None:
        """`read` gives the readings of this kind, each time that `sample` asks."""
        self._sources[kind] = read

    def sample(self, *kinds: str) -> None:
        """Take the readings of these kinds now; without any, all."""
        for kind in kinds or tuple(self._sources):
            if kind in self._sources:
                for values in self._sources[kind]():
                    self.measured(kind, values)

    def renew(self) -> None:
        """Say our watches again before they end, and forget those of others that have ended."""
        now = self._host.now()
        for key in [key for key, watch in self._watches.items() if watch.until <= now]:
            del self._watches[key]
        for (node, number), asked in self._asked.items():
            if now - asked.said_at >= WATCH_LIFETIME // 3:
                self._say(node, number, asked)

    @property
    def is_watched(self) -> bool:
        """Whether another node wants readings of this one."""
        return bool(self._watches)

    def measured(self, kind: str, values: Values) -> None:
        """A reading, from a source or by itself (a handoff is not sampled, it happens)."""
        node, now = self._host.node, self._host.now()
        if kind in JOINED:
            self._last |= {f"{kind}_{name}": value for name, value in values.items()}
        self._channel.publish(Measured(kind, node, values))
        if not self._watches:
            return
        reading = self._joined(kind, values)
        for (watcher, number), watch in list(self._watches.items()):
            if watch.until <= now:
                del self._watches[watcher, number]
            elif watch.kind == kind and watch.wanted.matches(reading):
                names = tuple(values)
                self._send(watcher, Reading(number, kind, names, tuple(float(values[n]) for n in names)))

    def condition(self, kind: str, wanted: Filter) -> Callable[[Measured], bool]:
        """For `SystemChannel.subscribe`: readings of this kind, of this node, that meet the condition."""
        own = self._host.node
        return lambda event: (
            event.kind == kind and event.node == own and wanted.matches(self._joined(kind, event.values))
        )

    def watch(self, node: NodeId, kind: str, condition: str) -> int:
        """Readings of another node come to our channel while they meet the condition."""
        self._numbers += 1
        asked = Asked(kind, Filter.sql(condition).encode())
        if len(self._asked) < WATCHES_MAX:
            self._asked[node, self._numbers] = asked
            self._say(node, self._numbers, asked)
        return self._numbers

    def unwatch(self, node: NodeId, number: int) -> None:
        if self._asked.pop((node, number), None) is not None:
            self._send(node, Unwatch(number))

    def on_message(self, sender: NodeId, message: Watch | Unwatch | Reading) -> None:
        match message:
            case Watch():
                self._install(sender, message)
            case Unwatch():
                self._watches.pop((sender, message.number), None)
            case Reading():
                asked = self._asked.get((sender, message.number))
                values = dict(zip(message.names, message.values, strict=False))
                if asked is not None and asked.kind == message.reading and _is_whole(message.reading, values):
                    self._channel.publish(Measured(message.reading, sender, values))

    def _joined(self, kind: str, values: Values) -> Event:
        """What a filter sees of a reading."""
        return Event(self._host.node, 0, {**self._last, **values}, type=kind)

    def _say(self, node: NodeId, number: int, asked: "Asked") -> None:
        asked.said_at = self._host.now()
        self._send(node, Watch(number, asked.kind, asked.condition))

    def _install(self, sender: NodeId, message: Watch) -> None:
        key = sender, message.number
        if key not in self._watches and len(self._watches) >= WATCHES_MAX:
            return
        try:
            wanted = Filter.decode(message.filter)
        except WireError:
            return  # what cannot be read wants nothing
        self._watches[key] = Installed(message.reading, wanted, self._host.now() + WATCH_LIFETIME)


def _is_whole(kind: str, values: Values) -> bool:
    """Whether a reading from another node has what it must have."""
    return all(name in values for name in KINDS.get(kind, ())) and all(map(math.isfinite, values.values()))


class ProcessorWatch:
    """How much of a real processor is not there for modulators (overlays, 3.3: CPU load), lately.

    A model's processor does nothing else. A real one also does the rest of this node's work, and that of
    other programs, which matters as soon as they leave no processor free. What is gone is a part of a
    broker's load, so that clients keep away from a machine that is busy with something else.
    """

    def __init__(self, host: Host, machine: Machine | None) -> None:
        self._host = host
        self._machine = machine
        self._read: deque[tuple[Micros, MachineCounters]] = deque()

    def sample(self) -> None:
        if self._machine is None:
            return
        now = self._host.now()
        self._read.append((now, self._machine.read()))
        while len(self._read) > 2 and self._read[1][0] <= now - WINDOW:
            self._read.popleft()

    @property
    def is_known(self) -> bool:
        """Whether there are two readings to compare."""
        return len(self._read) >= 2

    def taken(self, modulators: float) -> float:
        """The share of one processor that is gone for other reasons than modulators, which take that much."""
        if not self.is_known:
            return 0.0
        (began, before), (ended, after) = self._read[0], self._read[-1]
        span = max(ended - began, 1)
        own = (after.process - before.process) / span
        others = 0.0
        if before.machine is not None and after.machine is not None:
            others = max((after.machine - before.machine) / span - own, 0.0)
        # As long as others leave one processor alone, they take nothing from a node that uses one.
        return max(own - modulators, 0.0) + max(others - (after.processors - 1), 0.0)


class OpenQuestion(NamedTuple, Generic[Reply]):
    of: NodeId
    until: Micros
    on_reply: Callable[[Reply | None], object]


class OpenQuestions(Generic[Reply]):
    """Asked of other nodes, and numbered. One that is not answered in time is answered by None."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._numbers = 0
        self._open: dict[int, OpenQuestion[Reply]] = {}

    def ask(self, of: NodeId, within: Micros, on_reply: Callable[[Reply | None], object]) -> int | None:
        """The number of the question; None: too many are open, and this one is answered already."""
        if len(self._open) >= QUESTIONS_MAX:
            on_reply(None)
            return None
        self._numbers += 1
        self._open[self._numbers] = OpenQuestion(of, self._host.now() + within, on_reply)
        return self._numbers

    def answered(self, sender: NodeId, number: int, reply: Reply) -> None:
        question = self._open.get(number)
        if question is not None and question.of == sender:
            del self._open[number]
            question.on_reply(reply)

    def give_up(self) -> None:
        """Called now and then: who has not answered in time will not."""
        for number in [n for n, question in self._open.items() if question.until <= self._host.now()]:
            self._open.pop(number).on_reply(None)


class Pings:
    """How far nodes are in time (channels, 3.1): half of the round trip of a ping, here or from a broker.

    Round trips of streams are smoothed over minutes and known only where messages went; comparing two ways
    that a client might take from now on needs current values of both.
    """

    def __init__(self, host: Host, send: Send) -> None:
        self._host = host
        self._send = send
        self._pings: OpenQuestions[Micros] = OpenQuestions(host)
        self._measurements: OpenQuestions[Mapping[NodeId, Micros]] = OpenQuestions(host)

    def ask(self, at: NodeId, to: Sequence[NodeId], on_measured: OnMeasured) -> None:
        """How far these are from the broker `at`; without those that did not answer in time."""
        if at == self._host.node:
            self._measure(to[:PEERS_MAX], on_measured)
            return
        number = self._measurements.ask(at, PONG_WITHIN + SECOND, lambda found: on_measured(found or {}))
        if number is not None:
            self._send(at, Measure(number, tuple(to[:PEERS_MAX])))

    def on_message(self, sender: NodeId, message: Ping | Pong | Measure | Latencies) -> None:
        match message:
            case Ping():
                self._send(sender, Pong(message.number))
            case Pong():
                self._pings.answered(sender, message.number, self._host.now())
            case Measure():
                number = message.number
                self._measure(message.peers, lambda found: self._send(sender, _told(number, found)))
            case Latencies(number, pairs):
                found = dict(zip(pairs[::2], pairs[1::2], strict=False))
                self._measurements.answered(sender, number, found)

    def give_up(self) -> None:
        """Called now and then: who has not answered in time will not."""
        self._pings.give_up()
        self._measurements.give_up()

    def _measure(self, to: Sequence[NodeId], on_measured: OnMeasured) -> None:
        own, began = self._host.node, self._host.now()
        found: dict[NodeId, Micros] = {own: 0} if own in to else {}
        waiting = set(to) - {own}
        if not waiting:
            on_measured(found)

        def answered(peer: NodeId, at: Micros | None) -> None:
            waiting.discard(peer)
            if at is not None:
                found[peer] = (at - began) // 2
            if not waiting:
                on_measured(found)

        for peer in sorted(waiting):
            number = self._pings.ask(peer, PONG_WITHIN, partial(answered, peer))
            if number is not None:
                self._send(peer, Ping(number))


def _told(number: int, found: Mapping[NodeId, Micros]) -> Latencies:
    return Latencies(number, tuple(value for pair in sorted(found.items()) for value in pair))
