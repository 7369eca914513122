"""The resource monitor of one node (overlays, 3.3; the RMS of the channels, 2.2).

Readings, by kind:
- `load`: `now`, `load` (modulator time as a share of capacity, and on a real machine what else takes its
  processor), `was_made` (1 for a broker made at run time),
  `retiring` (1 while it gives its clients away)
- `memory`: `now`, `octets` (left of what the option `memory` allows for messages that wait, or of a real
  machine's memory if that is less)
- `distance`: `now`, `home`, `hops` (of the node as a client: its home broker, and how far it is)
- `modulator`: `now`, `client`, `access` (the broker nearest to it), `octets_in`, `octets_out`, `took`
  (microseconds), all since the reading before
- `latency`: `peer`, `micros` (half of a round trip to a neighbour, as the channels measure it)
- `bandwidth`: `peer`, `octets` (per second to a neighbour, as the largest letters lately went)
- `handoff`: `client`, `broker` (a client came into another broker's network)

An application may add kinds of its own (`add`). A reading that comes from another node has the names of its
kind and finite values, or is thrown away.

Whoever wants readings says which: adaptors of the same node by a function (`SystemChannel.subscribe`), other
nodes by a filter in SQL over the values, which travels here and is applied here, at the source. What nobody
wants is not sent. A watch ends when it has not been said again for `WATCH_LIFETIME`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from roamcast.errors import WireError
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.strategy.opportunistic.adaptation.channel import SystemChannel
from roamcast.strategy.opportunistic.adaptation.events import Measured
from roamcast.strategy.opportunistic.adaptation.messages import AdaptationLetter, Reading, Unwatch, Watch
from roamcast.units import SECOND, Micros, NodeId

WATCH_LIFETIME: Micros = 120 * SECOND
WATCHES_MAX = 256

Values = Mapping[str, int | float]

KINDS = {
    "load": ("now", "load", "was_made", "retiring"),
    "memory": ("now", "octets"),
    "distance": ("now", "home", "hops"),
    "modulator": ("now", "client", "access", "octets_in", "octets_out", "took"),
    "latency": ("peer", "micros"),
    "bandwidth": ("peer", "octets"),
    "handoff": ("client", "broker"),
}


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
    def __init__(
        self, host: Host, channel: SystemChannel, send: Callable[[NodeId, AdaptationLetter], None]
    ) -> None:
        self._host = host
        self._channel = channel
        self._send = send
        self._sources: dict[str, Callable[[], Iterable[Values]]] = {}
        self._watches: dict[tuple[NodeId, int], Installed] = {}
        self._asked: dict[tuple[NodeId, int], Asked] = {}  # our own watches elsewhere
        self._numbers = 0

    def add(self, kind: str, read: Callable[[], Iterable[Values]]) -> None:
        """`read` gives the readings of this kind, each time that `sample` asks."""
        self._sources[kind] = read

    def remove(self, kind: str) -> None:
        self._sources.pop(kind, None)

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
        self._channel.publish(Measured(kind, node, values))
        if not self._watches:
            return
        reading = Event(node, 0, dict(values), type=kind)
        for (watcher, number), watch in list(self._watches.items()):
            if watch.until <= now:
                del self._watches[watcher, number]
            elif watch.kind == kind and watch.wanted.matches(reading):
                names = tuple(values)
                self._send(watcher, Reading(number, kind, names, tuple(float(values[n]) for n in names)))

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

    def on_letter(self, sender: NodeId, message: Watch | Unwatch | Reading) -> None:
        match message:
            case Watch():
                self._install(sender, message)
            case Unwatch():
                self._watches.pop((sender, message.number), None)
            case Reading():
                asked = self._asked.get((sender, message.number))
                values = dict(zip(message.names, message.values, strict=False))
                if asked is not None and asked.kind == message.kind and _is_whole(message.kind, values):
                    self._channel.publish(Measured(message.kind, sender, values))

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
        self._watches[key] = Installed(message.kind, wanted, self._host.now() + WATCH_LIFETIME)


def _is_whole(kind: str, values: Values) -> bool:
    """Whether a reading from another node has what it must have."""
    return all(name in values for name in KINDS.get(kind, ())) and all(map(math.isfinite, values.values()))
