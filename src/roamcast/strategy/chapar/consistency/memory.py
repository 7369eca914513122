"""Memorized events: flooded among the brokers, kept for their lifetime, handed to whoever wants them.

A broker that learns of an event, from whomever, keeps it and broadcasts it once. That one frame is both flood
and notification: neighbours that are no brokers take the event from it if they want it. A node that missed it
(it was absent, or the frame was lost) is found by its next `Attach` and gets a copy of its own
(`attachment.py`).
"""

from roamcast.event import Event, EventClass, EventId
from roamcast.strategy.chapar.messages import Check, Decline, Memorized, Request
from roamcast.strategy.chapar.notification.attachment import Attachment
from roamcast.strategy.chapar.notification.inbox import EventRelation
from roamcast.strategy.chapar.roles import Role
from roamcast.strategy.chapar.state import State
from roamcast.strategy.chapar.tables.event_table import Memo, encoded_size
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, Micros, NodeId

ASK_INTERVAL: Micros = 500 * MILLISECOND  # between requests for missing events; chosen by us


class Memory:
    def __init__(self, state: State, attachment: Attachment) -> None:
        self._state = state
        self._attachment = attachment
        self._asked_at: Micros | None = None
        self._last_giver: NodeId | None = None
        # What this broker asked for when it inherited its tables. The brokers around have it already.
        self.inherited: set[EventId] = set()

    # Inputs.

    def publish(self, event: Event, sealed: bytes = b"") -> bool:
        """False for an event that is too large to be memorized."""
        state = self._state
        if encoded_size(event) > state.in_force.event_bytes_max:
            state.drop_event(event.id, DropReason.STORE_FULL, "memorized", "larger than event_bytes_max")
            return False
        now = state.host.now()
        memo = Memo(
            event,
            state.event_id(event, sealed),
            now + event.lifetime,
            previous=self._attachment.previous(),
            sealed=sealed,
        )
        self._attachment.answer_for(memo)
        state.inbox.take(memo, EventRelation.NONE)
        if state.is_broker:
            self._memorize(memo)
        elif state.attached is not None:
            self._attachment.hand_in(state.attached, memo)
        # Without a neighbouring broker it waits for the next one, which learns of it by `Attach`.
        return True

    def on_memorized(self, sender: NodeId, message: Memorized) -> None:
        state, event = self._state, message.event
        if event.id in state.events or (not state.is_broker and state.inbox.has(event.id)):
            return
        now = state.host.now()
        expires_at = now + event.lifetime - message.age
        if (
            event.event_class is not EventClass.MEMORIZED
            or encoded_size(event) > state.in_force.event_bytes_max
        ):
            state.drop(DropReason.WIRE, "memorized", "is no memorized event of a permitted size")
            return
        if expires_at <= now:
            state.drop_event(event.id, DropReason.EXPIRED, "memorized")
            return
        memo = Memo(
            event,
            state.event_id(event, message.sealed),
            expires_at,
            min(message.hops + 1, 255),
            message.previous,
            message.sealed,
        )
        self._last_giver = sender
        if sender == event.publisher and sender not in state.brokers and not state.is_broker:
            state.send(sender, Decline())  # it took us for a broker; the publisher will choose another one
        if state.role is not Role.NODE:
            self._memorize(memo)
        self._to_inbox(memo)

    def resume(self) -> None:
        """After a restart: answer for the stored events of this node again, and keep the others. Their order
        (`previous`) is forgotten; `handed` (`inbox.py`) prevents that they are handed over again."""
        state = self._state
        for stored in state.broker.store.standing(state.host.now()):
            event = stored.event
            memo = Memo(event, state.event_id(event, b""), stored.expires_at, stored.hops)
            if event.publisher == state.node:
                self._attachment.answer_for(memo)
                state.inbox.take(memo, EventRelation.NONE)
            else:
                state.inbox.take(memo, EventRelation.KEEPS)

    def adopt(self, memos: list[Memo]) -> None:
        """A new broker enters the events that it received as a plain node."""
        now = self._state.host.now()
        for memo in memos:
            self._keep(memo, now)

    def on_order_due(self) -> None:
        self._state.inbox.release_due()
        self.watch_order()

    def on_ask_due(self) -> None:
        if self._state.inbox.next_deadline() is not None:
            self._ask()

    def watch_order(self) -> None:
        deadline = self._state.inbox.next_deadline()
        if deadline is None:
            self._state.host.cancel_timer("order")
        else:
            self._state.host.set_timer("order", deadline)

    # Private.

    def _memorize(self, memo: Memo) -> None:
        """Keep it and, as a broker, pass it on."""
        state = self._state
        if memo.id in state.events:
            return
        self._keep(memo, state.host.now())
        self._attachment.keep_list(memo)
        if memo.id in self.inherited:
            self.inherited.discard(memo.id)
        elif state.is_broker:
            state.flood(memo.id, lambda: memo.message(state.host.now()))

    def _keep(self, memo: Memo, now: Micros) -> None:
        for pushed_out in self._state.events.keep(memo, now):
            self._state.drop_event(pushed_out.id, DropReason.STORE_FULL, "memorized")

    def _to_inbox(self, memo: Memo) -> None:
        state = self._state
        if memo.event.publisher == state.node:
            return
        if state.may_match(memo.event, memo.event_id):
            interest = EventRelation.MAY_MATCH
        else:
            interest = EventRelation.NONE if state.role is Role.NODE else EventRelation.KEEPS
        if not state.inbox.take(memo, interest):
            self._ask(memo)
        self.watch_order()

    def _ask(self, memo: Memo | None = None) -> None:
        """An earlier event of the same publisher is missing: ask the sender of this one for it."""
        state = self._state
        now = state.host.now()
        state.host.set_timer("ask", now + ASK_INTERVAL)  # repeated while something waits: frames get lost
        missing = None if memo is None else memo.predecessor(now)
        if missing is not None and self._last_giver == missing.publisher and state.is_broker:
            state.send(self._last_giver, Request((missing,)))  # lost on the publisher's own hop to us
            return
        if self._asked_at is not None and now < self._asked_at + ASK_INTERVAL:
            return
        self._asked_at = now
        if not state.is_broker:
            self._attachment.check()
        # A broker offers a node what the node wants; one with tables also keeps what it does not want.
        lister = self._last_giver if state.is_broker else state.attached
        if state.role is not Role.NODE and lister is not None:
            state.inbox.ask()
            state.send(lister, Check(state.events.digest(), state.filters.digest(), True))
