"""A node's status document, asked for and shown: what `roamcast status` and `roamcast peers` print."""

import time
from collections.abc import Iterator

import msgspec

from roamcast.client.client import Client
from roamcast.client.commands import is_count, number_of
from roamcast.client.connect import NodePlace
from roamcast.columns import Naming, in_columns
from roamcast.errors import InputError
from roamcast.event import EventId
from roamcast.wire.status import EventWay, InterfaceStatus, NodeStatus, PeerStatus

WATCH_SECONDS = 1.0


def of(place: NodePlace) -> NodeStatus:
    """The status of the node at this socket; `ClientError` if none answers."""
    return place.run("roamcast status", Client.status)


def each_second(place: NodePlace) -> Iterator[NodeStatus]:
    """The status every second, until the caller or the node stops."""
    while True:
        yield of(place)
        time.sleep(WATCH_SECONDS)


def way_of(place: NodePlace, event: str) -> EventWay:
    """The way of an event given as `node:sequence`; the node by number or name."""
    node, _, sequence = event.rpartition(":")
    if not node or not is_count(sequence) or (node.isdigit() and not is_count(node)):
        raise InputError(event, "is no event; allowed: node:sequence, as `roamcast publish` prints it")

    async def ask(client: Client) -> EventWay:
        return await client.way_of(EventId(await number_of(client, node), int(sequence)))

    return place.run("roamcast trace", ask)


def way_to_text(way: EventWay) -> str:
    """One line per step, the oldest first."""
    name, called = f"{way.publisher}:{way.sequence}", Naming(way.names)
    if way.publisher in way.names:
        name += f" of {way.names[way.publisher]}"
    if not way.steps:
        held = "it is stored here" if way.is_stored else "it is not stored here"
        return (
            f"{name}: this node remembers no step of it, and {held} "
            f"(it remembers the last {duration(way.remembered_for)})"
        )
    lines = []
    for step in way.steps:
        match step.what:
            case "arrived":
                where = f"from {called(step.peer)}" if step.peer is not None else "from a neighbour"
            case "sent":
                where = f"to {called(step.peer)}" if step.peer is not None else "to everyone"
            case "dropped" if step.peer is not None:
                where = f"for {called(step.peer)}"
            case "delivered":
                where = "to an application here"
            case _:
                where = ""
        text = " ".join(part for part in (step.what, where) if part)
        lines.append(f"{duration(step.ago):>8} ago  {text}{f' ({step.detail})' if step.detail else ''}")
    if way.steps_total > len(way.steps):
        lines.append(f"… and {way.steps_total - len(way.steps)} more steps")
    lines.append(f"{name} is {'stored here' if way.is_stored else 'not stored here'}")
    return "\n".join(lines)


def to_json(status: NodeStatus | EventWay) -> str:
    return msgspec.json.encode(status).decode()


def peers_to_json(status: NodeStatus) -> str:
    """One object: all that is known of the peers, and what is wrong with others that are heard."""
    chosen = {
        "node": status.number,
        "peers": status.peers,
        "misfits": status.misfits,
        "names": status.names,
    }
    return msgspec.json.encode(chosen).decode()


def to_text(status: NodeStatus) -> str:
    group = ", ".join(status.group[:1]) + (
        f" (also accepted: {', '.join(status.group[1:])})" if status.group[1:] else ""
    )
    clients = ", ".join(f"{count} {gateway}" for gateway, count in status.clients.items()) or "none"
    lines = [f"{one.level.upper()}: {one.text}" for one in status.problems]
    if lines:
        lines.append("")
    facts = [
        ("node", f"{status.name}, number {status.number}, up {duration(status.uptime)}"),
        ("program", f"roamcast {status.version}"),
        ("strategy", f"{status.strategy} over {status.underlay}"),
        ("group key", group + ("" if status.is_encrypted else ", frames are not encrypted")),
        *(
            ("interface", _interface(one)) for one in status.interfaces
        ),
        ("peers", f"{sum(peer.is_up for peer in status.peers)} heard now, {status.peers_total} lately"),
        ("clients", clients),
        ("subscriptions", f"{status.subscriptions_total}"),
        ("events", f"{status.events_published} published here, {status.events_delivered} delivered here, "
         f"{status.events_stored} stored{f' in {status.storage}' if status.storage else ' in memory'}"),
    ]  # fmt: skip
    if status.broker_load is not None:
        facts.append(("load", f"{status.broker_load:.0%} of what this broker can do"))
    if status.revoked:
        facts.append(("revoked", ", ".join(map(Naming(status.names), status.revoked))))
    lines += [f"{name:14}{value}" for name, value in facts]
    if status.peers:
        lines += ["", *_peer_table(status)]
    if status.misfits:
        lines += ["", "heard, but not fitting:"]
        lines += [f"  {one.address}: {one.problem} ({duration(one.age)} ago)" for one in status.misfits]
    if status.subscriptions:
        lines += ["", "subscribed to:", *(f"  {one}" for one in status.subscriptions)]
    for title, counts in (("dropped", status.drops), ("not accepted from the air", status.refused)):
        if counts:
            lines += ["", f"{title} (in the last minute):"]
            lines += [f"  {one.count} ({one.last_minute})  {one.words}" for one in counts]
    return "\n".join(lines)


def _interface(one: InterfaceStatus) -> str:
    if not one.is_up:
        return f"{one.name} AWAY: {one.trouble}"
    ports = f"air port {one.port}, own port {one.own_port}"
    return f"{one.name} {one.address}, {ports}, {one.mode}, {one.peers} peers"


def peers_to_text(status: NodeStatus) -> str:
    lines = _peer_table(status) if status.peers else ["no other node has been heard"]
    lines += [f"not fitting: {one.address}: {one.problem}" for one in status.misfits]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """For people: `0.4 s`, `12 s`, `3 min`, `5 h 20 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _peer_table(status: NodeStatus) -> list[str]:
    heads = ("peer", "number", "address", "by", "state", "heard", "quality", "received", "sent to it")
    rows = [
        (
            status.names.get(peer.number, "-"),
            str(peer.number),
            f"[{peer.address}]:{peer.port}" if ":" in peer.address else f"{peer.address}:{peer.port}",
            ", ".join([peer.interface, *peer.also_by]),
            _state(peer),
            f"{duration(peer.age)} ago",
            "-" if peer.other else "new" if peer.quality is None else f"{peer.quality:.0%}",
            _octets(peer.bytes_received),
            _octets(peer.bytes_sent),
        )
        for peer in status.peers
    ]
    return in_columns([heads, *rows], words=range(len(heads)))


def _state(peer: PeerStatus) -> str:
    if not peer.is_up:
        return "gone"
    return f"other {peer.other}" if peer.other else "neighbour" if peer.is_neighbour else "heard"


def _octets(count: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 10_000 or unit == "GB":
            return f"{count} {unit}"
        count //= 1000
    raise AssertionError
