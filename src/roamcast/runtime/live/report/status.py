"""Fills in the status document (`wire/status.py`) of a running node. Problems are in words, errors first."""

import time
from itertools import islice
from typing import TYPE_CHECKING

from roamcast import __version__
from roamcast.runtime.live.air.air import UsedInterface
from roamcast.runtime.live.report.misfits import is_error
from roamcast.runtime.live.report.peer_watch import PeerRecord
from roamcast.runtime.live.report.tally import ReasonTally
from roamcast.runtime.live.settings import AirMode
from roamcast.runtime.live.storage.database import CLOCK_SET
from roamcast.units import SECOND, Micros, seconds
from roamcast.wire.status import (
    FILTERS_SHOWN,
    PEERS_SHOWN,
    InterfaceStatus,
    NodeStatus,
    PeerStatus,
    Problem,
    ReasonCount,
)

if TYPE_CHECKING:  # it imports this module
    from roamcast.runtime.live.node import LiveNode

ALONE_AFTER: Micros = 10 * SECOND  # chosen by us: several announcements of others should have come by then
FILTER_SIGNS = 200


def status_of(node: "LiveNode") -> NodeStatus:
    now = node.clock.now
    settings, watch = node.settings, node.journal.peers
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
        interfaces=tuple(interfaces_of(node)),
        peers=tuple(
            _peer(node, record, record.number in neighbours)
            for record in islice(watch.latest_first(), PEERS_SHOWN)
        ),
        peers_total=len(watch),
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
    )


def problems_of(node: "LiveNode") -> list[Problem]:
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
    if node.storage is not None and node.storage.trouble:
        errors.append(f"memorized events are refused: {node.storage.trouble}")
    for misfit in journal.misfits.standing(now):
        (errors if is_error(misfit) else warnings).append(
            f"a neighbour does not fit: {misfit.address} {misfit.problem}"
        )
    if node.number in node.radio.statements.revoked():
        errors.append(
            "this node was revoked: no member accepts its frames; `roamcast key revoke --undo` there"
        )
    errors += [
        f"one invitation was used by several devices: nodes {', '.join(map(str, users))}"
        for users in node.radio.statements.shared_invitations().values()
    ]
    if node.counters.total("handler_errors_total"):
        errors.append("an input was dropped because of a fault in the program; the log has the traceback")
    if not journal.peers.up and now - node.started_at >= ALONE_AFTER:
        warnings.append(
            "no other node is heard; others need the same group key, air port and mode, and to be in range"
        )
    if time.time() * SECOND < CLOCK_SET:
        warnings.append("the wall clock is not set; lifetimes do not run while the node is off")
    if node.counters.total("trace_records_unwritten_total"):
        warnings.append("records of the trace are missing: the disk had no room for them")
    return [
        *(Problem(level="error", text=text) for text in errors),
        *(Problem(level="warning", text=text) for text in warnings),
    ]


def interfaces_of(node: "LiveNode") -> list[InterfaceStatus]:
    return [_interface(node, used) for used in node.radio.air.used]


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
        peers=node.radio.reached_by(used.name),
        trouble=used.trouble,
    )


def _peer(node: "LiveNode", record: PeerRecord, is_neighbour: bool) -> PeerStatus:
    now = node.clock.now
    peer = node.radio.peers.find(record.number)
    paths = [] if peer is None else node.radio.peers.working(peer, now)
    return PeerStatus(
        number=record.number,
        address=record.endpoint.host,
        port=record.endpoint.port,
        interface=record.endpoint.interface,
        also_by=tuple(sorted({path.interface for path in paths[1:]} - {record.endpoint.interface})),
        is_up=record.is_up,
        is_neighbour=is_neighbour,
        age=seconds(now - record.heard_at),
        known_for=seconds(now - record.first_at),
        quality=record.slots.quality(now),
        links=node.radio.links.count(record.number),
        frames_received=record.frames_received,
        bytes_received=record.bytes_received,
        frames_sent=record.frames_sent,
        bytes_sent=record.bytes_sent,
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
