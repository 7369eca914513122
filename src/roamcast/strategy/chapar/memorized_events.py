"""Memorized events: flooded among the brokers, kept for their lifetime, handed to whoever wants them
(Chapar, section 4.2, *Event multicasting and flooding*).

A broker that learns of an event, from whomever, keeps it and broadcasts it once. That one frame is both flood
and notification: neighbours that are no brokers take the event from it if they want it. A node that missed it
(it was absent, or the frame was lost) is found by its next `Attach` and gets a copy of its own
(`attachment.py`). Each node hands events to its applications once and in order (`inbox.py`).
"""

from roamcast.event import Event, EventClass
from roamcast.kit.protocol import Timer
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.consistency_check import ConsistencyCheck
from roamcast.strategy.chapar.inbox import EventRelation
from roamcast.strategy.chapar.memorized_event_table import Memo, encoded_size
from roamcast.strategy.chapar.messages import Check, Memorized, Request
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, Micros, NodeId

ASK_INTERVAL: Micros = 500 * MILLISECOND  # between requests for missing events; chosen by us


class MemorizedEvents(Part):
    def __init__(self, shared: Shared, attachment: Attachment, consistency: ConsistencyCheck) -> None:
        super().__init__(shared)
        self._attachment = attachment
        self._consistency = consistency
        self._ask_timer = Timer(self._host, self._ask_again)
        self._asked_at: Micros | None = None
        self._last_giver: NodeId | None = None

    # Inputs.

    def publish(self, event: Event, sealed: bytes = b"") -> bool:
        """False for an event that is too large to be memorized."""
        if encoded_size(event) > self._in_force.event_bytes_max:
            self._messenger.drop(
                DropReason.STORE_FULL, "memorized", event.id, detail="larger than event_bytes_max"
            )
            return False
        now = self._host.now()
        event_id = self._tables.event_id(event, sealed)
        memo = Memo(event, event_id, now + event.lifetime, 0, self._attachment.previous(now), sealed)
        self._attachment.own[memo.id] = memo
        self._inbox.take(memo, EventRelation.NONE)
        if self._brokers.is_broker:
            self._memorize(memo)
        else:
            self._attachment.hand_in(memo)
        return True

    def on_memorized(self, sender: NodeId, message: Memorized) -> None:
        event, brokers = message.event, self._brokers
        if event.id in self._tables.events or (not brokers.is_broker and self._inbox.has(event.id)):
            return
        if (
            event.event_class is not EventClass.MEMORIZED
            or encoded_size(event) > self._in_force.event_bytes_max
        ):
            self._messenger.drop(
                DropReason.WIRE, "memorized", detail="is no memorized event of a permitted size"
            )
            return
        now = self._host.now()
        expires_at = now + event.lifetime - message.age
        if expires_at <= now:
            self._messenger.drop(DropReason.EXPIRED, "memorized", event.id)
            return
        event_id = self._tables.event_id(event, message.sealed)
        hops = min(message.hops + 1, 255)
        memo = Memo(event, event_id, expires_at, hops, message.previous, message.sealed)
        self._last_giver = sender
        if sender == event.publisher and sender not in brokers.elected and not brokers.is_broker:
            self._messenger.decline(sender)  # it took us for a broker, and will choose another one
        if brokers.has_tables:
            self._memorize(memo)
        self._to_inbox(memo)

    def resume(self) -> None:
        """After a restart: answer for the stored events of this node again, and keep the others, whose order
        (`previous`) is forgotten; what was handed over before is not handed over again (`inbox.py`)."""
        for stored in sorted(self._broker.store.standing(self._host.now()), key=lambda one: one.event.id):
            event = stored.event
            memo = Memo(event, self._tables.event_id(event, b""), stored.expires_at, stored.hops)
            if event.publisher == self._host.node:
                memo.previous = self._attachment.previous(stored.expires_at - event.lifetime)
                self._attachment.own[memo.id] = memo
                self._inbox.take(memo, EventRelation.NONE)
            else:
                self._inbox.take(memo, EventRelation.KEEPS)

    def adopt(self) -> None:
        """A new broker enters the events that it received or published as a plain node."""
        now = self._host.now()
        for memo in [*self._inbox.kept(), *self._attachment.own_events()]:
            self._tables.events.keep(memo, now)

    # Private.

    def _memorize(self, memo: Memo) -> None:
        """Keep it and, as a broker, pass it on."""
        if memo.id in self._tables.events:
            return
        self._tables.events.keep(memo, self._host.now())
        self._attachment.keep_list(memo)
        if not self._brokers.is_broker:
            return
        self._consistency.changed()
        if not self._consistency.is_inherited(memo.id):
            self._messenger.flood(memo.id, lambda: memo.message(self._host.now()))

    def _to_inbox(self, memo: Memo) -> None:
        if memo.event.publisher == self._host.node:
            return
        if self._tables.may_match(memo):
            interest = EventRelation.MAY_MATCH
        else:
            interest = EventRelation.KEEPS if self._brokers.has_tables else EventRelation.NONE
        if not self._inbox.take(memo, interest):
            self._ask(memo)

    def _ask_again(self) -> None:
        if self._inbox.is_waiting:
            self._ask()

    def _ask(self, memo: Memo | None = None) -> None:
        """An earlier event of the same publisher is missing: ask the sender of this one for it."""
        now, giver, brokers = self._host.now(), self._last_giver, self._brokers
        self._ask_timer.after(ASK_INTERVAL)  # repeated while something waits: frames get lost
        missing = None if memo is None else memo.predecessor(now)
        if missing is not None and giver == missing.publisher and brokers.is_broker:
            self._messenger.send(Request((missing,)), giver)  # lost on the publisher's own hop to us
            return
        if self._asked_at is not None and now < self._asked_at + ASK_INTERVAL:
            return
        self._asked_at = now
        if not brokers.is_broker:
            self._attachment.check()
        # A broker offers a node what the node wants; one with tables also keeps what it does not want.
        lister = giver if brokers.is_broker else self._attachment.broker
        if brokers.has_tables and lister is not None:
            self._inbox.ask()
            self._messenger.send(Check(*self._tables.digests(), True), lister)
