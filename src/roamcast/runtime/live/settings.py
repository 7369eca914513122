"""The tables of a node's file that the runtime itself reads. What the keys mean: `docs/use/live.md`.

What one key allows by itself is in its type; `roamcast.daemon.config` loads the file and checks the rest.
What follows from a table is a method of it; an error names the key at fault.
"""

from enum import Enum
from typing import Annotated, Any

import msgspec

from roamcast.broker.store import ENTRIES_MAX
from roamcast.errors import InputError
from roamcast.plugins import ModuleNames
from roamcast.runtime.live.air.interface import with_address
from roamcast.runtime.live.world import NodeNetwork
from roamcast.sealing import Identity, KeyRing
from roamcast.sealing.content import ContentKey, ContentKeys
from roamcast.sealing.identity import DERIVED_FROM

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
KeyText = Annotated[str, msgspec.Meta(min_length=1)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table whose keys are all known."""


class NodeSettings(Table, frozen=True, kw_only=True):
    """`[node]`"""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None  # None: as its number
    number: Annotated[int, msgspec.Meta(ge=0, lt=DERIVED_FROM)] | None = None  # None: follows from the key
    state: FileName | None = None  # None: in memory only
    events_max: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = (
        ENTRIES_MAX  # memorized ones, in the store
    )
    broker: bool = True  # whether it may serve others, for strategies that choose brokers
    modules: ModuleNames = ()  # loaded at the start: beside this file, or installed


class KeySettings(Table, frozen=True, kw_only=True):
    """`[keys]`"""

    identity: KeyText
    group: Annotated[tuple[KeyText, ...], msgspec.Meta(min_length=1, max_length=8)]
    content: Annotated[tuple[KeyText, ...], msgspec.Meta(max_length=64)] = ()  # seal events end to end
    encrypt: bool = True
    invitation: Annotated[str, msgspec.Meta(max_length=32)] = ""  # that brought this device in

    def ring(self) -> KeyRing:
        try:
            return KeyRing.from_texts(list(self.group))
        except InputError as error:
            raise InputError("keys.group", error.problem) from None

    def content_keys(self) -> ContentKeys | None:
        if not self.content:
            return None
        try:
            return ContentKeys(*(ContentKey.from_text(text) for text in self.content))
        except InputError as error:
            raise InputError("keys.content", error.problem) from None


class AirMode(Enum):
    BROADCAST = "broadcast"
    MULTICAST = "multicast"


class AirFamily(Enum):
    AUTO = "auto"  # IPv4 where an interface has an address of it, IPv6 elsewhere and for those who need it
    IPV4 = "ipv4"
    IPV6 = "ipv6"


InterfaceName = Annotated[str, msgspec.Meta(min_length=1, max_length=15)]


class AirSettings(Table, frozen=True, kw_only=True):
    """`[air]`"""

    interface: InterfaceName | None = None
    interfaces: Annotated[tuple[InterfaceName, ...], msgspec.Meta(max_length=16)] = ()  # preferred ones first
    address: Annotated[str, msgspec.Meta(min_length=2, max_length=45)] | None = None
    family: AirFamily = AirFamily.AUTO
    port: Port = 4747  # for broadcasts: all nodes that are to hear each other have the same
    own_port: Port | None = None  # this node's own; None: port + 1 if it is free, else any
    mode: AirMode = AirMode.BROADCAST
    group: Annotated[str, msgspec.Meta(min_length=7, max_length=15)] = "239.255.47.47"
    group_ipv6: Annotated[str, msgspec.Meta(min_length=2, max_length=45)] = "ff12::4747"  # and the next one
    presence: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0  # seconds of silence until an announcement
    link_timeout: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0  # seconds without acknowledgement
    link_idle: Annotated[float, msgspec.Meta(ge=1, le=120)] = 30.0  # seconds without data until a link closes
    queue_frames: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_024  # per neighbour

    def wanted(self, network: NodeNetwork) -> tuple[str, ...]:
        """The names of the interfaces, the preferred ones first; none: those that this machine has."""
        if self.address is not None:
            return (with_address(network, self.address, "air.address").name,)
        return self.interfaces if self.interface is None else (self.interface,)


class PartSettings(Table, frozen=True, kw_only=True):
    """`[underlay]`, and `[strategy]` with a name of its own."""

    name: str | None = None
    options: dict[str, Any] = {}


class TraceSettings(Table, frozen=True, kw_only=True):
    """`[trace]`"""

    folder: FileName | None = None  # None: no trace
    run: Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[\w.:+-]+$")] | None = None
    epoch: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None  # µs; None: when the node started
    bytes_max: Annotated[int, msgspec.Meta(ge=10_000, le=2**40)] = 64_000_000  # of all segments together
    segment_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=2**26)] = 1_000_000  # then the next one begins
    segment_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 10.0  # at the latest


class LiveSettings(Table, frozen=True, kw_only=True):
    """What a `LiveNode` is started with; the other tables of the file are the daemon's."""

    node: NodeSettings = NodeSettings()
    keys: KeySettings
    air: AirSettings = AirSettings()
    strategy: PartSettings = PartSettings()
    underlay: PartSettings = PartSettings()
    trace: TraceSettings = TraceSettings()

    def identity(self) -> Identity:
        try:
            return Identity.from_text(self.keys.identity, self.node.number)
        except InputError as error:
            key = "node.number" if error.where == "node" else "keys.identity"
            raise InputError(key, error.problem) from None
