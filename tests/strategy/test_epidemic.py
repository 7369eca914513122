"""When a copy is passed on; what a node with a full store takes, gives up and says."""

from roamcast.broker.store import EventStore
from roamcast.event import Event, EventClass, EventId
from roamcast.host import Channel, Host
from roamcast.kit.anti_entropy import HadEvents, Handed, HandedToAll, HoldingsDigest, WantEvents
from roamcast.kit.newcomers import NEWCOMER_TIME, ONE_WAY_TIME
from roamcast.kit.repair import ANSWER_PAUSE, RANGES_MAX, Holdings, events_of, runs_of
from roamcast.kit.spread import CROWD, Audience, FloodedEvent
from roamcast.node import Node, NodeConfig
from roamcast.strategy.epidemic import CODEC
from roamcast.testing import FakeHost
from roamcast.underlay.base import Underlay
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
    for sequence, hops in enumerate((0, 0, 1, 2)):  # two, and one more for each hop
        node.broker.keep(memorized(1, sequence), hops)
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


class KnownNeighbours(Underlay):
    def __init__(self, links: dict[NodeId, list[NodeId]], own: NodeId) -> None:
        super().__init__()
        self.links, self._own = links, own

    def neighbours(self) -> list[NodeId]:
        return self.links[self._own]

    def neighbours_of(self, neighbour: NodeId) -> list[NodeId]:
        return self.links.get(neighbour, [])


#   1 - 2 - 3, and 4 beside 1 and 2
LINKS = {1: [2, 4], 2: [1, 3, 4], 3: [2], 4: [1, 2]}


def around(own: NodeId, links: dict[NodeId, list[NodeId]] = LINKS, *, suppress: bool = True) -> Audience:
    return Audience(own, KnownNeighbours(links, own), suppress=suppress)


def test_a_copy_is_passed_on_only_while_a_neighbour_may_lack_it() -> None:
    heard = {1, *LINKS[1]}  # 1 has broadcast it
    assert around(2).lacks(heard, 0), "3 has not heard it"
    assert not around(4).lacks(heard, 0), "1 and 2 are all that 4 has"
    assert around(4).lacks({1}, 0), "1 has sent it to one node alone"


def test_without_known_neighbours_and_without_suppression_every_copy_goes_out() -> None:
    assert around(1, {1: []}).lacks({2}, 0)
    assert around(1, {1: [2]}, suppress=False).lacks({2}, 0)
    assert not around(1, {1: [2]}).lacks({2}, 0)


def test_a_node_without_neighbours_broadcasts_nothing_of_its_own() -> None:
    links: dict[NodeId, list[NodeId]] = {1: []}
    alone = around(1, links)
    assert alone.may_hear(0), "an underlay that has named nobody so far may never name anyone"
    alone.on_up(2)
    links[1] = [2]
    assert alone.may_hear(0)
    links[1] = []
    assert not alone.may_hear(0)
    alone.meet(3, 0)
    assert alone.may_hear(NEWCOMER_TIME - 1) and not alone.may_hear(NEWCOMER_TIME)
    assert around(1, links, suppress=False).may_hear(0)


def test_the_wait_of_a_relay_grows_with_those_who_could_send_at_once() -> None:
    crowd = around(1, {2: [1, 3], 5: list(range(20))}).crowd
    assert (crowd(2), crowd(5)) == (1, CROWD)
    assert crowd(9) == CROWD, "nothing is known of its neighbours"


def test_a_newcomer_counts_as_a_neighbour_until_its_beacon_has_come_or_should_have() -> None:
    """3 hears 5, and has no other neighbour than 2, from which the copies come."""
    three, heard = around(3), {2, *LINKS[2]}
    assert not three.lacks(heard, 0)
    assert three.meet(5, 0)
    assert three.lacks(heard, SECOND // 2)
    assert not three.meet(5, SECOND // 2)
    assert not three.lacks(heard, NEWCOMER_TIME), "it does not hear us"
    assert not three.meet(5, ONE_WAY_TIME - 1) and three.meet(5, ONE_WAY_TIME)
    three.on_up(5)
    assert not three.lacks(heard, ONE_WAY_TIME), "beacons tell by now"


def test_a_copy_heard_again_while_it_waits_covers_its_sender_and_those_around_it() -> None:
    """The whole way in one node: two copies heard, and the relay is silent; a third event goes out."""
    hosts = {channel: FakeHost(4) for channel in Channel}

    def host(channel: Channel) -> Host:
        return hosts[channel]

    node = Node(NodeConfig("epidemic"), host, Silent())
    for channel, layer in node.layers.items():
        hosts[channel].attach(layer)
    node.start()
    node.strategy.on_neighbour_up(1)
    air = hosts[Channel.STRATEGY]
    node.underlay.neighbours = lambda: [1, 2]  # type: ignore[method-assign]
    node.underlay.neighbours_of = lambda neighbour: []  # type: ignore[method-assign]
    for sender in (1, 2):
        node.strategy.on_receive(sender, CODEC.encode(FloodedEvent(Event(9, 0), 1, 0)))
    node.strategy.on_receive(1, CODEC.encode(FloodedEvent(Event(9, 1), 1, 0)))
    air.advance(SECOND // 2)
    assert [sent.frame.event for sent in air.sent if sent.frame.message == "copy"] == [EventId(9, 1)]


def test_what_two_have_asked_for_is_sent_to_all_once() -> None:
    node, host = node_with_neighbour(9)
    node.strategy.on_neighbour_up(3)
    for sequence in range(2):
        node.broker.keep(memorized(1, sequence), 0)
    host.sent.clear()
    node.strategy.on_receive(2, CODEC.encode(WantEvents((1, 0, 1, 1), 0)))
    node.strategy.on_receive(3, CODEC.encode(WantEvents((1, 0), 0)))
    host.advance(ANSWER_PAUSE)
    sent = [(one.to, CODEC.decode(one.frame.payload)) for one in host.sent]
    assert [(to, type(message)) for to, message in sent] == [(None, HandedToAll), (2, Handed)]
