"""The `[bridge]` table of a node's file."""

from typing import Annotated

import msgspec

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
