"""Relays for an underlay whose routing protocol names none, computed from announcements of our own.

Each node says who its neighbours are and whom of them it chose as relays. From what its neighbours say it
chooses, by OLSR's heuristic, relays that cover everybody two hops away. So a node knows the relays within two
hops, which is what a strategy asks about: whether it is one itself, and which of its neighbours are.
Announcements travel sealed, one hop, like every frame of ours.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from roamcast.event import Count
from roamcast.underlay.olsr.mpr import RelayCandidate, select_relays
from roamcast.units import Micros, NodeId
from roamcast.wire import Codec
from roamcast.wire.olsr import WILL_DEFAULT

NEIGHBOURS_MAX = 1_000  # named in one announcement, and remembered; chosen by us, as for beacons
HOLD_INTERVALS = 3  # as NEIGHB_HOLD_TIME of RFC 3626


class Announcement(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    neighbours: Annotated[tuple[Count, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]
    relays: Annotated[tuple[Count, ...], msgspec.Meta(max_length=NEIGHBOURS_MAX)]


CODEC: Codec[Announcement] = Codec("covering", 1, Announcement)


class Covering:
    def __init__(self, node: NodeId, interval: Micros) -> None:
        self._node = node
        self._hold = HOLD_INTERVALS * interval
        self._heard: dict[NodeId, tuple[Announcement, Micros]] = {}  # the latest of each, and its deadline

    def on_announcement(self, sender: NodeId, announcement: Announcement, now: Micros) -> bool:
        """Whether it says something else than the one before."""
        before = self._heard.get(sender)
        if before is None and len(self._heard) >= NEIGHBOURS_MAX:
            return False
        self._heard[sender] = announcement, now + self._hold
        return before is None or before[0] != announcement

    def announcement(self, neighbours: Iterable[NodeId], now: Micros) -> Announcement:
        listed = sorted(neighbours)[:NEIGHBOURS_MAX]
        return Announcement(tuple(listed), tuple(sorted(self._chosen(listed, now))))

    def relays(self, neighbours: Iterable[NodeId], now: Micros) -> list[NodeId]:
        """Chosen by this node or by a neighbour, in order."""
        listed = list(neighbours)
        said = (self._said(node, now) for node in listed)
        return sorted(self._chosen(listed, now).union(*(one.relays for one in said if one is not None)))

    def forget_silent(self, now: Micros) -> bool:
        """Whether any was."""
        silent = [node for node, (_, until) in self._heard.items() if until <= now]
        for node in silent:
            del self._heard[node]
        return bool(silent)

    def _chosen(self, neighbours: Iterable[NodeId], now: Micros) -> frozenset[NodeId]:
        """Only nodes that announce themselves can relay: a host on the link may be a router of others."""
        candidates: dict[NodeId, RelayCandidate] = {}
        for node in sorted(neighbours):
            said = self._said(node, now)
            if said is not None and self._node in said.neighbours:
                candidates[node] = WILL_DEFAULT, frozenset(said.neighbours)
        return select_relays(self._node, candidates)

    def _said(self, node: NodeId, now: Micros) -> Announcement | None:
        heard = self._heard.get(node)
        return heard[0] if heard is not None and now < heard[1] else None
