"""One frame that every node passes on once: the same letter for a good part of the network.

A tree of routes to so many ends has as many branches as there are nodes, and a frame on each branch must be
acknowledged, or is lost with all that is behind it. A flood has fewer frames, needs no route, and who
misses one frame hears another. Nothing depends on it: it carries segments of the streams (`reliable.py`),
and what did not arrive is repeated by the way of single letters.

Each node waits for a moment of its own before it passes a flood on, and does not if it has heard it often
enough by then: whoever is around has heard it too (the counter-based scheme of Ni, Tseng, Chen and Sheu,
1999).
"""

from collections.abc import Callable

from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, TimerName
from roamcast.strategy.opportunistic.messages import FLOODED_MAX, FRAMES, HOPS_MAX, NAMES, Flood
from roamcast.strategy.opportunistic.reliable import STREAMS_PER_BOOT, Segment
from roamcast.units import MILLISECOND, Micros, NodeId

JITTER: Micros = 20 * MILLISECOND
HEARD_ENOUGH = 4  # copies, the first included
SEEN_MAX = 4_096
PENDING_MAX = 1_024
PARTS = 4  # numbers for each addressee
BOOTS_MAX = 1 << 31  # a stream's number must fit


class Floods:
    """Timers are `("flood", origin, number)`."""

    def __init__(self, host: Host, boot: int, receive: Callable[[NodeId, Segment, int, bool], None]) -> None:
        """`receive` gets the origin, its segment for us, the hops that took, and that it was flooded."""
        self._host = host
        self._receive = receive
        self._number = boot * STREAMS_PER_BOOT  # others remember the numbers of an earlier boot
        self._heard: dict[tuple[NodeId, int], int] = {}  # how often; the oldest first
        self._pending: dict[tuple[NodeId, int], Flood] = {}

    def send(self, segments: list[tuple[NodeId, Segment]], label: int, event: tuple[int, ...]) -> None:
        """The same letter to all of these."""
        for at in range(0, len(segments), FLOODED_MAX):
            self._number += 1
            part = segments[at : at + FLOODED_MAX]
            first = part[0][1]
            boot = first.stream // STREAMS_PER_BOOT
            numbers: list[int] = []
            for to, segment in part:
                stream = segment.stream - boot * STREAMS_PER_BOOT
                numbers += (to, stream, segment.number, segment.number - segment.confirmed)
            origin = self._host.node
            flood = Flood(origin, self._number, 0, boot, first.held, tuple(numbers), label, event, first.body)
            self._remember((origin, self._number))
            self._broadcast(flood)

    def on_flood(self, flood: Flood) -> None:
        key = (flood.origin, flood.number)
        if key in self._heard:
            self._heard[key] += 1
            return
        self._remember(key)
        if flood.hops + 1 < HOPS_MAX and len(self._pending) < PENDING_MAX:
            self._pending[key] = flood
            delay = int(self._host.random.random() * JITTER)
            self._host.set_timer(("flood", *key), self._host.now() + delay)
        own, parts = self._host.node, flood.parts
        for at in range(0, len(parts) - PARTS + 1, PARTS):
            to, stream, number, unconfirmed = parts[at : at + PARTS]
            if to == own and unconfirmed <= number and stream < STREAMS_PER_BOOT and flood.boot < BOOTS_MAX:
                segment = Segment(
                    flood.boot * STREAMS_PER_BOOT + stream,
                    number,
                    number - unconfirmed,
                    flood.held,
                    flood.letter,
                )
                self._receive(flood.origin, segment, flood.hops + 1, True)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case ("flood", int() as origin, int() as number):
                flood = self._pending.pop((origin, number))
                if self._heard.get((origin, number), 0) < HEARD_ENOUGH:
                    self._broadcast(flood.moved())

    def _remember(self, key: tuple[NodeId, int]) -> None:
        if len(self._heard) >= SEEN_MAX:
            del self._heard[next(iter(self._heard))]
        self._heard[key] = 1

    def _broadcast(self, flood: Flood) -> None:
        event = EventId(*flood.event) if len(flood.event) == 2 else None
        kind = Kind.CONTROL if event is None else Kind.DATA
        name, own = NAMES.get(flood.label, "letter"), flood.origin == self._host.node
        self._host.broadcast(Frame(FRAMES.encode(flood), kind, name, event, own))
