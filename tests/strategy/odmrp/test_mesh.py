"""One node of the mesh, driven by hand: requests, tables, data, and what it all leaves behind."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from roamcast.broker.core import Broker, Delivery, Subscription
from roamcast.event import Event
from roamcast.filter import Filter
from roamcast.host import Position
from roamcast.strategy.base import StrategyContext
from roamcast.strategy.odmrp import Odmrp, OdmrpOptions
from roamcast.strategy.odmrp.context import version_of
from roamcast.strategy.odmrp.messages import (
    CODEC,
    UNLIMITED,
    Acknowledgement,
    AnyMessage,
    DataPacket,
    JoinRequest,
    JoinTable,
    MemberEntry,
    PublisherRow,
    SenderPosition,
)
from roamcast.strategy.odmrp.summary.summary import EventDigest, Summary
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason, OverlayChanged
from roamcast.underlay.base import NoUnderlay
from roamcast.units import MILLISECOND, SECOND

ME, NEAR, FAR, LEAF, OTHER = 3, 1, 0, 7, 9
HOLD = 25 * SECOND
SOON = 300 * MILLISECOND  # news is told, and not yet repeated
WOODS = EventDigest.of(Event(FAR, 0, {"player": "woods"})).encode()
WANTS_WOODS = Summary.of([Filter.sql("player = 'woods'")]).encode()
WANTS_PALMER = Summary.of([Filter.sql("player = 'palmer'")]).encode()


class Collected:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, delivery: Delivery) -> None:
        self.events.append(delivery.event)


class Lone:
    """A node without a network: what it would send is looked at, what it hears is said by the test."""

    def __init__(self, host: FakeHost | None = None, **options: Any) -> None:
        self.host = host or FakeHost(node=ME)
        self.got = Collected()
        self.broker = Broker(self.host, self.got)
        self.strategy = Odmrp(StrategyContext(self.host, self.broker, NoUnderlay()), OdmrpOptions(**options))
        self.broker.watch(self.strategy)
        self.host.attach(self.strategy)

    def wants(self, text: str) -> None:
        self.broker.subscribe(Subscription(1, Filter.sql(text)))

    def hears(self, sender: int, message: AnyMessage) -> None:
        self.strategy.on_receive(sender, CODEC.encode(message))

    def sent(self, kind: type[AnyMessage]) -> list[Any]:
        messages = [CODEC.decode(sent.frame.payload) for sent in self.host.sent]
        return [message for message in messages if isinstance(message, kind)]

    def rows(self) -> list[PublisherRow]:
        return [row for table in self.sent(JoinTable) for row in table.rows]

    def roles(self) -> list[tuple[int, str]]:
        return [(r.t, r.change) for r in self.host.records if isinstance(r, OverlayChanged)]


def request(sequence: int = 1, hops: int = 1, **fields: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "urgent": False,
        "everyone": False,
        "digests": (WOODS,),
        "advertisements": (),
        "destinations": (),
        "epoch": 0,
        "channels": (),
    }
    return JoinRequest(FAR, sequence, hops, HOLD, **(given | fields))


def row(
    next_hop: int = ME, sequence: int = 1, member: int = LEAF, summary: bytes | None = WANTS_WOODS
) -> JoinTable:
    version = version_of(summary) if summary else version_of(WANTS_WOODS)
    return JoinTable(
        (PublisherRow(FAR, sequence, next_hop, UNLIMITED, (MemberEntry(member, version, summary),)),)
    )


def data(packet: int = 1, **fields: Any) -> DataPacket:
    given: dict[str, Any] = {"epoch": 0, "channels": 1, "members": (), "digest": WOODS, "hops": 1, "age": 0}
    given["event"] = Event(FAR, packet, {"player": "woods"})
    return DataPacket(source=FAR, packet=packet, **(given | fields))


# Join Requests.


def test_a_full_table_of_routes_forgets_the_first_to_end_and_the_trace_says_so() -> None:
    node = Lone(publishers_max=2)
    for publisher in (FAR, OTHER, LEAF):
        node.hears(NEAR, msgspec.structs.replace(request(), publisher=publisher))
        node.host.advance(SECOND)
    assert sorted(node.strategy.routes) == [LEAF, OTHER]
    drops = [record for record in node.host.records if isinstance(record, Dropped)]
    assert [(drop.reason, drop.detail) for drop in drops] == [(DropReason.STORE_FULL, "publishers_max")]


def test_a_request_is_passed_on_once_with_one_hop_more() -> None:
    node = Lone()
    node.hears(NEAR, request(hops=1))
    node.hears(OTHER, request(hops=1))
    node.host.advance(SECOND)
    assert [(r.hops, r.sequence) for r in node.sent(JoinRequest)] == [(2, 1)]
    node.hears(OTHER, request(sequence=1))  # a duplicate, later
    node.host.advance(SECOND)
    assert len(node.sent(JoinRequest)) == 1
    node.hears(OTHER, request(sequence=2))
    node.host.advance(SECOND)
    assert [r.sequence for r in node.sent(JoinRequest)] == [1, 2]


def test_a_request_ends_at_the_hop_limit() -> None:
    node = Lone(hop_limit=3)
    node.hears(NEAR, request(hops=2))
    node.host.advance(SECOND)
    assert node.sent(JoinRequest) == []


def test_only_who_wants_what_the_digest_tells_of_joins() -> None:
    fan, other = Lone(), Lone()
    fan.wants("player = 'woods'")
    other.wants("player = 'palmer'")
    for node in (fan, other):
        node.hears(NEAR, request())
        node.host.advance(SOON)
    (told,) = fan.rows()
    assert (told.publisher, told.next_hop) == (FAR, NEAR)
    assert told.entries == (MemberEntry(ME, version_of(WANTS_WOODS), WANTS_WOODS),)
    assert other.rows() == [] and not other.strategy.member_table


def test_a_member_answers_for_a_timeout_after_the_last_digest_that_concerned_it() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    other = EventDigest.of(Event(FAR, 0, {"player": "palmer"})).encode()
    for sequence in range(1, 10):
        node.hears(NEAR, request(sequence, digests=(WOODS if sequence == 1 else other,)))
        node.host.advance(5 * SECOND)
    # Joined at 0 s, stays for the rounds at 5, 10, 15 and 20 s, is out at 25 s.
    answered = sorted({row.sequence for row in node.rows()})
    assert answered == [1, 2, 3, 4, 5]


def test_a_destination_joins_although_it_wants_nothing() -> None:
    node = Lone()
    node.hears(NEAR, request(digests=(), destinations=(ME,)))
    node.host.advance(SOON)
    (told,) = node.rows()
    assert told.entries == (MemberEntry(ME, 0, None),)


def test_an_advertisement_is_answered_by_all_who_may_want_its_type() -> None:
    typed, other = Lone(), Lone()
    typed.broker.subscribe(Subscription(1, Filter.of_type("score") & Filter.sql("hole = 3")))
    other.broker.subscribe(Subscription(1, Filter.of_type("weather")))
    for node in (typed, other):
        node.hears(NEAR, request(digests=(), advertisements=(EventDigest.of_type("score").encode(),)))
        node.host.advance(SOON)
    assert len(typed.rows()) == 1 and other.rows() == []


def test_advertisements_travel_in_the_compact_form() -> None:
    """3 ¶2: "the digest of publishing events and event advertisements are also transformed to the compact
    data structure": seven octets, however long the name is."""
    node = Lone()
    node.strategy.advertise(["announcement of the official at the hole"])
    (asked,) = node.sent(JoinRequest)
    (advertised,) = asked.advertisements
    assert advertised == EventDigest.of_type("announcement of the official at the hole").encode()
    assert len(advertised) == 7 and asked.digests == ()


def test_a_publisher_of_different_events_asks_by_type_and_one_of_alike_ones_by_digest() -> None:
    for players, by_type in (["woods"] * 3, False), (["woods", "palmer", "woods"], True):
        node = Lone(request_delay=0.0)
        for number, player in enumerate(players):
            node.strategy.publish(Event(ME, number, {"player": player}, type="score"))
            node.host.advance(5 * SECOND)
        first, *_, last = node.sent(JoinRequest)
        assert first.digests and not first.advertisements  # nobody knows yet what will come
        assert bool(last.advertisements) == by_type and bool(last.digests) != by_type


def test_who_subscribes_after_the_request_still_joins_its_round() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.host.advance(SECOND)
    node.wants("player = 'woods'")
    node.host.advance(SOON)
    assert [told.next_hop for told in node.rows()] == [NEAR]


@pytest.mark.parametrize("asked_again", [False, True], ids=["between requests", "with a request"])
def test_a_changed_subscription_of_a_member_is_told_as_soon_as_a_new_one(asked_again: bool) -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, request())
    node.host.advance(SOON)
    node.hears(NEAR, acknowledged(1, ME))
    before = len(node.rows())
    node.broker.subscribe(Subscription(2, Filter.sql("player = 'palmer'")))
    if asked_again:  # the answer, which waits as a mere refresh would, has the change already
        node.hears(NEAR, request(sequence=2))
    node.host.advance(SOON)
    assert len(node.rows()) == before + 1 == 2


def test_what_next_hops_are_known_to_have_is_forgotten_with_the_route() -> None:
    """Members that come and go, while the publisher stays."""
    node = Lone()
    for sequence in range(1, 40):
        node.hears(NEAR, request(sequence))
        node.hears(LEAF, row(sequence=sequence, member=100 + sequence))
        node.host.advance(SECOND)
        node.hears(NEAR, acknowledged(sequence, 100 + sequence))
        node.host.advance(4 * SECOND)
    assert 0 < len(node.strategy.tables.known) <= HOLD // (5 * SECOND) + 2


def test_who_unsubscribes_stops_answering() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, request())
    node.hears(NEAR, acknowledged(1, ME))
    node.host.advance(SECOND)
    node.broker.unsubscribe(1)
    node.host.advance(SECOND)
    before = len(node.rows())
    node.hears(NEAR, request(sequence=2))
    node.host.advance(5 * SECOND)
    assert len(node.rows()) == before > 0


# Join Tables.


def acknowledged(sequence: int, *members: int) -> JoinTable:
    return JoinTable((), (Acknowledgement(FAR, sequence, members),))


def test_only_the_next_hop_becomes_forwarding_group_and_it_tells_its_own_upstream() -> None:
    named, bystander = Lone(), Lone()
    for node in (named, bystander):
        node.hears(NEAR, request())
    named.hears(LEAF, row(next_hop=ME))
    bystander.hears(LEAF, row(next_hop=OTHER))
    for node in (named, bystander):
        node.host.advance(SECOND)
    assert named.roles() == [(0, "role_on")] and bystander.roles() == []
    assert next((told.next_hop, told.entries[0].member) for told in named.rows()) == (NEAR, LEAF)
    assert bystander.rows() == []


def test_a_forwarding_node_demotes_a_timeout_after_the_last_request() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.host.advance(2 * SECOND)
    node.hears(LEAF, row())
    node.host.advance(3 * SECOND)
    node.hears(NEAR, request(sequence=2))
    node.hears(LEAF, row(sequence=2))
    node.host.advance(60 * SECOND)
    assert node.roles() == [(2 * SECOND, "role_on"), (5 * SECOND + HOLD, "role_off")]
    assert len(node.strategy.forwarding) == len(node.strategy.routes) == len(node.strategy.context) == 0


def test_without_a_request_there_is_no_way_to_tell_and_nobody_forwards() -> None:
    node = Lone()
    node.hears(LEAF, row())
    node.host.advance(SECOND)
    assert node.roles() == [] and node.sent(JoinTable) == []


def test_an_unacknowledged_table_is_repeated_then_other_upstream_nodes_are_tried() -> None:
    node = Lone(table_retries=2)
    node.wants("player = 'woods'")
    node.hears(NEAR, request(hops=1))
    node.hears(OTHER, request(hops=1))  # as near to the publisher as the first
    node.hears(LEAF, request(hops=2))  # as far as this node: no way
    node.host.advance(20 * SECOND)
    assert [told.next_hop for told in node.rows()] == [NEAR, NEAR, NEAR, OTHER]


def test_members_that_need_no_relay_are_sent_each_packet_once() -> None:
    """1 is a neighbour; 2, behind it, wants other events: nobody would relay these."""
    node = Lone(advertisement=True)
    node.strategy.publish(Event(ME, 0, {"player": "nobody"}))
    (asked,) = node.sent(JoinRequest)
    entries = tuple(
        MemberEntry(member, version_of(summary), summary)
        for member, summary in ((1, WANTS_WOODS), (2, WANTS_PALMER))
    )
    node.hears(1, JoinTable((PublisherRow(ME, asked.sequence, ME, UNLIMITED, entries),)))
    node.host.advance(6 * SECOND)
    for number in range(1, 6):
        node.strategy.publish(Event(ME, number, {"player": "woods"}))
        node.host.advance(SECOND)
    assert [packet.event.sequence for packet in node.sent(DataPacket)] == [1, 2, 3, 4, 5]
    node.strategy.publish(Event(ME, 6, {"player": "palmer"}))
    node.host.advance(SECOND)
    assert [packet.event.sequence for packet in node.sent(DataPacket)][-2:] == [6, 6]


@pytest.mark.parametrize("by_table", [True, False], ids=["overheard", "said"])
def test_an_acknowledged_table_is_not_repeated(by_table: bool) -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, request())
    node.host.advance(200 * MILLISECOND)
    assert len(node.rows()) == 1
    node.hears(NEAR, row(next_hop=FAR, member=ME) if by_table else acknowledged(1, ME))
    node.host.advance(10 * SECOND)
    assert len(node.rows()) == 1


def test_a_summary_travels_until_the_next_hop_has_it_and_then_by_its_version() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    for sequence in (1, 2, 3):
        node.hears(NEAR if sequence < 3 else OTHER, request(sequence))
        node.host.advance(SOON if sequence == 1 else SECOND)
        node.hears(NEAR, acknowledged(sequence, ME))
        node.host.advance(4 * SECOND)
    full = [(told.next_hop, told.sequence, told.entries[0].summary is not None) for told in node.rows()]
    assert full[:3] == [(NEAR, 1, True), (NEAR, 2, False), (OTHER, 3, True)]


def test_a_version_that_the_receiver_does_not_know_is_not_taken() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.hears(LEAF, row(summary=None))
    node.host.advance(SECOND)
    assert node.sent(JoinTable) == [] and node.roles() == []


def test_a_member_told_twice_is_acknowledged() -> None:
    node = Lone()
    node.hears(NEAR, request())
    node.hears(LEAF, row())
    node.host.advance(300 * MILLISECOND)
    node.hears(NEAR, row(next_hop=FAR))  # passed on, heard: nothing is left to repeat
    node.hears(LEAF, row())
    node.host.advance(5 * SECOND)
    tables = node.sent(JoinTable)
    assert [t.acknowledgements for t in tables] == [(), (Acknowledgement(FAR, 1, (LEAF,)),)]


# Data.


def forwarding(node: Lone, *, summary: bytes = WANTS_WOODS, **fields: Any) -> None:
    node.hears(NEAR, request(**fields))
    node.hears(LEAF, row(summary=summary))
    node.host.advance(SECOND)


def relayed(node: Lone, packets: Iterable[DataPacket]) -> list[int]:
    for packet in packets:
        node.hears(NEAR, packet)
    node.host.advance(SECOND)
    return [packet.packet for packet in node.sent(DataPacket)]


def test_data_is_relayed_when_new_and_not_after_the_timeout() -> None:
    node = Lone()
    forwarding(node)
    assert sorted(relayed(node, [data(1), data(1), data(2)])) == [1, 2]
    node.host.advance(HOLD)
    assert sorted(relayed(node, [data(3)])) == [1, 2]


def test_who_is_not_forwarding_group_delivers_and_does_not_relay() -> None:
    node = Lone()
    node.wants("player = 'woods'")
    node.hears(NEAR, request())
    assert relayed(node, [data(1)]) == []
    assert [event.sequence for event in node.got.events] == [1]


def test_the_branch_filter_stops_what_nobody_below_wants() -> None:
    for relay_filter, expected in (("branch", []), ("channel", [1])):
        node = Lone(relay_filter=relay_filter)
        forwarding(node, summary=WANTS_PALMER)
        assert relayed(node, [data(1)]) == expected


def test_data_of_another_channel_is_not_relayed() -> None:
    node = Lone(relay_filter="channel")
    forwarding(node, epoch=4, channels=((LEAF,), (OTHER,)))
    packets = [data(n, epoch=4, channels=channels) for n, channels in enumerate((1, 2, 4, 6), 1)]
    assert sorted(relayed(node, packets)) == [2, 4]
    # Of an epoch that this node missed, any channel may be meant.
    assert sorted(relayed(node, [data(5, epoch=5, channels=4)])) == [2, 4, 5]


def test_data_for_named_members_goes_only_their_way() -> None:
    node = Lone()
    forwarding(node)
    assert relayed(node, [data(1, members=(OTHER,)), data(2, members=(OTHER, LEAF))]) == [2]


def test_data_with_destinations_goes_their_way() -> None:
    node = Lone()
    forwarding(node)
    for number, destinations in enumerate([(OTHER,), (LEAF,)], 1):
        event = Event(FAR, number, {}, destinations=destinations)
        node.hears(NEAR, DataPacket(event.publisher, number, 0, 0, (), b"", 1, 0, event))
    node.host.advance(SECOND)
    assert [packet.packet for packet in node.sent(DataPacket)] == [2]


def test_plain_odmrp_relays_for_every_source_of_its_one_group() -> None:
    node = Lone(grouping="none")
    node.hears(NEAR, request(digests=(), everyone=True))
    node.hears(LEAF, JoinTable((PublisherRow(FAR, 1, ME, UNLIMITED, (MemberEntry(LEAF, 0, None),)),)))
    node.host.advance(SECOND)
    event = Event(OTHER, 1, {"player": "palmer"})
    assert relayed(node, [DataPacket(event.publisher, 1, 0, 1, (), b"", 1, 0, event)]) == [1]


def test_a_false_positive_is_counted() -> None:
    node = Lone()
    node.wants("player = 'woods' AND hole = 3")
    # The same digest as an event that matches, beside an event that does not.
    digest = EventDigest.of(Event(FAR, 0, {"player": "woods", "hole": 3})).encode()
    event = Event(FAR, 1, {"player": "woods", "hole": 4})
    node.hears(NEAR, DataPacket(event.publisher, 1, 0, 1, (), digest, 1, 0, event))
    assert node.got.events == []
    assert [r.reason for r in node.host.records if isinstance(r, Dropped)] == [DropReason.FALSE_POSITIVE]


# The publisher.


def test_the_first_event_waits_for_members_and_goes_to_those_who_want_it() -> None:
    node = Lone()
    node.strategy.publish(Event(ME, 0, {"player": "woods"}))
    (asked,) = node.sent(JoinRequest)
    assert asked.digests == (WOODS,) and node.sent(DataPacket) == []
    entries = tuple(
        MemberEntry(member, version_of(summary), summary)
        for member, summary in ((1, WANTS_WOODS), (2, WANTS_PALMER))
    )
    node.hears(1, JoinTable((PublisherRow(ME, asked.sequence, ME, UNLIMITED, entries),)))
    node.host.advance(SECOND)
    (sent,) = node.sent(DataPacket)
    assert sent.members == (1,) and sent.event.sequence == 0
    acknowledgements = [a for table in node.sent(JoinTable) for a in table.acknowledgements]
    assert acknowledgements == [Acknowledgement(ME, asked.sequence, (1, 2))]
    # The next event goes at once, over whatever wants it; the next request tells the channels.
    node.strategy.publish(Event(ME, 1, {"player": "woods"}))
    assert [packet.event.sequence for packet in node.sent(DataPacket)] == [0, 1]
    node.host.advance(5 * SECOND)
    assert sorted(m for members in node.sent(JoinRequest)[1].channels for m in members) == [1, 2]


def test_requests_come_once_per_interval_while_the_publisher_is_active_and_then_stop() -> None:
    node = Lone(request_delay=0.0)
    for number in range(3):
        node.strategy.publish(Event(ME, number, {"player": "woods"}))
        node.host.advance(2 * SECOND)
    node.host.advance(200 * SECOND)
    times = [sent.at // SECOND for sent in node.host.sent if sent.frame.message == "join_request"]
    assert times == [0, 5, 10, 15, 20, 25]  # the last event at 4 s, active until 29 s
    assert len(node.strategy.publisher) == 0


def test_request_numbers_rise_over_a_crash() -> None:
    stable: dict[str, bytes] = {}
    numbers = []
    for _ in range(3):
        node = Lone(FakeHost(node=ME, stable=stable))
        for number in range(3):
            node.strategy.publish(Event(ME, number, {}))
            node.host.advance(6 * SECOND)
        numbers += [message.sequence for message in node.sent(JoinRequest)]
    assert len(numbers) >= 9 and numbers == sorted(set(numbers))


def test_a_packet_that_no_relay_passes_on_is_repeated_once() -> None:
    node = Lone(grouping="none")
    node.strategy.publish(Event(ME, 0, {}))
    (asked,) = node.sent(JoinRequest)
    node.hears(
        1,
        JoinTable((PublisherRow(ME, asked.sequence, ME, UNLIMITED, (MemberEntry(2, 0), MemberEntry(1, 0))),)),
    )
    node.host.advance(120 * MILLISECOND)
    assert len(node.sent(DataPacket)) == 1
    node.host.advance(SECOND)
    first, repeated = node.sent(DataPacket)
    assert first == repeated
    node.strategy.publish(Event(ME, 1, {}))
    echo = node.sent(DataPacket)[-1]
    node.hears(
        1, DataPacket(echo.source, echo.packet, echo.epoch, echo.channels, (), echo.digest, 1, 0, echo.event)
    )
    node.host.advance(SECOND)
    assert len(node.sent(DataPacket)) == 3


def test_the_interval_follows_the_weakest_path() -> None:
    host = FakeHost(node=ME)
    host.place = Position(0, 0, 0, 0)
    node = Lone(host, adapt_refresh=True, request_delay=0.0, grouping="none")
    node.strategy.publish(Event(ME, 0, {}))
    (asked,) = node.sent(JoinRequest)
    assert asked.place == SenderPosition(0, 0, 0, 0) and asked.hold == HOLD
    rows = (PublisherRow(ME, asked.sequence, ME, 3 * SECOND, (MemberEntry(1, 0),)),)
    node.hears(1, JoinTable(rows))
    node.host.advance(3 * SECOND)
    second = node.sent(JoinRequest)[1]
    assert second.hold == 15 * SECOND  # five intervals, as 25 s are of 5 s


def test_a_relay_tells_the_lifetime_of_the_weakest_link_so_far() -> None:
    host = FakeHost(node=ME)
    host.place = Position(0, 0, 0, 0)
    node = Lone(host)
    node.hears(NEAR, request(place=SenderPosition(100, 0, 10, 0), lifetime=40 * SECOND))
    node.host.advance(SECOND)
    (passed,) = node.sent(JoinRequest)
    assert passed.lifetime == 15 * SECOND and passed.place == SenderPosition(0, 0, 0, 0)
