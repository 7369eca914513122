"""Events sealed from end to end: publishers and subscribers share a content key, relays do not have it.

What routing needs stays in clear: publisher, sequence number, class, lifetime, destinations, and the event
identifier by which Chapar's brokers match it (`event.py`). Topic, type, attributes and payload
are encrypted; both parts are authenticated together. A subscriber's node opens the event before the
exact match, so applications get clear events and filters work as usual.

    | version 8 | key id 16 | salt 128 | ciphertext … | tag 128 |

Each event has a key of its own, HKDF-Expand(content key, salt, publisher, sequence), so no nonce is ever used
twice, even if the publisher's storage is lost.
"""

import secrets
import struct
from collections.abc import Callable

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from roamcast.errors import EventError, InputError
from roamcast.event import (
    IDENTIFIER,
    PAYLOAD_BYTES_MAX,
    SEALED_TYPE,
    Attributes,
    Event,
    Name,
    Payload,
    Text,
    is_sealed,
)
from roamcast.sealing.identity import GroupKey

VERSION = 2
SALT_BYTES = 16
TAG_BYTES = 16
KEYS_MAX = 64  # chosen by us
_HEADER = struct.Struct(f"!BH{SALT_BYTES}s")
_EVENT = struct.Struct("!QQ")
OVERHEAD = _HEADER.size + TAG_BYTES  # 35 octets, beside the identifier
_ONCE = bytes(12)  # the nonce; each key is used for one event


class ContentKey(GroupKey):
    """A key of the publishers and subscribers of some content. Text form: `content:…`."""

    prefix = "content:"
    name = "content key"


class _Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    attributes: Attributes
    payload: Payload
    topic: Text
    type: Name


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Content)


class ContentKeys:
    """The content keys of one node: the first seals, all of them open. It is Chapar's `ContentReader`."""

    def __init__(self, *keys: ContentKey, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        if not 0 < len(keys) <= KEYS_MAX:
            raise InputError("content keys", f"are {len(keys)}, must be from 1 to {KEYS_MAX}")
        self._random_bytes = random_bytes
        self._sending = keys[0]
        self._by_id: dict[int, ContentKey] = {}
        for key in keys:
            if self._by_id.setdefault(key.id, key) != key:
                raise InputError("content keys", f"two have the id {key.id:04x}; generate another one")

    def seal(self, clear: Event, identifier: bytes) -> Event:
        return seal_event(clear, self._sending, identifier, self._random_bytes)

    def open(self, sealed: Event) -> Event | None:
        """The clear event; None for one that is not ours to read, or not as it was published."""
        return open_event(sealed, self._by_id)


def seal_event(
    clear: Event,
    key: ContentKey,
    identifier: bytes,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> Event:
    """The event to publish in place of `clear`. `identifier`: its EID, from `Chapar.seal_id`."""
    content = _encoder.encode(_Content(clear.attributes, clear.payload, clear.topic, clear.type))
    if len(content) + OVERHEAD > PAYLOAD_BYTES_MAX:
        raise EventError(
            "event", f"has {len(content)} octets; at most {PAYLOAD_BYTES_MAX - OVERHEAD} can be sealed"
        )
    envelope = msgspec.structs.replace(
        clear, attributes={IDENTIFIER: identifier.hex()}, payload=b"", topic="", type=SEALED_TYPE
    )
    salt = random_bytes(SALT_BYTES)
    ciphertext = _cipher(key, salt, clear).encrypt(_ONCE, content, _encoder.encode(envelope))
    return msgspec.structs.replace(envelope, payload=_HEADER.pack(VERSION, key.id, salt) + ciphertext)


def open_event(sealed: Event, keys: dict[int, ContentKey]) -> Event | None:
    """The clear event; None for one that is not ours to read, or not as it was published."""
    if not is_sealed(sealed) or len(sealed.payload) < OVERHEAD:
        return None
    version, key_id, salt = _HEADER.unpack_from(sealed.payload)
    key = keys.get(key_id)
    if version != VERSION or key is None:
        return None
    envelope = msgspec.structs.replace(sealed, payload=b"")
    try:
        plain = _cipher(key, salt, sealed).decrypt(
            _ONCE, sealed.payload[_HEADER.size :], _encoder.encode(envelope)
        )
        content = _decoder.decode(plain)
    except (InvalidTag, msgspec.DecodeError, ValueError, RecursionError):
        return None
    return msgspec.structs.replace(
        envelope,
        attributes=content.attributes,
        payload=content.payload,
        topic=content.topic,
        type=content.type,
    )


def _cipher(key: ContentKey, salt: bytes, event: Event) -> ChaCha20Poly1305:
    purpose = b"roamcast content 1" + salt + _EVENT.pack(event.publisher, event.sequence)
    return ChaCha20Poly1305(key.derive(purpose))
