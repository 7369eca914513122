"""Link hysteresis (RFC 3626, section 14): figures worked out by hand, and links that come and go."""

import pytest

from roamcast.testing import FakeHost
from roamcast.underlay.addresses import Subnet
from roamcast.underlay.base import UnderlayContext
from roamcast.underlay.olsr import Olsr, OlsrOptions
from roamcast.underlay.olsr.links import LinkQuality
from roamcast.units import SECOND
from roamcast.wire.olsr import (
    LinkType,
    MessageType,
    NeighbourType,
    decode_hello,
    decode_packet,
    encode_hello,
    encode_message,
    encode_packet,
    link_code,
)

SUBNET = Subnet()
SYMMETRIC = link_code(LinkType.SYMMETRIC, NeighbourType.SYMMETRIC)


def test_the_quality_of_a_link_follows_what_came_and_what_was_lost() -> None:
    quality = LinkQuality(sequence=10)
    assert quality.value == 0.5 and quality.is_pending
    quality.on_packet(11, 0)
    assert quality.value == 0.75 and quality.is_pending
    quality.on_packet(12, 0)
    assert quality.value == 0.875 and not quality.is_pending
    quality.on_packet(14, 0)  # 13 is lost
    assert quality.value == pytest.approx(0.71875) and not quality.is_pending
    quality.on_silence(0)
    quality.on_silence(0)
    assert quality.value == pytest.approx(0.1796875) and quality.is_pending


def test_numbers_wrap_around_and_a_restart_is_no_loss() -> None:
    quality = LinkQuality(sequence=65_535)
    quality.on_packet(0, 0)
    assert quality.value == 0.75
    quality.on_packet(40_000, 0)
    assert quality.value == 0.875
    quality.on_packet(40_000, 0)  # the same again says nothing
    assert quality.value == 0.875


class Neighbour:
    """Node 1 says a HELLO to node 0, which is under test."""

    def __init__(self, *, hysteresis: bool = True) -> None:
        self.host = FakeHost(node=0)
        self.olsr = Olsr(UnderlayContext(self.host), OlsrOptions(hysteresis=hysteresis))
        self.host.attach(self.olsr)
        self.olsr.on_start()
        self.packet = 0

    def hello(self, *, lost_before: int = 0) -> None:
        self.packet += 1 + lost_before
        body = encode_hello(2 * SECOND, 3, [(SYMMETRIC, [SUBNET.address(0)])])
        message = encode_message(MessageType.HELLO, 6 * SECOND, SUBNET.address(1), 1, 0, self.packet, body)
        self.olsr.on_receive(1, encode_packet(self.packet, [message]))

    def named(self) -> bool:
        """Whether our latest HELLO mentions the neighbour."""
        hellos = [m for sent in self.host.sent for m in decode_packet(sent.frame.payload).messages]
        return SUBNET.address(1) in decode_hello(hellos[-1].body).links


def test_a_link_counts_from_the_third_packet_on_and_is_not_mentioned_before() -> None:
    link = Neighbour()
    for expected in ([], [], [1]):
        link.hello()
        assert link.olsr.neighbours() == expected
        link.host.advance(2 * SECOND)
        assert link.named() is bool(expected)


def test_without_the_option_the_first_good_hello_counts() -> None:
    link = Neighbour(hysteresis=False)
    link.hello()
    assert link.olsr.neighbours() == [1]


def test_a_link_that_lets_one_hello_in_five_through_never_counts() -> None:
    link = Neighbour()
    for _ in range(20):
        link.hello(lost_before=4)
        link.host.advance(2 * SECOND)
        assert link.olsr.neighbours() == []


def test_silence_rejects_a_link_before_its_validity_ends() -> None:
    link = Neighbour()
    for _ in range(4):
        link.hello()
        link.host.advance(2 * SECOND)
    assert link.olsr.neighbours() == [1]  # quality 15/16, 2 s ago
    link.host.advance(3 * SECOND)  # two losses, at 3 and 5 s: below 0.3
    assert link.olsr.neighbours() == [] and link.olsr.links() == {SUBNET.address(1): LinkType.LOST}
    link.host.advance(60 * SECOND)
    assert link.olsr.links() == {}
