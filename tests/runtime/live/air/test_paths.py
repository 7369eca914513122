"""Which path leads to a neighbour: hand-computed cases with a clock of their own."""

import logging

import pytest

from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.air.peers import (
    EXPIRY,
    FAILED_FOR,
    LINES_PER_MINUTE,
    PATHS_MAX,
    PEERS_MAX,
    HeardSlots,
    PathProbe,
    Peer,
    Peers,
)
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.report.names import Names
from roamcast.sealing import PeerProof
from roamcast.units import SECOND, Micros

WIRE, RADIO = Endpoint("10.1.0.2", 4748, "eth0"), Endpoint("10.2.0.2", 4748, "wlan0")
LINK_LOCAL = Endpoint("fe80::2", 4748, "wlan0")
PROOF = PeerProof(1, bytes(32), 0, 0, 1)
RANKS = {"eth0": 0, "wlan0": 1}


class Bench:
    """Peer 7, heard once a second by each of its paths unless a test says otherwise."""

    def __init__(self, peers_max: int = PEERS_MAX) -> None:
        self.moves: list[tuple[str, str, bool]] = []
        self.evicted: list[str] = []
        self.forgotten = 0
        self.counters = Counters()
        self.peers = Peers(self, self.counters, Names(), presence=SECOND, peers_max=peers_max)
        self.now: Micros = 0

    def rank(self, interface: str) -> int:
        return RANKS[interface]

    def on_moved(self, peer: Peer, before: Endpoint, *, is_lost: bool) -> None:
        self.moves.append((before.interface, peer.endpoint.interface, is_lost))

    def on_evicted(self, table: str) -> None:
        self.evicted.append(table)

    def on_forgotten(self) -> None:
        self.forgotten += 1

    @property
    def doubted(self) -> float:
        return self.counters.value("addresses_doubted_total")

    def hear(self, *endpoints: Endpoint, seconds: int = 1) -> list[Endpoint]:
        """The paths that were worth a probe."""
        worth = []
        for _ in range(seconds):
            self.now += SECOND
            for endpoint in endpoints:
                peer = self.peers.heard(7, endpoint, 100, self.now)
                if endpoint != peer.endpoint and self.peers.is_worth_a_probe(peer, endpoint, self.now):
                    worth.append(endpoint)
        return worth

    @property
    def peer(self) -> Peer:
        peer = self.peers.get(7)
        assert peer is not None
        return peer


def test_the_preferred_interface_is_used_once_it_is_steady_and_acknowledges() -> None:
    bench = Bench()
    assert bench.hear(RADIO, WIRE, seconds=3) == [], "too new to say"
    assert bench.peer.endpoint == RADIO and bench.doubted == 1
    assert bench.hear(RADIO, WIRE, seconds=2) == [WIRE, WIRE]
    assert bench.peer.endpoint == RADIO, "until it answers"
    bench.peer.probe = PathProbe(WIRE, 99, bench.now)
    bench.peers.on_acknowledged(7, 98, bench.now)
    assert bench.peer.endpoint == RADIO
    bench.peers.on_acknowledged(7, 99, bench.now)
    assert bench.moves == [("wlan0", "eth0", False)]
    assert bench.hear(RADIO, WIRE, seconds=30) == [], "no way back while both are as good"


def test_a_probe_is_made_once_a_second_at_most() -> None:
    bench = Bench()
    bench.hear(RADIO, WIRE, seconds=5)
    bench.peer.probe = PathProbe(WIRE, 99, bench.now)
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
        elsewhere = Endpoint(f"10.9.{number // 250}.{number % 250}", 4748, "eth0")
        bench.peers.heard(7, elsewhere, 100, bench.now + number)
    assert bench.peer.endpoint == WIRE and len(bench.peer.paths) == PATHS_MAX and bench.doubted == times
    bench.peers.forget_old(bench.now + 61 * SECOND)
    assert list(bench.peer.paths) == [WIRE]


def test_a_newly_proven_peer_has_the_paths_of_its_new_boot_only() -> None:
    bench = Bench()
    bench.hear(WIRE, RADIO, seconds=5)
    restarted = WIRE._replace(port=50_000)
    bench.peers.heard(7, restarted, 100, bench.now, PROOF)
    assert bench.peer.endpoint == restarted
    assert bench.peers.working(bench.peer, bench.now) == [restarted]


def test_slots() -> None:
    slots = HeardSlots(2 * SECOND, 0)
    assert slots.quality(1 * SECOND) is None
    for second in (1, 2, 3, 6):
        slots.heard(second * SECOND)
    assert slots.quality(7 * SECOND) == 3 / 4
    assert slots.quality(8 * SECOND) == 3 / 4, "a slot that has just begun is no loss"
    assert slots.quality(60 * SECOND) == 0
    slots.begin(60 * SECOND)
    assert slots.quality(61 * SECOND) is None


def test_an_endpoint_for_people() -> None:
    assert str(WIRE) == "10.1.0.2:4748" and WIRE.host == "10.1.0.2"
    assert str(LINK_LOCAL) == "[fe80::2%wlan0]:4748" and LINK_LOCAL.is_ipv6


def test_an_address_moves_when_the_old_one_is_silent_or_fails_or_its_node_proves_itself() -> None:
    bench, there = Bench(), WIRE._replace(address="10.1.0.3")

    def where(at: float, endpoint: Endpoint, proof: PeerProof | None = None) -> Endpoint:
        return bench.peers.heard(7, endpoint, 100, round(at * SECOND), proof).endpoint

    assert where(1.0, WIRE) == WIRE
    assert where(2.5, there) == WIRE and bench.doubted == 1, "it spoke just now"
    assert where(3.0, there) == there, "the other has been silent for two seconds"
    assert where(3.5, WIRE) == there
    bench.peers.give_up(bench.peer, round(3.6 * SECOND))
    assert where(3.7, WIRE) == WIRE, "frames to the other failed"
    assert where(3.8, there) == WIRE
    assert where(3.8, there, PROOF) == there, "a restart: another port at once"
    assert where(3.9, WIRE) == there


def test_thousands_of_past_peers_are_forgotten() -> None:
    bench = Bench(peers_max=100)
    bench.peers.heard(0, WIRE, 100, 0, PROOF)
    for number in range(1, 5_000):
        bench.peers.heard(number, WIRE, 100, number)
    assert len(bench.peers) == 100
    assert bench.evicted == ["peers"] * 4_900 and bench.forgotten == 1, "one had proven itself"
    assert 4_899 not in bench.peers and 4_900 in bench.peers
    bench.peers.heard(4_900, RADIO, 100, 50 * SECOND)
    bench.peers.forget_old(EXPIRY + SECOND)
    assert list(bench.peers) == [4_900]


def test_a_peer_whose_proof_still_counts_is_not_forgotten() -> None:
    bench = Bench()
    bench.peers.heard(7, WIRE, 100, 0, PROOF)
    bench.peers.forget_old(EXPIRY)
    assert bench.peer.proof is PROOF, "frames of it come over a link"
    bench.peer.proof = None
    bench.peers.forget_old(EXPIRY)
    assert not bench.peers


def test_a_peer_is_logged_when_it_comes_moves_goes_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.hear(RADIO)
    bench.hear(WIRE, seconds=2)
    bench.peers.look(bench.now + 4 * SECOND)
    assert bench.peers.up == 1
    bench.peers.look(bench.now + 7 * SECOND)
    assert bench.peers.up == 0
    bench.now += 8 * SECOND
    bench.hear(WIRE)
    assert bench.peers.up == 1
    assert bench.counters.value("peers_came_total") == 2 and bench.counters.value("peers_went_total") == 1
    assert [record.getMessage() for record in caplog.records] == [
        "node 7 is here, at 10.2.0.2:4748 by wlan0",
        "node 7 moved from 10.2.0.2:4748 by wlan0 to 10.1.0.2:4748 by eth0",
        "node 7 at 10.1.0.2:4748 by eth0 is gone: not heard for 7.0 s",
        "node 7 is here, at 10.1.0.2:4748 by eth0",
    ]


def test_quality_is_the_share_of_intervals_in_which_a_peer_was_heard() -> None:
    peers = Bench().peers
    slots = peers.heard(7, WIRE, 1, 0).hearing.slots
    assert slots.quality(1 * SECOND) is None, "too new to say"
    for second in (4, 8, 12):  # every second slot of two seconds
        peers.heard(7, WIRE, 1, second * SECOND)
    assert slots.quality(12 * SECOND) == 4 / 7
    for second in range(13, 60):
        peers.heard(7, WIRE, 1, second * SECOND)
    assert slots.quality(59 * SECOND) == 1.0
    assert slots.quality(60 * SECOND) == 1.0, "a slot that has just begun is no loss"
    assert slots.quality(70 * SECOND) == 4 / 9, "of the nine slots that are over"


def test_a_crowd_in_motion_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    peers = Bench().peers
    for number in range(10_000):
        peers.heard(number, WIRE, 1, 0)
    assert len(caplog.records) == LINES_PER_MINUTE
    assert len(peers) == PEERS_MAX
