"""Fills in the status document (`wire/status.py`) of a running node. Problems are in words, errors first."""

from itertools import islice
from typing import TYPE_CHECKING

from roamcast import __version__
from roamcast.host import Channel
from roamcast.runtime.live.air.air import UsedInterface
from roamcast.runtime.live.air.peers import Peer
from roamcast.runtime.live.report.journal import ReasonTally
from roamcast.runtime.live.report.misfits import is_error
from roamcast.runtime.live.settings import AirMode
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.units import SECOND, Micros, NodeId, seconds
from roamcast.wire.status import (
    FILTERS_SHOWN,
    KNOWN_SHOWN,
    LINKS_SHOWN,
    NAMES_SHOWN,
    PASSING_SHOWN,
    PEERS_SHOWN,
    STORED_SHOWN,
    InterfaceStatus,
    KnownNode,
    NodeLoad,
    NodeProblem,
    NodeStatus,
    NodeView,
    OverlayLink,
    PeerStatus,
    ReasonCount,
    StoredStatus,
)

if TYPE_CHECKING:  # it imports this module
    from roamcast.runtime.live.node import LiveNode

ALONE_AFTER: Micros = 10 * SECOND  # chosen by us: several announcements of others should have come by then
FILTER_SIGNS = 200


def status_of(node: "LiveNode") -> NodeStatus:
    now = node.clock.now
    settings, peers = node.settings, node.radio.peers
    neighbours = set(node.node.underlay.neighbours())
    subscriptions = node.node.broker.subscriptions()
    return NodeStatus(
        problems=tuple(problems_of(node)),
        version=__version__,
        number=node.number,
        name=node.name,
        public_key=node.public_key.hex(),
        uptime=seconds(now - node.started_at),
        strategy=node.config.strategy,
        underlay=node.underlay_name,
        is_broker=settings.node.broker,
        group=tuple(f"{number:04x}" for number in node.radio.group_key_ids),
        is_encrypted=settings.keys.encrypt,
        content_keys=len(settings.keys.content),
        interfaces=tuple(_interface(node, used) for used in node.radio.air.used),
        peers=tuple(
            _peer(node, peer, peer.number in neighbours) for peer in peers.latest_first()[:PEERS_SHOWN]
        ),
        peers_total=len(peers),
        misfits=tuple(node.journal.misfits.standing(now)),
        clients={
            gateway: int(count)
            for gateway in ("local", "mqtt")
            if (count := node.counters.reading(f"{gateway}_clients")) is not None
        },
        subscriptions=tuple(str(one.filter)[:FILTER_SIGNS] for one in subscriptions[:FILTERS_SHOWN]),
        subscriptions_total=len(subscriptions),
        events_published=node.applications.published,
        events_delivered=node.applications.delivered,
        events_stored=len(node.node.broker.store),
        storage=settings.node.state or "",
        drops=_reasons(node.journal.drops, now),
        refused=_reasons(node.journal.refusals, now),
        revoked=tuple(node.radio.statements.revoked()),
        broker_load=node.journal.load,
        names=dict(islice(node.journal.names.items(), NAMES_SHOWN)),
    )


def problems_of(node: "LiveNode") -> list[NodeProblem]:
    """What an operator should look at, errors first."""
    now, journal = node.clock.now, node.journal
    errors: list[str] = []
    warnings: list[str] = []
    used = node.radio.air.used
    away = [f"interface {one.name} {one.trouble}; the node waits for it" for one in used if not one.is_up]
    (warnings if len(away) < len(used) else errors).extend(away)
    if not used:
        errors.append("this machine has no interface that can be used; the node waits for one")
    warnings += [
        f"{count} dropped in a minute: {journal.drops.in_words(reason)}"
        for reason in ("queue_full", "store_full", "wire", "modulator")
        if (count := journal.drops.last_minute(reason, now))
    ]
    if node.storage is not None and (trouble := node.storage.standing_trouble()):
        errors.append(f"memorized events are refused: {trouble}")
    if node.storage is not None and node.storage.lost:
        errors.append(node.storage.lost)
    if node.storage is None and node.settings.node.state is not None:
        errors.append("the storage could not be written at the start: nothing is kept over a restart")
    for misfit in journal.misfits.standing(now):
        (errors if is_error(misfit) else warnings).append(
            f"a neighbour does not fit: {misfit.address} {misfit.problem}"
        )
    if node.number in node.radio.statements.revoked():
        errors.append(
            "this node was revoked: no member accepts its frames; `roamcast key revoke --undo` there"
        )
    errors += [
        f"one invitation was used by several devices: {', '.join(map(journal.names.called, users))}"
        for users in node.radio.statements.shared_invitations().values()
    ]
    if node.counters.total("handler_errors_total"):
        errors.append("an input was dropped because of a fault in the program; the log has the traceback")
    if not node.radio.peers.up and now - node.started_at >= ALONE_AFTER:
        warnings.append(
            "no other node is heard; others need the same group key, air port and mode, and to be in range"
        )
    warnings += [
        f"several nodes are called {name}: {', '.join(map(str, holders))}; give each a name of its own"
        for name, holders in journal.names.shared(node.radio.statements.revoked()).items()
    ]
    if node.world.wall() < CLOCK_SET:
        warnings.append("the wall clock is not set; lifetimes do not run while the node is off")
    if node.counters.total("trace_records_unwritten_total"):
        warnings.append("records of the trace are missing: the disk had no room for them")
    return [
        *(NodeProblem(level="error", text=text) for text in errors),
        *(NodeProblem(level="warning", text=text) for text in warnings),
    ]


def _interface(node: "LiveNode", used: UsedInterface) -> InterfaceStatus:
    settings, working = node.settings.air, used.working
    first = working[0] if working else None
    return InterfaceStatus(
        name=used.name,
        address="" if first is None else first.address,
        is_up=used.is_up,
        port=settings.port,
        own_port=0 if first is None else first.port,
        mode=AirMode.MULTICAST.value if first is not None and first.is_ipv6 else settings.mode.value,
        peers=node.radio.peers.reached_by(used.name),
        trouble=used.trouble,
    )


def _peer(node: "LiveNode", peer: Peer, is_neighbour: bool) -> PeerStatus:
    now, endpoint, hearing = node.clock.now, peer.endpoint, peer.hearing
    others = {path.interface for path in node.radio.peers.working(peer, now)}
    return PeerStatus(
        number=peer.number,
        address=endpoint.host,
        port=endpoint.port,
        interface=endpoint.interface,
        also_by=tuple(sorted(others - {endpoint.interface})),
        is_up=hearing.is_up,
        is_neighbour=is_neighbour and not peer.deaf,
        other=" ".join(channel.name.lower() for channel in peer.deaf),
        age=seconds(now - peer.heard_at),
        known_for=seconds(now - hearing.first_at),
        quality=hearing.slots.quality(now),
        links=node.radio.links.count(peer.number),
        frames_received=hearing.frames_received,
        bytes_received=hearing.bytes_received,
        frames_sent=hearing.frames_sent,
        bytes_sent=hearing.bytes_sent,
    )


def _reasons(tally: ReasonTally, now: Micros) -> tuple[ReasonCount, ...]:
    """The most frequent first."""
    ordered = sorted(tally.totals().items(), key=lambda one: (-one[1], one[0]))
    return tuple(
        ReasonCount(
            reason=reason,
            words=tally.in_words(reason),
            count=count,
            last_minute=tally.last_minute(reason, now),
        )
        for reason, count in ordered
    )


def view_of(node: "LiveNode") -> NodeView:
    journal = node.journal
    known = node.node.underlay.known_nodes()
    now = node.clock.now
    return NodeView(
        status=status_of(node),
        roles=tuple(sorted(journal.roles)),
        links=tuple(
            OverlayLink(peer=peer, role=role, known_for=seconds(now - since))
            for peer, (role, since) in islice(sorted(journal.links.items()), LINKS_SHOWN)
        ),
        links_total=len(journal.links),
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
        processor_seconds=node.world.computer.processor_seconds(),
        resident_bytes=node.world.computer.resident_bytes(),
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
