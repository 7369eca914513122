"""Signed statements of members about membership, which every node passes on and keeps.

    revoke    a device is lost: its frames are accepted no more
    pardon    it was found again
    joined    a device came by this invitation

Any member may make them: members trust each other alike (`docs/use/security.md`). A statement is known by its
signature, so it can come from anybody, over any way, at any time. Whether the key belongs to a configured
number is known only to nodes that have met its holder.
"""

from typing import Annotated, Literal

import msgspec

from roamcast.errors import WireError
from roamcast.event import Count
from roamcast.sealing.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed, may_hold
from roamcast.units import NodeId

BYTES_MAX = 256
_PURPOSE = b"roamcast statement 1"

NAME_BYTES_MAX = 96
Kind = Literal["revoke", "pardon", "joined", "named"]
ABOUT_DEVICES = ("revoke", "pardon")


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: Kind
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
    """A node's number, an invitation's, or the issuer's own name."""
    at: Annotated[int, msgspec.Meta(ge=0, lt=2**40)]  # Unix time by the issuer's clock
    issuer: Count
    public_key: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    signature: Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)]

    def encode(self) -> bytes:
        return _encoder.encode(self)

    @property
    def is_genuine(self) -> bool:
        return may_hold(self.issuer, self.public_key) and is_signed(
            self.public_key, self.signature, _signed(self)
        )

    @property
    def device(self) -> NodeId | None:
        """Whom it is about, if it is about a device."""
        return int(self.subject) if self.kind in ABOUT_DEVICES and _is_number(self.subject) else None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Statement)


def make_statement(identity: Identity, kind: Kind, subject: str, at: int) -> Statement:
    unsigned = Statement(kind, subject, at, identity.node, identity.public_key, b"")
    return msgspec.structs.replace(unsigned, signature=identity.sign(_signed(unsigned)))


def decode_statement(data: bytes) -> Statement:
    """`WireError` for octets that are none, or that nobody has signed."""
    if len(data) > BYTES_MAX:
        raise WireError("statement", 0, f"has {len(data)} octets, at most {BYTES_MAX} are allowed")
    try:
        statement = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise WireError("statement", 0, f"cannot be read: {error}") from None
    if statement.kind in ABOUT_DEVICES and not _is_number(statement.subject):
        raise WireError("statement", 0, "is about no node")
    if statement.kind == "named" and not statement.subject.isprintable():
        raise WireError("statement", 0, "has a name that cannot be shown")
    if not statement.is_genuine:
        raise WireError("statement", 0, f"is not signed by node {statement.issuer}")
    return statement


def _is_number(text: str) -> bool:
    """In the one form that a number has: a device must not have several places in a table."""
    return text.isascii() and text.isdigit() and len(text) <= 10 and text == str(int(text))


def _signed(statement: Statement) -> bytes:
    return _PURPOSE + _encoder.encode(msgspec.structs.replace(statement, signature=b""))
