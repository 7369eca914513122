"""Table consistency check, and the exchange of inheritance and check-out (Chapar, section 4.2).

Once per `consistency_interval` a broker broadcasts the digests of its two tables. A neighbouring broker whose
digests differ answers with lists: the identifiers of its events, and the hash of each FMT record
(`fmt_lists = "hashes"`, in the preset `paper`) or the version of each subscriber's register, which shows in
fewer octets which side is newer. The first one then sends what the other lacks, as in the paper, and asks for
what it lacks itself, so that one exchange serves both directions. A broker floods on whatever is new to it.
So where no frame is lost, the brokers of a network that heals agree after one interval, not after one per
hop; whoever misses a frame of the flood learns it by its own next check.

All below up to *Inheritance* is beyond the paper and in force with `meeting_check` alone; without it each
neighbouring broker that differs answers at once, by unicast.

Brokers that come into each other's neighbourhood check ahead of time. The paper leaves this
to the periodic check: a node that was alone, and so its own broker, then meets another such node, and neither
knows what the other wants for up to a whole interval. Contacts of about ten seconds mostly end before that.
It is the same broadcast, and one serves all brokers that a node meets at once. A broker whose tables
changed checks ahead of time too, unless it hears from others that they have the same by now, as in Trickle
(RFC 6206). The pace is that of all early messages (`kit/rates.py`). Answers wait for a random time, and
are left out if the tables have changed meanwhile or another broker answers: one exchange and the floods that
follow serve a whole neighbourhood.

Inheritance is the same exchange, begun by a new broker with one neighbouring broker. Check-out is the same,
begun by a dismissed broker, which only sends; it asks for nothing but what events in its inbox wait for. When
they begin and end: `inheritance.py`.

A table of thousands of entries is listed in parts (`list_tables`). Each says from where to where it is
complete, so that a receiver handles it by itself, whether or not the others arrive.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from roamcast.event import EventId
from roamcast.kit.protocol import random_below, trace_overflow
from roamcast.kit.rates import Prompt
from roamcast.kit.relay import Relay
from roamcast.kit.tables import BoundedDict, LifetimeDict, unreported
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.messages import (
    LIST_MAX,
    Check,
    Lists,
    Memorized,
    Request,
    is_between,
)
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

REQUEST_TIMEOUT: Micros = 2 * SECOND  # time-out, then another broker is asked; chosen by us
# An entry that arrives later than this after inheritance began is flooded like a new one. A full table takes
# 20 s. Chosen by us.
INHERITANCE_TIME: Micros = 60 * SECOND
MEETING_INTERVAL: Micros = SECOND  # between early checks: a multiple of it, by `kit/rates.py`
ANSWER_SPREAD: Micros = 20 * MILLISECOND  # per neighbouring broker: all of them hear a check; chosen by us
SAME_ENOUGH = 2  # checks with our own digests that make another one needless (RFC 6206); chosen by us
REGISTER = -1  # where an event has its publisher: the item is a subscriber's register
PART = 64  # entries of each table in one message: about 1,200 octets even where node numbers are large; ours


class ConsistencyCheck(Part):
    def __init__(self, shared: Shared, attachment: Attachment) -> None:
        super().__init__(shared)
        self._attachment = attachment
        self._is_prompt = self._in_force.meeting_check
        self._met: set[NodeId] = set()  # brokers in the neighbourhood
        self._early = Prompt(self._host, self.check_all, MEETING_INTERVAL)
        self._same = 0  # checks heard with our own digests, since the early check was asked for
        self._changes = 0  # of the tables, by exchanges and floods
        # Checks that wait for an answer, with `_changes` when they came.
        self._to_answer: Relay[NodeId, tuple[Check, int]] = Relay(
            self._host, send=self._answer_late, most=self._options.pending_max
        )
        # Until when each item is awaited; one that is evicted may be asked for again.
        self._requested: BoundedDict[object, Micros] = BoundedDict(2 * LIST_MAX, unreported)
        # What was asked for by inheritance: the brokers around have it already. What does not come in time,
        # or is evicted, is flooded like anything new.
        self.inherited: LifetimeDict[tuple[int, int], Micros] = LifetimeDict(2 * LIST_MAX, unreported, int)
        self._inheriting_from: tuple[NodeId | None, Micros] = (None, 0)  # and until when

    # Starting an exchange.

    def check_all(self) -> None:
        """The periodic check with every broker in the neighbourhood."""
        if self._brokers.adjacent():
            self._messenger.send(self._check())

    def inherit(self, broker: NodeId) -> None:
        """A new broker fetches the tables of a neighbouring one."""
        self._inheriting_from = broker, self._host.now() + INHERITANCE_TIME
        self.check_one(broker)

    def is_inheriting(self, broker: NodeId) -> bool:
        """Whether what it answers is what the brokers around have already."""
        giver, until = self._inheriting_from
        return broker == giver and self._host.now() < until

    def is_inherited(self, item: tuple[int, int]) -> bool:
        """Whether it was asked for by inheritance; once."""
        return self.inherited.pop(item, 0) > self._host.now()

    def check_one(self, broker: NodeId, *, must_answer: bool = False) -> None:
        """Check with one broker. Where the end of a check-out waits for the answer, the broker answers even
        if the tables are equal."""
        check = self._check(must_answer or self._is_prompt, broker)
        self._messenger.ride(check, broker, at_once=check.answer)

    def look(self) -> None:
        """Compare the brokers around with those met before: roles or neighbours may have changed."""
        adjacent = set(self._brokers.adjacent()) if self._brokers.is_broker else set()
        if adjacent - self._met:
            self._check_soon()
        self._met = adjacent
        self.inherited.expire(self._host.now())

    def changed(self) -> None:
        """The tables have changed, by a flood or an exchange: others may not have that yet."""
        self._changes += 1
        self._check_soon()

    # What was asked for, each item of one broker at a time.

    def is_asked(self, item: object) -> bool:
        return self._requested.get(item, 0) > self._host.now()

    def ask(self, broker: NodeId, request: Request, items: Iterable[object]) -> None:
        until = self._host.now() + REQUEST_TIMEOUT
        asked = dict.fromkeys(items, until)
        self._requested.update(asked)

        def failed(_: object) -> None:
            for item in asked:
                self.on_answered(item)  # the next broker may be asked for it

        self._messenger.send(request, broker, on_failure=failed)

    def on_answered(self, item: object) -> None:
        self._requested.pop(item, None)

    # Inputs.

    def on_check(self, sender: NodeId, check: Check) -> None:
        if check.to not in (None, self._host.node):
            return
        if not self._brokers.is_broker:
            if check.answer:
                self._messenger.decline(sender)
        elif check.answer or not self._is_prompt:
            self._answer(sender, check)
        elif self._is_same(check):
            self._to_answer.cancel(sender)
            self._same += 1
            if self._same >= SAME_ENOUGH:
                self._early.cancel()
        else:  # a sender that waits already keeps its time
            wait = random_below(self._host, ANSWER_SPREAD * len(self._brokers.adjacent()))
            if not self._to_answer.add(sender, (check, self._changes), wait):
                trace_overflow(self._host, "consistency", "pending_max")

    def on_lists(self, sender: NodeId, lists: Lists) -> int | None:
        """How many entries one of the two lacks; None if the lists are not for this node."""
        if lists.to not in (None, self._host.node):
            self._to_answer.cancel(lists.to)  # the first answer serves all
            return None
        if not self._brokers.has_tables:
            return None
        self._tables.events.forget_expired(self._host.now())
        given = self._give_events(sender, lists) + self._give_registers(sender, lists)
        if self._brokers.is_broker:
            return given + self._request(sender, lists)
        return given + self._request_earlier(sender, lists)

    def on_request(self, sender: NodeId, request: Request) -> None:
        for key in sorted(EventId(*key) for key in request.events):
            self._transfer(sender, key)
        if not self._brokers.has_tables:
            return
        tables, node = self._tables, self._host.node
        wanted = [tables.register(each) for each in tables.filters.subscribers_of(request.subscribers)]
        self._messenger.send_registers(sender, wanted, exchanged=True)
        if node in request.subscribers and not tables.filters.version(node):
            self._messenger.send_registers(sender, [tables.register(node)], own=True)

    # Checks and their answers.

    def _check_soon(self) -> None:
        if self._is_prompt:
            self._same = 0
            self._early.ask(1 + len(self._met))

    def _is_same(self, check: Check) -> bool:
        self._tables.events.forget_expired(self._host.now())
        return (check.events, check.filters) == self._tables.digests()

    def _check(self, answer: bool = False, to: NodeId | None = None) -> Check:
        self._tables.events.forget_expired(self._host.now())
        self._inbox.ask()
        return Check(*self._tables.digests(), answer, to)

    def _answer_late(self, sender: NodeId, heard: tuple[Check, int]) -> None:
        """Not if the tables have changed since: then what made them differ is on its way already, and the
        next check will tell."""
        check, changes = heard
        if self._brokers.is_broker and changes == self._changes:
            self._answer(sender, check)

    def _answer(self, sender: NodeId, check: Check) -> None:
        tables, now = self._tables, self._host.now()
        tables.events.forget_expired(now)
        of_events, of_filters = tables.digests()
        events = None if check.events == of_events else tables.events.known()
        versions = None if check.filters == of_filters else tables.filters.listed()
        if check.answer or events is not None or versions is not None:
            missing = tables.events.missing(now)
            told = list_tables(events, versions, missing, sender)
            if sum(len(part.missing) for part in told) < len(missing):
                trace_overflow(self._host, "consistency", "PART")
            # One frame is broadcast, so that others hear that the check is answered; more need the link
            # layer's acknowledgements. An answer that was asked for must arrive.
            to = None if len(told) == 1 and not check.answer and self._is_prompt else sender
            for part in told:
                self._messenger.send(part, to)

    # What the other lacks.

    def _give_events(self, to: NodeId, lists: Lists) -> int:
        if lists.events is None:
            return 0
        theirs = {EventId(*key) for key in lists.events}
        ours = self._tables.events.between(lists.first_event, lists.end_event)
        lacking = [key for key in ours if key not in theirs]
        for key in lacking:
            self._transfer(to, key)
        return len(lacking)

    def _give_registers(self, to: NodeId, lists: Lists) -> int:
        if lists.versions is None:
            return 0
        theirs, filters = dict(lists.versions), self._tables.filters
        newer = filters.subscribers_of(
            entry
            for entry, version in filters.listed()
            if version > theirs.get(entry, 0) and lists.tells_of_subscriber(entry)
        )
        self._messenger.send_registers(to, [self._tables.register(each) for each in newer], exchanged=True)
        return len(newer)

    def _transfer(self, to: NodeId, key: EventId) -> None:
        def make(now: Micros) -> Memorized | None:
            memo = self._tables.events.entry(key) or self._attachment.own.get(key)
            return None if memo is None else memo.unexpired(now)

        self._messenger.transfer(to, key, make)

    # What we lack.

    def _request(self, sender: NodeId, lists: Lists) -> int:
        """Ask for what we lack; each item is asked of one broker at a time."""
        now, tables = self._host.now(), self._tables
        self._requested.forget(lambda until: until <= now)
        listed = dict.fromkeys(EventId(*key) for key in lists.events or ())
        if lists.events is not None or lists.missing:
            others = (key for key in listed if key.publisher != self._host.node)
            missing = [EventId(*key) for key in lists.missing]
            known = None if lists.events is None else listed
            self._inbox.learn(others, missing, known, (lists.first_event, lists.end_event))
        events = [key for key in listed if key not in tables.events and not self.is_asked(key)]
        ours = dict(tables.filters.listed())
        entries = [
            entry
            for entry, version in lists.versions or ()
            if version > ours.get(entry, 0)
            and tables.filters.has_place(entry)
            and not self.is_asked((REGISTER, entry))
        ]
        if events or entries:
            items = [*events, *((REGISTER, entry) for entry in entries)]
            if self.is_inheriting(sender):
                self.inherited.update(dict.fromkeys(items, now + INHERITANCE_TIME))
            self.ask(sender, Request(tuple(events), tuple(entries)), items)
        return len(events) + len(entries)

    def _request_earlier(self, sender: NodeId, lists: Lists) -> int:
        """A dismissed broker asks only for what precedes the events that wait in its inbox: it keeps those
        for local subscriptions to come, which are owed the publisher's order."""
        listed = (EventId(*key) for key in lists.events or ())
        earlier = self._inbox.learn(self._inbox.before_waiting(listed))
        if earlier:
            self._messenger.send(Request(tuple(earlier)), sender)
        return len(earlier)


def list_tables(
    events: Sequence[EventId] | None,
    versions: Sequence[tuple[NodeId, int]] | None,
    missing: Sequence[EventId],
    to: NodeId | None = None,
) -> list[Lists]:
    """The messages that list both tables. Each table must be sorted; None: that table is not listed."""
    told: list[Lists] = []
    event_parts = _parts(events, lambda event: event, (0, 0))
    version_parts = _parts(versions, lambda version: version[0], 0)
    for of_events, of_versions in zip_longest(event_parts, version_parts):
        fields: dict[str, Any] = {}
        if of_events is not None:
            entries, first, end = of_events
            lacking = tuple([event for event in missing if is_between(event, first, end)][:PART])
            fields = {"events": entries, "missing": lacking, "first_event": first, "end_event": end}
        elif events is None and not told:
            fields["missing"] = tuple(missing[:PART])
        if of_versions is not None:
            entries, first, end = of_versions
            fields |= {"versions": entries, "first_subscriber": first, "end_subscriber": end}
        told.append(Lists(to=to, **fields))
    return told or [Lists(missing=tuple(missing[:PART]), to=to)]


def _parts(
    table: Sequence[Any] | None, key: Callable[[Any], Any], first: Any
) -> list[tuple[tuple[Any, ...], Any, Any]]:
    """A table in parts: entries, first, end. A part holds every entry from `first` up to, and without, `end`;
    None: without an upper limit."""
    if table is None:
        return []
    parts = []
    for at in range(0, max(1, len(table)), PART):
        end = key(table[at + PART]) if at + PART < len(table) else None
        parts.append((tuple(table[at : at + PART]), first, end))
        first = end
    return parts
