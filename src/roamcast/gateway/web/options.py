"""The `[web]` table of a node's configuration; every bound of the server is in here or in `[mqtt]`."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from roamcast.errors import ScenarioError

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=3_600)]
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]

PASSWORD_LENGTH_MIN = 8  # characters; of users who may come from beyond the device; chosen by us


class WebOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Where it listens. Port 0 takes a free one.
    host: str = "127.0.0.1"
    port: Port = 8747
    tls_certificate: str = ""  # PEM files; given, it speaks TLS only (https, wss)
    tls_key: str = ""
    page: bool = True  # false: WebSockets for MQTT, and nothing else

    # Who may use it, beside the users of `[mqtt]`. Without any: everyone on this device.
    users: dict[str, str] = {}  # name = "password"
    hosts: tuple[str, ...] = ()  # names of this device, beside addresses, localhost and *.local
    origins: tuple[str, ...] = ()  # pages of other servers that may open the WebSocket: "https://map.example"

    # Bounds.
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64  # that are no MQTT clients (yet)
    request_timeout: Seconds = 10.0  # until a request is whole
    message_bytes_max: Annotated[int, msgspec.Meta(ge=1_024, le=2**24)] = 131_072  # of one WebSocket message


def users_of(options: WebOptions, mqtt_users: Mapping[str, str]) -> dict[str, str]:
    """Who may use the page and the WebSocket. ScenarioError where strangers could."""
    for name, password in options.users.items():
        if mqtt_users.get(name, password) != password:
            problem = (
                f"the user {name!r} has another password under mqtt.users; allowed: the same, or one of them"
            )
            raise ScenarioError("web", problem)
    users = {**mqtt_users, **options.users}
    if is_loopback(options.host):
        return users
    if not users:
        raise ScenarioError(
            "web.host",
            f"is {options.host!r} and there are no users: everyone in reach could publish;"
            ' allowed: web.users with passwords, or host = "127.0.0.1"',
        )
    for name, password in users.items():
        if len(password) < PASSWORD_LENGTH_MIN:
            raise ScenarioError(
                "web.host",
                f"is {options.host!r}, and the password of {name!r} is too short for it;"
                f" allowed: {PASSWORD_LENGTH_MIN} characters and more",
            )
    return users


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
