"""Nodes with several interfaces (MID, RFC 3626 section 5), gateways to networks (HNA, section 12)."""

from collections.abc import Container, Iterable
from typing import NamedTuple

from roamcast.underlay.olsr.tables.deadlines import Deadlines
from roamcast.units import Micros
from roamcast.wire.olsr import Address, Hna, Mid


class Gateway(NamedTuple):
    node: Address
    network: Address
    netmask: Address


class Associations:
    def __init__(self, length_max: int, own: Iterable[Address] = ()) -> None:
        """`own`: this node's interfaces, the main one first; nobody else can claim them."""
        listed = tuple(own)
        self._own = dict.fromkeys(listed[1:], *listed[:1])
        self._interfaces: Deadlines[tuple[Address, Address]] = Deadlines(length_max)  # interface, main
        self._main: dict[Address, Address] = dict(self._own)
        self._gateways: Deadlines[Gateway] = Deadlines(length_max)

    def on_mid(
        self, originator: Address, mid: Mid, until: Micros, taken: Container[Address] = ()
    ) -> bool | None:
        """Whether an address got another owner; None if there was no room. Addresses that are `taken` stay
        with whom they are."""
        before = len(self._interfaces)
        named = [interface for interface in mid.interfaces if interface not in taken]
        held = [self._interfaces.hold((interface, originator), until) for interface in named]
        changed = len(self._interfaces) > before
        if changed:
            self._index()
        return changed if all(held) else None

    def disown(self, interface: Address) -> None:
        """The address speaks for itself: it is nobody's second interface."""
        if interface in self._main:
            for claim in [claim for claim in self._interfaces if claim[0] == interface]:
                self._interfaces.release(claim)
            self._index()

    def on_hna(self, originator: Address, hna: Hna, until: Micros) -> bool | None:
        before = len(self._gateways)
        held = [self._gateways.hold(Gateway(originator, *network), until) for network in hna.networks]
        return len(self._gateways) > before if all(held) else None

    def main(self, interface: Address) -> Address:
        """The main address behind an interface's; an address without association is its own."""
        return self._main.get(interface, interface)

    def mains(self, interfaces: frozenset[Address]) -> frozenset[Address]:
        if not self._main:
            return interfaces
        return frozenset(self.main(interface) for interface in interfaces)

    def interfaces(self) -> list[tuple[Address, Address]]:
        """Pairs of interface and main address, in order."""
        return sorted(self._main.items())

    def gateways(self) -> list[Gateway]:
        return sorted(self._gateways)

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether an address lost its owner or a network its gateway, and the next deadline."""
        fewer_interfaces, next_interface = self._interfaces.purge(now)
        fewer_gateways, next_gateway = self._gateways.purge(now)
        if fewer_interfaces:
            self._index()
        deadlines = [deadline for deadline in (next_interface, next_gateway) if deadline is not None]
        return fewer_interfaces or fewer_gateways, min(deadlines, default=None)

    def _index(self) -> None:
        # Two nodes that claim one interface: the lower main address has it, on every node alike.
        self._main = {**dict(sorted(self._interfaces, reverse=True)), **self._own}
