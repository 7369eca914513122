"""Subscription and unsubscription (Chapar, section 4.2).

A node sends each change of what it wants to its broker in one hop. A broker enters it into its filter mapping
table and floods it among the brokers. Beyond the paper: changes have versions, so that a broker notices a
lost one and asks for the whole register of the subscriber; what a node wants when it changes its broker is
told by `attachment.py`.
"""

from roamcast.broker.core import Subscription
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.consistency_check import REGISTER, ConsistencyCheck
from roamcast.strategy.chapar.filter_mapping_table import TableChange
from roamcast.strategy.chapar.messages import InterestChange, InterestRegister, Records, Request
from roamcast.strategy.chapar.part import Part, Shared
from roamcast.strategy.chapar.tables import Move
from roamcast.units import NodeId


class Subscriptions(Part):
    def __init__(self, shared: Shared, attachment: Attachment, consistency: ConsistencyCheck) -> None:
        super().__init__(shared)
        self._attachment = attachment
        self._consistency = consistency

    # Of this node's applications.

    def add(self, subscription: Subscription) -> None:
        matching = [
            stored.event.id
            for stored in self._broker.store.standing(self._host.now())
            if stored.event.wants_subscribers and subscription.filter.matches(stored.event)
        ]
        if matching:
            self._inbox.mark_handed(*matching)  # the core hands them over right after this
        move = self._tables.interests.add(subscription)
        if move is not None:
            self._inbox.want_more(move.filter_id)
            self._spread(move)

    def remove(self, subscription: Subscription) -> None:
        move = self._tables.interests.remove(subscription)
        if move is not None:
            self._spread(move)

    def _spread(self, move: Move) -> None:
        """Send a change to the broker or, as a broker, to all brokers. Without a neighbouring broker it
        waits for the next one, which learns of it by `Attach`."""
        filter_id = self._tables.layout.encode(move.filter_id)
        interest = InterestChange(self._host.node, move.version, filter_id, move.stands)
        attachment = self._attachment
        if self._brokers.has_tables:
            self.on_interest(self._host.node, interest)
        if not self._brokers.is_broker and attachment.broker is not None:
            self._messenger.send(interest, attachment.broker, own=True, on_failure=attachment.on_failure)

    # Of others.

    def on_interest(self, sender: NodeId, interest: InterestChange) -> None:
        """A subscription or unsubscription: into the table and, if it is new, on to all brokers."""
        node, subscriber, brokers = self._host.node, interest.subscriber, self._brokers
        if sender == subscriber and not brokers.is_broker and sender not in {node, *brokers.elected}:
            self._messenger.decline(sender)  # it took us for a broker, and will choose another one
        if not brokers.has_tables or (subscriber == node != sender):
            return  # only we know the newest state of our own interests
        filter_id = self._tables.layout.decode(interest.filter_id)
        change = self._tables.filters.apply(subscriber, interest.version, filter_id, interest.stands)
        if change is TableChange.KNOWN or not brokers.is_broker:
            return
        self._consistency.changed()
        self._messenger.flood(("interest", subscriber, interest.version), lambda: interest)
        if change is TableChange.GAP and sender != node:
            self._ask_register(sender, subscriber)
        if interest.stands:
            self._notify(sender, subscriber)

    def on_records(self, sender: NodeId, records: Records) -> None:
        if not self._brokers.has_tables:
            return
        filters = self._tables.filters
        heard = {each.subscriber: filters.heard(each.subscriber) for each in records.registers}
        news = [register for register in records.registers if self._replace(register)]
        if records.is_exchanged:
            self._correct(sender, records)
        for register in news:
            self._consistency.on_answered(("gap", register.subscriber))
            if heard[register.subscriber] > register.version:
                self._ask_register(sender, register.subscriber)
        if not news or not self._brokers.is_broker:
            return
        self._consistency.changed()
        for register in news:
            is_answer = records.is_exchanged and self._consistency.is_inheriting(sender)
            if not (self._consistency.is_inherited((REGISTER, register.subscriber)) or is_answer):
                self._flood_register(register)
            self._notify(sender, register.subscriber)

    # Private.

    def _correct(self, sender: NodeId, records: Records) -> None:
        """Where records are listed by hashes, the sender cannot know that its register is an old one."""
        version = self._tables.filters.version
        old = (each.subscriber for each in records.registers if version(each.subscriber) > each.version)
        self._messenger.send_registers(sender, [self._tables.register(each) for each in old], exchanged=True)

    def _replace(self, register: InterestRegister) -> bool:
        tables, node = self._tables, self._host.node
        if register.subscriber == node:
            # Only this node decides what it wants. A later version is from before its storage was lost.
            if register.version > tables.interests.version:
                tables.interests.overtake(register.version)
                tables.enter_own()
                self._flood_register(tables.register(node))
            return False
        filter_ids = frozenset(tables.layout.decode(filter_id) for filter_id in register.filter_ids)
        return tables.filters.replace(register.subscriber, register.version, filter_ids)

    def _flood_register(self, register: InterestRegister) -> None:
        self._messenger.flood(("register", register.subscriber), lambda: Records((register,)))

    def _notify(self, sender: NodeId, subscriber: NodeId) -> None:
        """Instant notification, if the message came from the subscriber itself; a broker has it all."""
        if sender == subscriber and sender not in self._brokers.elected:
            self._attachment.notify(subscriber)

    def _ask_register(self, broker: NodeId, subscriber: NodeId) -> None:
        """Changes of a subscriber are missing. Every change that follows them shows the same gap, and one
        register closes it: it is asked for once, and again when it has come and there was more meanwhile."""
        if not self._consistency.is_asked(("gap", subscriber)):
            self._consistency.ask(broker, Request((), (subscriber,)), [("gap", subscriber)])
