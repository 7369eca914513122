"""Interfaces and sockets: what the user may get wrong, and what an interface may do under a running node."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.live.nodes import acquainted, free_port, running, settings, until
from tests.runtime.live.worlds import world

from roamcast.broker.core import Delivery
from roamcast.errors import InputError
from roamcast.event import Publication
from roamcast.filter import Filter
from roamcast.host import Channel, Frame, Kind
from roamcast.runtime.live import linux
from roamcast.runtime.live.air import air, interface
from roamcast.runtime.live.air.sockets import InterfaceSockets
from roamcast.runtime.live.linux import LinuxNetwork
from roamcast.runtime.live.node import LiveNode
from roamcast.runtime.live.report.counters import Counters
from roamcast.runtime.live.settings import AirMode, AirSettings
from roamcast.runtime.live.world import Interface

pytestmark = pytest.mark.realtime


def test_the_loopback_is_found_by_name_and_by_address() -> None:
    by_name = interface.named(LinuxNetwork(), "lo", "air.interface")
    assert by_name == interface.with_address(LinuxNetwork(), "127.0.0.1", "air.address")
    assert by_name.loopback and by_name.up and by_name.address == "127.0.0.1"
    assert by_name.mtu > 1_000


@pytest.mark.parametrize("name", ["nosuch0", "", "a-name-far-too-long-for-linux"])
def test_a_missing_interface_is_named_with_those_that_exist(name: str) -> None:
    with pytest.raises(InputError, match=r"air.interface: is '.*', which does not exist; here are .*lo"):
        interface.named(LinuxNetwork(), name, "air.interface")


@pytest.mark.parametrize("address", ["10.255.255.254", "localhost", "fe80::1"])
def test_an_address_of_no_interface_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"air\.address: is "):
        interface.with_address(LinuxNetwork(), address, "air.address")


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


class Weather(LinuxNetwork):
    """What nodes see of their interface, in the hands of a test."""

    def __init__(self) -> None:
        self.loopback = interface.named(LinuxNetwork(), "lo", "air.interface")
        self.shows: Interface | None = self.loopback

    def look(self, name: str) -> Interface | None:
        return self.shows


@pytest.mark.parametrize("mode", list(AirMode))
def test_an_interface_that_goes_and_comes_back_is_used_again(
    mode: AirMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = Weather()
    loopback = weather.loopback
    monkeypatch.setattr(air, "WATCH_SECONDS", 0.02)

    async def play() -> None:
        port = free_port()
        wanted = [settings(number, port=port, mode=mode) for number in (1, 2)]
        here = world(asyncio.get_running_loop(), network=weather)
        async with running(*wanted, world=here) as nodes:
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
            bob.radio.attach(Channel.STRATEGY, lambda sender, payload: arrived.append(payload))
            await until(acquainted(alice, bob))
            frame = Frame(b"over a link", Kind.DATA, "test")
            alice.inputs.handle(alice.radio.unicast, Channel.STRATEGY, 2, frame, None)
            await until(lambda: b"over a link" in arrived)

    asyncio.run(play())


def test_a_changed_address_is_noted() -> None:
    async def play(monkeypatch: pytest.MonkeyPatch) -> None:
        weather = Weather()
        monkeypatch.setattr(air, "WATCH_SECONDS", 0.02)
        here = world(asyncio.get_running_loop(), network=weather)
        async with running(settings(1, port=free_port()), world=here) as (node,):
            weather.shows = weather.loopback._replace(address="127.0.0.9")
            await until(lambda: node.counters.value("interface_changes_total"))
            assert node.radio.air.used[0].working[0].address == "127.0.0.9"

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(play(monkeypatch))


class Plugs(LinuxNetwork):
    """Interfaces and what /sys says of them, in the hands of a test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._found: dict[str, Interface] = {}
        monkeypatch.setattr(linux, "_CLASS", folder)

    def names(self) -> list[str]:
        return list(self._found)

    def look(self, name: str) -> Interface | None:
        return self._found.get(name)

    def plug(self, name: str, address: str | None = "10.0.0.1", *marks: str) -> None:
        """`marks`: device, wireless, master."""
        for mark in marks:
            (self._folder / name / mark).mkdir(parents=True)
        loopback = name == "lo"
        number = len(self._found) + 1
        self._found[name] = Interface(name, number, address, True, loopback, 1_500, 24, "fe80::1")

    def unplug(self, name: str) -> None:
        del self._found[name]


def test_without_a_name_hardware_is_used_cables_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Plugs(tmp_path, monkeypatch)

    def chosen() -> list[str]:
        return [found.name for found in interface.chosen(machine)]

    assert chosen() == []
    machine.plug("lo", "127.0.0.1")
    assert chosen() == ["lo"]
    machine.plug("docker0")
    machine.plug("vpn0")
    assert chosen() == ["docker0"], "better than the loopback"
    machine.plug("wlan0", "10.0.0.2", "device", "wireless")
    machine.plug("eth1", None, "device", "master")  # a part of a bridge
    machine.plug("eth0", None, "device")  # IPv6 only
    assert chosen() == ["eth0", "wlan0"]


class AirListener:
    """Hears what happens to the interfaces."""

    def __init__(self) -> None:
        self.gone: list[tuple[str, bool]] = []

    def on_away(self, interface: str, *, is_ipv6: bool) -> None:
        self.gone.append((interface, is_ipv6))

    def on_datagram(self, data: bytes, source: interface.Endpoint) -> None: ...

    def on_opened(self, sockets: InterfaceSockets) -> None: ...

    def on_closing(self, sockets: InterfaceSockets) -> None: ...

    def on_unreached(self, endpoint: interface.Endpoint) -> None: ...


class StubSockets(InterfaceSockets):
    """Opens nothing."""

    def open(self) -> None:
        self.listener = None


def test_without_a_name_hardware_is_taken_when_it_comes_and_waited_for_when_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Plugs(tmp_path, monkeypatch)
    machine.plug("lo", "127.0.0.1")
    monkeypatch.setattr(air, "InterfaceSockets", StubSockets)
    monkeypatch.setattr(StubSockets, "is_open", True)

    async def play() -> None:
        owner = AirListener()
        gone = owner.gone
        here = world(asyncio.get_running_loop(), network=machine)
        all_air = air.Air(here, AirSettings(), (), Counters(), owner)

        def look() -> list[tuple[str, bool]]:
            all_air._looks = 0
            all_air._look_now()
            return [(used.name, used.is_up) for used in all_air.used]

        all_air.open()
        assert look() == [("lo", True)]
        machine.plug("veth0", "10.0.0.9")
        assert look() == [("veth0", True)]
        machine.unplug("veth0")
        assert look() == [("veth0", False)], "the loopback is no way to anybody"
        machine.plug("wlan0", "10.0.0.2", "device", "wireless")
        assert look() == [("wlan0", True)] and gone[:2] == [("lo", False), ("lo", True)]
        machine.plug("eth0", "10.0.0.3", "device")
        assert look() == [("wlan0", True), ("eth0", True)]
        assert all_air.rank("eth0") < all_air.rank("wlan0")
        machine.unplug("wlan0")
        machine.unplug("eth0")
        assert look() == [("wlan0", False), ("eth0", False)]
        assert not all_air.is_several and ("eth0", False) in gone
        machine.plug("eth0", "10.0.0.3")
        assert look() == [("wlan0", False), ("eth0", True)]
        all_air.close()

    asyncio.run(play())


WITHOUT_CAPABILITIES = """
import asyncio, ctypes, struct
from pathlib import Path
from tests.runtime.live.nodes import free_port, running, settings
ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
(effective,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line]
async def play():
    async with running(settings(1, port=free_port())) as (node,):
        air = node.radio.air
        print(int(effective.split()[1], 16), air.used[0].is_up, air._watch._socket is not None)
asyncio.run(play())
"""


def test_a_node_needs_no_capability() -> None:
    """The unit and the container of `examples/deploy` give it none."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_CAPABILITIES], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "0 True True\n", ended.stderr


def test_the_container_recipe_names_what_is_there_and_runs_as_no_root() -> None:
    root = Path(__file__).parents[4]
    steps = (root / "examples" / "deploy" / "Containerfile").read_text().splitlines()
    for step in steps:
        if step.startswith("COPY ") and "--from" not in step:
            for name in step.split()[1:-1]:
                assert (root / name).exists(), name
    assert "USER roamcast" in steps and "VOLUME /data" in steps
