"""Which address is which node of ours, in open OLSR: by what the node heard itself, else by NODE messages.

A foreign router has an address but no number, so strategies never see it. NODE messages are flooded like any
other, also by daemons that do not know them, and nobody can check them. So what the runtime heard of a node
in sealed frames comes first, and of two claims to one number the older holds. A false claim can keep a node
from being found over several hops; it cannot read or forge what is sent to it.
"""

from roamcast.underlay.addresses import Addresses
from roamcast.underlay.olsr.tables.deadlines import Deadlines
from roamcast.units import Micros, NodeId
from roamcast.wire.olsr import Address, Node


class NodeNumbers:
    """Answers as `Addresses` does; 0 is the address of a node that is not known."""

    def __init__(self, node: NodeId, own: Address, heard: Addresses, length_max: int) -> None:
        self._node = node
        self._own = own
        self._heard = heard
        self._claims: Deadlines[tuple[Address, NodeId]] = Deadlines(length_max)
        self._addresses: dict[NodeId, Address] = {}
        self._nodes: dict[Address, NodeId] = {}
        self._relays: set[Address] = set()

    def on_node(self, originator: Address, node: Node, until: Micros) -> bool | None:
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
