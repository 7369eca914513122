"""Repair of events that were missed: name what is held, ask for what is lacking, answer in turn
(anti-entropy; Demers and others, 1987).

- `Holdings`: the events that this node can give, memorized and recent ones, with hops and age.
- `HeldRuns`, `DigestTurns`, `runs_of`, `events_of`, `unseen_of`: a digest names events by publisher and runs
  of sequence numbers.
- `Requests`: what to ask whom for: each event from one neighbour at a time, of recent ones the newest first,
  of memorized ones the oldest, with a deadline.
- `Answers`: what others asked for: each once, a few frames at a time, then a pause for other senders.

What else a digest says, who hears it and when is the strategy's decision. Everything here comes from the air,
so each step has a bound, in processor time too: a digest of 17 octets may claim 2^63 events."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, islice, pairwise
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec

from roamcast.broker.seen import PUBLISHER, EventKey, event_fingerprint, event_key
from roamcast.broker.store import EventStore
from roamcast.event import Count, Event, EventId, event_ids
from roamcast.host import Host
from roamcast.kit.protocol import Timer
from roamcast.kit.tables import LifetimeDict, OnEvicted
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

# Chosen by us.
PUBLISHERS_MAX = 200  # in one digest
RANGES_MAX = 64  # of one publisher in one digest
NUMBERS_MAX = 6_000  # first and last ones in one digest: of nine octets each, they fit into a frame
SCANNED_MAX = 20_000  # identifiers of one digest that are examined: twice a full store, 5 ms
OFFERED_MAX = 10_000  # identifiers remembered per neighbour
OFFERING_MAX = 1_000  # neighbours
FEW = 4  # events, in a request of which most may not be kept
FRAGMENT_BYTES = 1_400  # what a radio sends in one piece, about
ANSWER_BURST = 4  # frames, or pieces of large ones
ANSWER_PAUSE: Micros = 10 * MILLISECOND  # after a burst, for other senders
RECENT_TIME: Micros = 15 * SECOND
"""How long a real-time event is offered to those who missed it: one default for every strategy that keeps
them, so that a comparison of strategies compares like with like. In traffic and on foot, 15 s instead of 5
reach a tenth more of the pairs for 3 to 15 % more octets; 30 s add little. Chosen by us."""
# Of what two nodes hold, the youngest is still on its way, and what is about to expire has expired at one of
# them already: these do not count when they compare. All chosen by us.
SETTLED_AFTER: Micros = 100 * MILLISECOND
UNSURE: Micros = 60 * MILLISECOND  # by so much the same event may be older at another node
UNSURE_MAX = 6  # events: more, and two nodes are taken to differ
FINGERPRINT_BYTES = 4
FINGERPRINTS = 1 << 8 * FINGERPRINT_BYTES

Key = TypeVar("Key")
Item = TypeVar("Item")


# Digests.


class HeldRuns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The runs of one publisher: first and last sequence number of each, all in one tuple."""

    publisher: Count
    runs: Annotated[tuple[Count, ...], msgspec.Meta(min_length=2, max_length=2 * RANGES_MAX)]


def runs(sequences: list[int]) -> Iterator[int]:
    """First and last of each run of consecutive numbers, in a sorted list without repeats."""
    yield sequences[0]
    for before, after in pairwise(sequences):
        if after != before + 1:
            yield before
            yield after
    yield sequences[-1]


def runs_of(events: Iterable[EventId]) -> tuple[HeldRuns, ...]:
    """A short form of at most as many events as a digest names; of too many runs the first."""
    return tuple(
        HeldRuns(publisher, tuple(runs(sequences))[: 2 * RANGES_MAX])
        for publisher, sequences in islice(by_publisher(events).items(), PUBLISHERS_MAX)
    )


def by_publisher(events: Iterable[EventId]) -> dict[NodeId, list[int]]:
    """The events by publisher, in increasing order and without repeats."""
    sequences: dict[NodeId, list[int]] = {}
    for publisher, sequence in sorted(set(events)):
        sequences.setdefault(publisher, []).append(sequence)
    return sequences


class DigestTurns:
    """What is named in one digest where not all fits, so that everything is named in the end: publishers take
    turns; of one publisher, the newest runs are always named and the older ones take turns."""

    def __init__(self) -> None:
        self._turn = 0  # of publishers
        self._part = 0  # of a publisher's runs

    def digest(
        self, publishers: list[NodeId], runs_held: Callable[[NodeId], tuple[int, ...]]
    ) -> tuple[HeldRuns, ...]:
        """`publishers`: of which something is held, in increasing order."""
        first = self._turn % max(len(publishers), 1)
        self._part += 1
        named: list[HeldRuns] = []
        numbers = 0
        for publisher in (publishers[first:] + publishers[:first])[:PUBLISHERS_MAX]:
            fitting = self._fitting(runs_held(publisher))
            numbers += len(fitting)
            if numbers > NUMBERS_MAX:
                break
            named.append(HeldRuns(publisher, fitting))
        self._turn = first + len(named) if len(named) < len(publishers) else 0
        return tuple(named)

    def _fitting(self, all_runs: tuple[int, ...]) -> tuple[int, ...]:
        if len(all_runs) <= 2 * RANGES_MAX:
            return all_runs
        older, newest = all_runs[:-RANGES_MAX], all_runs[-RANGES_MAX:]
        at = self._part * RANGES_MAX % (-(-len(older) // RANGES_MAX) * RANGES_MAX)
        return older[at : at + RANGES_MAX] + newest


def ranges_of(held: Iterable[HeldRuns]) -> Iterator[tuple[NodeId, range]]:
    """The runs of a digest, up to `SCANNED_MAX` events."""
    left = SCANNED_MAX
    for entry in held:
        for first, last in zip(entry.runs[::2], entry.runs[1::2], strict=False):
            sequences = range(first, first + min(last - first + 1, left))
            yield entry.publisher, sequences
            left -= len(sequences)


def events_of(held: Iterable[HeldRuns]) -> Iterator[EventId]:
    """Every event that a digest names, up to `SCANNED_MAX`."""
    return chain.from_iterable(event_ids(publisher, sequences) for publisher, sequences in ranges_of(held))


class DigestRead:
    """The keys of the digest that was read last, for all nodes of this process: a broadcast reaches many
    nodes of a simulation as the same object, and most have seen all of its events."""

    def __init__(self) -> None:
        self._held: tuple[HeldRuns, ...] = ()
        self._keys: frozenset[EventKey] = frozenset()

    def unseen_of(
        self, held: tuple[HeldRuns, ...], unseen: Callable[[frozenset[EventKey]], frozenset[EventKey]]
    ) -> list[EventKey]:
        """The events of a digest that `unseen` picks, in increasing order."""
        if held is not self._held:
            # Numbers instead of identifiers: ranges of them are joined without a step of Python for each.
            keys = (
                range(publisher * PUBLISHER + sequences.start, publisher * PUBLISHER + sequences.stop)
                for publisher, sequences in ranges_of(held)
            )
            self._held, self._keys = held, frozenset(chain.from_iterable(keys))
        return sorted(unseen(self._keys))


unseen_of = DigestRead().unseen_of


def missing(held: Iterable[HeldRuns], told: Iterable[HeldRuns]) -> Iterator[EventId]:
    """The events of those runs of `told` that `held` does not contain completely, up to `SCANNED_MAX`. Runs
    are compared, not events, since both may name thousands."""
    theirs = {entry.publisher: entry.runs for entry in held}
    lacking: list[HeldRuns] = []
    for entry in told:
        known = theirs.get(entry.publisher, ())
        firsts, lasts = known[::2], known[1::2]
        for first, last in zip(entry.runs[::2], entry.runs[1::2], strict=True):
            at = bisect_right(firsts, first) - 1  # the run that may contain it, in an honest digest
            if not (0 <= at < len(lasts) and last <= lasts[at]):
                lacking.append(HeldRuns(entry.publisher, (first, last)))
    yield from events_of(lacking)


# What this node can give.


class Holding(NamedTuple):
    event: Event
    hops: int
    age: Micros  # at the time of the question


class RecentCopy(NamedTuple):
    event: Event
    hops: int
    age: Micros  # at its arrival
    arrived: Micros
    until: Micros
    fingerprint: int


class Said(NamedTuple):
    """What a neighbour says that it holds."""

    fingerprint: bytes
    since: Micros  # of real-time events: its boot, or long ago


class Holdings:
    """Memorized events from the broker's store, and recent real-time events."""

    def __init__(
        self,
        store: EventStore,
        *,
        recent_time: Micros,
        recent_max: int,
        on_evicted: OnEvicted[EventId, RecentCopy],
    ) -> None:
        self._store = store
        self._recent: LifetimeDict[EventId, RecentCopy] = LifetimeDict(
            recent_max, on_evicted, lambda copy: copy.until
        )
        # Events that are not for all: they are in no digest and no fingerprint, but a node that knows of one
        # may ask for it.
        self._for_some: LifetimeDict[EventId, RecentCopy] = LifetimeDict(
            recent_max, on_evicted, lambda copy: copy.until
        )
        self._ordered: tuple[list[Micros], list[int], list[int]] | None = None
        self._recent_time = recent_time
        self._turns = DigestTurns()

    def remember(self, event: Event, hops: int, age: Micros, now: Micros, *, is_for_all: bool = True) -> None:
        """A real-time event has come; memorized ones are in the store already."""
        if age < self._recent_time:
            kept = self._recent if is_for_all else self._for_some
            if kept.is_full or not is_for_all:
                kept.expire(now)
            key, until = event.id, now - age + self._recent_time
            # As `RecentCopy(…)`, three times as fast.
            held = (event, hops, age, now, until, event_fingerprint(*key))
            kept[key] = tuple.__new__(RecentCopy, held)
            if is_for_all:
                self._ordered = None

    def find(self, key: EventId, now: Micros) -> Holding | None:
        stored = self._store.find(key)
        if stored is not None:
            left = stored.expires_at - now
            return Holding(stored.event, stored.hops, stored.event.lifetime - left) if left > 0 else None
        recent = self._recent.get(key) or self._for_some.get(key)
        if recent is None:
            return None
        return Holding(recent.event, recent.hops, recent.age + now - recent.arrived)

    def any_settled(self, keys: Iterable[EventId], now: Micros, since: Micros) -> bool:
        """Whether one of them is memorized, or neither on its way nor about to expire nor from before
        `since`."""
        first, last = self._settled(now, since)
        for key in keys:
            recent = self._recent.get(key)
            if recent is None or first < recent.until <= last:
                return True
        return False

    def any_memorized(self, keys: Iterable[EventId]) -> bool:
        return len(self._store) > 0 and any(key in self._store for key in keys)

    def digest(self, now: Micros) -> tuple[HeldRuns, ...]:
        """The next digest, in increasing order; see `DigestTurns`."""
        held = self._held(now)
        return self._turns.digest(list(held), lambda publisher: tuple(runs(held[publisher])))

    def whole_digest(self, now: Micros) -> tuple[HeldRuns, ...]:
        """As `digest` where all fits into one."""
        return tuple(HeldRuns(publisher, tuple(runs(one))) for publisher, one in self._held(now).items())

    def _held(self, now: Micros) -> dict[NodeId, list[int]]:
        self._recent.expire(now)
        return by_publisher(chain((stored.event.id for stored in self._store.standing(now)), self._recent))

    def recent(self, now: Micros) -> list[RecentCopy]:
        self._recent.expire(now)
        return list(self._recent.values())

    def fingerprint(self, now: Micros, since: Micros) -> bytes:
        """Of all that this node holds and that is settled: another that holds the same says the same. Of
        real-time events, only of those from `since` on."""
        first, last = self._settled(now, since)
        ends, sums, _ = self._in_order(now)
        from_, to = bisect_right(ends, first), bisect_right(ends, last)
        total = self._stored_sum(now) + sums[max(from_, to)] - sums[from_]
        return (total % FINGERPRINTS).to_bytes(FINGERPRINT_BYTES, "big")

    def agrees(self, said: Said, now: Micros) -> bool:
        """Whether a node with such a fingerprint holds the same, as far as the two can tell."""
        difference = int.from_bytes(said.fingerprint, "big") - self._stored_sum(now)
        first, last = self._settled(now, said.since)
        ends, sums, marks = self._in_order(now)
        old, from_ = bisect_right(ends, first - UNSURE), bisect_left(ends, first + UNSURE)
        to = max(from_, bisect_right(ends, last - UNSURE))
        unsure = marks[old:from_] + marks[to : bisect_left(ends, last + UNSURE)]
        if len(unsure) > UNSURE_MAX:
            return False
        difference -= sums[to] - sums[from_]
        possible = [0]
        for one in unsure:
            possible += [one + other for other in possible]
        return any((difference - one) % FINGERPRINTS == 0 for one in possible)

    def _in_order(self, now: Micros) -> tuple[list[Micros], list[int], list[int]]:
        """Of recent events in the order of their ends: the ends, the sums of the fingerprints before each,
        the fingerprints. Made anew when one has come: beacons are heard far more often."""
        if self._ordered is None:
            pairs = sorted((copy.until, copy.fingerprint) for copy in self.recent(now))
            marks = [mark for _, mark in pairs]
            self._ordered = [until for until, _ in pairs], list(accumulate(marks, initial=0)), marks
        return self._ordered

    def _settled(self, now: Micros, since: Micros) -> tuple[Micros, Micros]:
        """The bounds of `until` of real-time events from `since` on that two nodes can compare."""
        recent = self._recent_time
        return max(now + UNSURE, since + recent), now + recent - SETTLED_AFTER

    def _stored_sum(self, now: Micros) -> int:
        self._store.forget_expired(now)
        return self._store.fingerprint


# What to ask for.


def order_to_ask(recent: Iterable[EventId], memorized: Iterable[EventId]) -> list[EventId]:
    """What is recent must not wait, and a contact may be too short for all of it: the newest first. What is
    memorized is handed over in its order (`broker/order.py`), so the newest would only wait, and take the
    room of what it waits for: the oldest first. Publishers in turn: an identifier has a number, and no time
    that could be compared with another publisher's."""
    newest, oldest = by_publisher(recent).items(), by_publisher(memorized).items()
    return in_turn(
        [list(event_ids(publisher, reversed(numbers))) for publisher, numbers in newest]
    ) + in_turn([list(event_ids(publisher, numbers)) for publisher, numbers in oldest])


def newest_keys_first(keys: list[EventKey]) -> list[EventKey]:
    """The newest of each publisher first, by keys in increasing order; without a step of Python for each."""
    return in_turn([each[::-1] for each in keys_by_publisher(keys)])


def keys_by_publisher(keys: list[EventKey]) -> list[list[EventKey]]:
    each: list[list[EventKey]] = []
    at = 0
    while at < len(keys):
        end = bisect_left(keys, (keys[at] // PUBLISHER + 1) * PUBLISHER, at)
        each.append(keys[at:end])
        at = end
    return each


def in_turn(each: list[list[Item]]) -> list[Item]:
    """The first of each list, then the second of each that has one, and so on; in time that follows from how
    many there are in all, however uneven the lists."""
    found: list[Item] = []
    taken = 0
    while each:
        shortest = min(map(len, each))
        found += chain.from_iterable(zip(*(one[taken:shortest] for one in each), strict=True))
        taken = shortest
        each = [one for one in each if len(one) > taken]
    return found


class Requests:
    """For what a neighbour holds and we have not seen: each event from one neighbour at a time."""

    def __init__(self, has_seen: Callable[[EventId], bool], *, request_max: int, timeout: Micros) -> None:
        """`timeout`: may change; what was asked for before waits as long."""
        self._has_seen = has_seen
        self._request_max = request_max
        self.timeout = timeout
        self._offered: dict[NodeId, deque[EventKey]] = {}  # by neighbour, until seen; in the order to ask for
        self._asked: dict[EventId, Micros] = {}  # when
        self._owed: dict[NodeId, dict[EventId, Micros]] = {}  # the same, by neighbour

    def on_offer(self, neighbour: NodeId, memorized: list[EventKey], recent: list[EventKey]) -> bool:
        """A neighbour's digest names these, in increasing order, which we have not seen; it replaces what
        that neighbour offered before, and is asked for as `order_to_ask` says. False if there is no room for
        all of it; it will be offered again."""
        if neighbour not in self._offered and len(self._offered) >= OFFERING_MAX:
            return False
        if not memorized and not recent:  # nearly always; an empty deque has 600 octets
            self._offered.pop(neighbour, None)
            return True
        wanted = newest_keys_first(recent[: 2 * OFFERED_MAX])
        wanted += in_turn(keys_by_publisher(memorized[: 2 * OFFERED_MAX]))
        self._offered[neighbour] = deque(islice(wanted, OFFERED_MAX))
        return len(wanted) <= OFFERED_MAX

    def on_missed(self, neighbour: NodeId, event: EventId) -> None:
        """It must have this one, too; beside what it offered, and asked for before that."""
        key = event_key(*event)
        if neighbour in self._offered or len(self._offered) < OFFERING_MAX:
            offered = self._offered.setdefault(neighbour, deque())
            if key not in offered and len(offered) < OFFERED_MAX:
                offered.appendleft(key)

    def request(self, neighbour: NodeId, now: Micros, few_from: int | None = None) -> list[EventId]:
        """What to ask this neighbour for now; nothing while it owes us as much as one request holds.
        `few_from`: only `FEW`, from this place on, where hardly any may be kept: each time others."""
        offered = self._offered.get(neighbour)
        if not offered:
            return []
        owed = self._owed.setdefault(neighbour, {})
        overdue = now - self.timeout  # asked for by then
        for event in [event for event, asked in owed.items() if asked <= overdue]:
            del owed[event]  # the request or the answer was lost; it may be asked for again
        wanted: list[EventId] = []
        still: deque[EventKey] = deque()
        if few_from is not None:
            offered.rotate(-few_from)
        while offered and len(wanted) + len(owed) < (self._request_max if few_from is None else FEW):
            key = offered.popleft()
            event = EventId(*divmod(key, PUBLISHER))
            if self._has_seen(event):
                continue
            still.append(key)
            if self._asked.get(event, overdue) <= overdue:
                wanted.append(event)
        still.extend(offered)  # those examined keep their place at the front
        self._offered[neighbour] = still
        for event in wanted:
            owed[event] = self._asked[event] = now
        if len(self._asked) > OFFERED_MAX:
            self._asked = {event: asked for event, asked in self._asked.items() if asked > overdue}
        return wanted

    def on_copy(self, neighbour: NodeId, event: EventId) -> None:
        """An event came; asked for or not, it is not owed any more."""
        self._asked.pop(event, None)
        owed = self._owed.get(neighbour)
        if owed is not None:
            owed.pop(event, None)

    def on_refused(self, neighbour: NodeId, events: Iterable[EventId], until: Micros) -> None:
        """It was asked for these, and does not give them: nobody is asked for them before then."""
        owed = self._owed.get(neighbour, {})
        for event in events:
            if owed.pop(event, None) is not None and len(self._asked) <= OFFERED_MAX:
                self._asked[event] = until

    def has_offers(self, neighbour: NodeId) -> bool:
        return bool(self._offered.get(neighbour))

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._offered.pop(neighbour, None)
        for event in self._owed.pop(neighbour, ()):
            self._asked.pop(event, None)  # another neighbour may be asked at once


# What others asked for.


def fragments(octets: int) -> int:
    """How many frames this one counts for: as many as the pieces that it is sent in."""
    return 1 + octets // FRAGMENT_BYTES


class Answers(Generic[Key, Item]):
    """What others asked for, in the order of their requests: a few frames at once, then a pause.

    A request that is repeated while its answer waits is answered once: large events take long.
    """

    def __init__(
        self,
        host: Host,
        send: Callable[[Key, Item], int],
        *,
        most: int,
        on_full: Callable[[], object],
        wait: Micros | None = None,
    ) -> None:
        """`send` returns the octets that it sent, 0 if there was nothing to send any more. `wait`: before the
        first burst, so that all that is asked for within it is one; None: it is sent by `add` itself."""
        self._send = send
        self._most = most
        self._on_full = on_full
        self._wait = wait
        self._waiting: OrderedDict[Key, Item] = OrderedDict()
        self._timer = Timer(host, self._burst)

    def __len__(self) -> int:
        return len(self._waiting)

    def find(self, key: Key) -> Item | None:
        return self._waiting.get(key)

    def add(self, asked: Iterable[tuple[Key, Item]]) -> None:
        """One request, for one or more. Whoever asks for more than there is room for is told by the next
        digest."""
        is_idle = not self._waiting
        for key, item in asked:
            if key not in self._waiting and len(self._waiting) >= self._most:
                self._on_full()
                break
            self._waiting[key] = item
        if is_idle and self._wait is None:
            self._burst()
        elif is_idle:
            self._timer.after(self._wait or 0)

    def forget(self, is_over: Callable[[Key], bool]) -> None:
        """Such as all that a lost neighbour asked for: if it is still there, it asks again."""
        for key in [key for key in self._waiting if is_over(key)]:
            del self._waiting[key]

    def _burst(self) -> None:
        sent = 0
        while self._waiting and sent < ANSWER_BURST:
            octets = self._send(*self._waiting.popitem(last=False))
            if octets:
                sent += fragments(octets)
        if self._waiting:
            self._timer.after(ANSWER_PAUSE)
