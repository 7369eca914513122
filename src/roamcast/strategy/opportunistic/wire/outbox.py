"""Several datagrams in one frame.

On a shared medium a frame costs more for being one than for its octets: it contends, it is acknowledged, it
may collide. A broker that tells everybody the same, or sends an event to many homes, has many datagrams for
the same few neighbours, and at a node on the way those of many others meet. So:

- What is for the same next hop goes together, and what several datagrams of a frame end in (an event, a
  letter to many brokers) is in it once.
- Copies of the same for several next hops go in one frame that all of them hear. Nobody confirms that
  frame; what gets lost is repeated by its origin (`reliable.py`), and repeats go to one next hop each.
- An event goes at once, with all that waits for the same neighbour. Other letters go at once to a neighbour
  that has had nothing for a while, else a short time after the last frame to it.
- Acknowledgements of first copies wait for company, the longer the nearer they are to their end: so each
  node on the way sends on its own with those from behind it. Nobody but the repeat timer of a stream waits
  for them. A later one of the same stream takes an earlier one's place.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from roamcast.event import EventId
from roamcast.host import Frame, Host, Kind, SendFailure, TimerName
from roamcast.strategy.opportunistic.wire.messages import BUNDLE_MAX, FRAMES, HASTY, NAMES, Bundle, Datagram
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

GAP: Micros = 20 * MILLISECOND  # between two frames of control to the same neighbour
# How long an acknowledgement waits for company: many hops before its end, and one.
PATIENCE: tuple[Micros, Micros] = (20 * MILLISECOND, 80 * MILLISECOND)
HOPS_USUAL = 5
FEW_FRAMES = 2  # of control in a second; with so many times more all the patience is so many times as long
BUSIEST = 8
JITTER: Micros = 25 * MILLISECOND  # of nodes that got a frame together, and send it on
BUNDLE_OCTETS = 1_200  # one that is longer is not made any longer: it would hardly get through
OCTETS_EACH = 24  # of a datagram beside its body, about
NEIGHBOURS_MAX = 1_024
SPREADING_MAX = 1_024


class Parcel(NamedTuple):
    """A datagram on its way; its body goes on with `ending`, which others may have as well."""

    datagram: Datagram
    ending: bytes = b""
    attempt: int = 1
    stream: Hashable = None  # of acknowledgements: the next of the same takes its place
    may_spread: bool = False  # one frame may bring this and others' to several neighbours

    def whole(self) -> Datagram:
        return self.datagram if not self.ending else self.datagram.with_body(self.datagram.body + self.ending)

    @property
    def name(self) -> str:
        name: str = NAMES.get(self.datagram.label, "letter")
        return name

    @property
    def octets(self) -> int:
        """Of its own, in a frame."""
        return OCTETS_EACH + len(self.datagram.body) + 2 * len(self.datagram.via)


Addressed = tuple[NodeId, Parcel]


class Outbox:
    """Timers are `("bundle", neighbour)`, `"spread"` and `("spread", number)`."""

    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        on_failure: Callable[[NodeId, list[Parcel], SendFailure], None],
        *,
        share_frames: bool,
    ) -> None:
        self._host = host
        self._underlay = underlay
        self._on_failure = on_failure
        self._share_frames = share_frames
        self._waiting: dict[NodeId, list[Parcel]] = {}
        self._due: dict[NodeId, Micros] = {}
        self._sent_at: dict[NodeId, Micros] = {}
        self._sent: deque[Micros] = deque(maxlen=FEW_FRAMES * BUSIEST)  # the last frames
        self._alike: dict[bytes, list[Addressed]] = {}  # of this instant, by their ending
        self._spreading: dict[int, list[Addressed]] = {}
        self._spread = 0

    def put(self, neighbour: NodeId, parcel: Parcel) -> None:
        if not self._share_frames:
            self._unicast(neighbour, [parcel])
        elif parcel.may_spread and len(parcel.ending) <= BUNDLE_OCTETS:
            if not self._alike:
                self._host.set_timer("spread", self._host.now())
            self._alike.setdefault(parcel.ending, []).append((neighbour, parcel))
        else:
            self._put(neighbour, parcel)

    def on_timer(self, name: TimerName) -> None:
        match name:
            case "spread":
                alike, self._alike = self._alike, {}
                for copies in alike.values():
                    self._spread_or_put(copies)
            case ("spread", int() as number):
                self._broadcast(self._spreading.pop(number))
            case ("bundle", int() as neighbour):
                self._due.pop(neighbour, None)
                if len(self._sent_at) >= NEIGHBOURS_MAX:
                    self._sent_at.clear()
                self._sent_at[neighbour] = self._host.now()
                self._sent.append(self._host.now())
                for parcels in _frames(self._waiting.pop(neighbour, [])):
                    self._unicast(neighbour, parcels)

    # To one neighbour.

    def _put(self, neighbour: NodeId, parcel: Parcel) -> None:
        waiting = self._waiting.setdefault(neighbour, [])
        if parcel.stream is not None:
            waiting[:] = [other for other in waiting if other.stream != parcel.stream]
        waiting.append(parcel)
        due = self._when(neighbour, parcel)
        if due < self._due.get(neighbour, due + 1):
            self._due[neighbour] = due
            self._host.set_timer(("bundle", neighbour), due)

    def _when(self, neighbour: NodeId, parcel: Parcel) -> Micros:
        now = self._host.now()
        if parcel.datagram.event:
            return now
        earliest = self._sent_at.get(neighbour, -GAP) + GAP
        if parcel.name == "acknowledgement":
            label, busy = parcel.datagram.label, self._busy()
            if label == HASTY and busy == 1:
                return max(now, earliest)
            hops = self._underlay.distance(parcel.datagram.to) or 1
            least, at_end = busy * PATIENCE[0], busy * PATIENCE[1]
            patience = max(at_end - (at_end - least) * (hops - 1) // HOPS_USUAL, least)
            # Not all who got the same at the same time: they would collide.
            earliest = max(earliest, now + int(patience * (0.7 + 0.6 * self._host.random.random())))
        return max(now, earliest)

    def _busy(self) -> int:
        """1 to `BUSIEST`, by how much was sent lately: where much is said, one can wait for company."""
        since = self._host.now() - SECOND
        while self._sent and self._sent[0] <= since:
            self._sent.popleft()
        return min(max(len(self._sent) // FEW_FRAMES, 1), BUSIEST)

    def _unicast(self, neighbour: NodeId, parcels: list[Parcel]) -> None:
        frame = self._frame(_packed(parcels), parcels)
        self._host.unicast(neighbour, frame, lambda why: self._on_failure(neighbour, parcels, why))

    # To several at once.

    def _spread_or_put(self, copies: list[Addressed]) -> None:
        if len({neighbour for neighbour, _ in copies}) < 2:
            for neighbour, parcel in copies:
                self._put(neighbour, parcel)
            return
        for part in _fitting(copies):
            if any(parcel.datagram.hops for _, parcel in part) and len(self._spreading) < SPREADING_MAX:
                self._spread += 1
                self._spreading[self._spread] = part
                delay = int(self._host.random.random() * JITTER)
                self._host.set_timer(("spread", self._spread), self._host.now() + delay)
            else:
                self._broadcast(part)

    def _broadcast(self, copies: list[Addressed]) -> None:
        parcels = [parcel for _, parcel in copies]
        bundle = _bundle(parcels, tuple(neighbour for neighbour, _ in copies))
        self._host.broadcast(self._frame(bundle, parcels))

    def _frame(self, message: Datagram | Bundle, parcels: list[Parcel]) -> Frame:
        first = parcels[0]
        event = EventId(*first.datagram.event) if len(first.datagram.event) == 2 else None
        kind = Kind.CONTROL if event is None else Kind.DATA
        own = all(parcel.datagram.origin == self._host.node for parcel in parcels)
        return Frame(FRAMES.encode(message), kind, first.name, event, own)


def _frames(waiting: list[Parcel]) -> list[list[Parcel]]:
    """As few as there may be: one event in each at most, for the trace says which a frame carries."""
    by_event: dict[tuple[int, ...], list[Parcel]] = {}
    for parcel in waiting:
        if parcel.datagram.event:
            by_event.setdefault(parcel.datagram.event, []).append(parcel)
    others = [parcel for parcel in waiting if not parcel.datagram.event]
    frames = [*by_event.values(), []]
    frames[0].extend(others)  # behind an event, if there is one: the first names the frame
    return [
        [parcel for _, parcel in part]
        for frame in frames
        for part in _fitting((0, parcel) for parcel in frame)
    ]


def _fitting(parcels: Iterable[Addressed]) -> list[list[Addressed]]:
    """In frames of a good length."""
    parts: list[list[Addressed]] = []
    octets = 0
    endings: set[bytes] = set()
    for neighbour, parcel in parcels:
        more = parcel.octets + (0 if parcel.ending in endings else len(parcel.ending))
        if not parts or octets + more > BUNDLE_OCTETS or len(parts[-1]) >= BUNDLE_MAX:
            parts.append([])
            octets, more, endings = 0, parcel.octets + len(parcel.ending), set()
        parts[-1].append((neighbour, parcel))
        octets += more
        endings.add(parcel.ending)
    return parts


def _packed(parcels: list[Parcel]) -> Datagram | Bundle:
    return parcels[0].whole() if len(parcels) == 1 else _bundle(parcels)


def _bundle(parcels: list[Parcel], next_hops: tuple[NodeId, ...] = ()) -> Bundle:
    counts: dict[bytes, int] = {}
    for parcel in parcels:
        if parcel.ending:
            counts[parcel.ending] = counts.get(parcel.ending, 0) + 1
    shared = [ending for ending, count in counts.items() if count > 1]
    places = {ending: place for place, ending in enumerate(shared, start=1)}
    datagrams = tuple(p.datagram if p.ending in places else p.whole() for p in parcels)
    return Bundle(datagrams, tuple(places.get(p.ending, 0) for p in parcels), tuple(shared), next_hops)
