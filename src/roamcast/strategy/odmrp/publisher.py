"""The publisher's broker: Join Requests while it is active, members, channels, dispatch of its events.

An event is sent at once over the channels that want it. Its digest travels in the next Join Request: at
once if the last one is a refresh interval ago, else when the next is due. Members that answer and have not
got the event yet get it then, in a separate data packet. So no event is lost while the mesh is formed,
and there are no more Join Requests than the refresh interval allows. (The ODMRP draft floods the first
data on a Join Query instead; the paper's Join Request carries a digest, and data goes only to those who
want it.) What members miss later is repaired (`repair.py`).

Data is not acknowledged, in the paper as in ODMRP. One case is worth an exception: a packet that is lost
on its first hop reaches nobody. So the publisher listens for a relay of the packet, and repeats it once if
it hears none.
"""

from collections.abc import Callable, Collection, Sized
from itertools import islice

import msgspec

from roamcast.broker.core import Broker
from roamcast.event import DESTINATIONS_MAX, Event, EventId
from roamcast.host import Frame
from roamcast.kit.confirm import Unconfirmed
from roamcast.kit.protocol import Messenger, Timer, overflow_traced, random_below
from roamcast.kit.soft_state import SoftState
from roamcast.kit.tables import BoundedDict, unreported
from roamcast.strategy.odmrp.context import MeshContext
from roamcast.strategy.odmrp.messages import (
    HOLD_MAX,
    MEMBERS_MAX,
    UNLIMITED,
    AnyMessage,
    DataPacket,
    JoinRequest,
    SenderPosition,
)
from roamcast.strategy.odmrp.options import SETTLE_TIME, OdmrpOptions
from roamcast.strategy.odmrp.repair import MeshRepair
from roamcast.trace import DropReason, OverlayChanged
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
DIGESTS_BYTES = 4_096  # of digests in one Join Request; with more, everyone is asked
REFRESH_INTERVAL_MIN: Micros = SECOND  # with `adapt_refresh`
ECHO_TIMEOUT: Micros = 150 * MILLISECOND  # a publisher that hears no relay by then repeats its packet once
SERVE_DELAY: Micros = 100 * MILLISECOND  # from a new member's Join Table to the data that waited for it
NEVER = -1


class Member(msgspec.Struct, eq=False):
    """A broker that answered. Events sent in turn `since` or before have not reached it."""

    version: int
    since: int
    expires_at: Micros
    lifetime: Micros
    direct: bool  # a neighbour: it needs no relay


class ServableEvent(msgspec.Struct, eq=False):
    """An event that is kept for members that may still join."""

    event: Event
    digest: bytes
    published_at: Micros
    sent_in: int = 0  # the turn of its last dispatch
    announced: bool = False
    until: Micros | None = None  # None: until it is announced, and `SETTLE_TIME` after that

    def is_over(self, now: Micros) -> bool:
        return self.until is not None and self.until <= now


class Publisher:
    def __init__(
        self,
        messenger: Messenger[AnyMessage],
        broker: Broker,
        context: MeshContext,
        options: OdmrpOptions,
        number: Callable[[], int],
        soft_state: SoftState,
        repair: MeshRepair,
    ) -> None:
        host = messenger.host
        soft_state.add(self)
        self._soft_state = soft_state
        self._messenger = messenger
        self._host = host
        self._broker = broker
        self._context = context
        self._options = options
        self._number = number
        self._repair = repair
        self._interval: Micros = micros(options.refresh_interval)
        self._hold: Micros = micros(options.forwarding_timeout)
        self.round_ends: Micros | None = None  # until when those who answer the last Join Request are members
        self._members: dict[NodeId, Member] = {}
        self._recent: BoundedDict[EventId, ServableEvent] = BoundedDict(
            options.recent_max, self._on_forgotten
        )
        # The latest digests (older ones are evicted on purpose), and until when a refresh repeats them.
        self._announced: BoundedDict[bytes, Micros] = BoundedDict(options.digests_max, unreported)
        # The types of what was published, and until when. With more types than fit into a request, everyone
        # is asked.
        self._types: BoundedDict[str, Micros] = BoundedDict(
            options.recent_max, overflow_traced(host, "join_request", "recent_max")
        )
        self._advertised: tuple[str, ...] = ()  # types that clients advertise, until they withdraw them
        # Packets that no relay was heard to repeat yet.
        self._unheard: Unconfirmed[int, Frame] = Unconfirmed(host, self._send_again)
        self._active_until: Micros = NEVER
        self._requested_at: Micros | None = None
        self._grouping_is_old = False
        self._turn = 0  # counts transmissions: finer than the clock, which stands still in a handler
        self._request_at: Micros | None = None  # the time of the next one, as its timer is set
        self._request_timer = Timer(host, self._on_request_due)
        self._lateness: Micros = 0  # random delay of the next one
        self._serve_timer = Timer(host, self._serve)
        self._serve_is_set = False
        self._serve_wait: Micros = 0
        self._channels_traced = 0

    # Inputs.

    def publish(self, event: Event, age: Micros = 0) -> None:
        """`age`: how long ago a client without a broker of its own has published it."""
        now = self._host.now()
        recent = ServableEvent(event, self._context.digest(event), now - age)
        self._recent[event.id] = recent
        self._dispatch(recent)
        self._active_until = now + self._hold
        self._types.renew(event.type, self._active_until)
        self._ask(now)

    def advertise(self, types: Collection[str]) -> None:
        """What clients advertise now, in place of what they did (section 3.5.1): while there is anything, ask
        for members once per refresh interval, before there is an event."""
        news = any(type not in self._advertised for type in types)
        self._advertised = tuple(sorted(types))
        if news:
            self._ask(self._host.now())

    def _ask(self, now: Micros) -> None:
        """Be an active publisher: ask for members now, or when the next request is due."""
        if self._requested_at is None or (not self._members and now >= self._due()):
            self._request(now)
        else:
            # The event is already on its way to the members; a flood at the same time would collide with it.
            self._request_by(max(self._due(), now + self._lateness))

    def on_member(self, member: NodeId, version: int, lifetime: Micros, *, direct: bool) -> None:
        """A Join Table has reached this publisher; the member's summary is known."""
        assert self.round_ends is not None
        now = self._host.now()
        expires_at = self.round_ends
        found = self._members.get(member)
        if found is None or found.expires_at <= now or found.version != version:
            if found is None and len(self._members) >= self._options.members_max:
                self._messenger.overflow("join_table", "members_max")
                return
            self._members[member] = Member(version, self._turn, expires_at, lifetime, direct)
            self._on_change(member, version)
        else:
            found.expires_at = expires_at
            found.lifetime = lifetime
            found.direct = direct
        if self._options.adapt_refresh:
            self._adapt()

    def _on_request_due(self) -> None:
        self._request_at = None
        now = self._host.now()
        self.expire(now)
        if now < self._active_until or self._advertised or self._repair.held(now):
            self._request(now)
        elif self._repair.holds_any:
            self._request_by(now + self._interval + random_below(self._host, self._interval // 2))
        self._soft_state.watch()

    def watch_store(self) -> None:
        """There are memorized events here. Name them in requests, if nobody else does."""
        if self._request_at is None and self._repair.holds_any:
            self._request_by(self._host.now() + random_below(self._host, self._interval))

    def _serve(self) -> None:
        """New members have joined: send them the events that they missed."""
        self._serve_is_set = False
        now = self._host.now()
        self._turn += 1
        for recent in list(self._recent.values()):
            late = [m for m in sorted(self._members) if self._members[m].since >= recent.sent_in]
            recent.sent_in = self._turn
            wanting = self._wanting(late, recent)
            if wanting and not recent.is_over(now):
                self._send(recent, 0, wanting[:MEMBERS_MAX])

    def on_echo(self, packet: int) -> None:
        """A relay was heard to repeat a packet."""
        self._unheard.confirm(packet)

    def expire(self, now: Micros) -> None:
        for number in [n for n, member in self._members.items() if member.expires_at <= now]:
            del self._members[number]
            self._grouping_is_old = True
        self._recent.forget(lambda recent: recent.is_over(now))
        self._announced.forget(lambda until: until <= now)
        self._types.forget(lambda until: until <= now)
        if not self._members:
            self._context.regroup({})
            self._trace_channels()

    # Questions.

    def next_expiry(self) -> Micros | None:
        deadlines = [member.expires_at for member in self._members.values()]
        deadlines += [recent.until for recent in self._recent.values() if recent.until is not None]
        deadlines += [*self._announced.values(), *self._types.values()]
        return min(deadlines, default=None)

    def members(self) -> list[NodeId]:
        return sorted(self._members)

    def channels(self) -> tuple[tuple[NodeId, ...], ...]:
        return self._context.groups

    def __len__(self) -> int:
        held: list[Sized] = [self._members, self._recent, self._announced, self._types, self._unheard]
        return sum(len(table) for table in held)

    # Join Requests.

    def _request(self, now: Micros) -> None:
        self.expire(now)
        if self._grouping_is_old:
            self._regroup()
        self._requested_at = now
        self.round_ends = now + self._hold
        self._serve_wait = SERVE_DELAY // 2
        everyone, digests = self._announcement(now)
        place = self._host.position() if self._options.adapt_refresh else None
        request = JoinRequest(
            self._host.node,
            self._number(),
            0,
            min(self._hold, HOLD_MAX),
            not self._members,
            everyone,
            digests,
            () if everyone else tuple(map(self._context.advertisement, self._types_announced())),
            self._destinations(),
            self._context.epoch,
            tuple(members[:MEMBERS_MAX] for members in self._context.groups),
            UNLIMITED,
            None if place is None else SenderPosition(*place),
            self._repair.held(now),
        )
        self._messenger.send(request)
        # A random delay, so that publishers that began together do not stay synchronised.
        self._lateness = random_below(self._host, micros(self._options.request_delay))
        self._request_at = None
        self._request_by(self._due())

    def _due(self) -> Micros:
        """When the next Join Request is due. A predicted lifetime may delay a refresh, not new digests."""
        assert self._requested_at is not None
        interval = self._interval
        asks_for_events = not self._context.asks_everyone and not self._by_type
        # The newest first: where a publisher is busy, these have not been announced yet.
        if asks_for_events and any(not recent.announced for recent in reversed(self._recent.values())):
            interval = min(interval, micros(self._options.refresh_interval))
        return self._requested_at + interval + self._lateness

    def _request_by(self, at: Micros) -> None:
        if self._request_at is None or at < self._request_at:
            self._request_at = at
            self._request_timer.at(at)

    def _announcement(self, now: Micros) -> tuple[bool, tuple[bytes, ...]]:
        """Whom to ask: everyone, or those whom these digests concern."""
        news: dict[bytes, None] = {}
        for recent in self._recent.values():
            if not recent.announced or recent.until is not None:
                news[recent.digest] = None
            if not recent.announced:
                recent.announced = True
                self._announced[recent.digest] = now + self._hold
                recent.until = now + SETTLE_TIME
        if now >= self._active_until and not self._advertised:
            return False, ()  # nobody has to join
        if self._context.asks_everyone or len(self._types_announced()) > self._options.digests_max:
            return True, ()
        if self._by_type:
            return False, ()
        if not news:  # a mere refresh: the latest digests keep their members
            news = dict.fromkeys(islice(reversed(self._announced), self._options.digests_max))
        # An event without a digest either names its destinations or its digest is too large.
        untold = any(r.event.wants_subscribers and not r.digest for r in self._recent.values())
        digests = tuple(digest for digest in news if digest)
        if untold or len(digests) > self._options.digests_max or sum(map(len, digests)) > DIGESTS_BYTES:
            return True, ()
        return False, digests

    @property
    def _by_type(self) -> bool:
        """Requests name types instead of digests (3.5.1, `advertisement`): whoever may want an event of the
        type joins before it is there. Unless the options say otherwise, once two events of a forwarding
        timeout had different digests: each further one would wait a refresh interval for those it concerns.
        """
        by_type = self._options.advertisement
        return len(self._announced) > 1 if by_type is None else by_type

    def _types_announced(self) -> list[str]:
        return sorted({*self._advertised, *(self._types if self._by_type else ())})

    def _destinations(self) -> tuple[NodeId, ...]:
        named = {node: None for recent in self._recent.values() for node in recent.event.destinations}
        return tuple(islice(named, DESTINATIONS_MAX))

    def _adapt(self) -> None:
        """Section 3.6: the next Join Request comes before the weakest path is predicted to break."""
        options = self._options
        now = self._host.now()
        weakest = min((m.lifetime for m in self._members.values() if m.expires_at > now), default=UNLIMITED)
        if weakest >= UNLIMITED:
            interval = micros(options.refresh_interval_max)
        else:
            interval = min(max(weakest, REFRESH_INTERVAL_MIN), micros(options.refresh_interval_max))
        if self._host.position() is None:
            interval = micros(options.refresh_interval)
        self._interval = interval
        # As many lost rounds as the fixed parameters allow.
        self._hold = min(round(interval * options.forwarding_timeout / options.refresh_interval), HOLD_MAX)
        self._request_at = None
        self._request_by(max(now, self._due()))

    def _regroup(self) -> None:
        self._grouping_is_old = False
        self._context.regroup(self._versions(sorted(self._members)))
        self._trace_channels()

    def _trace_channels(self) -> None:
        count = min(len(self._members), 1) if self._context.asks_everyone else len(self._context.groups)
        if count != self._channels_traced:
            self._channels_traced = count
            now = self._host.now()
            self._host.trace(
                OverlayChanged(now, self._host.node, "grouped", role="channel", value=float(count))
            )

    # Members and data.

    def _on_change(self, member: NodeId, version: int) -> None:
        self._grouping_is_old = True
        self._context.on_member(member, version)
        if self._context.asks_everyone:
            self._trace_channels()
        if self._recent and not self._serve_is_set:
            self._serve_is_set = True
            # The first members to answer are served soon, later ones together.
            self._serve_wait = min(2 * self._serve_wait, SETTLE_TIME // 2)
            self._serve_timer.after(self._serve_wait)

    def _dispatch(self, recent: ServableEvent) -> None:
        """Send a new event over the channels that want it, and to ungrouped members that want it."""
        self._turn += 1
        recent.sent_in = self._turn
        event = recent.event
        bits = 0
        if event.wants_subscribers:
            bits = self._context.channels(self._versions(self._members), recent.digest)
        if bits or any(node in self._members for node in event.destinations):
            self._send(recent, bits, ())

    def _wanting(self, members: Collection[NodeId], recent: ServableEvent) -> tuple[NodeId, ...]:
        """Those of the members that may want an event, or are its destinations."""
        event = recent.event
        wanting = set(event.destinations)
        if event.wants_subscribers and members:
            wanting.update(self._context.wanting(self._versions(members), recent.digest))
        return tuple(member for member in members if member in wanting)

    def _versions(self, members: Collection[NodeId]) -> dict[NodeId, int]:
        return {member: self._members[member].version for member in members}

    def _send(self, recent: ServableEvent, bits: int, members: tuple[NodeId, ...]) -> None:
        age = self._host.now() - recent.published_at
        event = recent.event
        packet = self._number()
        epoch = self._context.epoch
        data = DataPacket(self._host.node, packet, epoch, bits, members, recent.digest, 0, age, event)
        frame = self._messenger.frame(data)
        self._host.broadcast(frame)
        self._repair.tell(event, recent.digest)
        waiting_for = members or self._wanting(self._members, recent)
        relayed = any(not self._members[member].direct for member in waiting_for)
        if relayed and len(self._unheard) >= self._options.pending_max:
            self._messenger.overflow("data", "pending_max")  # it is sent, and will not be repeated
        elif relayed:
            self._unheard.expect(packet, frame, ECHO_TIMEOUT)

    def _send_again(self, unheard: list[tuple[int, Frame]]) -> None:
        """No relay seems to have received these packets: send them once more."""
        for _, frame in unheard:
            self._host.broadcast(frame)

    def _on_forgotten(self, event: EventId, forgotten: ServableEvent) -> None:
        if not forgotten.announced:
            self._broker.drop(event, DropReason.STORE_FULL, "data")
