"""Interfaces and sockets: what the user may get wrong, and what an interface may do under a running node."""

import asyncio
import socket
from dataclasses import dataclass

import pytest
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until

from roamcast.broker.core import Delivery
from roamcast.errors import InputError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Frame, Kind
from roamcast.runtime.live.air import air, interface
from roamcast.runtime.live.air.interface import Interface
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.settings import AirMode

pytestmark = pytest.mark.realtime


def test_the_loopback_is_found_by_name_and_by_address() -> None:
    by_name = interface.named("lo", "air.interface")
    assert by_name == interface.with_address("127.0.0.1", "air.address")
    assert by_name.loopback and by_name.up and by_name.address == "127.0.0.1"
    assert by_name.mtu > 1_000


@pytest.mark.parametrize("name", ["nosuch0", "", "a-name-far-too-long-for-linux"])
def test_a_missing_interface_is_named_with_those_that_exist(name: str) -> None:
    with pytest.raises(InputError, match=r"air.interface: is '.*', which does not exist; here are .*lo"):
        interface.named(name, "air.interface")


@pytest.mark.parametrize("address", ["10.255.255.254", "localhost", "fe80::1"])
def test_an_address_of_no_interface_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"air\.address: is "):
        interface.with_address(address, "air.address")


def test_an_air_port_that_another_program_holds_alone_is_refused() -> None:
    async def play() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("", 0))
            port = other.getsockname()[1]
            with pytest.raises(InputError, match=f"air.port: is {port}, which another program uses"):
                await LiveNode.start(settings(1, port=port))

    asyncio.run(play())


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_an_own_port_that_is_taken_is_refused_where_it_was_asked_for(kind: socket.SocketKind) -> None:
    async def play() -> None:
        with socket.socket(socket.AF_INET, kind) as other:
            other.bind(("", 0))
            if kind is socket.SOCK_STREAM:
                other.listen()
            port = other.getsockname()[1]
            with pytest.raises(InputError, match=f"air.own_port: is {port}, which another program uses"):
                await LiveNode.start(settings(1, port=free_port(), own_port=port))

    asyncio.run(play())


def test_without_a_wish_the_own_port_is_the_next_after_the_airs_or_any_that_is_free() -> None:
    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port), settings(2, port=port)) as (alice, bob):
            assert bob.radio.air.port not in (port, alice.radio.air.port)

    asyncio.run(play())


def test_multicast_is_another_way_to_reach_everyone() -> None:
    async def play() -> None:
        port = free_port()
        async with running(
            settings(1, port=port, mode=AirMode.MULTICAST), settings(2, port=port, mode=AirMode.MULTICAST)
        ) as (alice, bob):
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.everything())
            session = alice.applications.open(lambda delivery: None)
            await until(acquainted(alice, bob))
            await until(lambda: session.publish(Publication()) and got)

    asyncio.run(play())


@dataclass
class Weather:
    """What the node sees of its interface, in the hands of a test."""

    shows: Interface | None

    def look(self, name: str) -> Interface | None:
        return self.shows


@pytest.mark.parametrize("mode", list(AirMode))
def test_an_interface_that_goes_and_comes_back_is_used_again(
    mode: AirMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback = interface.named("lo", "air.interface")
    weather = Weather(loopback)
    monkeypatch.setattr(air, "look", weather.look)
    monkeypatch.setattr(air, "WATCH_SECONDS", 0.02)

    async def play() -> None:
        port = free_port()
        async with running(settings(1, port=port, mode=mode), settings(2, port=port, mode=mode)) as nodes:
            alice, bob = nodes
            got: list[Delivery] = []
            bob.applications.open(got.append).subscribe(Filter.everything())
            session = alice.applications.open(lambda delivery: None)
            own = alice.radio.air.port
            weather.shows = None
            away = "interface_away_seconds_total"
            await until(lambda: all(node.counters.value(away) > 0 for node in nodes))
            # Put back under another number, as a USB stick would be.
            weather.shows = loopback._replace(number=loopback.number + 1)
            if mode is AirMode.MULTICAST:
                weather.shows = loopback._replace(mtu=9_000)  # its number is used for joining the group
            reopened = "interface_reopened_total"
            await until(lambda: all(node.counters.value(reopened) for node in nodes))
            assert alice.radio.air.port == own, "neighbours know it by that port"
            await until(lambda: session.publish(Publication()) and got)
            arrived: list[bytes] = []
            bob.radio.receivers[Channel.STRATEGY] = lambda sender, payload: arrived.append(payload)
            await until(acquainted(alice, bob))
            frame = Frame(b"over a link", Kind.DATA, "test")
            alice.inputs.handle(alice.radio.unicast, Channel.STRATEGY, 2, frame, None)
            await until(lambda: b"over a link" in arrived)

    asyncio.run(play())


def test_a_changed_address_is_noted() -> None:
    async def play(monkeypatch: pytest.MonkeyPatch) -> None:
        loopback = interface.named("lo", "air.interface")
        weather = Weather(loopback)
        monkeypatch.setattr(air, "look", weather.look)
        monkeypatch.setattr(air, "WATCH_SECONDS", 0.02)
        async with running(settings(1, port=free_port())) as (node,):
            weather.shows = loopback._replace(address="127.0.0.9")
            await until(lambda: node.counters.value("interface_changes_total"))
            assert node.radio.air.used[0].working[0].address == "127.0.0.9"

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(play(monkeypatch))
