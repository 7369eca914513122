"""The resource monitor of one node (overlays, 3.3; the RMS of the channels, 2.2).

Readings, by kind:
- `load`: `now`, `load` (modulator time as a share of capacity), `was_made` (1 for a broker made at run time)
- `memory`: `now`, `octets`
- `modulator`: `client`, `access` (the broker nearest to it), `octets_in`, `octets_out`, `took` (microseconds)
- `latency`: `peer`, `micros` (half of a round trip, as the channels measure it)
- `handoff`: `client`, `broker` (a client came into another broker's network)

Whoever wants readings says which: adaptors of the same node by a function (`SystemChannel.subscribe`), other
nodes by a filter in SQL over the values, which travels here and is applied here, at the source. What nobody
wants is not sent. A watch ends when it has not been said again for `WATCH_LIFETIME`.
"""

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


@dataclass
class Installed:
    kind: str
    wanted: Filter
    until: Micros


class ResourceMonitor:
    def __init__(
        self, host: Host, channel: SystemChannel, send: Callable[[NodeId, AdaptationLetter], None]
    ) -> None:
        self._host = host
        self._channel = channel
        self._send = send
        self._sources: dict[str, Callable[[], Iterable[Values]]] = {}
        self._watches: dict[tuple[NodeId, int], Installed] = {}
        self._asked: dict[tuple[NodeId, int], str] = {}  # our own watches elsewhere, and their kind
        self._numbers = 0

    def add(self, kind: str, read: Callable[[], Iterable[Values]]) -> None:
        """`read` gives the readings of this kind, each time that `sample` asks."""
        self._sources[kind] = read

    def sample(self) -> None:
        """Take all readings now."""
        for kind, read in self._sources.items():
            for values in read():
                self.measured(kind, values)

    def measured(self, kind: str, values: Values) -> None:
        """A reading, from a source or by itself (a handoff is not sampled, it happens)."""
        node, now = self._host.node, self._host.now()
        self._channel.publish(Measured(kind, node, values))
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
        self._asked[node, self._numbers] = kind
        self._send(node, Watch(self._numbers, kind, Filter.sql(condition).encode()))
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
                if self._asked.get((sender, message.number)) == message.kind:
                    values = dict(zip(message.names, message.values, strict=False))
                    self._channel.publish(Measured(message.kind, sender, values))

    def _install(self, sender: NodeId, message: Watch) -> None:
        key = sender, message.number
        if key not in self._watches and len(self._watches) >= WATCHES_MAX:
            return
        try:
            wanted = Filter.decode(message.filter)
        except WireError:
            return  # what cannot be read wants nothing
        self._watches[key] = Installed(message.kind, wanted, self._host.now() + WATCH_LIFETIME)
