"""Fills in what a node's page shows (`wire/view.py`)."""

import os
import time
from itertools import islice
from typing import TYPE_CHECKING

from roamcast.host import Channel
from roamcast.runtime.live.report.status import status_of
from roamcast.units import NodeId, seconds
from roamcast.wire.view import (
    KNOWN_SHOWN,
    LINKS_SHOWN,
    PASSING_SHOWN,
    STORED_SHOWN,
    KnownNode,
    NodeLoad,
    NodeView,
    OverlayLink,
    StoredStatus,
)

if TYPE_CHECKING:  # it imports this module
    from roamcast.runtime.live.node import LiveNode


def view_of(node: "LiveNode") -> NodeView:
    journal = node.journal
    known = node.node.underlay.known_nodes()
    now = node.clock.now
    return NodeView(
        status=status_of(node),
        roles=tuple(sorted(journal.overlay.roles)),
        links=tuple(
            OverlayLink(peer=peer, role=role, known_for=seconds(now - since))
            for peer, (role, since) in islice(sorted(journal.overlay.links.items()), LINKS_SHOWN)
        ),
        links_total=len(journal.overlay.links),
        known=tuple(_known(node, number) for number in known[:KNOWN_SHOWN]),
        known_total=len(known),
        stored=tuple(_stored(node)),
        passing=tuple(journal.ways.lately(PASSING_SHOWN)),
        load=_load(node),
    )


def _known(node: "LiveNode", number: NodeId) -> KnownNode:
    underlay = node.node.underlay
    return KnownNode(number=number, hops=underlay.distance(number), next_hop=underlay.next_hop(number))


def _stored(node: "LiveNode") -> list[StoredStatus]:
    now = node.clock.now
    return [
        StoredStatus(
            publisher=stored.event.publisher,
            sequence=stored.event.sequence,
            topic=stored.event.topic,
            size=len(stored.event.payload),
            expires_in=seconds(stored.expires_at - now),
        )
        for stored in islice(reversed(node.node.broker.store.standing(now)), STORED_SHOWN)
    ]


def _load(node: "LiveNode") -> NodeLoad:
    counters = node.counters
    return NodeLoad(
        processor_seconds=time.process_time(),
        resident_bytes=_resident(),
        frames_sent=int(counters.total("frames_sent_total")),
        bytes_sent=int(counters.total("frame_bytes_sent_total")),
        control_bytes_sent=int(
            sum(
                counters.value("frame_bytes_sent_total", kind="control", layer=channel.name.lower())
                for channel in Channel
            )
        ),
        frames_queued=node.radio.links.queued,
    )


def _resident() -> int:
    """Octets of memory of this process, as Linux counts them."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
