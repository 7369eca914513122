"""A device that offers no broker: it subscribes and publishes through a broker nearby.

It looks for one when its applications want, publish or advertise something. The first to answer is taken:
it is the nearest in time. The registration is renewed before its lease ends; where that gets no answer, or
the link layer reports that the first hop is gone, another broker is looked for. What is published meanwhile
waits: a real-time event for `settle_time`, a memorized one as long as it lives.
"""

from collections.abc import Callable, Collection, Sequence

from roamcast.broker.core import Broker
from roamcast.event import Event, EventClass, EventId
from roamcast.filter import Filter
from roamcast.host import Host
from roamcast.kit.confirm import Backoff, Repetition
from roamcast.kit.tables import BoundedDict
from roamcast.strategy.odmrp.clients.messages import (
    FILTER_BYTES_MAX,
    FILTERS_MAX,
    HOPS_MAX,
    TYPES_MAX,
    BrokerOffer,
    ClientContent,
    ClientEvent,
    EventReceipt,
    Registered,
    Registration,
)
from roamcast.strategy.odmrp.clients.post import Post
from roamcast.strategy.odmrp.options import OdmrpOptions
from roamcast.trace import DropReason
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId, micros

# Times and the bound are chosen by us.
SEARCH = Backoff(250 * MILLISECOND, longest=4 * SECOND)
REGISTRATION = Backoff(250 * MILLISECOND, attempts=4)
REPEAT_INTERVAL: Micros = 500 * MILLISECOND  # between two attempts to publish
REGISTRATION_BYTES_MAX = 32_768  # of filters; with more, the broker is asked for everything
TIMER_SEARCH, TIMER_REGISTER, TIMER_RENEW, TIMER_REPEAT = ("search",), ("register",), ("renew",), ("outbox",)


class RemoteClient:
    def __init__(
        self,
        host: Host,
        broker: Broker,
        post: Post,
        wanted: Callable[[], Sequence[Filter]],
        options: OdmrpOptions,
        number: Callable[[], int],
    ) -> None:
        """`number`: a new one each time, after a restart too: brokers take a lower one for an old search."""
        self._host = host
        self._broker = broker
        self._post = post
        self._wanted = wanted
        self._renewal = micros(options.refresh_interval)
        self._patience = micros(options.settle_time)
        self.home: NodeId | None = None  # this client's broker
        self._searching = False
        self._take_number = number
        self._number = -1  # of the last search
        self._version = 0  # of what is wanted
        self._types: tuple[str, ...] = ()
        self._search = Repetition(host, TIMER_SEARCH, SEARCH)
        self._registration = Repetition(host, TIMER_REGISTER, REGISTRATION)
        # What no broker has confirmed yet, with its time.
        self._outbox: BoundedDict[EventId, tuple[Event, Micros]] = BoundedDict(
            options.recent_max, lambda event, _: broker.drop(event, DropReason.STORE_FULL, "client_event")
        )

    # Inputs.

    def publish(self, event: Event) -> None:
        self._outbox[event.id] = (event, self._host.now())
        if self.home is None:
            self._look()
        else:
            self._send(event, self._host.now())
        self._host.set_timer(TIMER_REPEAT, self._host.now() + REPEAT_INTERVAL)

    def advertise(self, types: Collection[str]) -> None:
        self._types = tuple(sorted(types))[:TYPES_MAX]
        self.on_interests()

    def on_interests(self) -> None:
        """Subscriptions or advertisements have changed."""
        self._version += 1
        if self.home is None:
            self._look()
        else:
            self._registration.restart()
            self._register()

    def on_timer(self, name: tuple[str]) -> None:
        if name == TIMER_SEARCH:
            self._search_again()
        elif name == TIMER_REGISTER:
            self._register()
        elif name == TIMER_RENEW:
            self._registration.restart()
            self._register(full=False)
        elif name == TIMER_REPEAT:
            self._repeat()

    def on_content(self, origin: NodeId, content: ClientContent, hops: int) -> None:
        match content:
            case BrokerOffer(number):
                self._on_offer(origin, number)
            case Registered(version, known) if origin == self.home and version == self._version:
                self._on_registered(known)
            case ClientEvent(before, age, event):
                self._post.send(origin, EventReceipt(event.publisher, event.sequence))
                if self._broker.observe((event.publisher, event.sequence), event.lifetime - age):
                    self._broker.deliver(event, min(before + hops + 1, HOPS_MAX), age)
            case EventReceipt(publisher, sequence):
                self._outbox.pop(EventId(publisher, sequence), None)
            case _:
                pass  # for a broker

    def on_lost(self, target: NodeId) -> None:
        """The first hop to the broker is gone."""
        if target == self.home:
            self._leave()

    # Finding a broker.

    @property
    def _needs_one(self) -> bool:
        return bool(self._outbox or self._types or self._wanted())

    def _look(self) -> None:
        if not self._searching and self._needs_one:
            self._searching = True
            self._search.restart()
            self._search_again()

    def _search_again(self) -> None:
        if not self._needs_one:
            self._searching = False
            return
        self._number = self._take_number()
        self._search.attempt()
        self._post.search(self._number)

    def _on_offer(self, broker: NodeId, number: int) -> None:
        if not self._searching or number != self._number:
            return
        self._searching = False
        self._search.end()
        self.home = broker
        self._registration.restart()
        self._register()
        for event, published_at in list(self._outbox.values()):
            self._send(event, published_at)

    def _leave(self) -> None:
        self.home = None
        self._registration.end()
        self._host.cancel_timer(TIMER_RENEW)
        self._look()

    # The registration.

    def _register(self, *, full: bool = True) -> None:
        if self.home is None:
            return
        if not self._registration.attempt():
            self._leave()
            return
        filters = self._filters() if full or self._registration.attempts > 1 else None
        self._post.send(self.home, Registration(self._version, filters, self._types))

    def _on_registered(self, known: bool) -> None:
        if not known:
            self._register()
            return
        self._registration.end()
        if self._wanted() or self._types:
            self._host.set_timer(TIMER_RENEW, self._host.now() + self._renewal)

    def _filters(self) -> tuple[bytes, ...]:
        """All that is wanted; where that is too much for a message, everything, and it is sorted out here."""
        filters = tuple(wanted.encode() for wanted in self._wanted())
        fits = len(filters) <= FILTERS_MAX and sum(map(len, filters)) <= REGISTRATION_BYTES_MAX
        if fits and all(len(each) <= FILTER_BYTES_MAX for each in filters):
            return filters
        return (Filter.everything().encode(),)

    # Publications.

    def _repeat(self) -> None:
        now = self._host.now()
        for event, published_at in list(self._outbox.values()):
            memorized = event.event_class is EventClass.MEMORIZED
            if now - published_at > (event.lifetime if memorized else self._patience):
                del self._outbox[event.id]
                self._broker.drop(event.id, DropReason.NO_ROUTE, "client_event")
            elif self.home is not None:
                self._send(event, published_at)
        if self._outbox:
            self._host.set_timer(TIMER_REPEAT, now + REPEAT_INTERVAL)

    def _send(self, event: Event, published_at: Micros) -> None:
        assert self.home is not None
        self._post.send(self.home, ClientEvent(0, self._host.now() - published_at, event))

    def __len__(self) -> int:
        return len(self._outbox)
