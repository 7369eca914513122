"""From a TOML file to a checked configuration. `docs/use/live.md` explains the keys."""

import ipaddress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from roamcast.errors import InputError, ScenarioError
from roamcast.explain import converted, read_tables, shown
from roamcast.gateway.access import EVERYONE, HASHED, check_passwords, check_rights
from roamcast.gateway.mqtt.mesh.members import check_members
from roamcast.gateway.options import (
    BridgeOptions,
    LocalOptions,
    MqttOptions,
    WebOptions,
    check_reach,
    users_of,
)
from roamcast.plugins import load_modules
from roamcast.registry import Registry
from roamcast.runtime.live.settings import (
    AirSettings,
    KeySettings,
    LiveSettings,
    NodeSettings,
    PartSettings,
    Table,
    TraceSettings,
)
from roamcast.sealing import Identity, KeyRing
from roamcast.sealing.content import ContentKey
from roamcast.strategy import LIVE_DEFAULT, STRATEGIES, check_underlay
from roamcast.underlay import UNDERLAYS


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSettings(Table, frozen=True, kw_only=True):
    """`[log]`"""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


class MetricsSettings(Table, frozen=True, kw_only=True):
    """`[metrics]`"""

    listen: Annotated[str, msgspec.Meta(min_length=3, max_length=100)] = "127.0.0.1:9747"


class Config(Table, frozen=True, kw_only=True):
    """A whole file. A service whose table is not in the file is not started."""

    node: NodeSettings = NodeSettings()
    keys: KeySettings
    air: AirSettings = AirSettings()
    strategy: PartSettings = PartSettings()
    underlay: PartSettings = PartSettings()
    clients: LocalOptions | None = None
    mqtt: MqttOptions | None = None
    web: WebOptions | None = None
    bridge: BridgeOptions | None = None
    metrics: MetricsSettings | None = None
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()

    @property
    def live(self) -> LiveSettings:
        return LiveSettings(
            node=self.node,
            keys=self.keys,
            air=self.air,
            strategy=self.strategy,
            underlay=self.underlay,
            trace=self.trace,
        )


def load_config(path: Path) -> Config:
    """The configuration in a file; `ScenarioError` or `FileError` in one line where it is wrong."""
    tables = read_tables(path)
    try:
        if isinstance(trace := tables.get("trace"), dict) and "file" in trace:
            raise ScenarioError("trace.file", "is no key any more; allowed: trace.folder, for segments")
        config: Config = converted(tables, Config)
        load_modules(config.node.modules, path.parent, "node.modules")
        _check_name(config.node.name)
        _check_keys(config)
        _check_air(config.air)
        _check_part("strategy", config.strategy, STRATEGIES, [], LIVE_DEFAULT)
        _check_part("underlay", config.underlay, UNDERLAYS, _only_simulated())
        if config.underlay.name is not None:
            name = config.strategy.name or LIVE_DEFAULT
            options = msgspec.convert(config.strategy.options, STRATEGIES.options_type(name))
            check_underlay(name, options, config.underlay.name)
        if config.metrics is not None:
            listening_address(config.metrics.listen)
        _check_rights(config)
        _check_users(config)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error.where}", _without_secret(error)) from None
    return config


def listening_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9747` or `[::1]:9747` as host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise ScenarioError("metrics.listen", f'is {shown(text)}; allowed: "address:port"')
    return host.strip("[]"), int(port)


def web_users(config: Config) -> dict[str, str]:
    """Who may use the page and the WebSocket; ScenarioError where strangers could."""
    assert config.web is not None
    return users_of(config.web, {} if config.mqtt is None else config.mqtt.users)


def clear_passwords(config: Config) -> list[str]:
    """The keys of users whose passwords stand in the file in clear."""
    return [
        f"{table}.{name}"
        for table, users in _users(config)
        for name, password in users.items()
        if not password.startswith(HASHED)
    ]


def _users(config: Config) -> list[tuple[str, dict[str, str]]]:
    return [
        *([] if config.mqtt is None else [("mqtt.users", config.mqtt.users)]),
        *([] if config.web is None else [("web.users", config.web.users)]),
    ]


def _check_users(config: Config) -> None:
    for table, users in _users(config):
        check_passwords(table, users)
    mqtt = config.mqtt
    if mqtt is not None and (mqtt.plain or not mqtt.tls_client_authority):
        check_reach("mqtt", mqtt.host, mqtt.users)
    if config.web is not None:
        web_users(config)


def _without_secret(error: ScenarioError) -> str:
    """The problem, without the value if that may be a key."""
    if (
        error.where.startswith(("keys.identity", "keys.group", "keys.content", "mqtt.users", "web.users"))
        and "; allowed: " in error.problem
    ):
        return "cannot be used; allowed: " + error.problem.rpartition("; allowed: ")[2]
    return error.problem


def _check_name(name: str | None) -> None:
    """Refuse a name that could not be shown: all nodes of the network are told it."""
    if name is not None and (not name.isprintable() or name != name.strip()):
        raise ScenarioError("node.name", f"is {shown(name)}; allowed: signs that can be shown")


def _check_keys(config: Config) -> None:
    """Texts of keys are secrets: no message repeats them."""
    try:
        Identity.from_text(config.keys.identity, config.node.number)
    except InputError as error:
        raise ScenarioError("keys.identity", error.problem) from None
    try:
        KeyRing.from_texts(list(config.keys.group))
    except InputError as error:
        raise ScenarioError("keys.group", error.problem) from None
    try:
        for text in config.keys.content:
            ContentKey.from_text(text)
    except InputError as error:
        raise ScenarioError("keys.content", error.problem) from None


def _check_rights(config: Config) -> None:
    if config.clients is not None:
        check_rights(config.clients.rights, "clients.rights")
    if config.mqtt is None:
        return
    check_rights(config.mqtt.rights, "mqtt.rights")
    check_members(config.mqtt.json, "mqtt.json")
    for user in config.mqtt.rights:
        if user != EVERYONE and user not in config.mqtt.users:
            known = ", ".join([*config.mqtt.users, EVERYONE])
            raise ScenarioError(f"mqtt.rights.{user}", f"is about no user; allowed: {known}")


def _check_air(air: AirSettings) -> None:
    given = [key for key in ("interface", "interfaces", "address") if getattr(air, key)]
    if len(given) > 1:
        raise ScenarioError(f"air.{given[1]}", f"stands beside air.{given[0]}; allowed: one of them")
    for name in air.interfaces:
        if air.interfaces.count(name) > 1:
            raise ScenarioError("air.interfaces", f"has {shown(name)} twice; allowed: each once")
    for name in (*air.interfaces, *([] if air.interface is None else [air.interface])):
        if len(name.encode()) > 15 or "/" in name or name != name.strip():
            raise ScenarioError(
                "air.interface", f"is {shown(name)}; allowed: a name of at most 15 octets, e.g. wlan0"
            )
    if air.own_port == air.port:
        raise ScenarioError("air.own_port", f"is {air.own_port}, the air's own port; allowed: another one")
    if not _is_group(air.group, ipaddress.IPv4Address):
        raise ScenarioError(
            "air.group", f"is {shown(air.group)}; allowed: an IPv4 multicast address, 224.0.0.0 and up"
        )
    if not _is_group(air.group_ipv6, ipaddress.IPv6Address) or not _is_of_link(air.group_ipv6):
        raise ScenarioError(
            "air.group_ipv6",
            f"is {shown(air.group_ipv6)}; allowed: an IPv6 multicast address of the link, e.g. ff12::4747",
        )


def _is_group(text: str, family: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        return family(text).is_multicast
    except ValueError:
        return False


def _is_of_link(group: str) -> bool:
    """RFC 4291, section 2.7: the fourth half-octet is the scope; and the next group must be one too."""
    address = ipaddress.IPv6Address(group)
    return "%" not in group and address.packed[1] & 0xF == 2 and address.packed[2:] != b"\xff" * 14


def _only_simulated() -> list[str]:
    return UNDERLAYS.names_with(lambda declared: declared.only_simulated)


def _check_part(
    key: str,
    part: PartSettings,
    registry: Registry[Any, Any, Any],
    refused: list[str],
    default: str | None = None,
) -> None:
    name = part.name or default
    if name is not None:
        registry.check(key, name, part.options, refused)
    elif part.options:
        raise ScenarioError(
            f"{key}.options", f"is given without {key}.name, which says whose options they are"
        )
