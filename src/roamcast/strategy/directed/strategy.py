"""Where few want an event, it goes by the shortest ways to them; where many do, as with `epidemic`.

The publisher decides. It knows who wants the event (`interests.py`) and how far they are (`distances.py`);
where these are fewer than a third of the nodes that it knows, its copy names relays and the subscribers that
each has to serve, disjoint sets. A relay does the same with its own set. Where there is only one receiver
the copy is sent to it alone, and the link layer acknowledges it; else the sender listens for its relays, and
sends the copy once more, alone, to one that it does not hear. A neighbour that does not answer is put
aside until it is heard again, and its set goes by others.

Whoever cannot serve a subscriber gives the event to all: then it is one of epidemic's. So does the publisher
where a subscriber's distance is not known, where neighbours know other interests than it does, and where
relays cannot match the event because it is sealed. A subscriber that has been out of reach for long gets the
event from its publisher when there is a way again, and is sought by an event for all now and then.

A subscriber says in each beacon which of these events it has got. A neighbour that has one which it wants and
did not get tells it, and is asked for it.

Memorized events are for all nodes, as with `epidemic`."""

from collections.abc import Collection
from functools import partial

import msgspec

from roamcast.broker.core import Subscription
from roamcast.broker.seen import event_fingerprint
from roamcast.event import Event, EventClass, EventId, is_sealed
from roamcast.host import SendFailure
from roamcast.kit.anti_entropy import Handed, HoldingsDigest
from roamcast.kit.cover import AROUND_PAYLOAD, PLACE_AIRTIMES, name_number, names_of, place_of, shares, turn
from roamcast.kit.protocol import Timers, WireMessage, random_below
from roamcast.kit.relay import Relay
from roamcast.kit.repair import Holding, events_of, runs_of
from roamcast.kit.spread import FloodedEvent, Spreading, SpreadingOptions
from roamcast.kit.tables import BoundedDict, LifetimeDict, unreported
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.directed.distances import GONE, NAMES_MAX, Distances
from roamcast.strategy.directed.interests import Interests
from roamcast.strategy.directed.messages import (
    CODEC,
    MARKS_LAST,
    DirectedCopy,
    DirectedTo,
    Lacking,
    Rider,
    SoughtCopy,
    Took,
    names_from,
    numbers_of,
)
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Chosen by us.
FEW = 3
"""An event that at most one node of so many wants is directed. Where everybody publishes and subscribes (the
league's `positions`), directed events took an eighth fewer octets than events for all when 0.35 of the nodes
wanted each, and up to a tenth more when half of them did (seeds 2 and 3)."""
SETTLED: Micros = 150 * MILLISECOND  # what came later may still be on its way to a neighbour
OFFER_WAIT: Micros = 40 * MILLISECOND  # at most, before a subscriber is told what it lacks
OFFERED_MAX = 64  # events in one such message
ANSWERING_MAX = 2  # receivers, of which those without a duty answer, too, if the event is large:
ANSWERED_BYTES = 200  # of payload, against the nine of an answer; small events are left to the beacons
LISTEN: Micros = 10 * MILLISECOND  # for a relay, beside its turn
ATTEMPTS_MAX = 4  # to find another way; then the event is for all
WHOLE_EVERY = 8  # beacons: one of so many has the marks of all events
LOST_WITHIN: Micros = 4 * SECOND  # a neighbour that has gone was last heard before that
# an event of this age may have been published before the subscription that it came for
LATE: Micros = SECOND // 2
FOUND_FOR: Micros = 30 * SECOND  # a subscriber lets itself be found, after an event that few want
SEEK_EVERY: Micros = 10 * SECOND  # a subscriber that is out of reach is sought
OWED_WAIT: Micros = 8 * SECOND  # for the distance of a new subscriber
LATE_MAX = 100  # own events that a new record is compared with


class DirectedOptions(SpreadingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in seconds. The defaults are chosen by us."""


class Aim(msgspec.Struct, eq=False):
    """An event that is not for all, as this node has it. Subscribers are called by the numbers of their
    names (`kit/cover.py`)."""

    event: Event
    hops: int
    age: Micros  # at its arrival
    arrived: Micros
    until: Micros
    mark: int
    wanting: frozenset[int]  # by the records here, when it came
    duty: set[int]  # whom this node has to serve, and did not yet
    direct: set[int]  # whom this node itself has served, and who did not answer
    done: set[int]  # whom it has served, or had served by others
    owed: dict[int, Micros]  # whom it cannot serve, for now, and since when
    awaited: dict[NodeId, set[int]]  # relays that have not been heard yet
    attempts: int = 0
    giver: NodeId | None = None  # of the duty
    is_listened_for: bool = False  # the node before listens for our copy


class Had(msgspec.Struct, eq=False):
    """The events that a neighbour has got, as the marks in its beacons say."""

    marks: set[int]
    until: Micros = -1  # what came here by then has been compared with it


class Directed(Spreading, Strategy):
    def __init__(self, context: StrategyContext, options: DirectedOptions) -> None:
        self._aims: LifetimeDict[EventId, Aim] = LifetimeDict(
            options.recent_max, unreported, lambda aim: aim.until
        )
        self._recent_time = micros(options.recent_time)
        super().__init__(
            context.host, CODEC, context.broker, context.underlay, options, passenger=self._rider
        )
        self.distances = Distances(self.host)
        self.interests = Interests(self.messenger, self.broker, self._on_record)
        self._turns: Relay[EventId, Aim] = Relay(self.host, send=self._direct, most=options.pending_max)
        self._listening: Timers[EventId] = Timers(self.host, self._on_silence)
        self._offering: Timers[NodeId] = Timers(self.host, self._offer)
        self._offers: dict[NodeId, set[EventId]] = {}  # what a neighbour lacks, and will be told
        self._asked: BoundedDict[EventId, Micros] = BoundedDict(options.recent_max, unreported)
        self._had: dict[NodeId, Had] = {}  # what neighbours have got, once they said all
        self._sought: BoundedDict[EventId, None] = BoundedDict(options.recent_max, unreported)
        self._sought_at: BoundedDict[int, Micros] = BoundedDict(NAMES_MAX, unreported)
        self._indebted: BoundedDict[EventId, None] = BoundedDict(options.recent_max, unreported)
        self._since: dict[int, Micros] = {}  # subscriptions
        self._told_at: Micros = -1  # when the last beacon with marks was sent
        self._beacons = 0
        self._told_interests = b""
        self.note_sender = self._hear
        self.handlers = {
            **self.handlers,
            **self.interests.handlers,
            SoughtCopy: self.on_copy,
            DirectedCopy: self._on_directed,
            DirectedTo: self._on_directed,
            Took: self._on_took,
            Lacking: self._on_lacking,
            HoldingsDigest: self._on_digest,
        }

    # Inputs.

    def publish(self, event: Event) -> None:
        targets = self._targets(event)
        if targets is None:
            super().publish(event)
            return
        aim = self._enter(event, 0, 0)
        aim.duty = targets
        self._direct(event.id, aim)

    def on_subscribed(self, subscription: Subscription) -> None:
        self._since[subscription.number] = self.host.now()
        if self.is_compared:
            self.interests.on_changed()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._since.pop(subscription.number, None)
        if self.is_compared:
            self.interests.on_changed()

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        super().on_neighbour_up(neighbour)
        self.distances.on_up(neighbour)
        self.interests.on_up(neighbour)
        self._told_interests = b""  # it has not heard it
        self._beacons = 0  # nor what we have got

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        super().on_neighbour_down(neighbour)
        self.distances.on_down(neighbour)
        self.interests.on_down(neighbour)
        self._serve_again(neighbour, self._had.pop(neighbour, None))
        self._offers.pop(neighbour, None)

    def on_rider(self, neighbour: NodeId, rider: bytes) -> None:
        said = Rider.decode(rider)
        super().on_rider(neighbour, said.holdings)
        self.distances.on_heard(neighbour)
        if neighbour not in self.around.known:
            return
        self.interests.on_fingerprint(neighbour, said.interests)
        if said.entries:
            self.distances.on_entries(neighbour, said.entries)
        if self._indebted:
            self._pay_debts()
        if said.is_whole:
            self._aims.expire(self.host.now())
            self._had[neighbour] = Had(set(said.marks))
        elif said.marks and neighbour in self._had:
            self._had[neighbour].marks.update(said.marks)
        self._look_for_lacking(neighbour)

    # Which way.

    def _targets(self, event: Event) -> set[int] | None:
        """Whom an event is directed to; None: it is for all."""
        if event.event_class is not EventClass.REALTIME or is_sealed(event) or not self.around.known:
            return None
        if not self.interests.is_agreed or not self.interests.are_settled or self._has_met_strangers():
            return None
        wanting = self.interests.wanting(event) - {self.host.node}
        targets = set(map(name_number, wanting))
        if not self._are_few(len(wanting)) or len(targets) < len(wanting):
            return None
        if any(map(self.interests.is_ambiguous, targets)):
            return None
        if any(map(self._is_to_seek, targets)):
            self._seek(event.id, targets)
            return None
        return targets

    def _has_met_strangers(self) -> bool:
        """Whether a new neighbour may come from another part of the network, with other interests: none of
        our neighbours hears it."""
        near, neighbours_of = self.around.known, self.underlay.neighbours_of
        return any(near.isdisjoint(neighbours_of(node)) for node in self.interests.new)

    def _is_to_seek(self, name: int) -> bool:
        """Whether a subscriber's distance is not known. One that has been out of reach for a while is sought
        now and then: perhaps it has no distance only because nobody looked for it."""
        if self.distances.of(name) < GONE:
            return False
        sought_at = self._sought_at.get(name, -SEEK_EVERY)
        return not self.distances.is_absent(name) or self.host.now() - sought_at >= SEEK_EVERY

    def _seek(self, key: EventId, names: set[int]) -> None:
        now = self.host.now()
        self._sought[key] = None
        for name in names:
            self._sought_at.renew(name, now)
        if name_number(self.host.node) in names:
            self.distances.told_until = now + FOUND_FOR

    def _are_few(self, wanting: int) -> bool:
        near = self.around.known
        known = near.union(self.interests.records, *map(self.underlay.neighbours_of, near))
        return FEW * wanting <= len(known)

    def _direct(self, key: EventId, aim: Aim) -> None:
        """Serve those that this node has to: neighbours themselves, others by relays."""
        duty, aim.duty = aim.duty - aim.done, set()
        of, by = self.distances.of, self.distances.by
        near = {name_number(node): node for node in sorted(self.distances.neighbours())}
        direct = duty & near.keys()
        rest = duty - direct
        can = {node: {one for one in rest if by(node, one) < of(one)} for node in near.values()}
        plan = shares(can, rest)
        left = rest.difference(*plan.values())
        aim.done |= duty - left
        receivers = plan.keys() | {near[one] for one in direct}
        if len(receivers) == 1:
            (to,) = receivers
            self._took(key, aim)
            self._send_to(to, key, aim, plan.get(to, set()), direct)
        elif receivers:
            if len(receivers) <= ANSWERING_MAX and len(aim.event.payload) >= ANSWERED_BYTES:
                plan |= {near[one]: set() for one in sorted(direct) if near[one] not in plan}
            self._send(aim, plan)
            aim.direct |= direct - set(map(name_number, plan))
            aim.awaited.update(plan)
            if plan:
                airtime = self.host.airtime(len(aim.event.payload) + AROUND_PAYLOAD)
                self._listening.after(key, airtime * PLACE_AIRTIMES * (len(plan) + 1) + LISTEN)
        else:
            self._took(key, aim)
        if left:
            self._leave(key, aim, left)

    def _send(self, aim: Aim, plan: dict[NodeId, set[int]]) -> None:
        self.messenger.send(self._copy(DirectedCopy, aim, plan), own=not aim.hops)

    def _send_to(self, to: NodeId, key: EventId, aim: Aim, duty: set[int], direct: set[int]) -> None:
        frame = self.messenger.frame(
            self._copy(DirectedTo, aim, {to: duty} if duty else {}), own=not aim.hops
        )
        self.host.unicast(to, frame, partial(self._on_failure, to, key, duty | direct))

    def _copy(self, kind: type[DirectedCopy], aim: Aim, plan: dict[NodeId, set[int]]) -> DirectedCopy:
        age = aim.age + self.host.now() - aim.arrived
        duties = tuple(map(names_from, plan.values()))
        return kind(aim.event, aim.hops, age, names_of(plan), duties)

    def _leave(self, key: EventId, aim: Aim, left: set[int]) -> None:
        """These subscribers cannot be served from here. If the node before thought that they can, there may
        be a way that this node does not know, so the event goes to all."""
        if not aim.hops and all(map(self.distances.is_absent, left)):
            self._owe(key, aim, left)
        else:
            self._give_to_all(key, aim)

    def _give_to_all(self, key: EventId, aim: Aim) -> None:
        del self._aims[key]
        self._turns.cancel(key)
        age = aim.age + self.host.now() - aim.arrived
        self.repair.holdings.remember(aim.event, aim.hops, age, self.host.now())
        if self.around.may_hear(self.host.now()):
            self._broadcast(FloodedEvent, aim.event, aim.hops, age, ())

    def _owe(self, key: EventId, aim: Aim, names: set[int]) -> None:
        self._indebted[key] = None
        for name in names:
            aim.owed.setdefault(name, self.host.now())

    def _pay_debts(self) -> None:
        """A subscriber may be within reach again. One that may have been in reach all the time is served by
        giving the event to all."""
        distances, by = self.distances, self.host.now() - OWED_WAIT
        for key in list(self._indebted):
            aim = self._aims.get(key)
            if aim is None or not aim.owed:
                del self._indebted[key]
                continue
            back = {one for one in aim.owed if distances.of(one) < GONE}
            for one in back:
                del aim.owed[one]
            if any(since < by and not distances.is_absent(one) for one, since in aim.owed.items()):
                self._give_to_all(key, aim)
            elif back:
                aim.duty |= back
                self._turns.add(key, aim, random_below(self.host, OFFER_WAIT))

    def _serve_again(self, neighbour: NodeId, had: "Had | None") -> None:
        """A subscriber has gone: what it was sent since its last beacons may not have reached it."""
        name, since = name_number(neighbour), self.host.now() - LOST_WITHIN if had is None else had.until
        for key, aim in self._current_aims():
            if aim.arrived > since and name in aim.direct:
                aim.direct.discard(name)
                aim.done.discard(name)
                aim.duty.add(name)
                self._turns.add(key, aim, random_below(self.host, OFFER_WAIT))

    def _on_record(self, owner: NodeId) -> None:
        """An interest that is new here: what this node published a moment ago may have missed it."""
        name = name_number(owner)
        own = [(key, aim) for key, aim in self._current_aims() if not aim.hops]
        for key, aim in own[-LATE_MAX:]:
            if name not in aim.wanting and self.interests.wants(owner, aim.event):
                aim.wanting |= {name}
                self._owe(key, aim, {name})

    # Relays.

    def _on_directed(self, sender: NodeId, copy: DirectedCopy) -> None:
        event, key = copy.event, copy.event.id
        if event.event_class is not EventClass.REALTIME:
            self.on_copy(sender, copy)  # nobody directs these
            return
        self.repair.on_copy(sender, key)
        if self.broker.observe(key, 0):
            entered = self._enter(event, copy.hops + 1, copy.age)
            if name_number(self.host.node) in entered.wanting:
                self.distances.told_until = self.host.now() + FOUND_FOR
            self.deliver(event, copy.hops + 1, copy.age)
        place = place_of(self.host.node, copy.relays or b"")
        duties = list(map(numbers_of, copy.duties))
        mine = duties[place] if place is not None and place < len(duties) else set()
        aim = self._aims.get(key)  # None: it is for all by now
        if aim is not None:
            aim.awaited.pop(sender, None)
            by = self.distances.by
            others = set[int]().union(*duties) - mine
            aim.duty -= {one for one in aim.duty if one in others or by(sender, one) <= 1}
            if type(copy) is DirectedTo and mine & aim.done and sender != aim.giver:
                self._give_to_all(key, aim)  # it comes back
                return
            if place is not None:
                if copy.hops + 1 < self._hop_limit:
                    aim.duty |= mine - aim.done - {name_number(self.host.node)}
                aim.giver = sender
                aim.is_listened_for = type(copy) is DirectedCopy
                self._turns.add(key, aim, turn(self.host, place, event))
        elif place is not None and type(copy) is DirectedCopy:
            self.messenger.send(Took(*key))

    def deliver(self, event: Event, hops: int, age: Micros) -> bool:
        """Not to those who subscribed after it was published: with epidemic the event would have been here
        before their subscription."""
        if age > LATE and event.event_class is EventClass.REALTIME and not event.destinations:
            by, readable = self.host.now() - age, self.broker.readable(event)
            before = (one for one in self.broker.subscriptions() if self._since[one.number] <= by)
            if not any(one.filter.matches(readable) for one in before):
                return True
        return super().deliver(event, hops, age)

    def _enter(self, event: Event, hops: int, age: Micros) -> Aim:
        now, key = self.host.now(), event.id
        self.repair.holdings.remember(event, hops, age, now, is_for_all=False)
        self._aims.expire(now)
        wanting = frozenset(map(name_number, self.interests.wanting(event)))
        aim = Aim(
            event,
            hops,
            age,
            now,
            now - age + self._recent_time,
            event_fingerprint(*key) & MARKS_LAST,
            wanting,
            set(),
            set(),
            set(),
            {},
            {},
        )
        self._aims[key] = aim
        return aim

    def _current_aims(self) -> list[tuple[EventId, Aim]]:
        self._aims.expire(self.host.now())
        return list(self._aims.items())

    def _took(self, key: EventId, aim: Aim) -> None:
        if aim.is_listened_for:
            aim.is_listened_for = False
            self.messenger.send(Took(*key))

    def _on_took(self, sender: NodeId, took: Took) -> None:
        aim = self._aims.get(EventId(took.publisher, took.sequence))
        if aim is not None:
            aim.awaited.pop(sender, None)

    def _on_silence(self, key: EventId) -> None:
        """These were not heard: once more, to each alone; to one without a duty just a word."""
        aim = self._aims.get(key)
        if aim is not None:
            awaited, aim.awaited = aim.awaited, {}
            for relay, duty in awaited.items():
                own = {name_number(relay)} & aim.wanting
                if duty:
                    self._send_to(relay, key, aim, duty, own)
                else:
                    failed = partial(self._on_failure, relay, key, own)
                    self.messenger.send(Lacking(relay, runs_of([key])), relay, on_failure=failed)

    def _on_failure(self, neighbour: NodeId, key: EventId, duty: set[int], why: SendFailure) -> None:
        aim = self._aims.get(key)
        if why is SendFailure.LINK:
            self.distances.put_aside(neighbour)
            self.underlay.on_link_failure(neighbour)
        if aim is None:
            return
        aim.attempts += 1
        if aim.attempts > ATTEMPTS_MAX:
            self._give_to_all(key, aim)
        else:
            aim.done -= duty
            aim.duty |= duty
            self._turns.add(key, aim, 0)

    # For all after all.

    def on_copy(self, sender: NodeId, copy: FloodedEvent | Handed) -> None:
        key = copy.event.id
        aim = self._aims.pop(key, None)
        if aim is not None:
            self._turns.cancel(key)
            self.repair.holdings.remember(copy.event, copy.hops + 1, copy.age, self.host.now())
            self._spread(sender, copy, is_kept=True)
        if type(copy) is SoughtCopy and not self.broker.has_seen(key):
            self._seek(key, set(map(name_number, self.interests.wanting(copy.event))))
        super().on_copy(sender, copy)

    def _broadcast(
        self, message: type[FloodedEvent], event: Event, hops: int, age: Micros, covered: Collection[NodeId]
    ) -> None:
        is_sought = message is FloodedEvent and event.id in self._sought
        super()._broadcast(SoughtCopy if is_sought else message, event, hops, age, covered)

    def _on_digest(self, sender: NodeId, digest: HoldingsDigest) -> None:
        if self._aims:
            for key in self._aims.keys() & set(events_of(digest.held)):
                aim = self._aims.pop(key)
                age = aim.age + self.host.now() - aim.arrived
                self.repair.holdings.remember(aim.event, aim.hops, age, self.host.now())
        self.repair.on_digest(sender, digest)

    # Repair.

    def _rider(self) -> bytes:
        """What rides in the next beacon."""
        now, me = self.host.now(), name_number(self.host.node)
        is_whole = self._beacons % WHOLE_EVERY == 0 and self.distances.is_told
        since = -1 if is_whole else self._told_at
        marks = [aim.mark for _, aim in self._current_aims() if aim.arrived > since and me in aim.wanting]
        mine = self.interests.fingerprint()
        interests = b"" if mine == self._told_interests and self._beacons % WHOLE_EVERY else mine
        self._told_interests = mine
        self._told_at = now
        self._beacons += 1
        return Rider(
            self._fingerprint(), interests, self.distances.entries(), tuple(marks), is_whole
        ).encode()

    def _look_for_lacking(self, neighbour: NodeId) -> None:
        """Of the events that came here since the last time and have had time to reach the neighbour."""
        had = self._had.get(neighbour)
        if had is None:
            return
        name, by, since = name_number(neighbour), self.host.now() - SETTLED, self.repair.since(neighbour)
        lacking = []
        for key in reversed(self._aims):
            aim = self._aims[key]
            if aim.arrived <= had.until:
                break
            is_due = aim.arrived <= by and aim.arrived - aim.age >= since
            if is_due and name in aim.wanting and aim.mark not in had.marks:
                lacking.append(key)
        had.until = by
        lacking = [key for key in lacking if key.publisher != neighbour]
        if lacking:
            if neighbour not in self._offers:
                self._offers[neighbour] = set()
                self._offering.after(neighbour, random_below(self.host, OFFER_WAIT))
            self._offers[neighbour].update(lacking)

    def _offer(self, neighbour: NodeId) -> None:
        lacking = sorted(self._offers.pop(neighbour, ()))
        if lacking:
            self.messenger.send(Lacking(neighbour, runs_of(lacking[-OFFERED_MAX:])))

    def _on_lacking(self, sender: NodeId, message: Lacking) -> None:
        named = list(events_of(message.held))
        if message.subscriber != self.host.node:
            if message.subscriber in self._offers:
                self._offers[message.subscriber].difference_update(named)
            return
        now = self.host.now()
        self._asked.forget_oldest(lambda at: now - at > SECOND)
        wanted = [one for one in named if not self.broker.has_seen(one) and one not in self._asked]
        wanted = wanted[:OFFERED_MAX]
        self._asked.update(dict.fromkeys(wanted, now))
        if wanted:
            self.repair.want(sender, wanted)

    def _handed(self, holding: Holding) -> WireMessage:
        return DirectedTo(*holding) if holding.event.id in self._aims else Handed(*holding)

    def _hear(self, sender: NodeId) -> None:
        self._meet(sender)
        self.distances.on_heard(sender)
