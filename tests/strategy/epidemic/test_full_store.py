"""What a node with a full store takes, gives up and says."""

from roamcast.broker.store import EventStore
from roamcast.event import Event, EventClass, EventId
from roamcast.host import Channel, Host
from roamcast.node import Node, NodeConfig
from roamcast.strategy.epidemic.holdings import Holdings, events_of, runs_of
from roamcast.strategy.epidemic.messages import (
    CODEC,
    RANGES_MAX,
    FloodedEvent,
    HadEvents,
    HoldingsDigest,
)
from roamcast.testing import FakeHost
from roamcast.units import SECOND, NodeId


class Silent:
    def on_event(self, delivery: object) -> None:
        pass


def memorized(publisher: NodeId, sequence: int) -> Event:
    return Event(publisher, sequence, event_class=EventClass.MEMORIZED, lifetime=3_600 * SECOND)


def node_with_neighbour(entries: int) -> tuple[Node, FakeHost]:
    hosts = {channel: FakeHost(1) for channel in Channel}

    def host(channel: Channel) -> Host:
        return hosts[channel]

    store = EventStore(entries_max=entries)
    node = Node(NodeConfig("epidemic"), host, Silent(), store=store)
    store.settled = node.strategy.settled
    for channel, layer in node.layers.items():
        hosts[channel].attach(layer)
    node.start()
    node.strategy.on_neighbour_up(2)
    return node, hosts[Channel.STRATEGY]


def hears(node: Node, message: FloodedEvent | HoldingsDigest | HadEvents) -> None:
    node.strategy.on_receive(2, CODEC.encode(message))


def test_without_room_a_copy_stays_with_its_sender_until_there_is_room() -> None:
    node, host = node_with_neighbour(2)
    for sequence in range(2):
        node.broker.keep(memorized(1, sequence), 0)
    hears(node, FloodedEvent(memorized(7, 1), 1, 0))
    assert not node.broker.has_seen(EventId(7, 1))
    hears(node, HoldingsDigest(runs_of([EventId(1, 0)])))  # now neighbour 2 has had one of them
    host.advance(SECOND)
    hears(node, FloodedEvent(memorized(7, 1), 1, 0))
    assert EventId(7, 1) in node.broker.store and EventId(1, 0) not in node.broker.store


def test_a_node_says_what_it_has_had_and_believes_it_of_others() -> None:
    node, host = node_with_neighbour(2)
    for sequence in range(2):
        node.broker.keep(memorized(1, sequence), 0)
        node.broker.observe(EventId(1, sequence), 3_600 * SECOND)
    node.broker.observe(EventId(5, 5), 3_600 * SECOND)  # had, and pushed out
    hears(node, HoldingsDigest(runs_of([EventId(5, 5), EventId(1, 1), EventId(6, 6)])))
    said = [CODEC.decode(sent.frame.payload) for sent in host.sent]
    assert [set(events_of(one.had)) for one in said if isinstance(one, HadEvents)] == [{EventId(5, 5)}]
    hears(node, HadEvents(runs_of([EventId(1, 0), EventId(1, 1)])))
    assert len(list(node.strategy.settled(node.broker.store.standing(0)))) == 2


def test_of_too_many_runs_the_newest_are_in_every_digest_and_all_in_some() -> None:
    store = EventStore()
    sequences = range(0, 600, 2)  # 300 runs of one event each
    for sequence in sequences:
        store.keep(memorized(1, sequence), 3_600 * SECOND, 0, 0)
    holdings = Holdings(store, recent_time=SECOND, recent_max=10, on_evicted=lambda *_: None)
    named: set[EventId] = set()
    for _ in range(-(-300 // (RANGES_MAX // 2)) + 1):
        digest = holdings.digest(0)
        assert len(digest[0].runs) <= 2 * RANGES_MAX
        events = set(events_of(digest))
        assert {EventId(1, sequence) for sequence in sequences[-RANGES_MAX // 2 :]} <= events
        named |= events
    assert named == {EventId(1, sequence) for sequence in sequences}
