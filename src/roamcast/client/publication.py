"""The keywords of a publication, defined once for the asyncio client, the blocking client and the command."""

from collections.abc import Iterable, Mapping
from typing import TypedDict

from roamcast.errors import EventError
from roamcast.event import Publication, Value
from roamcast.units import NodeId, micros


def publication(
    *,
    topic: str = "",
    attributes: Mapping[str, Value] | None = None,
    payload: bytes | bytearray | str = b"",
    type: str = "",
    lifetime: float | None = None,
    to: Iterable[NodeId] = (),
    multimode: bool = False,
    sealed: bool = False,
) -> Publication:
    """The publication that the keywords describe; `EventError` if they make no valid event.

    With a `lifetime` (seconds) the event is memorized: kept for absent and later subscribers. `to` names
    nodes; with `multimode` subscribers get it too. `sealed`: only nodes with the same content key can read
    it, relays only carry it.
    """
    lifetime_micros = 0 if lifetime is None else micros(lifetime)
    if lifetime is not None and lifetime_micros <= 0:
        raise EventError("lifetime", f"is {lifetime}; a memorized event lives for more than 0 seconds")
    if isinstance(payload, str):
        payload = payload.encode()
    elif isinstance(payload, bytearray):
        payload = bytes(payload)
    copied = dict(attributes) if attributes else {}
    return Publication(copied, payload, topic, type, lifetime_micros, tuple(to), multimode, sealed)


class PublicationKeywords(TypedDict, total=False):
    """Those of `publication`, as the type of `**keywords`."""

    topic: str
    attributes: Mapping[str, Value] | None
    payload: bytes | bytearray | str
    type: str
    lifetime: float | None
    to: Iterable[NodeId]
    multimode: bool
    sealed: bool
