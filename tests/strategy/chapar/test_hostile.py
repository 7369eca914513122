"""Whatever comes from the air: no exception, bounded tables, malformed frames counted."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.errors import WireError
from roamcast.event import Event, EventClass
from roamcast.filter import Filter
from roamcast.host import SendFailure
from roamcast.runtime.live.routes import NumberedAddresses
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.chapar import Chapar, ChaparOptions
from roamcast.strategy.chapar.messages import (
    CODEC,
    AnyMessage,
    Attach,
    BrokerAnswer,
    Carry,
    Check,
    Decline,
    InterestChange,
    InterestRegister,
    Lists,
    Memorized,
    Recap,
    RecapEntry,
    Records,
    Request,
    Spread,
    WantOffered,
)
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.addresses import Addresses
from roamcast.underlay.base import Underlay, UnderlayContext
from roamcast.underlay.olsr import Olsr, OlsrOptions
from roamcast.units import MILLISECOND, SECOND, NodeId

numbers = st.one_of(st.integers(0, 9), st.sampled_from([1023, 1024, 2**32, 2**62, 2**63 - 1]))
identifiers = st.one_of(st.binary(max_size=12), st.just(b"\xff" * 128))
vectors = st.one_of(st.binary(max_size=4), st.just(b"\xff" * 512))
digests = st.binary(max_size=16)
keys = st.lists(st.tuples(numbers, numbers), max_size=6).map(tuple)
events = st.builds(
    Event,
    numbers,
    numbers,
    st.dictionaries(st.sampled_from("ab"), st.one_of(st.integers(0, 2), st.text(max_size=3)), max_size=2),
    st.sampled_from([b"", bytes(3000)]),
    event_class=st.sampled_from(EventClass),
    lifetime=numbers,
    destinations=st.lists(numbers, max_size=3).map(tuple),
    multimode=st.booleans(),
)
hops = st.integers(0, 255)
messages: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(Carry, events, st.one_of(st.none(), vectors), hops, identifiers, numbers),
    st.builds(
        Spread,
        events,
        hops,
        vectors,
        st.lists(st.tuples(numbers, vectors), max_size=4).map(tuple),
        identifiers,
        numbers,
    ),
    st.builds(
        Recap, st.lists(st.builds(RecapEntry, numbers, numbers, identifiers, numbers), max_size=4).map(tuple)
    ),
    st.builds(
        Memorized, events, hops, numbers, st.one_of(st.none(), st.tuples(numbers, numbers)), identifiers
    ),
    st.builds(InterestChange, numbers, numbers, identifiers, st.booleans()),
    st.builds(Check, digests, digests, st.booleans(), st.one_of(st.none(), numbers)),
    st.builds(
        Lists,
        st.one_of(st.none(), keys),
        st.one_of(st.none(), keys),
        keys,
        st.one_of(st.none(), numbers),
        st.tuples(numbers, numbers),
        st.one_of(st.none(), st.tuples(numbers, numbers)),
        numbers,
        st.one_of(st.none(), numbers),
    ),
    st.builds(Request, keys, st.lists(numbers, max_size=5).map(tuple)),
    st.builds(
        Records,
        st.lists(
            st.builds(InterestRegister, numbers, numbers, st.lists(identifiers, max_size=3).map(tuple)),
            max_size=4,
        ).map(tuple),
        st.booleans(),
    ),
    st.builds(Attach, numbers, digests, digests, keys, st.one_of(st.none(), numbers)),
    st.builds(
        BrokerAnswer, numbers, st.one_of(st.none(), st.lists(numbers, max_size=4).map(tuple)), keys, keys
    ),
    st.builds(WantOffered, keys),
    st.builds(Decline),
)


class Around(Underlay):
    """Nodes 1 to 5 are neighbours; which of them relay can be chosen."""

    def __init__(self, relays: list[NodeId]) -> None:
        super().__init__()
        self._relays = relays

    def neighbours(self) -> list[NodeId]:
        return [1, 2, 3, 4, 5]

    def next_hop(self, to: NodeId) -> NodeId | None:
        return to if to in self.neighbours() else (to % 5 + 1 if to < 9 else None)

    def known_nodes(self) -> list[NodeId]:
        return [1, 2, 3, 4, 5, 6, 7, 8]

    def relays(self) -> list[NodeId]:
        return self._relays


class Ignores:
    def on_event(self, delivery: Delivery) -> None:
        pass


SMALL = ChaparOptions(met_entries_max=3, fmt_entries_max=4, consistency_interval=1.0, pending_max=8)


def node(
    relays: list[NodeId], options: ChaparOptions = SMALL, underlay: Underlay | None = None
) -> tuple[FakeHost, Chapar]:
    host = FakeHost(0)
    broker = Broker(host, Ignores())
    chapar = Chapar(StrategyContext(host, broker, underlay or Around(relays)), options)
    broker.watch(chapar)
    host.attach(chapar)
    chapar.on_start()
    broker.subscribe(Subscription(1, Filter.sql("a = 1")))
    return host, chapar


def fail_some(host: FakeHost, seen: int) -> int:
    """The link layer gives every third frame up, later."""
    for number in range(seen, len(host.sent)):
        failure = host.sent[number].on_failure
        if failure is not None and number % 3 == 0:
            failure(SendFailure.LINK)
    return len(host.sent)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), messages, st.integers(0, 3 * SECOND)), max_size=12),
    st.sampled_from([[0, 1], [1, 2]]),
    st.sampled_from([SMALL, replace(SMALL, node_vectors="bloom", nodes_max=12)]),
)
def test_no_sequence_of_messages_raises_or_outgrows_the_tables(
    traffic: list[tuple[NodeId, AnyMessage, int]], relays: list[NodeId], options: ChaparOptions
) -> None:
    host, chapar = node(relays, options)
    seen = 0
    for sender, message, wait in traffic:
        chapar.on_receive(sender, CODEC.encode(message))
        seen = fail_some(host, seen)
        host.advance(wait)
        assert len(chapar.tables.events) <= 3
        assert len(chapar.tables.filters) <= 5
    host.advance(20 * SECOND)
    for sent in host.sent:  # whatever we say can be read
        CODEC.decode(sent.frame.payload)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_octets_are_a_message_or_a_counted_drop(data: bytes) -> None:
    host, chapar = node([0, 1])
    chapar.on_receive(3, data)
    with suppress(WireError):
        CODEC.decode(data)
        return
    drops = [record for record in host.records if isinstance(record, Dropped)]
    assert [drop.reason for drop in drops] == [DropReason.WIRE]


def test_a_frame_cut_short_or_with_a_tail_is_refused() -> None:
    data = CODEC.encode(Check(b"12345678", b"12345678", True))
    for bad in (data[:-1], data + b"\0", b"\x01" + data[1:], b"", bytes(65_000)):
        with suppress(WireError):
            CODEC.decode(bad)
            raise AssertionError(bad)


def test_what_is_sent_can_be_read_with_the_same_meaning() -> None:
    event = Event(1, 2, {"a": 1}, event_class=EventClass.MEMORIZED, lifetime=5)
    for message in (
        Carry(event, b"\x05", 3, b"\x01"),
        Carry(event, None, 0),
        Memorized(event, 1, 2, ((1, 3),)),
        InterestChange(1, 2, b"\x03", True),
        Lists(((1, 2),), None, ((3, 4),)),
        Records((InterestRegister(1, 2, (b"\x01",)),)),
        Attach(1, b"x", b"y", ((1, 2),)),
        BrokerAnswer(1, (2,), ((3, 4),), None),
        WantOffered(((1, 2),)),
        Decline(),
    ):
        assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize("addresses", [None, NumberedAddresses()])
def test_a_destination_that_no_address_can_name_is_no_destination(addresses: Addresses | None) -> None:
    options = replace(SMALL, node_vectors="bloom")
    olsr = Olsr(UnderlayContext(FakeHost(0), addresses=addresses), OlsrOptions())
    host, chapar = node([], options, olsr)
    far = Event(1, 1, {}, destinations=(2**40, 2**62))
    for vector in (None, b"\xff\xff"):
        chapar.on_receive(1, CODEC.encode(Carry(far, vector, 0)))
    host.advance(20 * SECOND)
    assert all(sent.frame.event is None for sent in host.sent)


def test_forged_interests_do_not_take_the_places_of_nodes_that_are_there() -> None:
    options = ChaparOptions(node_vectors="bloom", nodes_max=16)
    host, chapar = node([0, 1], options)
    layout = chapar.tables.layout
    wanted = layout.filter_id(Filter.sql("a = 1"))
    for forged in range(100_000, 101_100):
        chapar.on_receive(3, CODEC.encode(InterestChange(forged, 1, layout.encode(wanted), True)))
    for real in range(1, 9):
        chapar.on_receive(3, CODEC.encode(InterestChange(real, 1, layout.encode(wanted), True)))
    found = chapar.tables.addresses.nodes(
        chapar.tables.filters.lookup(layout.event_id(Event(9, 9, {"a": 1})))
    )
    assert set(range(1, 9)) <= set(found) and len(found) <= 16
    details = [record.detail for record in host.records if isinstance(record, Dropped)]
    assert any("nodes_max" in detail for detail in details)


def test_an_event_as_old_as_can_be_said_is_passed_on_with_an_age_that_can_be_read() -> None:
    host, chapar = node([0, 1], ChaparOptions())
    event = Event(0, 0, {}, b"", event_class=EventClass.REALTIME, lifetime=0)
    chapar.on_receive(0, CODEC.encode(Spread(event, 0, b"\xff" * 8, ((0, b"\x02"),), b"", 2**63 - 1)))
    chapar.on_receive(0, CODEC.encode(Carry(event, None, 0, b"", 2**63 - 1)))
    host.advance(SECOND)
    passed_on = [sent.frame.payload for sent in host.sent if sent.frame.event is not None]
    assert passed_on
    for payload in passed_on:
        CODEC.decode(payload)


def test_answers_to_a_request_for_many_recent_events_go_in_turn_with_pauses() -> None:
    host, chapar = node([0, 1], ChaparOptions())
    events = [Event(0, number, {"b": 2}) for number in range(20)]
    for event in events:
        chapar.publish(event)
    request = CODEC.encode(Request(tuple(event.id for event in events)))

    def answered() -> list[int]:
        return [sent.frame.event.sequence for sent in host.sent if sent.to == 3 and sent.frame.event]

    for _ in range(3):  # repeated while the answers wait: each is sent once
        chapar.on_receive(3, request)
    host.advance(0)
    assert answered() == [0, 1, 2, 3]
    host.advance(10 * MILLISECOND)
    assert answered() == list(range(8))
    host.advance(SECOND)
    assert answered() == list(range(20))


@pytest.mark.parametrize("comes_after", [1, 90])
def test_what_was_asked_for_by_inheritance_and_comes_late_is_news_again(comes_after: int) -> None:
    around = Around([1, 2])
    host, chapar = node([], ChaparOptions(), around)
    around._relays = [0, 1]
    chapar.on_routes_changed()
    host.advance(SECOND)
    assert chapar.brokers.is_broker  # and has asked broker 1 for its tables
    event = Event(9, 1, {}, event_class=EventClass.MEMORIZED, lifetime=600 * SECOND)
    chapar.on_receive(1, CODEC.encode(Lists((event.id,), ((7, 1),), to=0)))
    host.advance(comes_after * SECOND)
    host.sent.clear()
    chapar.on_receive(1, CODEC.encode(Memorized(event, 0, 0)))
    chapar.on_receive(1, CODEC.encode(Records((InterestRegister(7, 1, (b"",)),), True)))
    host.advance(SECOND // 10)
    flooded = [type(CODEC.decode(sent.frame.payload)) for sent in host.sent if sent.to is None]
    assert (Memorized in flooded, Records in flooded) == (comes_after == 90,) * 2
