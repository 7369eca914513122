"""Payloads in chunks over every strategy: whole or nothing, and a cut in the middle is no new beginning."""

from random import Random

import pytest

from roamcast.applications import Applications, ApplicationSession
from roamcast.broker.core import Delivery
from roamcast.chunks import CHUNK_BYTES, digest_of, pieces
from roamcast.event import Event, EventClass, Publication
from roamcast.filter import Filter
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.testing.network import Network, line
from roamcast.trace import Transmitted
from roamcast.units import SECOND, Micros

PAYLOAD = Random(5).randbytes(40 * CHUNK_BYTES - 100)
KEYS = ContentKeys(ContentKey(bytes(range(32))))
REPAIRING = ["epidemic", "tree", "chapar", "opportunistic"]  # they hand memorized events over after a cut


class Users:
    """Applications on the nodes of a network, instead of its own recorders."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.got: dict[int, list[Event]] = {}
        self._applications: dict[int, Applications] = {}

    def enter(self) -> None:
        pass

    def now(self) -> Micros:
        return self.network.engine.now

    def on(self, number: int) -> ApplicationSession:
        node = self.network.node(number)
        if number not in self._applications:
            applications = self._applications[number] = Applications(self)
            applications.bind(node)
            node.broker._application = applications
        got = self.got.setdefault(number, [])

        def receive(delivery: Delivery) -> None:
            got.append(delivery.event)

        return self._applications[number].open(receive)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.01)):
            self.network.run(0.01)
            for applications in self._applications.values():
                applications.drain()


def chunk_octets(network: Network) -> int:
    """On the air, of frames with an event."""
    return sum(frame.size for frame in network.trace.of(Transmitted) if frame.sequence is not None)


@pytest.mark.parametrize("strategy", [*REPAIRING, "odmrp", "flooding"])
def test_a_large_payload_crosses_three_hops_whole_and_once(strategy: str) -> None:
    network = Network(4, strategy, links=line(4))
    users = Users(network)
    users.on(3).subscribe(Filter.topic("map/#") & Filter.sql("level > 3"))
    users.on(2).subscribe(Filter.topic("other"))
    publisher = users.on(0)
    users.run(12.0)
    frame = Publication({"level": 5}, topic="map/a", type="area.map")
    transfer = publisher.begin(frame, len(PAYLOAD), digest_of(PAYLOAD)).transfer
    for octets in pieces(PAYLOAD):
        transfer.add(octets)
        users.run(0.01)
    users.run(3.0)
    (event,) = users.got[3]
    assert event.payload == PAYLOAD and event.id == (0, transfer.first)
    assert (event.attributes, event.topic, event.type) == ({"level": 5}, "map/a", "area.map")
    assert event.event_class is EventClass.REALTIME and event.lifetime == 0
    assert not users.got[2] and not users.got[0]


@pytest.mark.parametrize("strategy", REPAIRING)
@pytest.mark.parametrize("lifetime", [0, 3600 * SECOND])
def test_a_cut_in_the_middle_resumes_with_what_is_missing(strategy: str, lifetime: Micros) -> None:
    network = Network(4, strategy, links=line(4))
    users = Users(network)
    users.on(3).subscribe(Filter.topic("map"))
    publisher = users.on(0)
    users.run(12.0)
    transfer = publisher.begin(
        Publication(topic="map", lifetime=lifetime), len(PAYLOAD), digest_of(PAYLOAD)
    ).transfer
    for number, octets in enumerate(pieces(PAYLOAD)):
        if number == 20:
            network.cut((1, 2))
        transfer.add(octets)
        users.run(0.02)
    users.run(5.0)
    assert not users.got[3]
    before = chunk_octets(network)
    network.connect((1, 2))
    users.run(15.0)
    (event,) = users.got[3]
    assert event.payload == PAYLOAD and event.lifetime == lifetime
    # The second half crosses two hops. If the first half went again, that would be two whole payloads.
    assert chunk_octets(network) - before < 1.7 * len(PAYLOAD)


@pytest.mark.parametrize("strategy", ["epidemic", "chapar"])
def test_a_sealed_large_payload_is_read_by_those_who_have_the_key(strategy: str) -> None:
    network = Network(3, strategy, links=line(3))
    users = Users(network)
    for number in (0, 2):
        network.node(number)._content = network.node(number).broker.opener = KEYS
    for number in (1, 2):
        users.on(number).subscribe(Filter.topic("map"))
    publisher = users.on(0)
    users.run(12.0)
    publisher.publish(Publication(topic="map", payload=PAYLOAD, lifetime=600 * SECOND, sealed=True))
    users.run(5.0)
    assert [event.payload for event in users.got[2]] == [PAYLOAD] and not users.got[1]


def test_a_large_payload_for_a_named_node_goes_to_nobody_else() -> None:
    network = Network(3, "epidemic", links=line(3))
    users = Users(network)
    for number in (1, 2):
        users.on(number).subscribe(Filter.topic("map"))
        users.on(number)
    users._applications[2].open(lambda delivery: users.got[2].append(delivery.event), addressed=True)
    publisher = users.on(0)
    users.run(5.0)
    transfer = publisher.begin(
        Publication(topic="map", destinations=(2,)), len(PAYLOAD), digest_of(PAYLOAD)
    ).transfer
    for octets in pieces(PAYLOAD):  # all at one instant would seem to have been there before it was asked for
        transfer.add(octets)
        users.run(0.01)
    users.run(5.0)
    assert [event.payload for event in users.got[2]] == [PAYLOAD] and not users.got[1]
