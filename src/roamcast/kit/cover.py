"""Relays that a sender names in its copy: each has its own share to serve, and its own turn.

Receivers that contend for who passes a copy on do badly where they do not hear each other, or where a
collision hides the copy that should have silenced them. A sender that knows its neighbours' neighbours can
choose instead: a greedy cover of them, the multipoint relays of OLSR and of S-MPR in SMF (RFC 6621). Named
relays send one after the other, two airtimes apart, so that they do not collide either.

A name is two octets of a node's number. Numbers of live nodes are hashes of 64 bits: that two of a sender's
neighbours have the same name is rare (1 in 65,536 for each pair), and then one more node passes the copy on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, TypeAlias

import msgspec

from roamcast.event import Event
from roamcast.host import Host
from roamcast.kit.protocol import random_below
from roamcast.units import Micros, NodeId

# Chosen by us, as measured: at one airtime more than twice as many receptions collide, at four nothing is
# gained.
PLACE_AIRTIMES = 2
RELAYS_MAX = 64  # named in one copy
NAME_BYTES = 2
AROUND_PAYLOAD = 48  # octets of a copy beside the payload, about

Names: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=RELAYS_MAX * NAME_BYTES)]
"""Of relays, in the order of their turns."""


def shares(can: Mapping[NodeId, Collection[NodeId]], wanted: Iterable[NodeId]) -> dict[NodeId, set[NodeId]]:
    """Few of those who `can` serve all that are `wanted`, as far as they can, each with its own share;
    greedy, at most `RELAYS_MAX`. Of equals the one with the lowest number."""
    left = set(wanted)
    able = {node: left.intersection(reached) for node, reached in sorted(can.items())}
    chosen: dict[NodeId, set[NodeId]] = {}
    while left and able and len(chosen) < RELAYS_MAX:
        best = max(able, key=lambda node: len(able[node]))
        if not able[best]:
            break
        share = chosen[best] = able.pop(best)
        left -= share
        for reached in able.values():
            reached -= share
    return chosen


def name_number(node: NodeId) -> int:
    return node & 0xFFFF


def name_of(node: NodeId) -> bytes:
    return name_number(node).to_bytes(NAME_BYTES, "big")


def names_of(nodes: Iterable[NodeId]) -> bytes:
    return b"".join(map(name_of, nodes))[: RELAYS_MAX * NAME_BYTES]


def place_of(node: NodeId, names: bytes) -> int | None:
    """Whether a node is named, and at which place."""
    name = name_of(node)
    for at in range(0, len(names), NAME_BYTES):
        if names[at : at + NAME_BYTES] == name:
            return at // NAME_BYTES
    return None


def turn(host: Host, place: int, event: Event) -> Micros:
    """How long the relay at this place waits."""
    airtime = host.airtime(len(event.payload) + AROUND_PAYLOAD)
    return PLACE_AIRTIMES * place * airtime + random_below(host, airtime // 2)


def two_hop_relays(
    node: NodeId,
    near: Collection[NodeId],
    neighbours_of: Callable[[NodeId], Collection[NodeId]],
    covered: Collection[NodeId] = (),
) -> list[NodeId]:
    """The neighbours through which a copy reaches all that are two hops away and not `covered`, and those of
    whose neighbours nothing is known."""
    can = {neighbour: neighbours_of(neighbour) for neighbour in near}
    beyond = set[NodeId]().union(*can.values()).difference(near, (node,), covered)
    return [*shares(can, beyond), *(neighbour for neighbour in near if not can[neighbour])]
