"""The overlay of one broker: who is a neighbour, and what its row says."""

from itertools import pairwise

from tests.strategy.opportunistic.station import shared_of

from roamcast.kit.protocol import Timer
from roamcast.strategy.opportunistic.adaptation.events import TimeCame
from roamcast.strategy.opportunistic.board import BROKER, BoardEntry
from roamcast.strategy.opportunistic.messages import BrokerRow
from roamcast.strategy.opportunistic.overlay import OwnState
from roamcast.testing import FakeHost
from roamcast.trace import OverlayChanged
from roamcast.underlay.base import Underlay
from roamcast.units import SECOND, NodeId

OWN = 1
PERIOD = 20 * SECOND


class Distances(Underlay):
    def __init__(self) -> None:
        super().__init__()
        self.hops: dict[NodeId, int] = {}

    def distance(self, to: NodeId) -> int | None:
        return self.hops.get(to)


class Setting:
    def __init__(self, mode: str = "opportunistic", broker_update: float = 20.0) -> None:
        self.host = FakeHost(OWN)
        self.underlay = Distances()
        self.load = 0
        shared = shared_of(
            self.host,
            self.underlay,
            on_row=self._on_row,
            mode=mode,
            broker_update=broker_update,
            registration_lifetime=120.0,
        )
        self.board, self.overlay, channel = shared.board, shared.overlay, shared.channel
        self.looked: list[int] = []
        channel.subscribe(TimeCame, lambda event: self._look())
        self.host.attach(self)  # type: ignore[arg-type]
        self.overlay.start(OwnState(lambda: self.load, lambda: 0))

    def on_timer(self, name: object) -> None:
        if isinstance(name, Timer):
            name.due()

    def hear(self, broker: NodeId, hops: int, links: tuple[int, ...] = (), version: int = 1) -> None:
        self.underlay.hops[broker] = hops
        self.board.post(BROKER, broker, version, BrokerRow(links, 3, boot=1))

    def neighbours(self) -> list[NodeId]:
        return [near.broker for near in self.overlay.neighbours()]

    def row(self) -> BrokerRow:
        row = self.overlay.topology.row(OWN)
        assert row is not None
        return row

    def _on_row(self, kind: int, node: NodeId, entry: BoardEntry | None) -> None:
        self.overlay.on_row(node, entry)

    def _look(self) -> None:
        self.looked.append(self.host.now())
        self.overlay.discover_neighbours()
        self.overlay.propagate()


def test_neighbours_are_all_within_the_first_ring_that_has_enough() -> None:
    setting = Setting()
    for broker, hops in {2: 1, 3: 1, 4: 2, 5: 2, 6: 3}.items():
        setting.hear(broker, hops)
    setting.host.advance(3 * SECOND)
    assert setting.neighbours() == [2, 3, 4, 5]
    assert setting.row().links == (2, 1, 3, 1, 4, 2, 5, 2) and setting.row().ring == 2


def test_a_neighbour_that_moves_too_far_away_is_one_no_more() -> None:
    setting = Setting()
    for broker in (2, 3, 4):
        setting.hear(broker, 1, (5, 1))  # there is another way to all of them
    setting.host.advance(3 * SECOND)
    setting.underlay.hops[2] = 4
    setting.hear(5, 1, (2, 1, 3, 1, 4, 1))
    setting.host.advance(20 * SECOND + 2 * PERIOD)
    assert setting.neighbours() == [3, 4, 5]
    changes = [r for r in setting.host.records if isinstance(r, OverlayChanged) and r.peer in (2, 5)]
    assert [(c.change, c.peer) for c in changes[1:]] == [("neighbour_down", 2), ("neighbour_up", 5)]


def test_a_far_broker_that_no_path_leads_to_is_a_bridge_until_one_does() -> None:
    setting = Setting()
    for broker, hops in {2: 1, 3: 1, 4: 1, 9: 5}.items():
        setting.hear(broker, hops)
    setting.host.advance(3 * SECOND)
    assert setting.neighbours() == [2, 3, 4]
    setting.host.advance(18 * SECOND)
    assert setting.neighbours() == [2, 3, 4, 9]
    setting.hear(2, 1, (9, 2), version=2)
    setting.host.advance(2 * PERIOD)
    assert setting.neighbours() == [2, 3, 4]


def test_a_static_broker_looks_until_it_has_neighbours_and_then_never_again() -> None:
    setting = Setting("static")
    setting.host.advance(20 * SECOND + 2 * PERIOD)
    assert setting.neighbours() == []
    setting.hear(2, 1)
    setting.host.advance(PERIOD)
    assert setting.neighbours() == [2]
    setting.hear(3, 1)
    setting.host.advance(3 * PERIOD)
    assert setting.neighbours() == [2]


def test_a_row_that_says_nothing_new_is_renewed_within_its_lifetime_and_no_sooner() -> None:
    setting = Setting()
    setting.hear(2, 1)
    setting.host.advance(20 * SECOND)
    entry = setting.board.find(BROKER, OWN)
    assert entry is not None
    setting.host.advance(125 * SECOND)
    later = setting.board.find(BROKER, OWN)
    assert later is not None and entry.version + 1 <= later.version <= entry.version + 4


def test_a_forged_row_of_ours_is_outbid() -> None:
    setting = Setting()
    setting.load = 7
    setting.board.post(BROKER, OWN, 1 << 50, BrokerRow((), 0, 99, is_over=True))
    entry = setting.board.find(BROKER, OWN)
    assert entry is not None and entry.version == (1 << 50) + 1
    assert setting.row().load == 7 and not setting.row().is_over


def test_a_period_longer_than_a_row_s_renewal_is_kept_and_the_row_is_renewed() -> None:
    """Rows live 120 s, and are renewed after 40 if the next look is farther than 80 away: a broker that looks
    every 100 s renews its row in between, and does not look then."""
    setting = Setting(broker_update=100.0)
    versions = []
    for _ in range(100):
        setting.host.advance(4 * SECOND)
        entry = setting.board.find(BROKER, OWN)
        assert entry is not None
        versions.append(entry.version)
    first, second, *later = setting.looked  # the second at a moment of its own within the period
    assert second - first <= 100 * SECOND
    assert [at - before for before, at in pairwise([second, *later])] == [100 * SECOND] * len(later)
    assert len(later) >= 2
    posted = [4 * number for number, (a, b) in enumerate(pairwise(versions)) if b > a]
    assert max(b - a for a, b in pairwise(posted)) <= 84 and len(posted) <= 2 * len(setting.looked) + 4
