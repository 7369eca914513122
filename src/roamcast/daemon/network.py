"""What all nodes of a network have alike: the group keys, the air, the strategy. Never an identity.

A new node's file is written from it (`fresh.py`); it comes from another node's file, or from an invitation.
"""

from typing import Any

import msgspec

from roamcast.daemon.config import Config
from roamcast.runtime.live.settings import AirSettings, PartSettings, Table


class Network(Table, frozen=True, kw_only=True):
    """Fields that are None or empty: as by default."""

    group: tuple[str, ...]
    encrypt: bool = True
    content: tuple[str, ...] = ()  # only where the new node is to read sealed events
    air: dict[str, Any] = {}
    strategy: PartSettings = PartSettings()
    underlay: PartSettings = PartSettings()
    modules: tuple[str, ...] = ()


SHARED_AIR = ("port", "mode", "group", "group_ipv6", "presence")
"""The keys of `[air]` that neighbours must have alike. The others are a matter of each device."""


def network_of(config: Config) -> Network:
    """What a node's file shares with all others of its network. Content keys are not part of it: who carries
    events need not be able to read them."""
    usual = AirSettings()
    shared = {name: getattr(config.air, name) for name in SHARED_AIR}
    return Network(
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
