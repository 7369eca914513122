"""The tables `[clients]`, `[mqtt]`, `[web]` and `[bridge]` of a node's file; every bound of a gateway is in
here."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec

from roamcast.errors import ScenarioError
from roamcast.event import LARGE_BYTES_MAX
from roamcast.gateway.access import HASHED, PASSWORD_LENGTH_MIN, Rights

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)]
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Members: TypeAlias = Annotated[
    dict[str, Annotated[tuple[str, ...], msgspec.Meta(max_length=32)]], msgspec.Meta(max_length=32)
]


PACKET_BYTES_MAX = LARGE_BYTES_MAX + 65_536  # the largest payload, with topic and properties


class MqttOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Where it listens. Port 0 takes a free one.
    host: str = "127.0.0.1"
    port: Port = 1883
    plain: bool = True  # false: TLS only
    tls_certificate: str = ""  # PEM files; with a certificate the TLS listener opens too
    tls_key: str = ""
    tls_client_authority: str = ""  # PEM; given, a client needs a certificate of this authority
    tls_port: Port = 8883

    # Who may connect. Without users: everyone who can reach the port.
    users: dict[str, str] = {}  # name = "password"
    rights: Rights = {}  # by user: topic filters to publish on and to subscribe to; "*": all others
    refused_filters: tuple[str, ...] = ()  # nobody may subscribe to these texts

    # What the mesh does with messages.
    retained_lifetime: Seconds = 86_400.0  # of a retained message, and the most a message expiry can ask
    qos1: Literal["realtime", "kept", "memorized"] = "kept"  # QoS 1 and 2 that are not retained
    qos1_lifetime: Seconds = 600.0  # kept or memorized, where the message says no expiry
    content_filters: bool = True  # `topic/filter?attribute>5`; false: the `?` is part of the topic
    json: Members = {}  # by topic filter: members of JSON payloads that become attributes

    # Clients and sessions.
    clients_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000  # connected at a time
    sessions_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 2_000  # connected or not
    session_expiry_max: Seconds = 7 * 86_400.0
    subscriptions_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10_000  # of one client
    connect_timeout: Seconds = 5.0  # until CONNECT is whole, TLS included
    packet_timeout: Seconds = 30.0  # until a packet that has begun is whole
    keep_alive_max: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 60  # seconds; more is cut for MQTT 5

    # Flow and memory of one client.
    packet_bytes_max: Annotated[int, msgspec.Meta(ge=256, le=PACKET_BYTES_MAX)] = PACKET_BYTES_MAX
    receive_maximum: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 100  # its unacknowledged QoS 1 and 2
    inflight_max: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 100  # ours to it; it may ask for less
    topic_alias_max: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 64  # in each direction
    queue_messages_max: Annotated[int, msgspec.Meta(ge=1)] = 1_000  # waiting QoS 1 and 2
    queue_bytes_max: Annotated[int, msgspec.Meta(ge=1_024)] = 20 * 1024 * 1024  # one large payload, and more
    write_bytes_max: Annotated[int, msgspec.Meta(ge=1_024)] = 256 * 1024  # unsent; beyond, QoS 0 is dropped


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    socket: str = "roamcast.sock"
    port: Port | None = None  # of the loopback too; 0: any
    clients_max: int = 100
    rights: Rights = {}  # by user of this device: topic filters; "*": all others


class WebOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Where it listens. Port 0 takes a free one.
    host: str = "127.0.0.1"
    port: Port = 8747
    tls_certificate: str = ""  # PEM files; given, it speaks TLS only (https, wss)
    tls_key: str = ""
    page: bool = True  # false: WebSockets for MQTT, and nothing else
    tiles: str = ""  # a folder beside the node's file with ZOOM/COLUMN/ROW.png: the ground of the page's map

    # Who may use it, beside the users of `[mqtt]`. Without any: everyone on this device.
    users: dict[str, str] = {}  # name = "password"
    hosts: tuple[str, ...] = ()  # names of this device, beside addresses and localhost: "pi.local"
    origins: tuple[str, ...] = ()  # pages of other servers that may open the WebSocket: "https://map.example"

    # Bounds.
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64  # that are no MQTT clients (yet)
    request_timeout: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 10.0  # until a request is whole
    # Of one WebSocket message: clients put a whole packet into one.
    message_bytes_max: Annotated[int, msgspec.Meta(ge=1_024, le=PACKET_BYTES_MAX)] = PACKET_BYTES_MAX


def users_of(options: WebOptions, mqtt_users: Mapping[str, str]) -> dict[str, str]:
    """Who may use the page and the WebSocket. ScenarioError where strangers could."""
    for name, password in options.users.items():
        if mqtt_users.get(name, password) != password:
            problem = (
                f"the user {name!r} has another password under mqtt.users; allowed: the same, or one of them"
            )
            raise ScenarioError("web", problem)
    users = {**mqtt_users, **options.users}
    check_reach("web", options.host, users)
    return users


def check_reach(table: str, host: str, users: Mapping[str, str]) -> None:
    """ScenarioError where strangers could use a node from elsewhere."""
    if is_loopback(host):
        return
    if not users:
        raise ScenarioError(
            f"{table}.host",
            f"is {host!r} and there are no users: everyone in reach could publish;"
            f' allowed: {table}.users with passwords, or host = "127.0.0.1"',
        )
    for name, password in users.items():
        if len(password) < PASSWORD_LENGTH_MIN and not password.startswith(HASHED):
            raise ScenarioError(
                f"{table}.host",
                f"is {host!r}, and the password of {name!r} is too short for it;"
                f" allowed: {PASSWORD_LENGTH_MIN} characters and more",
            )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Filters = Annotated[tuple[Text, ...], msgspec.Meta(max_length=100)]


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[\w-]{1,64}$")] = "home"  # the same on all its nodes
    host: Text
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 1883
    username: str = ""
    password_file: str = ""  # beside the node's file; its first line
    tls_authority: str = ""  # PEM; given, the connection is sealed and the broker's certificate checked
    up: Filters = ()  # topics of the mesh that go to the broker; content filters too
    down: Filters = ()  # topics of the broker that come into the mesh
    lifetime: Annotated[float, msgspec.Meta(ge=0, le=365 * 86_400)] = 3_600.0  # seconds; 0: real-time
    keep_alive: Annotated[int, msgspec.Meta(ge=1, le=600)] = 10  # seconds
    inflight_max: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100  # under way in one direction
    waiting_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = (
        20_000  # events for the broker, on one node
    )
