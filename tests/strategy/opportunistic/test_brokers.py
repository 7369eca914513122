"""The Broker Manager, step 1: who is a neighbour, and for how long."""

from collections.abc import Callable

from roamcast.strategy.opportunistic.brokers import BrokerManager
from roamcast.strategy.opportunistic.discovery import Near, RingSearch
from roamcast.strategy.opportunistic.messages import Content, Update
from roamcast.strategy.opportunistic.options import OpportunisticOptions
from roamcast.strategy.opportunistic.propagation import ROWS_PER_LIFE
from roamcast.strategy.opportunistic.rows import Row
from roamcast.testing import FakeHost
from roamcast.trace import OverlayChanged
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId

OWN = 1
PERIOD = 20 * SECOND


class Around(RingSearch):
    """A search that finds at once the brokers at these distances."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__(host, ring_max=5, ring_wait=SECOND, boot=1)
        self.distances: dict[NodeId, int] = {}
        self.searches = 0

    def start(self, wanted: int, done: Callable[[list[Near], int], None]) -> None:
        reach = next((r for r in range(1, 6) if len(self._within(r)) >= wanted), 5)
        self.searches += 1
        done(self._within(reach), reach)

    def start_wide(self, done: Callable[[list[Near], int], None]) -> None:
        self.searches += 1
        done(self._within(5), 5)

    def _within(self, reach: int) -> list[Near]:
        return sorted(Near(hops, 0, broker) for broker, hops in self.distances.items() if hops <= reach)


class Connected(Underlay):
    def neighbours(self) -> list[NodeId]:
        return [OWN + 1]  # a broker without any waits before it searches

    def known_nodes(self) -> list[NodeId]:
        return []  # or it would know that there is nobody to be found far away


class Setting:
    def __init__(self, mode: str = "opportunistic") -> None:
        self.host = FakeHost(OWN)
        self.search = Around(self.host)
        self.sent: list[tuple[NodeId, Content]] = []
        self.manager = BrokerManager(
            self.host,
            Connected(),
            OpportunisticOptions(mode=mode, broker_update=20.0),  # type: ignore[arg-type]
            self.search,
            lambda to, content, letter: self.sent.append((to, content)),
            sequence=ROWS_PER_LIFE,
            load=lambda: 0,
            producers=lambda: 0,
            on_changed=lambda: None,
        )
        self.host.attach(self.manager)  # type: ignore[arg-type]
        self.manager.on_start()

    def neighbours(self) -> list[NodeId]:
        return [near.broker for near in self.manager.neighbours()]

    def hear(self, sender: NodeId, *rows: Row) -> None:
        self.manager.on_update(sender, Update(0, rows))


def test_neighbours_are_all_within_the_first_ring_that_has_enough() -> None:
    setting = Setting()
    setting.search.distances = {2: 1, 3: 1, 4: 2, 5: 2, 6: 3}
    setting.host.advance(2 * SECOND)
    assert setting.neighbours() == [2, 3, 4, 5]
    row = setting.manager.topology.row(OWN)
    assert row is not None and row.links == (2, 1, 3, 1, 4, 2, 5, 2) and row.ring == 2


def test_a_neighbour_that_moves_too_far_away_is_one_no_more() -> None:
    setting = Setting()
    setting.search.distances = {2: 1, 3: 1, 4: 1}
    setting.host.advance(2 * SECOND)
    for broker in (2, 3, 4):
        setting.hear(broker, Row(broker, 1, (5, 1)))  # there is another way to all of them
    setting.search.distances = {2: 4, 3: 1, 4: 1, 5: 1}
    setting.host.advance(10 * SECOND + 2 * PERIOD)
    assert setting.neighbours() == [3, 4, 5]
    changes = [r for r in setting.host.records if isinstance(r, OverlayChanged) and r.peer in (2, 5)]
    assert [(change.change, change.peer) for change in changes[1:]] == [
        ("neighbour_down", 2),
        ("neighbour_up", 5),
    ]


def test_a_far_broker_that_no_path_leads_to_is_a_bridge_until_one_does() -> None:
    setting = Setting()
    setting.search.distances = {2: 1, 3: 1, 4: 1, 9: 5}
    setting.host.advance(2 * SECOND)
    assert setting.neighbours() == [2, 3, 4]
    setting.host.advance(8 * SECOND)  # the first wide search, at a moment of its own
    assert setting.neighbours() == [2, 3, 4, 9]
    setting.hear(2, Row(2, 1, (9, 2)))
    setting.host.advance(10 * SECOND + 5 * PERIOD)
    assert setting.neighbours() == [2, 3, 4]


def test_a_static_broker_looks_until_it_has_neighbours_and_then_never_again() -> None:
    setting = Setting("static")
    setting.host.advance(10 * SECOND + 5 * PERIOD)
    assert setting.neighbours() == []
    setting.search.distances = {2: 1}
    setting.host.advance(PERIOD)
    assert setting.neighbours() == [2]
    searches = setting.search.searches
    setting.search.distances = {3: 1}
    setting.host.advance(5 * PERIOD)
    assert setting.neighbours() == [2] and setting.search.searches == searches


def test_a_row_that_says_nothing_new_is_told_every_fourth_period_only() -> None:
    setting = Setting()
    setting.search.distances = {2: 1, 3: 1, 4: 1}
    setting.host.advance(10 * SECOND + 2 * PERIOD)
    first = setting.manager.sequence
    setting.host.advance(8 * PERIOD)
    assert setting.manager.sequence == first + 2
