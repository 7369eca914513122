"""Streams over a network that loses, repeats, reorders and forgets."""

from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from roamcast.event import Event
from roamcast.strategy.opportunistic import stream
from roamcast.strategy.opportunistic.messages import (
    MESSAGE_OCTETS_MAX,
    Keep,
    StreamAcknowledgement,
    StreamMessage,
    StreamSegment,
    octets,
)
from roamcast.strategy.opportunistic.stream import (
    LONGEST_WAIT,
    WINDOW,
    WINDOW_OCTETS,
    PeerStreams,
    RoundTrips,
)
from roamcast.testing import FakeHost
from roamcast.trace import Dropped, DropReason
from roamcast.units import MILLISECOND, SECOND, Micros, NodeId


class End:
    """One node: its streams, what arrived, and what it was told."""

    def __init__(self, network: "Network", number: NodeId, stable: dict[str, bytes]) -> None:
        self.network, self.number = network, number
        self.host = FakeHost(node=number, stable=stable, now=network.now)
        self.host.attach(self)  # type: ignore[arg-type]
        self.streams = PeerStreams(self.host, self, self)
        self.arrived: list[tuple[NodeId, bytes]] = []
        self.resets: list[tuple[NodeId, list[bytes]]] = []
        self.unreachable: list[NodeId] = []

    def send(
        self, to: NodeId, message: StreamSegment | StreamAcknowledgement, *, is_repeat: bool = False
    ) -> bool:
        self.network.carry(self.number, to, message)
        return True

    def has_route(self, to: NodeId) -> bool:
        return True

    def on_message(self, sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None:
        self.arrived.append((sender, body_of(message)))

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None:
        self.resets.append((peer, [body_of(message) for message in unconfirmed]))

    def on_unreachable(self, peer: NodeId) -> None:
        self.unreachable.append(peer)

    def on_timer(self, name: Any) -> None:
        name.due()


class Network:
    def __init__(
        self, seed: int, *, loss: float = 0.0, repeat: float = 0.0, delay: Micros = MILLISECOND
    ) -> None:
        self.random = Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.now: Micros = 0
        self.is_cut = False
        self.stable: dict[NodeId, dict[str, bytes]] = {1: {}, 2: {}}
        self.ends = {number: End(self, number, self.stable[number]) for number in (1, 2)}
        self._flying: list[tuple[Micros, int, NodeId, NodeId, StreamSegment | StreamAcknowledgement]] = []
        self._count = 0

    def carry(self, sender: NodeId, to: NodeId, message: StreamSegment | StreamAcknowledgement) -> None:
        if self.is_cut:
            return
        for _ in range(2 if self.random.random() < self.repeat else 1):
            if self.random.random() >= self.loss:
                self.later(self.now + 1 + int(self.random.random() * self.delay), sender, to, message)

    def run(self, duration: Micros, step: Micros = 5 * MILLISECOND) -> None:
        until = self.now + duration
        while self.now < until:
            self.now += step
            due = sorted(flight for flight in self._flying if flight[0] <= self.now)
            self._flying = [flight for flight in self._flying if flight[0] > self.now]
            for _, _, sender, to, message in due:
                self.ends[to].streams.on_content(sender, message, 1)
            for end in self.ends.values():
                end.host.advance(step)

    def later(
        self, arrival: Micros, sender: NodeId, to: NodeId, message: StreamSegment | StreamAcknowledgement
    ) -> None:
        self._count += 1
        self._flying.append((arrival, self._count, sender, to, message))

    def restart(self, number: NodeId) -> End:
        self.ends[number] = End(self, number, self.stable[number])
        return self.ends[number]


class Radio(Network):
    """Some hops of a certain bit rate: a datagram takes its size on each, behind what left before it."""

    def __init__(self, seed: int, *, bitrate: int, hops: int = 1, loss: float = 0.0) -> None:
        super().__init__(seed, loss=loss)
        self.bitrate = bitrate
        self._free_at = {1: [0] * hops, 2: [0] * hops}
        self.segments: list[tuple[NodeId, int]] = []  # each copy that was sent
        self.lost = 0

    def carry(self, sender: NodeId, to: NodeId, message: StreamSegment | StreamAcknowledgement) -> None:
        size = 40
        if isinstance(message, StreamSegment):
            self.segments.append((sender, message.number))
            size += octets(message.message)
        at = self.now
        free_at = self._free_at[sender]
        for hop, free in enumerate(free_at):
            at = free_at[hop] = max(at, free) + size * 8 * SECOND // self.bitrate
        if self.random.random() < self.loss:
            self.lost += 1
        else:
            self.later(at, sender, to, message)


class Sender:
    """One stream by hand: every copy that leaves, and acknowledgements as the test wants them."""

    def __init__(self) -> None:
        self.host = FakeHost(node=1)
        self.host.attach(self)  # type: ignore[arg-type]
        self.sent: list[StreamSegment] = []
        self.streams = PeerStreams(self.host, self, self)

    def send(
        self, to: NodeId, message: StreamSegment | StreamAcknowledgement, *, is_repeat: bool = False
    ) -> bool:
        assert isinstance(message, StreamSegment)
        self.sent.append(message)
        return True

    def has_route(self, to: NodeId) -> bool:
        return True

    def write(self, *sizes: int) -> None:
        for size in sizes:
            self.streams.write(2, message_of(bytes(size)))

    def answer(self, copy: StreamSegment, expected: int, *early: int) -> None:
        """`early`: which later ones have arrived."""
        bits = sum(1 << (number - expected - 1) for number in early)
        answer = StreamAcknowledgement(copy.stream, expected, 1, copy.number, copy.held, early=bits)
        self.streams.on_content(2, answer, 1)

    def numbers(self) -> list[int]:
        """Of the copies since the last question."""
        numbers = [copy.number for copy in self.sent]
        self.sent.clear()
        return numbers

    def on_message(self, sender: NodeId, message: StreamMessage, hops: int, held: Micros) -> None: ...

    def on_reset(self, peer: NodeId, unconfirmed: list[StreamMessage]) -> None: ...

    def on_unreachable(self, peer: NodeId) -> None: ...

    def on_timer(self, name: Any) -> None:
        name.due()


def message(number: int) -> StreamMessage:
    return message_of(b"%d" % number)


def message_of(body: bytes) -> Keep:
    return Keep(Event(1, 0, payload=body), 0, 0)


def body_of(message: StreamMessage) -> bytes:
    assert isinstance(message, Keep)
    return message.event.payload


LARGEST = MESSAGE_OCTETS_MAX - octets(message_of(bytes(60_000))) + 60_000  # octets of such a body


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@pytest.mark.parametrize("seed", range(40))
def test_everything_arrives_once_and_in_order_over_any_bad_network(seed: int) -> None:
    random = Random(f"schedule {seed}")
    network = Network(
        seed,
        loss=random.choice([0.0, 0.1, 0.3, 0.5]),
        repeat=random.choice([0.0, 0.2]),
        delay=random.choice([1, 20, 400]) * MILLISECOND,
    )
    one, other = network.ends[1], network.ends[2]
    sent = {1: 0, 2: 0}
    for _ in range(30):
        for number, end, peer in ((1, one, 2), (2, other, 1)):
            for _ in range(random.choice([0, 0, 1, 5, WINDOW + 5])):
                assert end.streams.write(peer, message(sent[number]))
                sent[number] += 1
        network.is_cut = random.random() < 0.2
        network.run(random.choice([10, 100, 1000]) * MILLISECOND)
    network.is_cut, network.loss = False, min(network.loss, 0.3)
    network.run(600 * SECOND, 50 * MILLISECOND)
    assert [body for _, body in other.arrived] == bodies(*range(sent[1]))
    assert [body for _, body in one.arrived] == bodies(*range(sent[2]))
    assert not one.resets and not other.resets
    assert one.streams.waiting(2) == other.streams.waiting(1) == 0


def test_a_restarted_receiver_is_noticed_once_and_what_it_did_not_confirm_comes_back() -> None:
    network = Network(1)
    one, other = network.ends[1], network.ends[2]
    one.streams.write(2, message(0))
    network.run(SECOND)
    network.is_cut = True
    one.streams.write(2, message(1))
    one.streams.write(2, message(2))
    network.run(SECOND)
    other = network.restart(2)
    network.is_cut = False
    network.run(10 * SECOND)
    assert one.resets == [(2, bodies(1, 2))] and other.resets == []
    one.streams.write(2, message(3))
    network.run(SECOND)
    assert other.arrived == [(1, b"3")]
    other.streams.write(1, message(9))
    network.run(SECOND)
    assert one.arrived == [(2, b"9")] and len(one.resets) == 1


def test_a_restarted_sender_is_noticed_by_its_first_word() -> None:
    network = Network(1)
    network.ends[1].streams.write(2, message(0))
    network.run(SECOND)
    one = network.restart(1)
    other = network.ends[2]
    network.is_cut = True
    other.streams.write(1, message(7))
    network.is_cut = False
    one.streams.write(2, message(1))
    network.run(SECOND)
    assert other.arrived == [(1, b"0"), (1, b"1")]
    assert other.resets == [(1, bodies(7))]
    assert one.resets == [] and one.arrived == []


def test_silence_is_reported_once_and_ends_with_the_next_confirmation() -> None:
    network = Network(1)
    one = network.ends[1]
    for _ in range(2):
        network.is_cut = True
        one.streams.write(2, message(0))
        network.run(20 * SECOND, 100 * MILLISECOND)
        network.is_cut = False
        one.streams.try_now(2)
        network.run(SECOND)
    assert one.unreachable == [2, 2]
    assert len(network.ends[2].arrived) == 2


def test_what_is_abandoned_does_not_come_and_the_next_message_does() -> None:
    network = Network(1)
    one, other = network.ends[1], network.ends[2]
    one.streams.write(2, message(0))
    network.run(SECOND)
    network.is_cut = True
    one.streams.write(2, message(1))
    assert [body_of(given) for given in one.streams.abandon(2)] == bodies(1)
    network.is_cut = False
    one.streams.write(2, message(2))
    network.run(SECOND)
    assert [body for _, body in other.arrived] == bodies(0, 2)
    assert one.resets == other.resets == []


def test_a_full_queue_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "QUEUE_MAX", 3)
    network = Network(1)
    streams = network.ends[1].streams
    assert [streams.write(2, message(number)) for number in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_forged_datagrams_do_not_stop_a_stream(seed: int) -> None:
    """From outside the streams, with any numbers: nothing crashes, and honest messages still arrive in order,
    unless the forger knows the boot of the peer, which sealing keeps from it."""
    random = Random(seed)
    network = Network(seed)
    one, other = network.ends[1], network.ends[2]
    for number in range(20):
        one.streams.write(2, message(number))
        forged: list[StreamSegment | StreamAcknowledgement] = [
            StreamSegment(
                random.randrange(1 << 32),
                random.randrange(1 << 33),
                random.randrange(100),
                0,
                message_of(b"x"),
            ),
            StreamAcknowledgement(
                random.randrange(1 << 34),
                random.randrange(1 << 33),
                0,
                random.randrange(40),
                random.randrange(1 << 40),
            ),
        ]
        other.streams.on_content(1, forged[0], 1)
        one.streams.on_content(2, forged[1], 1)
        network.run(50 * MILLISECOND)
    network.run(20 * SECOND)
    assert [body for _, body in other.arrived if body != b"x"] == bodies(*range(20))


@pytest.mark.parametrize(
    ("bitrate", "hops"), [(150_000, 1), (500_000, 3), (1_000_000, 1), (1_000_000, 5), (11_000_000, 3)]
)
@pytest.mark.parametrize("seed", range(6))
def test_a_link_without_loss_never_carries_a_message_twice(seed: int, bitrate: int, hops: int) -> None:
    """Whatever the messages' sizes, in whatever order, alone or in a queue."""
    random = Random(f"sizes {seed}")
    radio = Radio(seed, bitrate=bitrate, hops=hops)
    written: list[bytes] = []
    for _ in range(12):
        for _ in range(random.choice([1, 1, 2, 8])):
            body = bytes([len(written)]) * random.choice([10, 60, 400, 5_000, 40_000, LARGEST])
            radio.ends[1].streams.write(2, message_of(body))
            written.append(body)
        radio.run(random.choice([1, 10]) * SECOND * 1_000_000 // bitrate, 10 * MILLISECOND)
    radio.run(
        sum(octets(message_of(one)) for one in written) * 8 * hops * SECOND // bitrate + SECOND,
        50 * MILLISECOND,
    )
    assert [body for _, body in radio.ends[2].arrived] == written
    assert radio.segments == [(1, number) for number in range(len(written))]


@pytest.mark.parametrize("seed", range(10))
def test_large_messages_over_a_radio_that_loses_some_cost_little_more_than_what_was_lost(seed: int) -> None:
    random = Random(f"lossy {seed}")
    radio = Radio(seed, bitrate=1_000_000, hops=2, loss=0.1)
    written = [bytes([number]) * random.choice([60, 5_000, 40_000]) for number in range(60)]
    for body in written:
        radio.ends[1].streams.write(2, message_of(body))
    radio.run(120 * SECOND, 10 * MILLISECOND)
    assert [body for _, body in radio.ends[2].arrived] == written
    copies = len(radio.segments) - len(written)
    # An acknowledgement that is lost may cost a copy, too; the next one mostly makes up for it.
    assert 0 < copies <= 1.5 * radio.lost


def test_only_so_many_octets_are_under_way() -> None:
    sender = Sender()
    sender.write(*[40_000] * 5)
    assert 3 * 40_000 <= WINDOW_OCTETS < 4 * 40_000
    first = sender.sent[0]
    assert sender.numbers() == [0, 1, 2]
    sender.answer(first, 1)
    assert sender.numbers() == [3]
    sender = Sender()
    sender.write(*[LARGEST] * 3, *[10] * 100)
    assert sender.numbers() == [0, 1]  # small ones do not overtake
    sender = Sender()
    sender.write(*[10] * 100)
    assert sender.numbers() == list(range(WINDOW))


def test_three_later_messages_show_a_loss_at_once_and_it_is_repaired_once() -> None:
    sender = Sender()
    sender.write(*[10] * 8)
    copies = list(sender.sent)
    sender.numbers()
    sender.host.advance(10 * MILLISECOND)
    sender.answer(copies[1], 0, 1)
    sender.answer(copies[2], 0, 1, 2)
    assert sender.numbers() == []  # may be disorder
    sender.answer(copies[3], 0, 1, 2, 3)
    assert sender.numbers() == [0]
    sender.answer(copies[4], 0, 1, 2, 3, 4)
    assert sender.numbers() == []


def test_every_message_that_is_lost_is_repeated_at_once_and_no_other() -> None:
    """Messages 0, 3 and 4 of 12 are lost."""
    sender = Sender()
    sender.write(*[10] * 12)
    copies = list(sender.sent)
    sender.numbers()
    sender.host.advance(10 * MILLISECOND)
    sender.answer(copies[7], 0, 1, 2, 5, 6, 7)
    repeated = list(sender.sent)
    assert sender.numbers() == [0, 3, 4]
    sender.answer(repeated[0], 3, 5, 6, 7, 8, 9, 10, 11)
    assert sender.numbers() == []  # 3 and 4 are on their way a second time
    sender.answer(repeated[2], 12)
    assert sender.numbers() == [] and sender.streams.waiting(2) == 0


def test_a_repeat_that_is_lost_again_is_known_by_a_later_copy_that_arrives() -> None:
    sender = Sender()
    sender.write(*[10] * 5)
    copies = list(sender.sent)
    sender.numbers()
    sender.host.advance(10 * MILLISECOND)
    sender.answer(copies[4], 0, 1, 2, 4)
    assert sender.numbers() == [0]
    sender.host.advance(1_000 * MILLISECOND)
    assert set(sender.numbers()) == {0}  # the timeout asks whether the peer is there
    sender.write(10)
    later = sender.sent[-1]
    sender.answer(later, 0, 1, 2, 4, 5)
    assert sender.numbers() == [5, 3]  # 3 has had its time; 0 was repeated lately


def test_an_answer_to_an_earlier_copy_ends_the_repair_of_what_was_only_slow() -> None:
    sender = Sender()
    sender.write(*[10] * 4)
    first = sender.sent[0]
    sender.numbers()
    sender.host.advance(400 * MILLISECOND)
    second = sender.sent[0]
    assert sender.numbers() == [0] and second.held > first.held == 0
    sender.answer(first, 1)
    assert sender.numbers() == []
    # The same, but it is the second copy that has arrived: then the others were lost as well.
    sender = Sender()
    sender.write(*[10] * 4)
    sender.numbers()
    sender.host.advance(400 * MILLISECOND)
    second = sender.sent[0]
    sender.numbers()
    sender.answer(second, 1)
    assert sender.numbers() == [1, 2, 3]


def test_waits_double_and_return_once_a_copy_is_answered() -> None:
    """35 octets: 300 ms and 80 us for each; doubled until 4 s. The answer to the last copy takes 20 ms; the
    shortest wait is 50 ms."""
    sender = Sender()
    sender.write(10)
    moments = [0]
    for _ in range(13_000):
        sender.host.advance(MILLISECOND)
        if len(sender.sent) > len(moments):
            moments.append(sender.host.now() // MILLISECOND)
    waits = [second - first for first, second in pairwise(moments)]
    assert waits == [303, 606, 1_211, 2_422, 4_000, 4_000]
    sender.host.advance(3_000 * MILLISECOND)
    last = sender.sent[-1]
    sender.host.advance(20 * MILLISECOND)
    sender.answer(last, 1)
    sender.numbers()
    sender.write(10)
    sender.host.advance(3_039 * MILLISECOND)
    assert sender.numbers() == [1]


def test_where_something_waits_for_every_peer_that_there_is_room_for_another_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing that waits is thrown away without a word; before, the first peer's messages were."""
    monkeypatch.setattr("roamcast.strategy.opportunistic.stream.PEERS_MAX", 2)
    sender = Sender()
    message = message_of(b"")
    assert sender.streams.write(2, message) and sender.streams.write(3, message)
    assert not sender.streams.write(4, message)
    assert [sender.streams.waiting(peer) for peer in (2, 3, 4)] == [1, 1, 0]
    (drop,) = (record for record in sender.host.records if isinstance(record, Dropped))
    assert drop.reason is DropReason.QUEUE_FULL
    sender.answer(sender.sent[0], 1)
    assert sender.streams.write(4, message)  # nothing waits for 2 any more


def test_a_large_message_a_gap_and_half_a_window_are_acknowledged_at_once() -> None:
    pairs = [(0, 0, b"", False), (1, 1, bytes(2_000), True), (3, 2, b"", True), (20, 4, b"", True)]
    for number, confirmed, payload, is_prompt in pairs:
        streams, sent = acknowledging()
        for before in range(confirmed):
            streams.on_content(2, StreamSegment(5, before, 0, 0, message_of(b"")), 1)
        sent.clear()
        streams.on_content(2, StreamSegment(5, number, confirmed, 0, message_of(payload)), 1)
        assert [one.is_prompt for one in sent] == [is_prompt], number


def acknowledging() -> tuple[PeerStreams, list[StreamAcknowledgement]]:
    sent: list[StreamAcknowledgement] = []
    datagrams = SimpleNamespace(send=lambda _, one: sent.append(one), has_route=lambda to: True)
    return PeerStreams(FakeHost(node=1), datagrams, SimpleNamespace(on_message=lambda *_: None)), sent


def test_a_message_that_waits_for_the_one_before_it_grows_older() -> None:
    host, got = FakeHost(node=1), list[tuple[bytes, Micros]]()
    owner = SimpleNamespace(on_message=lambda _, message, hops, held: got.append((body_of(message), held)))
    streams = PeerStreams(host, SimpleNamespace(send=lambda *_: True, has_route=lambda to: True), owner)
    streams.on_content(2, StreamSegment(5, 1, 0, SECOND, message_of(b"second")), 1)
    host.advance(20 * SECOND)
    streams.on_content(2, StreamSegment(5, 0, 0, 21 * SECOND, message_of(b"first")), 1)
    assert got == [(b"first", 21 * SECOND), (b"second", 21 * SECOND)]


def test_what_was_never_sent_cannot_be_confirmed() -> None:
    sender = Sender()
    sender.write(*[40_000] * 5)
    sender.answer(sender.sent[0], 4)
    assert sender.streams.waiting(2) == 5


def test_estimates_by_size() -> None:
    trips = RoundTrips()
    assert trips.wait(40) == 303_200 and trips.wait(40_000) == 3_500_000 and trips.shortest() is None
    trips.measure(40, 100_000, is_alone=True)
    assert trips.wait(40) == 300_000  # 100 + 4 * 50 ms
    trips.measure(40, 100_000, is_alone=True)
    assert trips.wait(40) == 250_000  # the deviation is 37.5 ms
    assert trips.wait(40_000) == 3_500_000  # nothing is known about so large ones
    trips.measure(40_000, 640_000, is_alone=True)
    assert trips.wait(40_000) == 1_920_000  # 640 + 4 * 320 ms
    assert trips.shortest() == 100_000
    assert trips.wait(40) == 250_000
    for _ in range(60):
        trips.measure(40_000, 640_000, is_alone=True)
        trips.measure(40, 4_000, is_alone=True)
    assert trips.wait(40_000) == pytest.approx(960_000, abs=1_000)  # a half more
    assert trips.wait(40) == 50_000
    for _ in range(60):
        trips.measure(40, 900_000, is_alone=True)  # the way has become longer: large ones will feel it
    assert trips.wait(40_000) == pytest.approx(1_350_000, abs=1_000)


def test_a_message_behind_another_says_something_only_if_it_took_longer() -> None:
    trips = RoundTrips()
    trips.measure(40, 10_000, is_alone=False)
    assert trips.wait(40) == 303_200
    trips.measure(40, 100_000, is_alone=True)
    trips.measure(40, 10_000, is_alone=False)
    assert trips.wait(40) == 300_000
    trips.measure(40, 180_000, is_alone=False)  # smoothed 110 ms, deviation 57.5 ms
    assert trips.wait(40) == 340_000


def test_backing_off_has_a_bound_that_a_long_round_trip_moves() -> None:
    trips = RoundTrips()
    trips.measure(40, 100_000, is_alone=True)
    waits = []
    for _ in range(5):
        trips.back_off()
        waits.append(trips.wait(40))
    assert waits == [600_000, 1_200_000, 2_400_000, LONGEST_WAIT, LONGEST_WAIT]
    trips.measure(40, 100_000, is_alone=True)
    assert trips.wait(40) == 250_000
    trips.measure(60_000, 5_000_000, is_alone=True)
    trips.back_off()
    assert trips.wait(60_000) == 15_000_000  # longer than the bound: that is how long it takes


class Silence:
    """Peers that never answer, and what was sent to them."""

    def __init__(self) -> None:
        self.host = FakeHost(node=1)
        self.host.attach(self)  # type: ignore[arg-type]
        self.copies: list[tuple[NodeId, int]] = []
        self.streams = PeerStreams(self.host, self, self)  # type: ignore[arg-type]

    def send(
        self, to: NodeId, message: StreamSegment | StreamAcknowledgement, *, is_repeat: bool = False
    ) -> bool:
        self.copies.append((to, message.number))
        return True

    def on_unreachable(self, peer: NodeId) -> None:
        pass

    def on_timer(self, name: Any) -> None:
        name.due()


def test_repeats_to_many_silent_peers_take_turns_and_none_is_forgotten() -> None:
    """A second message to a peer that waited for its turn once took it out of the line for good."""
    network, peers = Silence(), range(2, 42)
    for number in range(60):
        for peer in peers:
            network.streams.write(peer, message_of(b"event"))
        before = len(network.copies)
        network.host.advance(SECOND)
        # Far fewer repeats than peers, although all waits are over.
        assert number < 10 or len(network.copies) - before < len(peers) // 2
    repeated = [peer for peer, number in network.copies if number == 0]
    assert all(repeated.count(peer) > 1 for peer in peers)
