"""The signed announcement: a node proves that it holds its number and key, and that the frame is recent.

    | public key 256 | nonce 64
    | count 8 | count × (node 32 | nonce 64)     echoes: answers to the challenges of others
    | count 8 | count × node 32                  asked: whose answer the sender lacks
    | length 8 | length octets                   profile: what the runtime says of the sender; not read here
    | signature 512 |

`nonce` is the sender's challenge to those it asks. A node that finds its own current nonce among the echoes
knows that the frame was made after that nonce, so it is no recording. The signature covers the frame's
sender, epoch and counter too.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from roamcast.sealing.frame import Refusal, SealError
from roamcast.sealing.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed
from roamcast.units import NodeId

NONCE_BYTES = 8
LIST_MAX = 48  # echoes, and nodes asked: at most 900 octets in a frame; the others come with the next one
_PURPOSE = b"roamcast announcement 1"
_COUNT = struct.Struct("!B")
_ECHO = struct.Struct("!I8s")
_NODE = struct.Struct("!I")
_FIXED = KEY_BYTES + NONCE_BYTES
PROFILE_BYTES_MAX = 255
BYTES_MIN = _FIXED + 3 * _COUNT.size + SIGNATURE_BYTES


class Announcement(NamedTuple):
    public_key: bytes
    nonce: bytes
    echoes: tuple[tuple[NodeId, bytes], ...]
    asked: tuple[NodeId, ...]
    profile: bytes
    signature: bytes
    signed: bytes  # the octets that the signature covers

    def is_genuine(self) -> bool:
        return is_signed(self.public_key, self.signature, self.signed)


def encode(
    identity: Identity,
    position: bytes,
    nonce: bytes,
    echoes: Sequence[tuple[NodeId, bytes]],
    asked: Sequence[NodeId],
    profile: bytes = b"",
) -> bytes:
    """`position`: sender, epoch and counter as in the header of the frame that will carry it."""
    assert len(echoes) <= LIST_MAX and len(asked) <= LIST_MAX and len(profile) <= PROFILE_BYTES_MAX
    body = b"".join(
        [
            identity.public_key,
            nonce,
            _COUNT.pack(len(echoes)),
            *(_ECHO.pack(*echo) for echo in echoes),
            _COUNT.pack(len(asked)),
            *(_NODE.pack(node) for node in asked),
            _COUNT.pack(len(profile)),
            profile,
        ]
    )
    return body + identity.sign(_PURPOSE + position + body)


def decode(position: bytes, payload: bytes) -> Announcement:
    body = payload[:-SIGNATURE_BYTES]
    if len(payload) < BYTES_MIN:
        raise _misfit(payload)
    echoes_at = _FIXED + 1
    asked_at = echoes_at + payload[_FIXED] * _ECHO.size + 1
    if len(body) < asked_at:
        raise _misfit(payload)
    profile_at = asked_at + body[asked_at - 1] * _NODE.size + 1
    if len(body) < profile_at or len(body) != profile_at + body[profile_at - 1]:
        raise _misfit(payload)
    return Announcement(
        payload[:KEY_BYTES],
        payload[KEY_BYTES:_FIXED],
        tuple(_ECHO.iter_unpack(body[echoes_at : asked_at - 1])),
        tuple(node for (node,) in _NODE.iter_unpack(body[asked_at : profile_at - 1])),
        body[profile_at:],
        payload[-SIGNATURE_BYTES:],
        _PURPOSE + position + body,
    )


def _misfit(payload: bytes) -> SealError:
    return SealError(Refusal.BAD_ANNOUNCEMENT, 17, f"begins {len(payload)} octets that fit no announcement")
