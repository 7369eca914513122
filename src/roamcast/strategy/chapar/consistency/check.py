"""Table consistency check, inheritance and check-out (Chapar, section 4.2).

Once per `consistency_interval` a broker broadcasts the digests of its two tables. A neighbouring broker whose
digests differ answers with lists: the identifiers of its events, and the version of each subscriber's
register (which does the work of the paper's hash per record, in fewer octets). The first one then sends
what the other lacks, as in the paper, and asks for what it lacks itself, so that one exchange serves both
directions. A broker floods on whatever is new to it, so the brokers of a network that heals agree after one
interval, not after one interval per hop.

Inheritance is the same exchange, begun by a new broker with one neighbouring broker. Check-out is the same,
begun by a dismissed broker, which only sends.
"""

from collections.abc import Callable

from roamcast.event import EventId
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
from roamcast.units import SECOND, Micros, NodeId

REQUEST_TIMEOUT: Micros = 2 * SECOND  # time-out, then another broker is asked; chosen by us


class Consistency:
    def __init__(self, state: State, memory: Memory, attachment: Attachment) -> None:
        self._state = state
        self._memory = memory
        self._attachment = attachment
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

    def check_met(self, broker: NodeId, on_failure: Callable[[], None]) -> None:
        """Check with a broker that has just become a neighbour; it answers if the tables differ."""
        self._state.send(broker, self._check(), on_failure=on_failure)

    # Inputs.

    def on_check(self, sender: NodeId, check: Check) -> None:
        state = self._state
        if not state.is_broker:
            if check.answer:
                state.send(sender, Decline())
            return
        state.events.forget_expired(state.host.now())
        events = versions = None
        if check.events != state.events.digest():
            events = tuple(state.events.known())
        if check.filters != state.filters.digest():
            versions = tuple(state.filters.versions())
        if check.answer or events is not None or versions is not None:
            missing = tuple(state.events.missing(state.host.now()))
            state.send(sender, Lists(events, versions, missing))

    def on_lists(self, sender: NodeId, lists: Lists) -> None:
        state = self._state
        if state.role is Role.NODE:
            return
        state.events.forget_expired(state.host.now())
        gave = self._give_events(sender, lists) + self._give_registers(sender, lists)
        if state.is_broker:
            self._request(sender, lists)
            return
        self.has_checked_out = True
        if state.role is Role.LEAVING and not gave:
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
        state.flood(("interest", interest.subscriber, interest.version), lambda: interest)
        if change is TableChange.GAP and sender != state.node:
            state.send(sender, Request((), (interest.subscriber,)))
        if interest.stands:
            self._notify(sender, interest.subscriber)

    def on_records(self, sender: NodeId, records: Records) -> None:
        state = self._state
        if state.role is Role.NODE:
            return
        news = [register for register in records.registers if self._replace(register)]
        self._trace_widened()
        if not news or not state.is_broker:
            return
        for register in news:
            if register.subscriber in self._inherited:
                self._inherited.discard(register.subscriber)
            else:
                self._flood_register(register)
            self._notify(sender, register.subscriber)

    # Private.

    def _check(self, answer: bool = False) -> Check:
        self._state.events.forget_expired(self._state.host.now())
        self._state.inbox.ask()
        return Check(self._state.events.digest(), self._state.filters.digest(), answer)

    def _give_events(self, to: NodeId, lists: Lists) -> int:
        if lists.events is None:
            return 0
        theirs = {EventId(*key) for key in lists.events}
        missing = [memo.id for memo in self._state.events.entries() if memo.id not in theirs]
        for key in missing:
            self._transfer(to, key)
        return len(missing)

    def _give_registers(self, to: NodeId, lists: Lists) -> int:
        if lists.versions is None:
            return 0
        theirs = dict(lists.versions)
        newer = [s for s, version in self._state.filters.versions() if version > theirs.get(s, 0)]
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
            state.inbox.learn(others, missing, None if lists.events is None else listed)
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
