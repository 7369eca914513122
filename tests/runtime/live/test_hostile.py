"""Whatever comes from the air or into a port: the node goes on, and its memory stays where it was."""

import asyncio
import random
import socket
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.broker.core import Delivery
from roamcast.errors import WireError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.host import Channel
from roamcast.runtime.live.air import frames
from roamcast.runtime.live.air.links import LENGTH, STRANGERS_MAX
from roamcast.runtime.live.node import LiveNode
from roamcast.sealing import GroupKey, Identity, KeyRing, Sealer

pytestmark = pytest.mark.realtime


@given(st.binary(max_size=64))
@hypothesis_settings(max_examples=300, deadline=None)
def test_any_octets_are_records_or_a_wire_error(data: bytes) -> None:
    try:
        records = frames.decode(data)
    except WireError:
        return
    again = b""
    for record in records:
        match record:
            case frames.CarriedFrame(channel=channel, payload=payload):
                again += frames.carried(channel, payload)
            case frames.AcknowledgementRequest(to=to, number=number):
                again += frames.asked(to, number)
            case frames.Heard(to=to, number=number):
                again += frames.heard(to, number)
            case frames.LinkHello(to=to):
                again += frames.hello(to)
            case frames.CongestionReport():
                again += frames.congestion(record)
    assert again == data


def test_the_octets_of_a_datagram() -> None:
    data = frames.asked(7, 0x01020304) + frames.carried(Channel.STRATEGY, b"hi")
    assert data.hex() == "02" + "00000007" + "01020304" + "01" + "01" + "0002" + "6869"


def hostile_datagrams(recorded: list[bytes]) -> list[bytes]:
    """Garbage, truncated, damaged, replayed, of a foreign group, and well sealed nonsense of a stranger."""
    draw = random.Random(1)
    foreign = Sealer(Identity.generate(9), KeyRing(GroupKey.generate()), epoch=1)
    made: list[bytes] = []
    for _ in range(200):
        one = draw.choice(recorded)
        damaged = bytearray(one)
        damaged[draw.randrange(len(one))] ^= 1 << draw.randrange(8)
        made += [
            draw.randbytes(draw.randrange(200)),
            one[: draw.randrange(len(one))],
            bytes(damaged),
            one,
            foreign.seal(frames.RECORDS, draw.randbytes(20)),
        ]
    return made


async def record(node: LiveNode, port: int) -> list[bytes]:
    """What a listener on the same air gets to hear of a node."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind(("", port))
        session = node.applications.open(lambda delivery: None)
        heard = []
        for number in range(20):
            session.publish(Publication({"recorded": number}))
            heard.append(await loop.sock_recv(ear, 65_536))
        return heard


def test_garbage_replays_and_foreign_frames_cost_neither_service_nor_memory() -> None:
    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.sql("wanted = TRUE"))
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            hostile = hostile_datagrams(await record(alice, port))
            target = ("127.0.0.1", bob.radio.air.port)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:

                async def attack(times: int) -> None:
                    for _ in range(times):
                        for number, data in enumerate(hostile):
                            attacker.sendto(data, target)
                            if number % 50 == 0:
                                await asyncio.sleep(0)

                await attack(1)  # whatever is learnt once is learnt now
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                await attack(5)
                grown = tracemalloc.get_traced_memory()[0] - before
                tracemalloc.stop()
            number_got = len(got)
            await until(lambda: session.publish(Publication({"wanted": True})) and len(got) > number_got)
            assert grown < 200_000, f"{grown} octets more after 5,000 hostile datagrams"
            await until(lambda: bob.counters.total("frames_refused_total") > 5_500)
            # A damaged one is forged only where the damage makes it look new; else it is a replay first. How
            # many those are depends on how long the recorded ones were: a hundred or so.
            least = {"forged": 20, "replayed": 100, "unknown_key": 100, "too_short": 100}
            for reason, count in least.items():
                assert bob.counters.value("frames_refused_total", reason=reason) > count, reason
            ids = [delivery.event.id for delivery in got]
            assert len(ids) == len(set(ids))

    asyncio.run(play())


def test_frames_that_an_outsider_sends_on_do_not_move_the_address_of_their_sender() -> None:
    """He picks up what a member sends to another one, or to all, and sends it on from his own address."""

    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            await until(acquainted(alice, bob))
            known = bob.radio.peers.get(1)
            assert known is not None
            before = known.endpoint
            sealer = alice.radio._sealer
            target = ("127.0.0.1", bob.radio.air.port)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outsider:
                outsider.sendto(sealer.seal(frames.RECORDS, frames.asked(3, 7)), target)
                outsider.sendto(sealer.seal(frames.RECORDS, frames.heard(3, 7)), target)
                outsider.sendto(sealer.seal(frames.RECORDS, b""), target)  # to all
                await until(lambda: bob.counters.total("addresses_doubted_total") == 1)
            assert bob.counters.value("frames_refused_total", reason="for_another") == 2
            assert known.endpoint == before == ("127.0.0.1", alice.radio.air.port, "lo")

    asyncio.run(play())


@pytest.mark.parametrize(
    "opening",
    [b"GET / HTTP/1.1\r\n\r\n", LENGTH.pack(40) + bytes(40)],
    ids=["unfinished", "forged"],
)
def test_a_stranger_at_the_link_port_is_shown_out(opening: bytes) -> None:
    async def play() -> None:
        async with running(settings(1, port=free_port())) as (node,):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.radio.air.port)
            writer.write(opening)
            async with asyncio.timeout(10):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            writer.close()
            assert len(node.radio.links) == 0

    asyncio.run(play())


def test_many_strangers_at_once_are_bounded_and_do_not_keep_a_neighbour_out() -> None:
    async def play() -> None:
        port = free_port()
        async with running(
            settings(1, port=port, strategy="tree"), settings(2, port=port, strategy="tree")
        ) as (alice, bob):
            strangers = []
            for _ in range(3 * STRANGERS_MAX):
                _, writer = await asyncio.open_connection("127.0.0.1", bob.radio.air.port)
                strangers.append(writer)
            assert bob.counters.value("links_refused_total", reason="strangers") >= 2 * STRANGERS_MAX
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.everything())
            session = alice.applications.open(lambda delivery: None)
            await until(lambda: session.publish(Publication({"n": 1})) and got)
            for writer in strangers:
                writer.close()

    asyncio.run(play())


def test_a_report_of_congestion_reaches_the_mesh_once_and_slows_its_publishers() -> None:
    async def play() -> None:
        port = free_port()
        wanted = [settings(number, port=port) for number in (1, 2, 3)]
        async with running(*wanted) as (alice, bob, carol):
            await until(acquainted(alice, bob))
            await until(acquainted(bob, carol))
            await until(acquainted(alice, carol))
            bob.counters.count("drops_total", 5, reason="queue_full")

            def told(node: LiveNode) -> float:
                return node.counters.value("congestion_reports_total", origin="mesh")

            await until(lambda: told(alice) and told(carol))
            assert bob.counters.value("congestion_reports_total", origin="own") == 1
            assert bob.counters.value("congestion_reports_total", origin="mesh") == 0
            for node in (alice, bob, carol):
                assert node.applications.pressure is node.radio.pressure
                assert node.radio.pressure.allowance.rate is not None
            for node in (alice, carol):  # they passed it on to each other, and knew it already
                assert node.counters.value("congestion_reports_total", origin="mesh") == 1

    asyncio.run(play())
