"""Which path leads to a neighbour: hand-computed cases with a clock of their own."""

import pytest

from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import FAILED_FOR, PATHS_MAX, HeardSlots, Peer, Peers, Probe
from roamcast.units import SECOND, Micros

WIRE, RADIO = Endpoint("10.1.0.2", 4748, "eth0"), Endpoint("10.2.0.2", 4748, "wlan0")
LINK_LOCAL = Endpoint("fe80::2", 4748, "wlan0")
RANKS = {"eth0": 0, "wlan0": 1}


class Bench:
    """Peer 7, heard once a second by each of its paths unless a test says otherwise."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str, bool]] = []
        self.doubted = 0
        self.peers = Peers(lambda *_: None, self._on_doubted)
        self.peers.rank = RANKS.__getitem__
        self.peers.on_moved = lambda peer, before, is_lost: self.moves.append(
            (before.interface, peer.endpoint.interface, is_lost)
        )
        self.now: Micros = 0

    def _on_doubted(self) -> None:
        self.doubted += 1

    def hear(self, *endpoints: Endpoint, seconds: int = 1) -> list[Endpoint]:
        """The paths that were worth a probe."""
        worth = []
        for _ in range(seconds):
            self.now += SECOND
            for endpoint in endpoints:
                peer = self.peers.heard(7, endpoint, self.now)
                if endpoint != peer.endpoint and self.peers.is_worth_a_probe(peer, endpoint, self.now):
                    worth.append(endpoint)
        return worth

    @property
    def peer(self) -> Peer:
        peer = self.peers.find(7)
        assert peer is not None
        return peer


def test_the_preferred_interface_is_used_once_it_is_steady_and_acknowledges() -> None:
    bench = Bench()
    assert bench.hear(RADIO, WIRE, seconds=3) == [], "too new to say"
    assert bench.peer.endpoint == RADIO and bench.doubted == 1
    assert bench.hear(RADIO, WIRE, seconds=2) == [WIRE, WIRE]
    assert bench.peer.endpoint == RADIO, "until it answers"
    bench.peer.probe = Probe(WIRE, 99, bench.now)
    bench.peers.on_acknowledged(7, 98, bench.now)
    assert bench.peer.endpoint == RADIO
    bench.peers.on_acknowledged(7, 99, bench.now)
    assert bench.moves == [("wlan0", "eth0", False)]
    assert bench.hear(RADIO, WIRE, seconds=30) == [], "no way back while both are as good"


def test_a_probe_is_made_once_a_second_at_most() -> None:
    bench = Bench()
    bench.hear(RADIO, WIRE, seconds=5)
    bench.peer.probe = Probe(WIRE, 99, bench.now)
    assert not bench.peers.is_worth_a_probe(bench.peer, WIRE, bench.now + SECOND - 1)
    assert bench.peers.is_worth_a_probe(bench.peer, WIRE, bench.now + SECOND)


def test_a_failure_turns_to_the_other_path_at_once_and_back_only_after_a_while() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, seconds=10)
    assert bench.peer.endpoint == WIRE
    assert bench.peers.turn_from(bench.peer, WIRE, bench.now + 1)
    assert bench.peer.endpoint == RADIO and bench.moves == [("eth0", "wlan0", False)]
    assert bench.hear(WIRE, RADIO, seconds=FAILED_FOR // SECOND - 1) == []
    assert WIRE in bench.hear(WIRE, RADIO, seconds=3)
    assert bench.peers.turn_from(bench.peer, RADIO, bench.now + 1), "it is heard again, so it may work"
    assert bench.peer.endpoint == WIRE


def test_without_another_path_that_works_a_failure_changes_nothing() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, seconds=10)
    bench.hear(WIRE, seconds=5)  # the radio is silent
    assert not bench.peers.turn_from(bench.peer, WIRE, bench.now)
    assert bench.peer.endpoint == WIRE and bench.peers.works(bench.peer, bench.now)
    bench.peers.give_up(bench.peer, bench.now)
    assert bench.peer.is_silent(bench.now) and not bench.peers.works(bench.peer, bench.now)
    bench.hear(RADIO)
    assert bench.peer.endpoint == RADIO, "who failed there is believed elsewhere"


def test_an_interface_that_goes_away_takes_its_paths_with_it() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, LINK_LOCAL, seconds=10)
    bench.peers.on_away("wlan0", is_ipv6=True, now=bench.now + 1)
    assert bench.moves == []
    assert bench.peers.working(bench.peer, bench.now + 1) == [WIRE, RADIO]
    bench.peers.on_away("eth0", is_ipv6=False, now=bench.now + 2)
    assert bench.moves == [("eth0", "wlan0", True)] and bench.peer.endpoint == RADIO
    bench.peers.on_away("wlan0", is_ipv6=False, now=bench.now + 3)
    assert len(bench.moves) == 1 and not bench.peers.works(bench.peer, bench.now + 3)
    bench.hear(WIRE)
    assert bench.peer.endpoint == WIRE


def test_a_silent_path_is_left_and_a_path_that_is_clearly_better_is_worth_a_probe() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, seconds=20)
    bench.hear(RADIO, seconds=2)
    assert bench.moves == [("eth0", "wlan0", False)], "after two seconds"
    bench = Bench()
    bench.hear(RADIO, WIRE)
    worth: list[Endpoint] = []
    for number in range(40):  # the preferred one is heard in every third slot only, and still in use
        both = number % 6 == 0
        worth += bench.hear(WIRE, RADIO) if both else bench.hear(RADIO)
    assert bench.peer.endpoint == RADIO and WIRE not in worth


@pytest.mark.parametrize("times", [1_000])
def test_who_speaks_from_many_addresses_fills_no_memory_and_moves_nothing(times: int) -> None:
    bench = Bench()
    bench.hear(WIRE)
    for number in range(times):
        bench.peers.heard(
            7, Endpoint(f"10.9.{number // 250}.{number % 250}", 4748, "eth0"), bench.now + number
        )
    assert bench.peer.endpoint == WIRE and len(bench.peer.paths) == PATHS_MAX and bench.doubted == times
    bench.peers.forget_old(bench.now + 61 * SECOND)
    assert list(bench.peer.paths) == [WIRE]


def test_a_newly_proven_peer_has_the_paths_of_its_new_boot_only() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, seconds=5)
    bench.peers.on_proven(7)
    restarted = WIRE._replace(port=50_000)
    bench.hear(restarted)
    assert bench.peer.endpoint == restarted
    assert bench.peers.working(bench.peer, bench.now) == [restarted]


def test_slots() -> None:
    slots = HeardSlots(2 * SECOND, 0)
    assert slots.quality(1 * SECOND) is None
    assert [slots.heard(second * SECOND) for second in (1, 2, 3, 6)] == [False, True, False, True]
    assert slots.quality(7 * SECOND) == 3 / 4
    assert slots.quality(8 * SECOND) == 3 / 4, "a slot that has just begun is no loss"
    assert slots.quality(60 * SECOND) == 0
    slots.begin(60 * SECOND)
    assert slots.quality(61 * SECOND) is None


def test_an_endpoint_for_people() -> None:
    assert str(WIRE) == "10.1.0.2:4748" and WIRE.host == "10.1.0.2"
    assert str(LINK_LOCAL) == "[fe80::2%wlan0]:4748" and LINK_LOCAL.is_ipv6
