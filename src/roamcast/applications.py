"""Many applications on one node: each has a session of its own.

A simulated node has one application, a live one has as many as its device runs: MQTT clients, Python
clients, the node's own program. `Applications` is the one `Application` that the broker core knows. It
numbers subscriptions and gives each delivery to the session that asked for it, after the protocol's
handler has returned. So whatever an application does with an event (publish another, subscribe, close its
session) is an ordinary input to the node, never a call into a handler that still runs.

Payloads that are larger than an event are cut and joined here (`chunks.py`): no application sees a chunk.

Whether a publication is admitted is decided here, once for all gateways (`ApplicationSession.publish`):

| outcome | of | what the gateway does |
|---|---|---|
| accepted | all | goes on; after `wait` seconds, where the mesh is slower than the publisher |
| wait | memorized ones, while others still need all that the store has | the same again later |
| shed | real-time ones that the mesh has no room for | counts it, or tells the publisher |
| refused | those that must not be lost, and would wait for too long or get lost | tells the publisher why |
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from roamcast.broker.assembly import Assembler, Problem
from roamcast.broker.core import Delivery, in_order_of_publication
from roamcast.broker.retained import FLAGS, RETAINED
from roamcast.broker.seen import event_key
from roamcast.broker.store import StoredEvent, StoreFullError
from roamcast.chunks import (
    MARK,
    ChunkQueue,
    ChunkTransfer,
    Later,
    check,
    check_names,
    count_of,
    digest_of,
    is_chunk,
    pieces,
)
from roamcast.errors import InputError
from roamcast.event import COUNT_MAX, PAYLOAD_BYTES_MAX, Event, EventId, Publication
from roamcast.filter import Filter
from roamcast.modulator import ModulatorSpec
from roamcast.node import Node
from roamcast.pressure import NoPressure, PublishPressure
from roamcast.units import Micros
from roamcast.wire.exchange import RECEIPT, REPLY, addressed

Receiver: TypeAlias = Callable[[Delivery], None]


class RuntimeGate(Protocol):
    """The runtime's side of an input that comes from an application."""

    def enter(self) -> None:
        """An input begins: the node's clock advances to its time."""
        ...

    def now(self) -> Micros:
        """The node's clock, as its layers see it."""
        ...


class AdmissionOutcome(Enum):
    ACCEPTED = "accepted"
    WAIT = "told to wait"
    SHED = "shed"
    REFUSED = "refused"


class Admission(msgspec.Struct, frozen=True, gc=False):
    """What became of a publication."""

    outcome: AdmissionOutcome
    published: Event | None = None
    wait: float = 0.0  # seconds until the publisher's next one
    why: str = ""  # nothing was published

    @property
    def event(self) -> Event:
        """What was published, or an error that says why it was not."""
        self.check()
        assert self.published is not None
        return self.published

    def check(self) -> None:
        """An error unless it is accepted."""
        if self.outcome is AdmissionOutcome.WAIT:
            raise StoreFullError(self.why)
        if self.outcome is not AdmissionOutcome.ACCEPTED:
            raise InputError("publication", f"was {self.outcome.value}: {self.why}")


_ACCEPTED = AdmissionOutcome.ACCEPTED  # looking up a global name is faster
ADMITTED = Admission(_ACCEPTED)
STORE_FULL = Admission(
    AdmissionOutcome.WAIT, why="the store is full: others still wait for its memorized events"
)


class LargePublication:
    """A payload on its way into the mesh, each chunk in its turn (`ChunkQueue`). `on_end` gets the error
    that has ended it, or None when the last chunk is in the mesh."""

    def __init__(
        self,
        queue: ChunkQueue,
        transfer: ChunkTransfer,
        on_end: Callable[[InputError | StoreFullError | None], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self._queue = queue
        self.transfer = transfer
        self._on_end = on_end
        self._on_progress = on_progress
        self.waiting: deque[bytes | memoryview] = deque()
        self._is_queued = False

    def add(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Add the next octets of the payload; they are cut where chunks end."""
        self.waiting.extend(pieces)
        if not self._is_queued:
            self._is_queued = True
            self._queue.add(self._step)

    def cancel(self) -> None:
        self.waiting.clear()  # also where a call-back of the step itself cancels it
        self._queue.remove(self._step)

    def _step(self) -> bool:
        try:
            self.transfer.add(self.waiting.popleft())
        except (InputError, StoreFullError) as error:
            self._on_end(error)
            return False
        self._on_progress(self.transfer.index)
        if self.transfer.is_over:
            self.waiting.clear()  # a client may have sent more than it announced
            self._on_end(None)
        self._is_queued = bool(self.waiting)
        return self._is_queued


class Applications:
    """Bound to its node once both exist; a node is built with its application."""

    def __init__(
        self,
        gate: RuntimeGate,
        pressure: PublishPressure | None = None,
        later: Later | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        on_chunk_problem: Callable[[Problem, EventId | None], None] = lambda problem, whole: None,
    ) -> None:
        """`later`, `clock`: the runtime's timer; without one, chunks do not wait for their turn.
        `on_chunk_problem`: a large payload, or a chunk of one, was given up."""
        self._gate = gate
        self.pressure: PublishPressure = NoPressure() if pressure is None else pressure
        self.chunks = ChunkQueue(self.pressure.bulk_wait, later, clock)
        self._node: Node | None = None
        self._sessions: dict[int, ApplicationSession] = {}  # by application number
        self._owners: dict[int, ApplicationSession] = {}  # by subscription number
        self._next_application = 1  # 0 is an event that is addressed to the node itself
        self._next_subscription = 1
        # Each has the events that some application of a gateway still has to get from the store.
        self.owed: list[Container[EventId]] = []
        self._waiting: deque[Delivery] = deque()
        self._draining = False
        # Gets deliveries first that are addressed to the node or are about receipts; True: applications do
        # not get it (`exchange/`).
        self._intercept: Callable[[Delivery], bool] | None = None
        self.published = 0  # events, since the node started
        self.delivered = 0  # hand-overs to applications
        self._assembler: Assembler | None = None
        self._on_chunk_problem = on_chunk_problem

    def intercept(self, first: Callable[[Delivery], bool] | None) -> None:
        """Who gets deliveries first that are addressed to the node or are about receipts; None: nobody any
        more."""
        self._intercept = first

    def bind(self, node: Node) -> None:
        self._node = node
        broker = node.broker
        self._assembler = Assembler(broker.store.find, broker.readable, self._on_chunk_problem)

    def open(self, receiver: Receiver, *, addressed: bool = False) -> "ApplicationSession":
        """A new application. With `addressed` it also gets what is sent to this node by name."""
        session = ApplicationSession(self, self._next_application, receiver, addressed)
        self._sessions[session.application] = session
        self._next_application += 1
        return session

    def settled(self, stored: list[StoredEvent]) -> list[StoredEvent]:
        """Of these memorized events, those that neither the mesh nor an application here waits for. A full
        store asks for each new event, so this makes no call that it can do without."""
        settled, held_back = self.node.strategy.settled(stored), self.node.broker.held_back.held
        # as long as an application has not got an event, no client can be waiting for it
        owed = [{one.event.id for one in self._waiting}, *self.owed] if self._waiting else self.owed
        for each in owed:
            settled = [one for one in settled if one.key not in each] if each else settled
        return [one for one in settled if event_key(*one.event.id) not in held_back] if held_back else settled

    def on_event(self, delivery: Delivery) -> None:
        """From the broker core, while a handler runs: queue the delivery until it ends."""
        self._waiting.append(delivery)

    def drain(self) -> None:
        """Hand over what waits. The runtime calls this after every handler."""
        if self._draining:
            return  # called by a receiver's own input; the loop that runs already hands over what it brought
        self._draining = True
        try:
            while self._waiting:
                delivery = self._waiting.popleft()
                if MARK in delivery.event.attributes:  # `is_chunk`
                    self._join(delivery)
                else:
                    self._hand_over(delivery)
        finally:
            self._draining = False

    def takers(self, delivery: Delivery) -> int:
        """How many applications a delivery goes to."""
        return 1 if delivery.subscriptions else sum(one.addressed for one in self._sessions.values())

    @property
    def node(self) -> Node:
        assert self._node is not None, "an application came before its node"
        return self._node

    @property
    def assembler(self) -> Assembler:
        assert self._assembler is not None, "an application came before its node"
        return self._assembler

    def _join(self, delivery: Delivery) -> None:
        """A chunk: what it completes is handed over. Products of modulators are never made from chunks."""
        owner = self._owners.get(delivery.subscriptions[0]) if delivery.subscriptions else None
        if delivery.modulated or (delivery.subscriptions and owner is None):
            return
        application = 0 if owner is None else owner.application
        for whole in self.assembler.on_chunk(delivery, application, self._gate.now()):
            self._hand_over(whole)

    def _hand_over(self, delivery: Delivery) -> None:
        subscriptions = delivery.subscriptions
        is_plain = subscriptions and RECEIPT not in delivery.event.attributes
        if not is_plain and self._intercept is not None and self._intercept(delivery):
            return
        if not subscriptions:
            for session in [session for session in self._sessions.values() if session.addressed]:
                self.delivered += 1
                session.receiver(delivery)
            return
        # All are of one application. It may have ended some of them, or closed its session, since the match.
        owners = self._owners
        standing = subscriptions
        if len(subscriptions) > 1 or subscriptions[0] not in owners:
            standing = tuple([number for number in subscriptions if number in owners])
            if not standing:
                return
        self.delivered += 1
        if len(standing) < len(subscriptions):
            delivery = delivery._replace(subscriptions=standing)
        owners[standing[0]].receiver(delivery)


class ApplicationSession:
    """What one application publishes and subscribes through. Made by `Applications.open`."""

    def __init__(
        self, applications: Applications, application: int, receiver: Receiver, addressed: bool
    ) -> None:
        self._applications = applications
        self.application = application
        self.receiver = receiver
        self.addressed = addressed
        self._subscriptions: set[int] = set()
        self._advertised: set[str] = set()

    def publish(
        self,
        publication: Publication,
        sequence: int | None = None,
        *,
        must_arrive: bool = False,
        is_admitted: bool = False,
    ) -> Admission:
        """Publish; matching applications of this node get it before this returns, but for a large payload,
        whose chunks go in their turn.

        `must_arrive`: the publisher relies on it, so it is not shed, memorized or not. `is_admitted`: it was
        admitted before (`admit`), or is the node's own. `sequence`: a number that the caller has reserved
        (`reserve_for`), so that a repetition after a crash is no second event.

        `StoreFullError` for a memorized one that the disk refuses, `EventError` for a sealed one that this
        node cannot seal: then nothing has been published. Of a large payload it is said only that it has
        begun; who must know its end calls `begin_whole`.
        """
        if publication.topic.startswith(REPLY):
            publication = addressed(publication)
        if MARK in publication.attributes:
            check_names(publication)
        applications = self._applications
        admission = ADMITTED if is_admitted else self.admit(publication, must_arrive)
        if admission is not ADMITTED and admission.outcome is not AdmissionOutcome.ACCEPTED:
            return admission
        if len(publication.payload) > PAYLOAD_BYTES_MAX:  # `is_large`
            first = self.begin_whole(publication, sequence, is_admitted=True).first
            return Admission(AdmissionOutcome.ACCEPTED, publication.numbered(applications.node.number, first))
        applications._gate.enter()
        node = applications._node
        assert node is not None, "an application came before its node"
        event = node.publish(publication, sequence)
        applications.published += 1
        if applications._waiting:
            applications.drain()
        return Admission(_ACCEPTED, event, admission.wait)

    def admit(
        self, publication: Publication, must_arrive: bool = False, is_large: bool | None = None
    ) -> Admission:
        """Whether it may be published now; it counts as published if so. Chunks of a large one are counted
        and paced one by one, in room of their own."""
        pressure = self._applications.pressure
        if is_large is None:
            is_large = len(publication.payload) > PAYLOAD_BYTES_MAX
        if not (must_arrive or publication.lifetime or is_large):
            if pressure.sheds(publication):
                return Admission(AdmissionOutcome.SHED, why=pressure.why)
            return ADMITTED
        node = self._applications.node
        unpromised = node.unpromised  # MQTT promises nothing for a retained one of QoS 0
        if unpromised and publication.lifetime and publication.attributes.get(FLAGS) != RETAINED:
            return Admission(AdmissionOutcome.REFUSED, why=unpromised)
        if publication.lifetime and not is_large:
            why = node.strategy.refuses(publication)
            if why:
                return Admission(AdmissionOutcome.REFUSED, why=why)
        if pressure.refuses:
            return Admission(AdmissionOutcome.REFUSED, why=pressure.why)
        if is_large:
            return ADMITTED
        if publication.lifetime and not self._has_room(publication):
            return STORE_FULL
        wait = pressure.charge()
        return Admission(AdmissionOutcome.ACCEPTED, wait=wait) if wait else ADMITTED

    def reserve_for(self, payload: bytes) -> int:
        """The number of an event that is published later; of a large payload the first of its chunks'."""
        is_large = len(payload) > PAYLOAD_BYTES_MAX
        return self._applications.node.broker.reserve(count_of(len(payload)) if is_large else 1)

    def begin(
        self,
        frame: Publication,
        size: int,
        digest: bytes,
        sequence: int | None = None,
        on_end: Callable[[InputError | StoreFullError | None], None] = lambda error: None,
        on_progress: Callable[[int], None] = lambda parts: None,
        *,
        is_admitted: bool = False,
    ) -> LargePublication:
        """Publish a large payload whose octets are yet to come: `frame` is all but the payload. `sequence`:
        the first of as many reserved numbers as there are chunks. `InputError` unless it is admitted."""
        check(frame, size, digest)
        if not is_admitted:
            self.admit(frame, is_large=True).check()
        applications = self._applications
        if sequence is None:
            applications._gate.enter()
            sequence = applications.node.broker.reserve(count_of(size))
        order, first, count = applications.node.broker.order, sequence, count_of(size)
        order.begin(frame, first, count, applications._gate.now())

        def on_outcome(error: InputError | StoreFullError | None) -> None:
            if error is None:
                order.end(first)
            else:
                order.give_up(first, count)
            on_end(error)

        transfer = ChunkTransfer(self._publish_chunk, frame, size, digest, sequence)
        return LargePublication(applications.chunks, transfer, on_outcome, on_progress)

    def begin_whole(
        self,
        publication: Publication,
        sequence: int | None = None,
        on_end: Callable[[InputError | StoreFullError | None], None] = lambda error: None,
        *,
        is_admitted: bool = False,
    ) -> ChunkTransfer:
        """The same with a payload that is here."""
        payload = publication.payload
        frame, digest = publication.without_payload(), digest_of(payload)
        large = self.begin(frame, len(payload), digest, sequence, on_end, is_admitted=is_admitted)
        large.add(pieces(memoryview(payload)))
        return large.transfer

    def _publish_chunk(self, chunk: Publication, sequence: int, is_last: bool) -> None:
        applications = self._applications
        applications._gate.enter()
        applications.node.publish(chunk, sequence)
        applications.published += is_last
        applications.drain()

    def _has_room(self, publication: Publication) -> bool:
        """Whether the store would keep it, perhaps in the place of one that it supersedes."""
        applications = self._applications
        store, now = applications.node.broker.store, applications._gate.now()
        size = len(publication.payload)
        if store.has_room(size, now):
            return True
        before = store.superseded_by(publication.numbered(applications.node.number, COUNT_MAX))
        return before is not None and store.has_room(size, now, before)

    def advertise(self, type: str) -> None:
        """Events of this type will come: until `withdraw`, or the end of the session. Again is no error."""
        applications = self._applications
        applications._gate.enter()
        if type not in self._advertised:
            applications.node.advertise(type)
            self._advertised.add(type)
        applications.drain()

    def withdraw(self, type: str) -> None:
        """`InputError` for a type that this session does not advertise, or not any more."""
        applications = self._applications
        applications._gate.enter()
        if type not in self._advertised:
            standing = ", ".join(sorted(self._advertised)[:10]) or "none, there is no advertisement"
            raise InputError(
                f"advertisement {type[:40]!r}", f"is not there to be withdrawn; allowed: {standing}"
            )
        self._advertised.discard(type)
        applications.node.withdraw(type)
        applications.drain()

    def subscribe(self, wanted: Filter, modulator: ModulatorSpec | None = None) -> int:
        """Subscribe. Memorized events that match, and that this session has not had yet, come before this
        returns: a receiver that must know the number first takes it by `reserve`. With a modulator, if the
        strategy supports them, its products come instead of the events."""
        return self.subscribe_as(self.reserve(), wanted, modulator)

    def reserve(self) -> int:
        """A subscription number that nobody else on this node has."""
        number = self._applications._next_subscription
        self._applications._next_subscription += 1
        return number

    def subscribe_as(self, number: int, wanted: Filter, modulator: ModulatorSpec | None = None) -> int:
        """Subscribe under a reserved number, or replace this session's subscription of that number."""
        applications = self._applications
        applications._gate.enter()
        applications.node.subscribe(number, wanted, self.application, modulator)
        applications._owners[number] = self
        self._subscriptions.add(number)
        applications.drain()
        return number

    def unsubscribe(self, number: int) -> None:
        """End a subscription of this session; a number without a subscription is no error."""
        if number not in self._subscriptions:
            return
        applications = self._applications
        self._subscriptions.discard(number)
        del applications._owners[number]
        applications._gate.enter()
        applications.node.unsubscribe(number)
        applications.drain()

    def stored(self, wanted: Filter) -> list[StoredEvent]:
        """The memorized events this node holds now that match, each publisher's in their order."""
        applications = self._applications
        applications._gate.enter()
        now = applications._gate.now()
        found: list[StoredEvent] = []
        for stored in in_order_of_publication(applications.node.broker.store.standing(now)):
            if stored.event.wants_subscribers and wanted.matches(stored.event):
                whole = applications.assembler.whole_stored(stored, now) if is_chunk(stored.event) else stored
                if whole is not None:
                    found.append(whole)
        return found

    def close(self) -> None:
        """The application leaves; its subscriptions and advertisements end."""
        for number in sorted(self._subscriptions):
            self.unsubscribe(number)
        for type in sorted(self._advertised):
            self.withdraw(type)
        self._applications._sessions.pop(self.application, None)
