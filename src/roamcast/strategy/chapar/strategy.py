"""Chapar: brokers are multipoint relays. Here the parts are put together. Read `__init__` first."""

from roamcast.broker.core import Subscription
from roamcast.errors import InputError
from roamcast.event import COUNT_MAX, Event, EventClass, EventId, Publication
from roamcast.kit.protocol import MessageLayer, Timer, random_below
from roamcast.strategy.base import Strategy, StrategyContext
from roamcast.strategy.chapar.attachment import Attachment
from roamcast.strategy.chapar.brokers import Brokers
from roamcast.strategy.chapar.consistency_check import ConsistencyCheck
from roamcast.strategy.chapar.event_multicasting import EventMulticasting
from roamcast.strategy.chapar.inbox import ContentReader, Inbox
from roamcast.strategy.chapar.inheritance import Inheritance
from roamcast.strategy.chapar.memorized_event_table import encoded_size
from roamcast.strategy.chapar.memorized_events import MemorizedEvents
from roamcast.strategy.chapar.messages import (
    CODEC,
    Attach,
    BrokerAnswer,
    Carry,
    Check,
    Decline,
    InterestChange,
    Lists,
    Memorized,
    Recap,
    Records,
    Request,
    Spread,
    WantOffered,
)
from roamcast.strategy.chapar.options import ChaparOptions
from roamcast.strategy.chapar.part import Shared
from roamcast.strategy.chapar.recapitulation import Recapitulation
from roamcast.strategy.chapar.sending import Sending
from roamcast.strategy.chapar.subscription import Subscriptions
from roamcast.strategy.chapar.tables import Tables
from roamcast.units import NodeId, micros


class Chapar(MessageLayer, Strategy):
    def __init__(self, context: StrategyContext, options: ChaparOptions) -> None:
        super().__init__(context.host, CODEC)
        in_force = options.in_force()
        self._interval = micros(in_force.consistency_interval)
        self._event_bytes_max = in_force.event_bytes_max
        self._tick_timer = Timer(context.host, self._tick)
        sending = self.messenger = self._sending = Sending(context, options)
        tables = self.tables = Tables(context, options)
        brokers = self.brokers = Brokers(context, options, tables.addresses)
        if not brokers.host_vector:
            raise InputError(
                "strategy.options.nodes_max",
                f"is {options.nodes_max}; node {context.host.node} needs more, or node_vectors = 'bloom'",
            )
        inbox = self._inbox = Inbox(
            context.host, context.broker, micros(options.order_timeout), in_force.met_entries_max
        )
        shared = Shared(context, options, sending, tables, brokers, inbox)
        attachment = self._attachment = Attachment(shared)
        self._recapitulation = Recapitulation(shared)
        self._multicasting = EventMulticasting(shared, attachment, self._recapitulation)
        self._consistency = ConsistencyCheck(shared, attachment)
        self._memorized = MemorizedEvents(shared, attachment, self._consistency)
        self._subscriptions = Subscriptions(shared, attachment, self._consistency)
        self._inheritance = Inheritance(shared, attachment, self._memorized, self._consistency)
        self.note_sender = self._sending.on_heard
        context.underlay.hear_riders(self.on_receive)
        self.handlers = {
            Carry: self._multicasting.on_carry,
            Spread: self._multicasting.on_spread,
            Recap: self._multicasting.on_recap,
            Memorized: self._memorized.on_memorized,
            InterestChange: self._subscriptions.on_interest,
            Check: self._consistency.on_check,
            Lists: self._inheritance.on_lists,
            Request: self._on_request,
            Records: self._subscriptions.on_records,
            Attach: attachment.on_attach,
            BrokerAnswer: attachment.on_answer,
            WantOffered: attachment.on_want,
            Decline: attachment.on_decline,
        }

    # Inputs from applications.

    def refuses(self, publication: Publication) -> str:
        is_kept = encoded_size(publication.numbered(COUNT_MAX, COUNT_MAX)) <= self._event_bytes_max
        return "" if is_kept else f"it is larger than event_bytes_max, {self._event_bytes_max} octets"

    def publish(self, event: Event) -> None:
        self.publish_sealed(event, b"")

    def publish_sealed(self, event: Event, event_id: bytes) -> None:
        """Publish an encrypted event: matched by its identifier (`seal_id`), opened by its readers."""
        if event.event_class is EventClass.REALTIME or not self._memorized.publish(event, event_id):
            self._multicasting.publish(event, event_id)

    def seal_id(self, clear: Event) -> bytes:
        """The identifier under which `publish_sealed` sends an event."""
        return self.tables.layout.encode(self.tables.layout.event_id(clear))

    def open_with(self, opener: ContentReader) -> None:
        """Set what opens sealed events on this node."""
        self._inbox.opener = opener

    def on_subscribed(self, subscription: Subscription) -> None:
        self._subscriptions.add(subscription)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)

    # Inputs from the host and the underlay.

    def on_start(self) -> None:
        self._memorized.resume()
        self._inheritance.look()
        # Neighbours check at different instants, so that most find their tables equal already.
        self._tick_timer.within(self._interval)

    def on_stop(self) -> None:
        self._inheritance.stop()

    @property
    def is_leaving(self) -> bool:
        return self._inheritance.is_leaving

    def on_neighbour_up(self, neighbour: NodeId) -> None:
        self._sending.on_heard(neighbour)
        self._recapitulation.on_neighbour_up(neighbour)
        self._inheritance.look_soon()

    def on_neighbour_down(self, neighbour: NodeId) -> None:
        self._recapitulation.on_neighbour_down(neighbour)
        self._inheritance.look_soon()

    def on_routes_changed(self) -> None:
        self._inheritance.look_soon()

    # Private.

    def _on_request(self, sender: NodeId, request: Request) -> None:
        """For real-time events that were broadcast lately, and for what the tables hold; an empty one asks
        which events were here lately."""
        if not request.events and not request.subscribers:
            self._recapitulation.on_inquiry(sender)
        kept = tuple(key for key in request.events if not self._recapitulation.answer(sender, EventId(*key)))
        self._consistency.on_request(sender, Request(kept, request.subscribers))

    def _tick(self) -> None:
        """The periodic table consistency check; nodes without tables check their own state with a broker."""
        self._inheritance.look()  # an underlay need not report changes far away
        self._inbox.forget_expired()
        if self.brokers.is_broker:
            self._attachment.pass_over()
            self._consistency.check_all()
        else:
            self._attachment.check()
        self._tick_timer.after(self._interval - random_below(self.host, self._interval // 10))
