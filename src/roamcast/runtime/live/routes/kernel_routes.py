"""This machine's routing table and the numbers of the nodes in it, for the underlay `kernel`."""

from pathlib import Path

from roamcast.runtime.live.air.air import Air
from roamcast.runtime.live.air.peers import Peers
from roamcast.underlay.addresses import NO_ADDRESS, Address, Addresses, Subnet, parse_dotted
from roamcast.underlay.routing_table import HostRoute, parse_proc_arp, parse_proc_route
from roamcast.units import NodeId

ROUTES = Path("/proc/net/route")
LINK = Path("/proc/net/arp")


class KernelRoutes:
    """`/proc/net/route`, and hosts on the link that answer ARP: a routing daemon need not have those."""

    def routes(self) -> list[HostRoute]:
        try:
            routes = parse_proc_route(ROUTES.read_text())
            on_link = parse_proc_arp(LINK.read_text())
        except OSError:
            return []
        known = {route.destination for route in routes}
        return routes + [HostRoute(address, None, 1) for address in on_link if address not in known]


def numbers_of_hosts(own: NodeId, air: Air, peers: Peers) -> Addresses:
    """If this node's address is its number + 1 in its network (node 6 is 10.0.0.7), all nodes are assumed to
    be numbered so, and the ends of multi-hop routes are known. Otherwise only heard nodes are known. Both
    are about IPv4 only: a neighbour that is reached by IPv6 has no address here."""
    if air.ipv4 is not None:
        address, prefix = parse_dotted(air.ipv4.address or "0.0.0.0"), air.ipv4.prefix
        network = address >> (32 - prefix) << (32 - prefix)
        if prefix < 31 and address - network == own + 1:
            return Subnet(network, prefix)
    return HeardAddresses(own, air, peers)


class HeardAddresses:
    """Node numbers by the addresses from which their datagrams came; only one-hop neighbours are known."""

    def __init__(self, own: NodeId, air: Air, peers: Peers) -> None:
        self._own = own
        self._air = air
        self._peers = peers

    def address(self, node: NodeId) -> Address:
        if node == self._own:
            main = self._air.ipv4
            return parse_dotted((None if main is None else main.address) or "0.0.0.0")
        peer = self._peers.find(node)
        return 0 if peer is None or peer.endpoint.is_ipv6 else parse_dotted(peer.endpoint.address)

    def node(self, address: Address) -> NodeId | None:
        for peer in self._peers:
            if not peer.endpoint.is_ipv6 and parse_dotted(peer.endpoint.address) == address:
                return peer.number
        return None


class NumberedAddresses:
    """Any 31-bit node number as an address that OLSR's packets may hold, and back. Small numbers begin at
    10.0.0.1, as in a simulation; beyond 10.0.0.0/8 it goes on with the first octets 11, 12, … but 127.
    Nothing is ever sent to these addresses: frames go to the address from which a node was heard."""

    def address(self, node: NodeId) -> Address:
        if not 0 <= node < 2**31:
            return NO_ADDRESS
        return FIRST_OCTETS[(node + 1) >> 24] << 24 | (node + 1) & 0xFF_FFFF

    def node(self, address: Address) -> NodeId | None:
        block = _BLOCKS.get(address >> 24)
        return None if block is None else (block << 24 | address & 0xFF_FFFF) - 1


FIRST_OCTETS = [octet for octet in range(10, 224) if octet != 127]
_BLOCKS = {octet: block for block, octet in enumerate(FIRST_OCTETS)}
