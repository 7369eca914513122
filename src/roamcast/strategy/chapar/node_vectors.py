"""Node vectors, NV: sets of nodes as bitmaps (Chapar, section 4.1), and the equations (2) to (7) over them.

Inside a node a vector is a Python integer, so union, intersection and difference are single operations
on any number of nodes. `NodeBits` maps a node to its bit (the paper's H_NV) and gives vectors their wire
form. There are two:

- `OrderedAddresses`: node numbers are consecutive, bit n is node `first + n` on every node. The wire form
  is the bitmap itself, one bit per node, and every logical operation holds for it.
- `BloomAddresses`: addresses are arbitrary. Inside, bits are assigned locally, first come first served, and
  mean nothing to other nodes; when all are assigned, the owner decides whose bit is free again. The wire form
  is a Bloom filter of 8 bits per member. Of the logical operations only union survives in that form (OR of
  two filters of one length); the intersection of two filters contains more than the filter of the
  intersection, and complement, difference and ⊕ have no meaning. So no operation is ever done on that form: a
  receiver lists the members among the nodes it knows, and calculates with that list. A false member (about 2
  in 100 nodes that are not members) costs a wasted notification, which the exact filter stops; a true member
  is never missed.

The paper writes ⊕ to remove a subset from a set. If it is no subset (the preceding broker is not among the
neighbours that are no brokers), ⊕ would add it; so here that is `& ~`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

from roamcast.units import NodeId

NodeVector: TypeAlias = int
NO_NODES: NodeVector = 0

VECTOR_BYTES_MAX = 512  # chosen by us: room for 4,096 nodes
NODES_MAX = 8 * VECTOR_BYTES_MAX
BLOOM_BITS_PER_NODE = 8  # the paper's figure
BLOOM_HASHES = 5  # 8 ln 2, rounded down: 0.0217 false members


MakeRoom: TypeAlias = Callable[[NodeId, Sequence[NodeId]], NodeId | None]


def vector_of(addresses: "NodeBits", nodes: Iterable[NodeId]) -> NodeVector:
    vector = NO_NODES
    for node in nodes:
        vector |= addresses.bit(node)
    return vector


class OrderedAddresses:
    def __init__(self, first: NodeId = 0, size: int = NODES_MAX) -> None:
        assert 0 < size <= NODES_MAX
        self._first = first
        self._size = size
        self._all = (1 << size) - 1

    def bit(self, node: NodeId) -> NodeVector:
        """The vector of one node; empty where the node has no place in a vector."""
        index = node - self._first
        return 1 << index if 0 <= index < self._size else NO_NODES

    def nodes(self, vector: NodeVector) -> list[NodeId]:
        """The members, in the order of their bits."""
        return [self._first + index for index in bits_of(vector)]

    def encode(self, vector: NodeVector) -> bytes:
        return vector.to_bytes((vector.bit_length() + 7) // 8, "little")

    def decode(self, data: bytes, known: Iterable[NodeId]) -> NodeVector:
        """The vector that was sent; `known` are the nodes that it can contain."""
        return int.from_bytes(data, "little") & self._all


class BloomAddresses:
    def __init__(self, size: int = NODES_MAX, make_room: MakeRoom | None = None) -> None:
        """`make_room`: asked when all bits are assigned, with the node that needs one and those that have
        one, oldest first; it names the node whose bit is free again, or None."""
        self._size = size
        self._make_room = make_room
        self._bits: dict[NodeId, int] = {}
        self._nodes: list[NodeId] = []

    def bit(self, node: NodeId) -> NodeVector:
        index = self._bits.get(node)
        if index is None:
            index = self._assign(node)
            if index is None:
                return NO_NODES
        return 1 << index

    def _assign(self, node: NodeId) -> int | None:
        if node < 0:
            return None
        if len(self._nodes) < self._size:
            self._nodes.append(node)
            self._bits[node] = len(self._nodes) - 1
            return self._bits[node]
        leaves = None if self._make_room is None else self._make_room(node, list(self._bits))
        if leaves is None:
            return None
        index = self._bits[node] = self._bits.pop(leaves)
        self._nodes[index] = node
        return index

    def nodes(self, vector: NodeVector) -> list[NodeId]:
        return [self._nodes[index] for index in bits_of(vector)]

    def encode(self, vector: NodeVector) -> bytes:
        length = min(vector.bit_count() * BLOOM_BITS_PER_NODE // 8, VECTOR_BYTES_MAX)
        summary = 0
        for node in self.nodes(vector):
            summary |= bloom_bits(node, 8 * length)
        return summary.to_bytes(length, "little")

    def decode(self, data: bytes, known: Iterable[NodeId]) -> NodeVector:
        if not data:
            return NO_NODES
        summary, length = int.from_bytes(data, "little"), 8 * len(data)
        vector = NO_NODES
        for node in known:
            wanted = bloom_bits(node, length)
            if summary & wanted == wanted:
                vector |= self.bit(node)
        return vector


NodeBits: TypeAlias = OrderedAddresses | BloomAddresses
"""How nodes become bits."""


@lru_cache(maxsize=65_536)
def bloom_bits(node: NodeId, length: int) -> int:
    """The bits of one node in a Bloom filter of `length` bits."""
    digest = blake2b(node.to_bytes(16, "little", signed=True), digest_size=4 * BLOOM_HASHES).digest()
    bits = 0
    for at in range(0, len(digest), 4):
        bits |= 1 << int.from_bytes(digest[at : at + 4], "little") % length
    return bits


def bits_of(vector: NodeVector) -> list[int]:
    """The numbers of the bits that are set, increasing."""
    found = []
    while vector:
        lowest = vector & -vector
        found.append(lowest.bit_length() - 1)
        vector ^= lowest
    return found


# The equations of section 4.2.


def notified(
    destinations: NodeVector, host: NodeVector, neighbours: NodeVector, preceding: NodeVector
) -> NodeVector:
    """Equation (2): NSNV = EDNV ∧ (HNV ∨ (NNV ⊕ BNV))."""
    return destinations & (host | neighbours & ~preceding)


def remaining(destinations: NodeVector, notified_now: NodeVector) -> NodeVector:
    """Equation (3): the new EDNV = EDNV ⊕ NSNV."""
    return destinations & ~notified_now


def available(subscribers: NodeVector, known: NodeVector) -> NodeVector:
    """The last line of Algorithm 1: ASNV = SNV ∧ ANV."""
    return subscribers & known


def multimode(original: NodeVector, available_subscribers: NodeVector) -> NodeVector:
    """Equation (7): EDNV = EDNV ∨ ASNV."""
    return original | available_subscribers


def returned(unavailable: NodeVector, neighbours: NodeVector) -> NodeVector:
    """Equation (4): NSNV = USNV ∧ NNV."""
    return unavailable & neighbours


def without(unavailable: NodeVector, gone: NodeVector) -> NodeVector:
    """Equations (5) and (6): USNV ⊕ NSNV, and USNV ⊕ (USNV ∧ ANV)."""
    return unavailable ^ unavailable & gone
