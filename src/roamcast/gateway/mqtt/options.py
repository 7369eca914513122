"""The `[mqtt]` table of a node's configuration; every bound of the listener is in here."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from roamcast.event import LARGE_BYTES_MAX
from roamcast.gateway.access import Rights

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)]
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


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
