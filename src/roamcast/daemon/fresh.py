"""A new configuration file: fresh keys, every table with a comment."""

import os
from pathlib import Path

from roamcast.daemon.config import load_config
from roamcast.errors import FileError, InputError
from roamcast.sealing import GroupKey, Identity
from roamcast.strategy import LIVE_DEFAULT

TEMPLATE = """\
# A Roamcast node. Run it with:  roamcast node {name}.toml
# This file holds secret keys: keep it readable for its owner only. All keys: docs/use/live.md

[node]
name = "{name}"
state = "{name}.db"          # what survives a restart; without it everything is in memory
# number = 7                 # 0 to 65535; without it the number follows from the identity
# modules = ["my_parts"]     # Python modules beside this file: strategies, modulators, adaptors of your own
# broker = true              # false: never serves others as a broker, where the strategy has such a role

[keys]
identity = "{identity}"      # this node's own, never to be copied to another
# Shared by all nodes of the network: `roamcast node --init other.toml --like {name}.toml` makes the next
# node's file. The first is for sending; others are accepted too, while a group changes its key.
group = ["{group}"]
# encrypt = true             # false: authenticated only

[air]
{interface}
# port = 4747                # UDP; the same for all nodes that are to hear each other
# own_port = 4748            # UDP and TCP of this node; without it 4748, or any free one if that is taken
# mode = "broadcast"         # or "multicast"

# [strategy]
# name = "{strategy}"        # where subscriptions and events travel; any that `roamcast simulate` knows
# [strategy.options]
# preset = "prompt"          # of chapar and tree: links that come and go are noticed in a second

[clients]
socket = "{name}.sock"       # for `roamcast publish`, `roamcast subscribe` and Python programs

# [mqtt]                     # any MQTT client on this device may use the mesh
# host = "127.0.0.1"
# port = 1883

# [web]                      # a page for the people at this device, and MQTT over WebSockets
# host = "127.0.0.1"         # an address that phones reach needs users
# port = 8747
# users = {{ ada = "a long password" }}

# [metrics]                  # for Prometheus
# listen = "127.0.0.1:9747"

# [log]
# level = "info"             # debug, info, warning, error
# format = "text"            # or "json"
"""


def write_fresh(
    path: Path, *, group_key: str | None = None, like: Path | None = None, interface: str | None = None
) -> Path:
    """Write a new file; with a group key or `like` another node's file, for the same network."""
    if group_key is not None and like is not None:
        raise InputError("--group-key", "stands beside --like; allowed: one of them")
    group = _group(group_key, like)
    if interface is not None:
        air = f'interface = "{interface}"'
    elif like is not None and (their := load_config(like).air.interface) is not None:
        air = f'interface = "{their}"'
    else:
        air = (
            '# interface = "wlan0"      # without it: a wireless one that is up, else any, else the loopback'
        )
    text = TEMPLATE.format(
        name=path.stem,
        identity=Identity.generate().to_text(),
        group='", "'.join(group),
        interface=air,
        strategy=LIVE_DEFAULT,
    )
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileError(str(path), "exists already; it may hold keys, so it is not overwritten") from None
    except OSError as error:
        raise FileError(str(path), f"cannot be written: {error.strerror}") from None
    with open(number, "w") as file:
        file.write(text)
    return path


def _group(group_key: str | None, like: Path | None) -> list[str]:
    if like is not None:
        return list(load_config(like).keys.group)
    if group_key is None:
        return [GroupKey.generate().to_text()]
    try:
        return [GroupKey.from_text(group_key).to_text()]
    except InputError as error:
        raise InputError("--group-key", error.problem) from None
