"""Envelopes to nodes several hops away: over the underlay's routes, through the brokers the sender names.

Neither reliable nor ordered; `stream.py` makes it so. An overlay link is a path of the underlay
(section 2.1), so a source route names brokers, and between two of them every node forwards by its own table.

On a shared medium each frame has a cost of its own that is higher than that of its octets: it contends, is
acknowledged, and may collide. A broker that tells everybody the same, or sends an event to many homes, has
many envelopes for the same few neighbours, and at a node on the way those of many others meet. So (`Outbox`):

- Envelopes for the same next hop go together, and an event that several of them carry is in the frame once.
- Copies of an event for several next hops go in one frame that all of them hear. Nobody confirms that frame;
  what gets lost is repeated by its origin (`stream.py`), and repeats go to one next hop each.
- An event goes at once, with all that waits for the same neighbour. Other messages go at once to a neighbour
  that has had nothing for a while, else a short time after the last frame to it.
- Acknowledgements wait for others to share a frame with, the longer the nearer they are to their destination:
  so each node on the way sends its own together with those from behind it. Those that a repair or a window
  waits for (`is_prompt`) go like other messages. A later one of the same stream replaces an earlier one.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from roamcast.event import Event, EventId
from roamcast.host import Frame, Host, SendFailure
from roamcast.kit.protocol import Timer, Timers, WireMessage, random_below, trace_drop
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.opportunistic.messages import (
    BUNDLE_MAX,
    FRAMES,
    HOPS_MAX,
    Bundle,
    BundledCarry,
    CarryMessage,
    Envelope,
    StreamAcknowledgement,
    StreamSegment,
    octets,
)
from roamcast.trace import DropReason
from roamcast.underlay.base import Underlay
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

ATTEMPTS_PER_HOP = 3  # on top of the link layer's own
HEARD_LATELY: Micros = SECOND

# Chosen by us; measured with the scenarios of `lab/published/opportunistic`.
GAP: Micros = 20 * MILLISECOND  # between two frames of control to the same neighbour
# How long an acknowledgement waits for others: many hops before its destination, and one hop before it.
WAIT_FAR: Micros = 20 * MILLISECOND
WAIT_NEAR: Micros = 80 * MILLISECOND
HOPS_USUAL = 5
# These waits grow with the load. Up to so many frames of control per second they are as above; with N times
# as many they are N times as long, at most `BUSIEST` times.
FEW_FRAMES = 2
BUSIEST = 8
JITTER: Micros = 25 * MILLISECOND  # of nodes that got a frame together, and send it on
BUNDLE_OCTETS = 1_200  # one that is longer is not made any longer: it would hardly get through
NEIGHBOURS_MAX = 1_024
SPREADING_MAX = 1_024

Content = StreamSegment | StreamAcknowledgement


class Parcel(NamedTuple):
    """An envelope on its way, and what names it in queues and traces."""

    envelope: Envelope
    label: WireMessage
    event: EventId | None
    attempt: int = 1
    may_spread: bool = False  # one frame may bring this and others' to several neighbours

    @classmethod
    def of(cls, envelope: Envelope, *, may_spread: bool) -> "Parcel":
        label = envelope.label
        is_short = isinstance(label, CarryMessage) and octets(label.event) <= BUNDLE_OCTETS
        return cls(envelope, label, label.event_id, may_spread=may_spread and is_short)

    def is_superseded_by(self, later: Envelope) -> bool:
        """Both are acknowledgements of this node, for the same stream."""
        mine = self.envelope
        return (
            isinstance(mine.content, StreamAcknowledgement)
            and isinstance(later.content, StreamAcknowledgement)
            and (mine.origin, mine.to, 0) == (later.origin, later.to, later.hops)
            and mine.content.stream == later.content.stream
        )


class ArrivedContent(NamedTuple):
    origin: NodeId
    content: Content
    hops: int


class Transport:
    def __init__(
        self,
        host: Host,
        underlay: Underlay,
        way: Callable[[NodeId], tuple[NodeId, ...]] = lambda to: (),
        *,
        share_frames: bool = True,
    ) -> None:
        """`way` names the brokers that an envelope to a node shall pass: the source route."""
        self._host = host
        self._underlay = underlay
        self._way = way
        self._heard_at: dict[NodeId, Micros] = {}
        self._outbox = Outbox(host, underlay, self._on_failure, share_frames=share_frames)

    def send(self, to: NodeId, content: Content, *, is_repeat: bool = False) -> bool:
        """Send towards another node; False if no route leads there."""
        envelope = Envelope(self._host.node, to, 0, self._way(to), content)
        return self._pass_on(Parcel.of(envelope, may_spread=not is_repeat))

    def has_route(self, to: NodeId) -> bool:
        return self._underlay.next_hop(to) is not None

    def on_heard(self, neighbour: NodeId) -> None:
        """A frame of any kind: who is heard is there. A frame that failed has collided."""
        heard = self._heard_at  # a plain table: this is done for each frame that a node hears
        heard[neighbour] = self._host.now()
        if len(heard) > NEIGHBOURS_MAX:
            del heard[next(iter(heard))]

    def on_frame(self, sender: NodeId, frame: Envelope | Bundle) -> list[ArrivedContent]:
        """What of it is for this node. The rest of what it was to pass on is on its way."""
        own, arrivals = self._host.node, []
        for envelope, is_shared in self._opened(frame):
            if envelope.to == own:
                arrivals.append(ArrivedContent(envelope.origin, envelope.content, envelope.hops + 1))
                continue
            # It may be one of our own: the way to the first broker of a source route, and from there to the
            # second, can lead through its origin again (section 4.3 has an example). Hops are limited.
            has_turned = bool(envelope.via) and envelope.via[0] == own
            via = envelope.via[1:] if has_turned else envelope.via
            moved = Envelope(envelope.origin, envelope.to, envelope.hops + 1, via, envelope.content)
            self._pass_on(Parcel.of(moved, may_spread=is_shared), None if has_turned else sender)
        return arrivals

    def _opened(self, frame: Envelope | Bundle) -> list[tuple[Envelope, bool]]:
        """The envelopes that this node shall see to, and whether others carry the same event."""
        if isinstance(frame, Envelope):
            return [] if isinstance(frame.label, BundledCarry) else [(frame, False)]
        own, count = self._host.node, len(frame.envelopes)
        next_hops = frame.next_hops or (own,) * count
        mine = [one for one, next_hop in zip(frame.envelopes, next_hops, strict=False) if next_hop == own]
        opened = [_unbundled(one, frame.events) for one in mine]
        if len(next_hops) != count or None in opened:
            trace_drop(self._host, DropReason.WIRE, "frame", detail="is no bundle")
            return []
        return [one for one in opened if one is not None]

    def _pass_on(self, parcel: Parcel, came_from: NodeId | None = None) -> bool:
        """`came_from`: who thinks that the way leads through here. Sent back, it would go to and fro until
        the two agree, and take the air from those who have a way."""
        envelope = parcel.envelope
        if envelope.hops >= HOPS_MAX:
            self._drop(parcel, DropReason.EXPIRED, "went too far")
            return False
        via = envelope.via
        next_hop = self._underlay.next_hop(via[0] if via else envelope.to)
        while next_hop is None and via:
            # The broker on the way is out of reach; its neighbours in the source route need not be.
            via = via[1:]
            next_hop = self._underlay.next_hop(via[0] if via else envelope.to)
        if next_hop is None or next_hop == came_from:
            self._drop(parcel, DropReason.NO_ROUTE, f"to {envelope.to}")
            return False
        if via != envelope.via:
            moved = Envelope(envelope.origin, envelope.to, envelope.hops, via, envelope.content)
            parcel = parcel._replace(envelope=moved)
        self._outbox.put(next_hop, parcel)
        return True

    def _on_failure(self, next_hop: NodeId, parcels: list[Parcel], why: SendFailure) -> None:
        """Try again from here, maybe by another neighbour: cheaper than from the envelope's origin."""
        if why is SendFailure.LINK:
            if self._host.now() - self._heard_at.get(next_hop, -HEARD_LATELY) >= HEARD_LATELY:
                self._underlay.on_link_failure(next_hop)
            for parcel in parcels:
                if parcel.attempt < ATTEMPTS_PER_HOP:
                    self._pass_on(parcel._replace(attempt=parcel.attempt + 1, may_spread=False))

    def _drop(self, parcel: Parcel, reason: DropReason, detail: str) -> None:
        to = parcel.envelope.to
        trace_drop(self._host, reason, parcel.label.name, parcel.event, detail=detail, to=to)


class Outbox:
    """What waits to be sent to neighbours, in as few frames as is good."""

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
        self._timers = Timers(host, self._send_waiting)
        self._sent_at: BoundedDict[NodeId, Micros] = BoundedDict(NEIGHBOURS_MAX, unreported)
        self._sent: deque[Micros] = deque(maxlen=FEW_FRAMES * BUSIEST)  # the last frames
        self._alike: dict[EventId, list[tuple[NodeId, Parcel]]] = {}  # of this instant, by their event
        self._alike_timer = Timer(host, self._spread_alike)
        self._spreading: dict[int, list[tuple[NodeId, Parcel]]] = {}
        self._spread_timers = Timers(host, self._spread_part)
        self._spread = 0

    def put(self, neighbour: NodeId, parcel: Parcel) -> None:
        if not self._share_frames:
            self._unicast(neighbour, [parcel])
        elif parcel.may_spread and parcel.event is not None:
            if not self._alike:
                self._alike_timer.after(0)
            self._alike.setdefault(parcel.event, []).append((neighbour, parcel))
        else:
            self._put(neighbour, parcel)

    # To one neighbour.

    def _put(self, neighbour: NodeId, parcel: Parcel) -> None:
        waiting = self._waiting.setdefault(neighbour, [])
        waiting[:] = [other for other in waiting if not other.is_superseded_by(parcel.envelope)]
        waiting.append(parcel)
        due = self._when(neighbour, parcel)
        if due < self._due.get(neighbour, due + 1):
            self._due[neighbour] = due
            self._timers.at(neighbour, due)

    def _when(self, neighbour: NodeId, parcel: Parcel) -> Micros:
        now, content = self._host.now(), parcel.envelope.content
        if parcel.event is not None:
            return now
        earliest = self._sent_at.get(neighbour, -GAP) + GAP
        if isinstance(content, StreamAcknowledgement):
            if content.is_prompt:
                return max(now + GAP, earliest)  # behind what its message sets off here
            busy = self._busy()
            hops = self._underlay.distance(parcel.envelope.to) or 1
            far, near = busy * WAIT_FAR, busy * WAIT_NEAR
            wait = max(near - (near - far) * (hops - 1) // HOPS_USUAL, far)
            # Not all who got the same at the same time: they would collide.
            earliest = max(earliest, now + int(wait * (0.7 + 0.6 * self._host.random.random())))
        return max(now, earliest)

    def _busy(self) -> int:
        """1 to `BUSIEST`, by how much was sent lately: where much is sent, waiting saves frames."""
        since = self._host.now() - SECOND
        while self._sent and self._sent[0] <= since:
            self._sent.popleft()
        return min(max(len(self._sent) // FEW_FRAMES, 1), BUSIEST)

    def _send_waiting(self, neighbour: NodeId) -> None:
        self._due.pop(neighbour, None)
        self._sent_at[neighbour] = self._host.now()
        self._sent.append(self._host.now())
        for parcels in _frames(self._waiting.pop(neighbour, [])):
            self._unicast(neighbour, parcels)

    def _unicast(self, neighbour: NodeId, parcels: list[Parcel]) -> None:
        message = parcels[0].envelope if len(parcels) == 1 else _bundle(parcels)
        frame = self._frame(message, parcels)
        self._host.unicast(neighbour, frame, lambda why: self._on_failure(neighbour, parcels, why))

    # To several at once.

    def _spread_alike(self) -> None:
        alike, self._alike = self._alike, {}
        for copies in alike.values():
            if len({neighbour for neighbour, _ in copies}) < 2:
                for neighbour, parcel in copies:
                    self._put(neighbour, parcel)
            else:
                self._spread_copies(copies)

    def _spread_copies(self, copies: list[tuple[NodeId, Parcel]]) -> None:
        for part in _fitting(copies):
            if any(parcel.envelope.hops for _, parcel in part) and len(self._spreading) < SPREADING_MAX:
                self._spread += 1
                self._spreading[self._spread] = part
                self._spread_timers.after(self._spread, random_below(self._host, JITTER))
            else:
                self._broadcast(part)

    def _spread_part(self, number: int) -> None:
        self._broadcast(self._spreading.pop(number))

    def _broadcast(self, copies: list[tuple[NodeId, Parcel]]) -> None:
        parcels = [parcel for _, parcel in copies]
        bundle = _bundle(parcels, tuple(neighbour for neighbour, _ in copies))
        self._host.broadcast(self._frame(bundle, parcels))

    def _frame(self, message: Envelope | Bundle, parcels: list[Parcel]) -> Frame:
        _, first, event, *_ = parcels[0]
        own = all(parcel.envelope.origin == self._host.node for parcel in parcels)
        return Frame(FRAMES.encode(message), first.kind, first.name, event, own)


def _frames(waiting: list[Parcel]) -> list[list[Parcel]]:
    """As few as there may be: one event in each at most, for the trace says which a frame carries."""
    by_event: dict[EventId, list[Parcel]] = {}
    others: list[Parcel] = []
    for parcel in waiting:
        (others if parcel.event is None else by_event.setdefault(parcel.event, [])).append(parcel)
    frames = [*by_event.values(), []]
    frames[0].extend(others)  # behind an event, if there is one: the first names the frame
    return [
        [parcel for _, parcel in part]
        for frame in frames
        for part in _fitting((0, parcel) for parcel in frame)
    ]


def _fitting(parcels: Iterable[tuple[NodeId, Parcel]]) -> list[list[tuple[NodeId, Parcel]]]:
    """The envelopes, divided into frames of a good length."""
    waiting = list(parcels)
    if len(waiting) < 2:
        return [waiting] if waiting else []
    parts: list[list[tuple[NodeId, Parcel]]] = []
    length = 0
    shared: set[EventId] = set()
    for neighbour, parcel in waiting:
        carried, size = _carried(parcel), octets(parcel.envelope)
        more = size - octets(carried) if carried is not None and carried.id in shared else size
        if not parts or length + more > BUNDLE_OCTETS or len(parts[-1]) >= BUNDLE_MAX:
            parts.append([])
            length, more, shared = 0, size, set()
        parts[-1].append((neighbour, parcel))
        length += more
        if carried is not None:
            shared.add(carried.id)
    return parts


def _carried(parcel: Parcel) -> Event | None:
    """The event that other parcels may carry as well."""
    return parcel.label.event if isinstance(parcel.label, CarryMessage) else None


def _bundle(parcels: list[Parcel], next_hops: tuple[NodeId, ...] = ()) -> Bundle:
    carried = [event for event in map(_carried, parcels) if event is not None]
    counts = Counter(event.id for event in carried)
    shared = {event.id: event for event in carried if counts[event.id] > 1}
    places = {event: place for place, event in enumerate(shared)}
    envelopes = []
    for envelope, label, event, *_ in parcels:
        if isinstance(label, CarryMessage) and event in places:
            _, *others = msgspec.structs.astuple(label)
            envelope = _with_message(envelope, BundledCarry(places[event], *others))
        envelopes.append(envelope)
    return Bundle(tuple(envelopes), tuple(shared.values()), next_hops)


def _unbundled(envelope: Envelope, events: tuple[Event, ...]) -> tuple[Envelope, bool] | None:
    """None: it names an event that is not in its bundle."""
    if not isinstance(envelope.label, BundledCarry):
        return envelope, False
    place, *others = msgspec.structs.astuple(envelope.label)
    if place >= len(events):
        return None
    return _with_message(envelope, CarryMessage(events[place], *others)), True


def _with_message(envelope: Envelope, message: CarryMessage | BundledCarry) -> Envelope:
    content = msgspec.structs.replace(envelope.content, message=message)
    return msgspec.structs.replace(envelope, content=content)
