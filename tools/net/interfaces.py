"""OLSR in the open, on several interfaces: no scenario has it, since a simulated node has one radio.

Nodes stand on segments, each with an address there; a packet reaches the others of its segment a millisecond
later, or is lost. A segment goes and comes back, a node begins anew, another announces a network.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from roamcast.host import Frame
from roamcast.testing import FakeHost
from roamcast.underlay import UNDERLAYS
from roamcast.underlay.addresses import parse_dotted
from roamcast.underlay.base import UnderlayContext

MILLISECOND = 1_000
SEGMENTS = ((0, 1, 2), (1, 2, 3), (3, 4), (4, 5), (2, 5), (0, 6))
DOWN = (20_000, 35_000)  # milliseconds in which the second segment is gone
RESTART, END = 40_000, 60_000  # of node 4
LOSS = 0.05


class Device:
    """One node: its interfaces by the segments they are on."""

    def __init__(self, number: int, options: dict[str, Any], boot: int) -> None:
        self.number = number
        self.segments = [segment for segment, nodes in enumerate(SEGMENTS) if number in nodes]
        self.interfaces = tuple(address(segment, number) for segment in self.segments)
        self.sent: list[tuple[int, bytes]] = []
        self.heard: list[Any] = []
        self.host = FakeHost(node=number, seed=100 * boot + number)
        if number == 5:
            options = {**options, "networks": ["192.168.5.0/24"]}
        options = {"open": True, "networks_accepted": ["192.168.0.0/16"], **options}
        self.olsr: Any = UNDERLAYS.make(
            "olsr",
            UnderlayContext(self.host, addresses=Unknown(), open_air=self),
            msgspec.convert(options, UNDERLAYS.options_type("olsr")),
        )
        self.olsr.listen(self)
        self.host.attach(self.olsr)
        self.olsr.on_start()

    def send(self, interface: int, frame: Frame) -> None:
        self.sent.append((interface, frame.payload))

    def write_routes(self, routes: Sequence[Any]) -> None:
        self.heard.append((self.host.now(), self.number, "routes", tuple(map(tuple, routes))))

    def on_neighbour_up(self, neighbour: int) -> None:
        self.heard.append((self.host.now(), self.number, "up", neighbour))

    def on_neighbour_down(self, neighbour: int) -> None:
        self.heard.append((self.host.now(), self.number, "down", neighbour))

    def on_routes_changed(self) -> None:
        self.heard.append((self.host.now(), self.number, "changed", tuple(self.olsr.relays())))


class Unknown:
    """No address is known by sealed frames: numbers are learned from what nodes announce."""

    def address(self, node: int) -> int:
        return 0

    def node(self, address: int) -> int | None:
        return None


def address(segment: int, node: int) -> int:
    return parse_dotted(f"10.{segment}.0.{node + 1}")


def play(options: dict[str, Any]) -> dict[str, list[Any]]:
    random = Random(7)
    devices = [Device(number, options, 0) for number in range(7)]
    frames: list[Any] = []
    heard: list[Any] = []
    drops: list[Any] = []
    for now in range(END):
        if now == RESTART:
            drops += devices[4].host.records
            heard += devices[4].heard
            devices[4] = Device(4, options, 1)
            devices[4].host.advance(now * MILLISECOND)
        for device in devices:
            device.host.advance(MILLISECOND)
        for device in devices:
            sent, device.sent = device.sent, []
            for interface, payload in sent:
                segment = device.segments[device.interfaces.index(interface)]
                frames.append((now, device.number, segment, payload))
                if segment == 1 and DOWN[0] <= now < DOWN[1]:
                    continue
                for node in SEGMENTS[segment]:
                    if node != device.number and random.random() >= LOSS:
                        devices[node].olsr.on_packet(address(segment, node), interface, payload)
    for device in devices:
        heard += device.heard
        drops += device.host.records
        heard.append((device.number, device.olsr.neighbours(), device.olsr.known_nodes()))
    return {"frames": frames, "heard": heard, "drops": drops}
