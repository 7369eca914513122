"""Whatever a neighbour sends: no crash, a count of what was refused, and bounds that hold."""

from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.event import LIFETIME_MAX, Event, EventClass, Publication
from roamcast.filter import Filter
from roamcast.kit.repair import HeldRuns
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.odmrp import Odmrp, OdmrpOptions
from roamcast.strategy.odmrp.context import version_of
from roamcast.strategy.odmrp.messages import (
    CODEC,
    HOLD_MAX,
    UNLIMITED,
    Acknowledgement,
    AnyMessage,
    BrokerOffer,
    BrokerSearch,
    Carried,
    ClientEvent,
    DataPacket,
    EventReceipt,
    HandedEvent,
    HeldEvents,
    HeldGroup,
    JoinRequest,
    JoinTable,
    LackedEvents,
    MemberEntry,
    PublisherRow,
    Registered,
    Registration,
    SenderPosition,
)
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.underlay.base import NoUnderlay
from roamcast.units import SECOND

ME = 2
nodes = st.integers(0, 5)
counts = st.one_of(st.integers(0, 5), st.just(2**63 - 1))
summaries = st.sampled_from(
    [Summary.of([Filter.sql(text)]).encode() for text in ("a = 1", "a > 1", "b LIKE 'x%'")]
)
digests = st.one_of(
    st.sampled_from([EventDigest.of(Event(0, 0, {"a": value})).encode() for value in (0, 1, 2)]),
    st.binary(max_size=8),
)
events = st.builds(
    Event,
    nodes,
    counts,
    st.sampled_from([{}, {"a": 1}, {"a": 2, "b": "xy"}]),
    event_class=st.sampled_from(EventClass),
    lifetime=st.sampled_from([0, SECOND, LIFETIME_MAX]),
    destinations=st.sampled_from([(), (ME,), (4, 5)]),
    multimode=st.booleans(),
)


@st.composite
def entries(draw: Any) -> MemberEntry:
    summary = draw(st.one_of(st.none(), summaries, st.binary(max_size=8)))
    version = draw(st.one_of(st.just(version_of(summary or b"")), st.just(0), st.integers(0, 2**32 - 1)))
    return MemberEntry(draw(nodes), version, summary)


filters = st.one_of(st.sampled_from([Filter.sql("a = 1").encode()]), st.binary(max_size=8))
contents = st.one_of(
    st.builds(BrokerOffer, counts),
    st.builds(
        Registration,
        counts,
        st.one_of(st.none(), st.lists(filters, max_size=2).map(tuple)),
        st.sampled_from([(), ("a",), ("\0",)]),
    ),
    st.builds(Registered, counts, st.booleans()),
    st.builds(ClientEvent, st.integers(0, 255), counts, events),
    st.builds(EventReceipt, nodes, counts),
    st.builds(LackedEvents, st.lists(counts, min_size=2, max_size=5).map(tuple)),
    st.builds(HandedEvent, st.integers(0, 255), counts, events),
)
runs = st.lists(counts, min_size=2, max_size=4).map(tuple)
held = st.lists(
    st.builds(
        HeldGroup,
        st.one_of(st.none(), digests),
        st.sampled_from([(), (ME,), (4, 5)]),
        st.lists(st.builds(HeldRuns, nodes, runs), max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
finite = st.floats(allow_nan=True, allow_infinity=True)
messages: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(
        JoinRequest,
        nodes,
        counts,
        st.integers(0, 255),
        st.integers(1, HOLD_MAX),
        st.booleans(),
        st.booleans(),
        st.lists(digests, max_size=3).map(tuple),
        st.lists(digests, max_size=2).map(tuple),
        st.lists(nodes, max_size=2).map(tuple),
        counts,
        st.lists(st.lists(nodes, max_size=3).map(tuple), max_size=3).map(tuple),
        st.integers(0, UNLIMITED),
        st.one_of(st.none(), st.builds(SenderPosition, finite, finite, finite, finite)),
        held,
    ),
    st.builds(HeldEvents, held, st.booleans()),
    st.builds(
        JoinTable,
        st.lists(
            st.builds(
                PublisherRow,
                nodes,
                counts,
                nodes,
                st.integers(0, UNLIMITED),
                st.lists(entries(), max_size=3).map(tuple),
            ),
            max_size=3,
        ).map(tuple),
        st.lists(
            st.builds(Acknowledgement, nodes, counts, st.lists(nodes, max_size=3).map(tuple)), max_size=2
        ).map(tuple),
    ),
    st.builds(BrokerSearch, nodes, counts, st.integers(0, 255)),
    st.builds(Carried, nodes, nodes, st.integers(0, 255), contents),
    st.builds(
        DataPacket,
        nodes,
        counts,
        counts,
        counts,
        st.lists(nodes, max_size=2).map(tuple),
        digests,
        st.integers(0, 255),
        counts,
        events,
    ),
)
steps = st.lists(
    st.one_of(
        st.tuples(nodes, messages),
        st.tuples(nodes, st.binary(max_size=40)),
        st.integers(0, 8 * SECOND),
        st.sampled_from(["publish", "subscribe", "unsubscribe"]),
    ),
    max_size=30,
)


class Ignore:
    def on_event(self, delivery: Delivery) -> None:
        pass


def stack(*, is_broker: bool = True, **options: Any) -> tuple[FakeHost, Broker, Odmrp]:
    host = FakeHost(node=ME)
    broker = Broker(host, Ignore())
    strategy = Odmrp(StrategyContext(host, broker, NoUnderlay(), is_broker), OdmrpOptions(**options))
    broker.watch(strategy)
    host.attach(strategy)
    return host, broker, strategy


@given(steps, st.sampled_from(["k_means", "graph", "none"]), st.booleans(), st.booleans())
@example(
    [
        (0, BrokerSearch(1, 4, 49)),
        (
            0,
            Carried(
                0,
                2,
                0,
                ClientEvent(0, 0, Event(0, 0, {}, event_class=EventClass.MEMORIZED, lifetime=LIFETIME_MAX)),
            ),
        ),
    ],
    "k_means",
    False,
    True,
)
@settings(max_examples=120, deadline=None)
def test_no_sequence_of_messages_breaks_a_node(
    moves: list[Any], grouping: str, adapt: bool, is_broker: bool
) -> None:
    bounds = {"publishers_max": 3, "members_max": 3, "recent_max": 3, "pending_max": 2, "clients_max": 2}
    host, broker, strategy = stack(is_broker=is_broker, grouping=grouping, adapt_refresh=adapt, **bounds)
    for move in moves:
        match move:
            case int():
                host.advance(move)
            case "publish":
                strategy.publish(broker.create(Publication({"a": 1})))
            case "subscribe":
                broker.subscribe(Subscription(1, Filter.sql("a > 0")))
            case "unsubscribe":
                broker.unsubscribe(1)
            case (sender, bytes() as octets):
                strategy.on_receive(sender, octets)
            case (sender, message):
                strategy.on_receive(sender, CODEC.encode(message))
        assert len(strategy.routes) <= 3 and len(strategy.forwarding) <= 9
        assert (
            len(strategy.publisher.members()) <= 3
            and len(strategy.post.paths) + len(strategy.post.searches) <= 6
        )
        assert strategy.service is None or len(strategy.service) <= 4
    broker.unsubscribe(1)  # who wants something and has no broker looks for one as long as it takes
    # Soft state: an hour later, the longest that a request may ask for, nothing is left of it.
    host.advance(HOLD_MAX + 60 * SECOND)
    assert len(strategy.routes) == len(strategy.forwarding) == len(strategy.context) == 0
    assert not strategy.post.paths and not strategy.post.searches
    assert strategy.service is None or len(strategy.service) == 0
    assert len(strategy.publisher) == len(strategy.repair.told) == 0
    assert strategy.member_table == {} and len(strategy.tables) == 0
    lasting = broker.store.standing(host.now())
    assert (lasting and is_broker) or host.timers() == {}  # brokers name them for as long
    assert all(msgspec.msgpack.decode(sent.frame.payload[1:]) for sent in host.sent)


def test_what_cannot_be_read_is_dropped_and_counted() -> None:
    host, _, strategy = stack()
    strategy.on_receive(1, b"\x02garbage")
    strategy.on_receive(
        1, CODEC.encode(JoinTable((PublisherRow(0, 1, ME, 0, (MemberEntry(4, 7, b"not a summary"),)),)))
    )
    strategy.on_receive(
        1, CODEC.encode(JoinRequest(0, 1, 0, SECOND, False, False, (b"not a digest",), (), (), 0, ()))
    )
    refused = [r.reason for r in host.records if isinstance(r, Dropped)]
    # The table came before any request: nobody looked at its entry.
    assert refused == [DropReason.WIRE, DropReason.WIRE]
    assert len(strategy.routes) == 0 and host.timers() == {}


def test_a_request_whose_digest_is_empty_is_refused_and_leaves_nothing() -> None:
    """Who subscribes later would read it again, in a timer."""
    host, broker, strategy = stack()
    message = JoinRequest(0, 1, 0, 60 * SECOND, False, False, (b"",), (), (), 0, ())
    strategy.on_receive(1, CODEC.encode(message))
    broker.subscribe(Subscription(1, Filter.sql("a > 0")))
    host.advance(SECOND)
    assert [r.reason for r in host.records if isinstance(r, Dropped)] == [DropReason.WIRE]
    assert len(strategy.routes) == 0


def test_a_request_from_the_end_of_all_numbers_blocks_its_publisher_only_for_its_hold() -> None:
    host, _, strategy = stack()
    strategy.on_receive(1, CODEC.encode(JoinRequest(0, 2**63 - 1, 0, SECOND, False, True, (), (), (), 0, ())))
    host.advance(2 * SECOND)
    strategy.on_receive(1, CODEC.encode(JoinRequest(0, 5, 0, SECOND, False, True, (), (), (), 0, ())))
    assert len(strategy.routes) == 1


def test_an_event_that_a_client_had_memorized_is_kept_for_its_lifetime_and_no_longer() -> None:
    for lifetime, kept in (SECOND, 0), (LIFETIME_MAX, 1):
        host, _, strategy = stack(is_broker=True, grouping="k_means")
        event = Event(0, 0, event_class=EventClass.MEMORIZED, lifetime=lifetime)
        strategy.on_receive(0, CODEC.encode(BrokerSearch(1, 4, 49)))
        strategy.on_receive(0, CODEC.encode(Carried(0, 2, 0, ClientEvent(0, 0, event))))
        host.advance(HOLD_MAX + 60 * SECOND)
        before = len(host.sent)
        host.advance(60 * SECOND)
        named = [sent for sent in host.sent[before:] if sent.frame.message == "join_request"]
        assert (len(named) > 0) == kept == len(strategy._broker.store.standing(host.now()))
