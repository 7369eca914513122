"""What the ether reads from an Ethernet frame: its destination, its protocol, the size of its datagram.

Payloads are not read. Which frames of which node a datagram held follows from that node's own trace
(`collect.py`).
"""

import struct
from typing import NamedTuple

from roamcast.runtime.emulate.namespaces import mac_of
from roamcast.units import NodeId

NONE = -1
"""The addressee of a unicast frame to a device that does not exist."""
ETHERNET = struct.Struct("!6s6sH")
ETHERTYPES = {0x0806: "arp", 0x86DD: "ipv6"}
IPV4 = 0x0800
IPV4_HEADER_MIN = 20
PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp"}
FRAGMENT_OFFSET = 0x1FFF
UDP_HEADER = 8


class EthernetFrame(NamedTuple):
    to: NodeId | None  # None: a group address, for everyone in range
    protocol: str
    datagram: int | None = None  # payload octets, where a UDP datagram begins


class Reader:
    """Knows the MAC addresses of all nodes."""

    def __init__(self, nodes: int) -> None:
        self._nodes = {mac_of(node): node for node in range(nodes)}

    def read(self, frame: bytes) -> EthernetFrame | None:
        """None for what is no Ethernet frame."""
        if len(frame) < ETHERNET.size:
            return None
        destination, _, ethertype = ETHERNET.unpack_from(frame)
        to = None if destination[0] & 1 else self._nodes.get(destination, NONE)
        if ethertype != IPV4 or len(frame) < ETHERNET.size + IPV4_HEADER_MIN:
            return EthernetFrame(to, ETHERTYPES.get(ethertype, "other"))
        fragment, protocol = struct.unpack_from("!6xHxB", frame, ETHERNET.size)
        name = PROTOCOLS.get(protocol, "other")
        if name != "udp" or fragment & FRAGMENT_OFFSET:
            return EthernetFrame(to, name)
        at = ETHERNET.size + (frame[ETHERNET.size] & 15) * 4
        if len(frame) < at + UDP_HEADER:
            return EthernetFrame(to, name)
        (length,) = struct.unpack_from("!4xH", frame, at)
        return EthernetFrame(to, name, max(length - UDP_HEADER, 0))
