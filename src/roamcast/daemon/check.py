"""`roamcast check`: everything that is wrong with a device, before it is carried out.

Nothing is changed, and nothing is sent. Problems that only show while a node runs are in `roamcast status`.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from roamcast.daemon.config import Config, clear_passwords, listening_address, load_config
from roamcast.errors import InputError
from roamcast.runtime.live.air.interface import chosen, left_out
from roamcast.runtime.live.linux import LinuxNetwork
from roamcast.runtime.live.storage.database import APPLICATION_ID, BYTES_MAX, CLOCK_SET, DISK_RESERVE
from roamcast.runtime.live.world import NodeNetwork
from roamcast.units import SECOND

Level = Literal["ok", "warning", "error"]
_APPLICATION_AT = slice(68, 72)  # in an SQLite file, https://sqlite.org/fileformat.html


class DeviceFinding(NamedTuple):
    level: Level
    what: str  # "file", "interface", "clock", "disk", "key", "port"
    text: str


def check(path: Path, network: NodeNetwork | None = None, now: float | None = None) -> list[DeviceFinding]:
    """What was looked at, with what is wrong; of a file that cannot be used only that."""
    try:
        config = load_config(path)
    except InputError as error:
        return [DeviceFinding("error", "file", str(error))]
    now = time.time() if now is None else now
    is_running = _answers(path.parent / config.clients.socket) if config.clients is not None else False
    return [
        *_file(path, config),
        *_keys(config),
        *_interfaces(config, LinuxNetwork() if network is None else network),
        *_clock(now),
        *_disk(path.parent, config),
        *(
            [DeviceFinding("ok", "port", "this node runs now and has them")]
            if is_running
            else _ports(path.parent, config)
        ),
    ]


def _file(path: Path, config: Config) -> Iterator[DeviceFinding]:
    if path.stat().st_mode & 0o077:
        yield DeviceFinding(
            "warning", "file", f"{path} holds secret keys and others may read it; chmod 600 helps"
        )
    if clear := clear_passwords(config):
        hint = "`roamcast key password` makes hashes"
        yield DeviceFinding("warning", "file", f"{path} has passwords in clear ({', '.join(clear)}); {hint}")
    named = (
        []
        if config.mqtt is None
        else [config.mqtt.tls_certificate, config.mqtt.tls_key, config.mqtt.tls_client_authority]
    )
    named += [] if config.web is None else [config.web.tls_certificate, config.web.tls_key, config.web.tiles]
    named += [] if config.bridge is None else [config.bridge.tls_authority, config.bridge.password_file]
    for name in filter(None, named):
        if not os.access(path.parent / name, os.R_OK):
            yield DeviceFinding(
                "error", "file", f"{path.parent / name} is named in {path} and cannot be read"
            )
    yield DeviceFinding("ok", "file", str(path))


def _keys(config: Config) -> Iterator[DeviceFinding]:
    node, ring = config.live.identity().node, config.keys.ring()
    name = config.node.name or f"node-{node}"
    if config.node.name is None:
        yield DeviceFinding("warning", "key", "node.name is not given; people read a number instead")
    also = f", and accepts {len(ring.by_id) - 1} more" if len(ring.by_id) > 1 else ""
    yield DeviceFinding(
        "ok", "key", f"{name} is node {node}, seals with group key {ring.sending.id:04x}{also}"
    )


def _interfaces(config: Config, network: NodeNetwork) -> Iterator[DeviceFinding]:
    try:
        wanted = config.air.wanted(network)
    except InputError as error:
        yield DeviceFinding("error", "interface", str(error))
        return
    used = wanted or [one.name for one in chosen(network)]
    if not used:
        yield DeviceFinding("error", "interface", "there is none that can be used")
    for name in used:
        seen = network.look(name)
        if seen is None:
            yield DeviceFinding(
                "error", "interface", f"{name} is not there; here are {', '.join(network.names())}"
            )
        elif not seen.up:
            yield DeviceFinding(
                "error", "interface", f"{name} is down or not connected; `ip link set {name} up`"
            )
        elif seen.address is None and seen.link_local is None:
            yield DeviceFinding("error", "interface", f"{name} has no address")
        elif seen.loopback:
            yield DeviceFinding("warning", "interface", f"{name} reaches nodes on this device only")
        else:
            yield DeviceFinding("ok", "interface", f"{name} has {seen.address or seen.link_local}")
    if not wanted and (others := left_out(network, used)):
        yield DeviceFinding(
            "warning", "interface", f"not used: {', '.join(others)}; air.interfaces names those to use"
        )


def _clock(now: float) -> Iterator[DeviceFinding]:
    if now * SECOND < CLOCK_SET:
        text = "is not set; lifetimes do not run while the node is off, and invitations do not expire"
        yield DeviceFinding("warning", "clock", text)
    else:
        yield DeviceFinding("ok", "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _disk(base: Path, config: Config) -> Iterator[DeviceFinding]:
    if config.trace.folder is not None:
        yield from _room(base / config.trace.folder / "x", config.trace.bytes_max, "trace.folder")
    if config.node.state is None:
        yield DeviceFinding("warning", "disk", "node.state is not given; nothing is kept over a restart")
        return
    state = base / config.node.state
    if not state.parent.is_dir():
        yield DeviceFinding("error", "disk", f"{state.parent} is not there (node.state)")
        return
    yield from _room(state, BYTES_MAX, "node.state")
    try:
        head = state.read_bytes()[:100] if state.is_file() else b""
    except OSError as error:
        yield DeviceFinding("error", "disk", f"{state} cannot be read: {error.strerror}")
        return
    # Of a database that is new the log has the number, until that has been written into the file.
    unset = [bytes(4)] * state.with_name(f"{state.name}-wal").exists()
    if head and head[_APPLICATION_AT] not in (APPLICATION_ID.to_bytes(4, "big"), *unset):
        yield DeviceFinding(
            "error", "disk", f"{state} is no storage of a node; name another file in node.state"
        )


def _room(file: Path, wanted: int, key: str) -> Iterator[DeviceFinding]:
    folder = next(one for one in file.parents if one.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield DeviceFinding("error", "disk", f"{folder} cannot be written ({key})")
        return
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    said = f"{folder} has {free // 10**6} MB left for {key}, which may take {wanted // 10**6}"
    if free < DISK_RESERVE:
        yield DeviceFinding(
            "error", "disk", f"{said}; {DISK_RESERVE} octets are kept free for other programs"
        )
    else:
        yield DeviceFinding("warning" if free < wanted + DISK_RESERVE else "ok", "disk", said)


def _ports(base: Path, config: Config) -> Iterator[DeviceFinding]:
    asked: list[tuple[str, str, int, int]] = []
    if config.mqtt is not None:
        asked += [("mqtt.port", config.mqtt.host, config.mqtt.port, socket.SOCK_STREAM)] * config.mqtt.plain
        if config.mqtt.tls_certificate:
            asked.append(("mqtt.tls_port", config.mqtt.host, config.mqtt.tls_port, socket.SOCK_STREAM))
    if config.web is not None:
        asked.append(("web.port", config.web.host, config.web.port, socket.SOCK_STREAM))
    if config.metrics is not None:
        asked.append(("metrics.listen", *listening_address(config.metrics.listen), socket.SOCK_STREAM))
    if config.air.own_port is not None:
        asked += [
            ("air.own_port", "", config.air.own_port, kind)
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        ]
    for key, host, port, kind in asked:
        try:
            family, *_, place = socket.getaddrinfo(host or None, port, type=kind, flags=socket.AI_PASSIVE)[0]
            with socket.socket(family, kind) as tried:
                if kind == socket.SOCK_STREAM:
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server has it
                tried.bind(place)
        except OSError as error:
            yield DeviceFinding(
                "error", "port", f"{key} is {port} at {host or 'all addresses'}: {error.strerror}"
            )
        else:
            yield DeviceFinding("ok", "port", f"{key} {port} is free")
    if config.clients is not None and not os.access((base / config.clients.socket).parent, os.W_OK):
        folder = (base / config.clients.socket).parent
        yield DeviceFinding(
            "error", "port", f"clients.socket is in {folder}, which is not there or cannot be written"
        )


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
