"""A new configuration file: fresh keys, every table with a comment."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from roamcast.daemon.config import Config, load_config
from roamcast.errors import FileError, InputError
from roamcast.runtime.live.settings import AirSettings, PartSettings, Table
from roamcast.sealing import GroupKey, Identity
from roamcast.strategy import LIVE_DEFAULT, STRATEGIES
from roamcast.toml_text import key_text, value_text


class NetworkSettings(Table, frozen=True, kw_only=True):
    """What all nodes of a network have alike: the group keys, the air, the strategy. Never an identity. A new
    node's file is written from it; it comes from another node's file, or from an invitation.

    Fields that are None or empty: as by default."""

    group: tuple[str, ...]
    encrypt: bool = True
    content: tuple[str, ...] = ()  # only where the new node is to read sealed events
    air: dict[str, Any] = {}
    strategy: PartSettings = PartSettings()
    underlay: PartSettings = PartSettings()
    modules: tuple[str, ...] = ()


SHARED_AIR = ("port", "mode", "group", "group_ipv6", "presence")
"""The keys of `[air]` that neighbours must have alike. The others are a matter of each device."""


def network_of(config: Config) -> NetworkSettings:
    """What a node's file shares with all others of its network. Content keys are not part of it: who carries
    events need not be able to read them."""
    usual = AirSettings()
    shared = {name: getattr(config.air, name) for name in SHARED_AIR}
    return NetworkSettings(
        group=config.keys.group,
        encrypt=config.keys.encrypt,
        air={
            name: msgspec.to_builtins(value)
            for name, value in shared.items()
            if value != getattr(usual, name)
        },
        strategy=config.strategy,
        underlay=config.underlay,
        modules=config.node.modules,
    )


SECRET_LENGTH_MAX = 10_000  # characters; chosen by us, far above any of ours
TEMPLATE = """\
# A Roamcast node. Run it with:  roamcast node {name}.toml
# This file holds secret keys: keep it readable for its owner only. All keys: docs/use/live.md

[node]
name = "{name}"
state = {state}          # what survives a restart; without it everything is in memory
# number = 7                 # 0 to 65535; without it the number follows from the identity
{modules}
# broker = true              # false: never serves others as a broker, where the strategy has such a role

[keys]
identity = "{identity}"      # this node's own, never to be copied to another
# Shared by all nodes of the network: `roamcast key invite {name}.toml` brings another device in. The first is
# for sending; others are accepted too, while a group changes its key.
group = {group}
{encrypt}
{content}
{invitation}
[air]
{interface}
{port}
# own_port = 4748            # UDP and TCP of this node; without it 4748, or any free one if that is taken
{mode}

{parts}[clients]
socket = {socket}       # for `roamcast publish`, `roamcast subscribe` and Python programs

{mqtt}[mqtt]                     # any MQTT client on this device may use the mesh
{mqtt}host = "127.0.0.1"
{mqtt}port = 1883

{web}[web]                      # a page for the people at this device, and MQTT over WebSockets
{web}host = "127.0.0.1"         # an address that phones reach needs users
{web}port = 8747
# users = {{ ada = "scrypt:…" }}   # `roamcast key password` makes it

# [metrics]                  # for Prometheus
# listen = "127.0.0.1:9747"

# [log]
# level = "info"             # debug, info, warning, error
# format = "text"            # or "json"
"""

MODULES = '# modules = ["my_parts"]     # Python modules beside this file: strategies, adaptors of your own'
ENCRYPT = "# encrypt = true             # false: authenticated only"
CONTENT = '# content = ["content:…"]    # for sealed events; `roamcast key content` makes one'
INTERFACE = (
    '# interfaces = ["eth0", "wlan0"]  # preferred ones first; without it: all Ethernet and Wi-Fi there is'
)
PORT = "# port = 4747                # UDP; the same for all nodes that are to hear each other"
MODE = '# mode = "broadcast"         # or "multicast"'
STRATEGY = """\
# [strategy]
# name = "{strategy}"        # where subscriptions and events travel; any that `roamcast simulate` knows
# [strategy.options]
# preset = "prompt"          # of chapar and tree: links that come and go are noticed in a second

"""


def init(
    path: Path,
    *,
    like: Path | None = None,
    group_key_file: Path | None = None,
    interface: str | None = None,
    strategy: str | None = None,
    **services: Unpack["FreshServices"],
) -> Path:
    """`roamcast node --init`: for a new network, for that of another node's file, or of a group key."""
    if group_key_file is not None and like is not None:
        raise InputError("--group-key-file", "stands beside --like; allowed: one of them")
    if strategy is not None:
        if like is not None:
            raise InputError("--strategy", "stands beside --like, which has it; allowed: one of them")
        STRATEGIES.check("--strategy", strategy, {}, [])
    if like is not None:
        theirs = load_config(like)
        theirs_too = theirs.air.interface or ",".join(theirs.air.interfaces) or None
        return write_fresh(path, network_of(theirs), interface=interface or theirs_too, **services)
    part = PartSettings(name=strategy)
    if group_key_file is None:
        network = NetworkSettings(group=(GroupKey.generate().to_text(),), strategy=part)
        return write_fresh(path, network, interface=interface, **services)
    try:
        key = GroupKey.from_text(secret_from(group_key_file))
    except InputError as error:
        raise InputError(f"--group-key-file {group_key_file}", error.problem) from None
    network = NetworkSettings(group=(key.to_text(),), strategy=part)
    return write_fresh(path, network, interface=interface, **services)


class FreshServices(TypedDict, total=False):
    """What a new file has beside its network."""

    mqtt: bool
    web: bool
    state: str | None
    clients: str | None


def secret_from(path: Path) -> str:
    """A secret in a file, or `-` for standard input: command lines are visible to everyone on the device."""
    try:
        with nullcontext(sys.stdin) if str(path) == "-" else path.open() as file:
            return file.read(SECRET_LENGTH_MAX).strip()
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(str(path), "is no text") from None


def write_fresh(
    path: Path,
    network: NetworkSettings | None = None,
    *,
    interface: str | None = None,
    invitation: str = "",
    **services: Unpack[FreshServices],
) -> Path:
    """Write a new file with an identity of its own: for a network, or for one with a fresh group key.

    `interface`: one, or several with commas between them."""
    network = NetworkSettings(group=(GroupKey.generate().to_text(),)) if network is None else network
    write_private(path, fresh_text(path.stem, network, interface, invitation, **services))
    return path


def fresh_text(
    name: str,
    network: NetworkSettings,
    interface: str | None,
    invitation: str,
    **services: Unpack[FreshServices],
) -> str:
    air = network.air
    interfaces = [] if interface is None else interface.split(",")
    return TEMPLATE.format(
        name=key_text(name)[1:-1],
        state=value_text(services.get("state") or f"{name}.db"),
        socket=value_text(services.get("clients") or f"{name}.sock"),
        mqtt="" if services.get("mqtt") else "# ",
        web="" if services.get("web") else "# ",
        identity=Identity.generate().to_text(),
        group=value_text(network.group),
        encrypt=_line("encrypt", network.encrypt, True, ENCRYPT),
        content=_line("content", list(network.content), [], CONTENT),
        invitation=f"invitation = {value_text(invitation)}   # that brought this device in\n"
        if invitation
        else "",
        modules=_line("modules", list(network.modules), [], MODULES),
        interface=_line("interfaces", interfaces, [], INTERFACE)
        if len(interfaces) != 1
        else _line("interface", interface, None, INTERFACE),
        port=_line("port", air.get("port", 4747), 4747, PORT),
        mode="\n".join(
            _line(key, air.get(key), None, comment)
            for key, comment in (("mode", MODE), ("group", ""), ("group_ipv6", ""), ("presence", ""))
            if comment or key in air
        ),
        parts=_part("strategy", network.strategy, STRATEGY.format(strategy=LIVE_DEFAULT))
        + _part("underlay", network.underlay, ""),
    )


def write_private(path: Path, text: str) -> None:
    """A new file that only its owner may read; one that exists is never overwritten."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileError(str(path), "exists already; it may hold keys, so it is not overwritten") from None
    except OSError as error:
        raise FileError(str(path), f"cannot be written: {error.strerror}") from None
    with open(number, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new name is on the disk once its folder is."""
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _line(key: str, value: object, usual: object, comment: str) -> str:
    """The key where it differs from what is usual, else the comment that stands for it."""
    return comment if value == usual else f"{key} = {value_text(value)}"


def _part(name: str, part: PartSettings, comment: str) -> str:
    if part.name is None and not part.options:
        return comment
    lines = [f"[{name}]", *([] if part.name is None else [f"name = {value_text(part.name)}"])]
    if part.options:
        lines.append(f"[{name}.options]")
        lines += [f"{key_text(key)} = {value_text(value)}" for key, value in part.options.items()]
    return "\n".join(lines) + "\n\n"
