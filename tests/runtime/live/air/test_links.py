"""Frames to one neighbour: TCP links for data, acknowledged datagrams for control."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.host import Channel, Frame, Kind, SendFailure
from roamcast.runtime.live.air.datagrams import REPEATS
from roamcast.runtime.live.air.interface import Endpoint
from roamcast.runtime.live.node import LiveNode
from roamcast.units import SECOND, NodeId

pytestmark = pytest.mark.realtime


def data(payload: bytes) -> Frame:
    return Frame(payload, Kind.DATA, "test")


def control(payload: bytes) -> Frame:
    return Frame(payload, Kind.CONTROL, "test")


def log_of(node: LiveNode) -> list[tuple[NodeId, bytes]]:
    """What reaches the strategy's place from now on; `flooding` itself sends nothing by unicast."""
    log: list[tuple[NodeId, bytes]] = []
    node.radio.attach(Channel.STRATEGY, lambda sender, payload: log.append((sender, payload)))
    return log


def send(node: LiveNode, to: NodeId, frame: Frame, on_failure: Callable[[SendFailure], None]) -> None:
    node.inputs.handle(node.radio.unicast, Channel.STRATEGY, to, frame, on_failure)


def pair(**air: Any) -> Any:
    port = free_port()
    return running(settings(1, port=port, **air), settings(2, port=port, **air))


def test_neighbours_that_open_links_to_each_other_at_once_lose_nothing_and_end_with_one() -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            logs = {1: log_of(alice), 2: log_of(bob)}
            failures: list[SendFailure] = []
            count = 300
            for number in range(count):
                payload = number.to_bytes(2, "big")
                send(alice, 2, data(payload), failures.append)
                send(bob, 1, data(payload), failures.append)
                if number % 10 == 0:
                    await asyncio.sleep(0)
            await until(lambda: len(logs[1]) + len(logs[2]) >= 2 * count)
            for sender, log in ((2, logs[1]), (1, logs[2])):
                assert [payload for _, payload in log] == [n.to_bytes(2, "big") for n in range(count)]
                assert {who for who, _ in log} == {sender}
            assert failures == []
            await until(lambda: len(alice.radio.links) == len(bob.radio.links) == 1)

    asyncio.run(play())


def test_a_small_frame_does_not_wait_behind_large_ones() -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            count = 500  # two megabytes: more than the kernel takes ahead
            for number in range(count):
                send(alice, 2, data(number.to_bytes(2, "big") + bytes(4_094)), failures.append)
            send(alice, 2, data(b"small"), failures.append)
            await until(lambda: len(log) == count + 1)
            payloads = [payload for _, payload in log]
            assert payloads.index(b"small") < 100
            payloads.remove(b"small")
            assert [int.from_bytes(payload[:2], "big") for payload in payloads] == list(range(count))
            assert failures == []

    asyncio.run(play())


def test_frames_that_nobody_acknowledges_fail_within_the_timeout() -> None:
    """A neighbour that stops reading: its window closes, and the kernel hears of no progress any more."""

    async def play() -> None:
        async with pair(link_timeout=0.3, link_idle=60.0) as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            send(alice, 2, data(b"first"), failures.append)
            await until(lambda: log)
            bob.radio.air.close()  # not heard any more either
            (link,) = bob.radio.links._all()
            assert link._transport is not None
            link._transport.pause_reading()
            began = asyncio.get_running_loop().time()
            for _ in range(600):
                send(alice, 2, data(bytes(60_000)), failures.append)
            await until(lambda: failures)
            took = asyncio.get_running_loop().time() - began
            await until(lambda: not alice.radio.is_busy)
            assert set(failures) == {SendFailure.LINK}
            assert 0 < len(failures) <= 600
            assert 0.3 <= took < 5
            assert len(alice.radio.links) == 0
            peer = alice.radio.peers.get(2)
            assert peer is not None and peer.is_silent(alice.clock.now)
            # Not heard since: what comes now fails without another attempt.
            before = len(failures)
            send(alice, 2, data(b"late"), failures.append)
            await until(lambda: len(failures) == before + 1)
            assert alice.counters.value("links_opened_total") == 1
            assert alice.counters.value("links_failed_total") == 0

    asyncio.run(play())


def test_a_link_that_stalls_asks_by_a_message_and_breaks_long_before_its_timeout_if_none_answers() -> None:
    async def play() -> None:
        async with pair(link_timeout=60.0, link_idle=120.0) as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            send(alice, 2, data(b"first"), failures.append)
            await until(lambda: log)
            bob.radio.air.close()
            (link,) = bob.radio.links._all()
            assert link._transport is not None
            link._transport.pause_reading()
            for _ in range(600):
                send(alice, 2, data(bytes(60_000)), failures.append)
            await until(lambda: failures)
            await until(lambda: not alice.radio.is_busy)
            assert set(failures) == {SendFailure.LINK}
            peer = alice.radio.peers.get(2)
            assert peer is not None and peer.failed_at >= 0

    asyncio.run(play())


def test_a_neighbour_that_is_asked_and_answers_is_not_silent() -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            silences: list[str] = []
            failures: list[SendFailure] = []
            alice.radio.ask(2, lambda: silences.append("alone"))
            await until(lambda: not alice.radio.is_busy)
            send(alice, 2, control(b"frame"), failures.append)
            alice.radio.ask(2, lambda: silences.append("with a frame"))
            await until(lambda: log and not alice.radio.is_busy)
            assert log == [(1, b"frame")] and silences == [] and failures == []
            bob.radio.air.close()
            alice.radio.ask(2, lambda: silences.append("gone"))
            await until(lambda: silences)
            assert silences == ["gone"] and not alice.radio.is_busy

    asyncio.run(play())


def test_a_neighbour_that_answers_no_message_is_not_dialled_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roamcast.runtime.live.air.links.CONNECT_SECONDS", (60.0,))

    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            node.radio.peers.heard(2, Endpoint("127.0.0.1", free_port(), "lo"), 100, node.clock.now)
            failures: list[SendFailure] = []
            send(node, 2, data(b"hello"), failures.append)
            await until(lambda: failures)
            assert failures == [SendFailure.LINK] and not node.radio.is_busy

    asyncio.run(play())


def test_nodes_that_have_proven_themselves_greet_each_other_again() -> None:
    """Their first HELLOs were refused, and by the clock the next would come in a quarter of an hour."""

    async def play() -> None:
        port = free_port()
        options = {"preset": "prompt", "hello_interval": 200.0}
        wanted = [settings(n, port=port, strategy="chapar", options=options) for n in (1, 2)]
        async with running(*wanted) as (alice, bob):
            await until(lambda: alice.node.underlay.neighbours() == [2])
            await until(lambda: bob.node.underlay.neighbours() == [1])

    asyncio.run(play())


def test_a_neighbour_that_takes_no_link_is_a_broken_link() -> None:
    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            node.radio.peers.heard(2, Endpoint("127.0.0.1", free_port(), "lo"), 100, node.clock.now)
            failures: list[SendFailure] = []
            send(node, 2, data(b"hello"), failures.append)
            assert failures == []
            await until(lambda: failures)
            assert failures == [SendFailure.LINK]

    asyncio.run(play())


def test_a_neighbour_that_has_to_get_to_know_us_first_loses_no_frame() -> None:
    """Alice knows bob, but bob has just booted and alice has not proven herself to him yet."""

    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            await until(acquainted(alice, bob))
            bob.radio.peers[1].proof = None
            log = log_of(bob)
            failures: list[SendFailure] = []
            for number in range(5):
                send(alice, 2, data(bytes([number])), failures.append)
                send(alice, 2, control(bytes([number])), failures.append)
            await until(lambda: len(log) + len(failures) == 10)
            assert failures == []

    asyncio.run(play())


@pytest.mark.parametrize("make", [data, control], ids=["link", "messages"])
def test_a_full_queue_is_said_to_be_one_and_what_fits_arrives(make: Callable[[bytes], Frame]) -> None:
    async def play() -> None:
        async with pair(queue_frames=10) as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            for number in range(50):
                send(alice, 2, make(bytes([number])), failures.append)
            await until(lambda: len(log) + len(failures) == 50)
            assert failures == [SendFailure.QUEUE_FULL] * 40
            assert log == [(1, bytes([number])) for number in range(10)]

    asyncio.run(play())


def test_an_idle_link_is_closed_by_both_and_opened_again_for_the_next_frame() -> None:
    async def play() -> None:
        async with pair(link_idle=1.0) as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            send(alice, 2, data(b"one"), failures.append)
            await until(lambda: len(log) == 1)
            await until(lambda: len(alice.radio.links) + len(bob.radio.links) == 0)
            send(alice, 2, data(b"two"), failures.append)
            await until(lambda: len(log) == 2)
            assert log == [(1, b"one"), (1, b"two")] and failures == []
            assert alice.counters.value("links_opened_total") == 2

    asyncio.run(play())


def test_a_message_whose_acknowledgement_is_lost_is_repeated_and_handled_once() -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            lost = 3
            passed_on = bob.radio.air.send

            def lossy(datagram: bytes, to: Endpoint) -> None:
                nonlocal lost
                if to.port == alice.radio.air.port and lost:
                    lost -= 1
                else:
                    passed_on(datagram, to)

            bob.radio.air.send = lossy
            send(alice, 2, control(b"first"), failures.append)
            await asyncio.sleep(0)
            send(alice, 2, control(b"second"), failures.append)
            await until(lambda: len(log) == 2 and not alice.radio.is_busy)
            assert lost == 0
            assert log == [(1, b"first"), (1, b"second")] and failures == []

    asyncio.run(play())


def test_a_message_to_a_node_that_has_gone_fails_when_all_attempts_are_used() -> None:
    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            node.radio.peers.heard(2, Endpoint("127.0.0.1", free_port(), "lo"), 100, node.clock.now)
            failures: list[SendFailure] = []
            began = asyncio.get_running_loop().time()
            send(node, 2, control(b"anyone"), failures.append)
            await until(lambda: failures)
            assert failures == [SendFailure.LINK]
            assert asyncio.get_running_loop().time() - began >= sum(REPEATS) / SECOND
            frames = node.counters.value("frames_sent_total", kind="control", layer="strategy")
            assert frames == len(REPEATS)

    asyncio.run(play())


@pytest.mark.parametrize("kind", [Kind.CONTROL, Kind.DATA])
def test_a_frame_over_a_path_that_is_dead_arrives_by_the_other_and_its_layer_hears_nothing(
    kind: Kind,
) -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            peer = alice.radio.peers.get(2)
            works, dead = peer.endpoint, Endpoint("127.0.0.1", free_port(), "lo")
            # As if the dead one were in use, and had been heard just now.
            alice.radio.peers.heard(2, dead, 100, alice.clock.now)
            peer.path = peer.paths[dead]
            send(alice, 2, Frame(b"by the other", kind, "test"), failures.append)
            await until(lambda: log)
            assert log == [(1, b"by the other")] and not failures
            assert peer.endpoint == works
            assert alice.counters.value("peers_moved_total") == 1

    asyncio.run(play())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_link_whose_neighbour_is_reached_elsewhere_loses_nothing(is_lost: bool) -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            log = log_of(bob)
            failures: list[SendFailure] = []
            peer = alice.radio.peers.get(2)
            before, after = peer.endpoint, peer.endpoint._replace(address="127.0.0.2")
            send(alice, 2, data(b"first"), failures.append)
            await until(lambda: log)
            count = 200
            for number in range(count):
                send(alice, 2, data(number.to_bytes(2, "big") * 500), failures.append)
            alice.radio.peers.heard(2, after, 100, alice.clock.now)
            peer.path = peer.paths[after]
            alice.radio.links.on_moved(peer, before, is_lost=is_lost)
            send(alice, 2, data(b"last"), failures.append)
            await until(lambda: len({payload for _, payload in log}) == count + 2)
            assert not failures
            (link,) = [link for link in alice.radio.links._links[2] if link.is_open]
            assert link.leads_to(after)
            if not is_lost:
                assert len(log) == count + 2, "what is under way is not sent again"

    asyncio.run(play())


def test_an_acknowledgement_goes_back_by_the_path_of_its_datagram() -> None:
    async def play() -> None:
        async with pair() as (alice, bob):
            await until(acquainted(alice, bob))
            sent: list[Endpoint] = []
            bob.radio.air.send = lambda datagram, to: sent.append(to)
            elsewhere = bob.radio.peers.get(1).endpoint._replace(address="127.0.0.5")
            bob.radio._datagrams.acknowledge(1, 77, elsewhere)
            await until(lambda: sent)
            assert elsewhere in sent

    asyncio.run(play())
