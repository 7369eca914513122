"""Table consistency check, inheritance and check-out (Chapar, section 4.2).

Once per `consistency_interval` a broker broadcasts the digests of its two tables. A neighbouring broker whose
digests differ answers with lists: the identifiers of its events, and the version of each subscriber's
register (which does the work of the paper's hash per record, in fewer octets). The first one then sends
what the other lacks, as in the paper, and asks for what it lacks itself, so that one exchange serves both
directions. A broker floods on whatever is new to it, so the brokers of a network that heals agree after one
interval, not after one interval per hop.

Brokers that come into each other's neighbourhood check ahead of time (`meeting_check`). The paper leaves this
to the periodic check: a node that was alone, and so its own broker, then meets another such node, and neither
knows what the other wants for up to a whole interval. Where contacts last some ten seconds, that is most of
them. It is the same broadcast, and one serves all brokers that a node meets at once. A broker whose tables
changed checks ahead of time too, unless it hears from others that they have the same by now, as in Trickle
(RFC 6206). The pace is that of all early messages (`underlay/pace.py`). Answers wait for a random time, and
are left out if the tables have changed meanwhile or another broker answers: one exchange and the floods that
follow serve a whole neighbourhood.

Inheritance is the same exchange, begun by a new broker with one neighbouring broker. Check-out is the same,
begun by a dismissed broker, which only sends; it asks for nothing but what events in its inbox wait for.
"""

from collections.abc import Callable

from roamcast.event import EventId
from roamcast.strategy.chapar.consistency.listing import list_tables
from roamcast.strategy.chapar.consistency.memory import Memory
from roamcast.strategy.chapar.messages import (
    Check,
    Decline,
    InterestChange,
    InterestRegister,
    Lists,
    Memorized,
    Records,
    Request,
)
from roamcast.strategy.chapar.notification.attachment import Attachment
from roamcast.strategy.chapar.roles import Role
from roamcast.strategy.chapar.state import State
from roamcast.strategy.chapar.tables.filter_table import TableChange
from roamcast.trace import DropReason
from roamcast.underlay.pace import Prompt
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId

REQUEST_TIMEOUT: Micros = 2 * SECOND  # time-out, then another broker is asked; chosen by us
MEETING_INTERVAL: Micros = SECOND  # between early checks: a multiple of it, by `underlay/pace.py`
ANSWER_SPREAD: Micros = 20 * MILLISECOND  # per neighbouring broker: all of them hear a check; chosen by us
SAME_ENOUGH = 2  # checks with our own digests that make another one needless (RFC 6206); chosen by us


class Consistency:
    def __init__(self, state: State, memory: Memory, attachment: Attachment) -> None:
        self._state = state
        self._memory = memory
        self._attachment = attachment
        self._met: set[NodeId] = set()  # brokers in the neighbourhood
        self._early = Prompt(state.host, "early check", MEETING_INTERVAL)
        self._same = 0  # checks heard with our own digests, since the early check was asked for
        self._changes = 0  # of the tables, by exchanges and floods
        self._to_answer: dict[NodeId, tuple[Check, int]] = {}  # with `_changes` when it came
        self._requested: dict[object, Micros] = {}
        self._inherited: set[NodeId] = set()  # registers asked for by inheritance: brokers around have them
        self._inheriting_from: NodeId | None = None
        self.on_checked_out: Callable[[], None] = lambda: None
        self.has_checked_out = False  # whether a broker has said what it lacks, since this was cleared

    # Starting an exchange.

    def check_all(self) -> None:
        """The periodic check with every broker in the neighbourhood."""
        if self._state.adjacent_brokers():
            self._state.send(None, self._check())

    def inherit(self, broker: NodeId) -> None:
        """A new broker fetches the tables of a neighbouring one."""
        self._inheriting_from = broker
        self.check_one(broker)

    def check_one(self, broker: NodeId) -> None:
        """Check with one broker; it answers in any case, as a check-out needs."""
        self._state.send(broker, self._check(answer=True))

    def look(self) -> None:
        """Compare the brokers around with those met before: roles or neighbours may have changed."""
        adjacent = set(self._state.adjacent_brokers()) if self._state.is_broker else set()
        if adjacent - self._met:
            self._check_soon()
        self._met = adjacent

    # Inputs.

    def on_early_due(self) -> None:
        self._early.on_timer()
        self.check_all()

    def on_check(self, sender: NodeId, check: Check) -> None:
        state = self._state
        if not state.is_broker:
            if check.answer:
                state.send(sender, Decline())
        elif check.answer:
            self._answer(sender, check)
        elif self._is_same(check):
            self._to_answer.pop(sender, None)
            state.host.cancel_timer(("answer", sender))
            self._same += 1
            if self._same >= SAME_ENOUGH:
                self._early.cancel()
        elif sender in self._to_answer or len(self._to_answer) < state.options.pending_max:
            if sender not in self._to_answer:
                delay = int(state.host.random.random() * ANSWER_SPREAD * len(state.adjacent_brokers()))
                state.host.set_timer(("answer", sender), state.host.now() + delay)
            self._to_answer[sender] = check, self._changes

    def on_answer_due(self, sender: NodeId) -> None:
        """Answer, unless the tables have changed since: then what made them differ is on its way already, and
        the next check will tell."""
        check, changes = self._to_answer.pop(sender)
        if self._state.is_broker and changes == self._changes:
            self._answer(sender, check)

    def _answer(self, sender: NodeId, check: Check) -> None:
        state = self._state
        state.events.forget_expired(state.host.now())
        events = versions = None
        if check.events != state.events.digest():
            events = state.events.known()
        if check.filters != state.filters.digest():
            versions = state.filters.versions()
        if check.answer or events is not None or versions is not None:
            told = list_tables(events, versions, state.events.missing(state.host.now()), sender)
            # One frame is broadcast, so that others hear that the check is answered; more need the link
            # layer's acknowledgements. An answer that was asked for must arrive.
            for part in told:
                state.send(None if len(told) == 1 and not check.answer else sender, part)

    def on_lists(self, sender: NodeId, lists: Lists) -> None:
        state = self._state
        if lists.to not in (None, state.node):
            if self._to_answer.pop(lists.to, None) is not None:
                state.host.cancel_timer(("answer", lists.to))  # the first answer serves all
            return
        if state.role is Role.NODE:
            return
        state.events.forget_expired(state.host.now())
        gave = self._give_events(sender, lists) + self._give_registers(sender, lists)
        if state.is_broker:
            self._request(sender, lists)
            return
        self.has_checked_out = True
        asked = self._request_earlier(sender, lists)
        if state.role is Role.LEAVING and not gave and not asked:
            self.on_checked_out()

    def on_request(self, sender: NodeId, request: Request) -> None:
        state = self._state
        for key in sorted(EventId(*key) for key in request.events):
            self._transfer(sender, key)
        if state.role is Role.NODE:
            return
        wanted = [s for s in request.subscribers if state.filters.version(s)]
        state.send_registers(sender, [state.register(subscriber) for subscriber in wanted])
        if state.node in request.subscribers and not state.filters.version(state.node):
            state.send_registers(sender, [state.register(state.node)], own=True)

    def on_interest(self, sender: NodeId, interest: InterestChange) -> None:
        """A subscription or unsubscription: into the table and, if it is new, on to all brokers."""
        state = self._state
        if sender == interest.subscriber != state.node and not state.is_broker:
            state.send(sender, Decline())  # it took us for a broker; the subscriber will choose another one
        if state.role is Role.NODE or (interest.subscriber == state.node != sender):
            return  # nobody knows a newer state of our own interests
        change = state.filters.apply(
            interest.subscriber, interest.version, state.layout.decode(interest.filter_id), interest.stands
        )
        self._trace_widened()
        if change is TableChange.KNOWN or not state.is_broker:
            return
        self._changed()
        state.flood(("interest", interest.subscriber, interest.version), lambda: interest)
        if change is TableChange.GAP and sender != state.node:
            self._ask_register(sender, interest.subscriber)
        if interest.stands:
            self._notify(sender, interest.subscriber)

    def on_records(self, sender: NodeId, records: Records) -> None:
        state = self._state
        if state.role is Role.NODE:
            return
        heard = {each.subscriber: state.filters.heard(each.subscriber) for each in records.registers}
        news = [register for register in records.registers if self._replace(register)]
        self._trace_widened()
        for register in news:
            self._requested.pop(("gap", register.subscriber), None)
            if heard[register.subscriber] > register.version:
                self._ask_register(sender, register.subscriber)
        if not news or not state.is_broker:
            return
        self._changed()
        for register in news:
            if register.subscriber in self._inherited:
                self._inherited.discard(register.subscriber)
            else:
                self._flood_register(register)
            self._notify(sender, register.subscriber)

    # Private.

    def _check_soon(self) -> None:
        if self._state.in_force.meeting_check:
            self._same = 0
            self._early.ask(1 + len(self._met))

    def _changed(self) -> None:
        self._changes += 1
        self._check_soon()

    def _is_same(self, check: Check) -> bool:
        state = self._state
        state.events.forget_expired(state.host.now())
        return check.events == state.events.digest() and check.filters == state.filters.digest()

    def _check(self, answer: bool = False) -> Check:
        self._state.events.forget_expired(self._state.host.now())
        self._state.inbox.ask()
        return Check(self._state.events.digest(), self._state.filters.digest(), answer)

    def _give_events(self, to: NodeId, lists: Lists) -> int:
        if lists.events is None:
            return 0
        theirs = {EventId(*key) for key in lists.events}
        ours = (memo.id for memo in self._state.events.entries())
        missing = [key for key in ours if key not in theirs and lists.tells_of_event(key)]
        for key in missing:
            self._transfer(to, key)
        return len(missing)

    def _give_registers(self, to: NodeId, lists: Lists) -> int:
        if lists.versions is None:
            return 0
        theirs = dict(lists.versions)
        newer = [
            subscriber
            for subscriber, version in self._state.filters.versions()
            if version > theirs.get(subscriber, 0) and lists.tells_of_subscriber(subscriber)
        ]
        self._state.send_registers(to, [self._state.register(subscriber) for subscriber in newer])
        return len(newer)

    def _request(self, sender: NodeId, lists: Lists) -> None:
        """Ask for what we lack; each item is asked of one broker at a time."""
        state = self._state
        now = state.host.now()
        self._requested = {key: until for key, until in self._requested.items() if until > now}
        listed = dict.fromkeys(EventId(*key) for key in lists.events or ())
        if lists.events is not None or lists.missing:
            others = (key for key in listed if key.publisher != state.node)
            missing = [EventId(*key) for key in lists.missing]
            known = None if lists.events is None else listed
            state.inbox.learn(others, missing, known, (lists.first_event, lists.end_event))
            self._memory.watch_order()
        events = [key for key in listed if key not in state.events and key not in self._requested]
        subscribers = [
            subscriber
            for subscriber, version in lists.versions or ()
            if version > state.filters.version(subscriber)
            and state.addresses.bit(subscriber)
            and ("register", subscriber) not in self._requested
        ]
        if events or subscribers:
            until = now + REQUEST_TIMEOUT
            self._requested.update(dict.fromkeys(events, until))
            self._requested.update((("register", subscriber), until) for subscriber in subscribers)
            if sender == self._inheriting_from:
                self._memory.inherited.update(events)
                self._inherited.update(subscribers)
            # If the request is lost, the next broker may be asked for all of it.
            state.send(sender, Request(tuple(events), tuple(subscribers)), on_failure=self._ask_again)
        if sender == self._inheriting_from:
            self._inheriting_from = None

    def _request_earlier(self, sender: NodeId, lists: Lists) -> int:
        """A dismissed broker asks only for what precedes the events that wait in its inbox: it keeps those
        for local subscriptions to come, which are owed the publisher's order."""
        inbox = self._state.inbox
        earlier = inbox.learn(inbox.before_waiting(EventId(*key) for key in lists.events or ()))
        if earlier:
            self._state.send(sender, Request(tuple(earlier)))
        return len(earlier)

    def _ask_register(self, broker: NodeId, subscriber: NodeId) -> None:
        """Changes of a subscriber are missing. Every change that follows them shows the same gap, and one
        register closes it: it is asked for once, and again when it has come and there was more meanwhile."""
        now = self._state.host.now()
        if self._requested.get(("gap", subscriber), now) <= now:
            self._requested["gap", subscriber] = now + REQUEST_TIMEOUT
            self._state.send(broker, Request((), (subscriber,)), on_failure=self._ask_again)

    def _ask_again(self) -> None:
        self._requested.clear()

    def _transfer(self, to: NodeId, key: EventId) -> None:
        state = self._state

        def make() -> Memorized | None:
            memo = state.events.entry(key) or self._attachment.own_event(key)
            now = state.host.now()
            return None if memo is None or memo.expires_at <= now else memo.message(now)

        state.transfer(to, key, make)

    def _replace(self, register: InterestRegister) -> bool:
        state = self._state
        if register.subscriber == state.node:
            # Only this node decides what it wants. A later version is from before its storage was lost.
            if register.version > state.interests.version:
                state.interests.overtake(register.version)
                self.enter_own()
                self._flood_register(state.register(state.node))
            return False
        filter_ids = frozenset(state.layout.decode(filter_id) for filter_id in register.filter_ids)
        return state.filters.replace(register.subscriber, register.version, filter_ids)

    def enter_own(self) -> None:
        """Enter a broker's own interests into its table, like everyone's."""
        state = self._state
        if state.interests.version:
            state.filters.replace(state.node, state.interests.version, state.interests.filter_ids())
            self._trace_widened()

    def _flood_register(self, register: InterestRegister) -> None:
        self._state.flood(("register", register.subscriber), lambda: Records((register,)))

    def _notify(self, sender: NodeId, subscriber: NodeId) -> None:
        """Instant notification, if the message came from the subscriber itself."""
        if sender == subscriber != self._state.node:
            self._attachment.notify(subscriber)

    def _trace_widened(self) -> None:
        for subscriber in self._state.filters.widened:
            self._state.drop(DropReason.STORE_FULL, "subscribe", f"node {subscriber} now gets everything")
        self._state.filters.widened.clear()
