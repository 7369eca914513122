"""What flooded messages say: which relay was chosen by whom (TC, RFC 3626, section 9.5), which interfaces
belong together (MID, section 5), which networks a node leads to (HNA, section 12), which address is a node of
ours.

The RFC keeps a topology tuple with a deadline per pair of relay and advertised neighbour. Here the tuples
that one TC body made share one deadline: a TC that repeats its predecessor renews them all by one look-up.
"""

from collections.abc import Container, Hashable, Iterable
from typing import NamedTuple, TypeVar

from roamcast.underlay.addresses import Addresses
from roamcast.units import Micros, NodeId
from roamcast.wire.olsr import Address, Hna, Mid, NodeNotice, Tc, is_newer

Thing = TypeVar("Thing", bound=Hashable)
NOBODY: frozenset[Address] = frozenset()


class Advertisement:
    """What one originator advertises. A set too large for one TC comes in several of the same number."""

    __slots__ = ("ansn", "destinations", "parts", "size")

    def __init__(self, tc: Tc, until: Micros) -> None:
        self.ansn = tc.ansn
        self.parts = {tc.advertised: until}
        self.destinations = tc.advertised  # of all parts
        self.size = size_of(tc.advertised)

    def add(self, part: frozenset[Address], until: Micros) -> None:
        self.parts[part] = until
        self.destinations = self.destinations | part
        self.size += size_of(part)

    def forget_expired(self, now: Micros) -> None:
        self.parts = {part: until for part, until in self.parts.items() if now < until}
        self.destinations = NOBODY.union(*self.parts)
        self.size = sum(map(size_of, self.parts))


class TopologySet:
    def __init__(self, tuples_max: int) -> None:
        self._tuples_max = tuples_max
        self._tuples = 0
        self._purge_at: Micros | None = None  # no deadline is earlier
        self.table: dict[Address, Advertisement] = {}  # by originator

    def on_tc(self, originator: Address, tc: Tc, until: Micros) -> bool | None:
        """Enter what a TC says. Whether the topology changed; None if there was no room."""
        if self._purge_at is None or until < self._purge_at:
            self._purge_at = until
        known = self.table.get(originator)
        if known is not None:
            if tc.ansn == known.ansn:
                if tc.advertised in known.parts:
                    known.parts[tc.advertised] = until
                    return False
            elif is_newer(known.ansn, tc.ansn):
                return False  # a newer TC has overtaken it
        is_further_part = known is not None and tc.ansn == known.ansn
        grows_by = size_of(tc.advertised) - (0 if known is None or is_further_part else known.size)
        if self._tuples + grows_by > self._tuples_max:
            return None
        self._tuples += grows_by
        before = NOBODY if known is None else known.destinations
        if known is not None and tc.ansn == known.ansn:
            known.add(tc.advertised, until)
        else:
            known = self.table[originator] = Advertisement(tc, until)
        return known.destinations != before

    def relays(self) -> list[Address]:
        """Originators that somebody chose as relay, increasing."""
        return sorted([address for address, known in self.table.items() if known.destinations])

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether the topology changed, and a time before which it will not change by expiry."""
        if self._purge_at is None or now < self._purge_at:
            return False, self._purge_at
        changed = False
        self._purge_at = None
        for originator, known in list(self.table.items()):
            first = min(known.parts.values())
            if first <= now:
                changed = True
                self._tuples -= known.size
                known.forget_expired(now)
                self._tuples += known.size
                if not known.parts:
                    del self.table[originator]
                    continue
                first = min(known.parts.values())
            if self._purge_at is None or first < self._purge_at:
                self._purge_at = first
        return changed, self._purge_at


def size_of(part: frozenset[Address]) -> int:
    """In tuples. An empty part takes a place as well: its number protects against older TCs."""
    return len(part) or 1


class Gateway(NamedTuple):
    node: Address
    network: Address
    netmask: Address


class Associations:
    """Nodes with several interfaces (MID, section 5), gateways to networks (HNA, section 12)."""

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
                del self._interfaces[claim]
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


class NodeNumbers:
    """Which address is which node of ours, in open OLSR: by what the node heard itself, else by NODE
    messages.

    Answers as `Addresses` does; 0 is the address of a node that is not known. A foreign router has an
    address but no number, so strategies never see it. NODE messages are flooded like any other, also by
    daemons that do not know them, and nobody can check them. So what the runtime heard of a node in sealed
    frames comes first, and of two claims to one number the older holds. A false claim can keep a node from
    being found over several hops; it cannot read or forge what is sent to it."""

    def __init__(self, node: NodeId, own: Address, heard: Addresses, length_max: int) -> None:
        self._node = node
        self._own = own
        self._heard = heard
        self._claims: Deadlines[tuple[Address, NodeId]] = Deadlines(length_max)
        self._addresses: dict[NodeId, Address] = {}
        self._nodes: dict[Address, NodeId] = {}
        self._relays: set[Address] = set()

    def on_node(self, originator: Address, node: NodeNotice, until: Micros) -> bool | None:
        """Whether a node became known, or changed its role; None if there was no room."""
        before = len(self._claims)
        if not self._claims.hold((originator, node.number), until):
            return None
        changed = len(self._claims) > before
        if changed:
            self._index()
        if node.is_relay is not (originator in self._relays):
            (self._relays.add if node.is_relay else self._relays.discard)(originator)
            changed = True
        return changed

    def relays(self) -> list[Address]:
        """The addresses of nodes that say that they relay, increasing."""
        return sorted(self._relays)

    def address(self, node: NodeId) -> Address:
        if node == self._node:
            return self._own
        return self._heard.address(node) or self._addresses.get(node, 0)

    def node(self, address: Address) -> NodeId | None:
        if address == self._own:
            return self._node
        number = self._heard.node(address)
        if number is None:
            number = self._nodes.get(address)
        return number if number is not None and self.address(number) == address else None

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        fewer, deadline = self._claims.purge(now)
        if fewer:
            self._index()
        return fewer, deadline

    def _index(self) -> None:
        self._addresses, self._nodes = {}, {}
        for address, number in self._claims:  # the oldest first
            if number != self._node and number not in self._addresses and address not in self._nodes:
                self._addresses[number] = address
                self._nodes[address] = number
        self._relays &= self._nodes.keys()


class Deadlines(dict[Thing, Micros]):
    """Things that hold until a deadline: selectors, associations, gateways. Unlike an `ExpiringDict`
    (`kit/tables.py`) it refuses new entries when it is full, so that forged ones cannot push out others."""

    def __init__(self, length_max: int) -> None:
        super().__init__()
        self._length_max = length_max

    def hold(self, thing: Thing, until: Micros) -> bool:
        """Remember or renew. False if there was no room."""
        if thing not in self and len(self) >= self._length_max:
            return False
        self[thing] = until
        return True

    def purge(self, now: Micros) -> tuple[bool, Micros | None]:
        """Whether anything has expired, and the next deadline."""
        first = min(self.values(), default=None)
        if first is None or now < first:
            return False, first
        for thing in [thing for thing, until in self.items() if until <= now]:
            del self[thing]
        return True, min(self.values(), default=None)
