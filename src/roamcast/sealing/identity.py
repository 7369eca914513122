"""Who a node is: an Ed25519 key pair, and the node number derived from it.

A derived number is the hash of the public key, so nobody needs to assign numbers, and a number alone says
which key may use it. It has 31 bits: node numbers are 32-bit signed in traces and OLSR names nodes by
32-bit addresses. Two of 1,000 nodes share one by chance in 1 of 4,300 networks; that is noticed and logged
(`Refusal.IDENTITY`), and a number can be configured instead. Configured numbers lie below `DERIVED_FROM`;
their holder cannot be proven, only remembered (`FrameOpener`).
"""

import base64
import binascii
from hashlib import blake2b

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from roamcast.errors import InputError
from roamcast.units import NodeId

KEY_BYTES = 32
SIGNATURE_BYTES = 64
DERIVED_FROM: NodeId = 65_536
DERIVED_UNTIL: NodeId = 2**31 - 1
PREFIX = "ed25519:"


class Identity:
    def __init__(self, private_key: bytes, node: NodeId | None = None) -> None:
        """`node`: the configured number, below `DERIVED_FROM`; None derives it from the key."""
        if len(private_key) != KEY_BYTES:
            raise InputError("identity", f"has {len(private_key)} octets, a private key has {KEY_BYTES}")
        self._private_bytes = private_key
        self._private = Ed25519PrivateKey.from_private_bytes(private_key)
        self.public_key: bytes = self._private.public_key().public_bytes_raw()
        self.node: NodeId = node_of(self.public_key) if node is None else node
        if node is not None and not may_hold(node, self.public_key):
            raise InputError("node", f"is {node}; a configured number is from 0 to {DERIVED_FROM - 1}")

    @classmethod
    def generate(cls, node: NodeId | None = None) -> "Identity":
        return cls(Ed25519PrivateKey.generate().private_bytes_raw(), node)

    @classmethod
    def from_text(cls, text: str, node: NodeId | None = None) -> "Identity":
        return cls(from_text(text, PREFIX, "identity"), node)

    def to_text(self) -> str:
        """The private key, for a configuration file that only its owner may read."""
        return to_text(self._private_bytes, PREFIX)

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)

    def __repr__(self) -> str:
        return f"Identity(node={self.node})"  # never the key: this reaches logs


def node_of(public_key: bytes) -> NodeId:
    """The number derived from a public key."""
    digest = blake2b(public_key, digest_size=8, person=b"roamcast node").digest()
    return DERIVED_FROM + int.from_bytes(digest, "big") % (DERIVED_UNTIL - DERIVED_FROM)


def may_hold(node: NodeId, public_key: bytes) -> bool:
    """Whether this key may use this number: any key a configured one, only its own key a derived one."""
    return 0 <= node < DERIVED_FROM or node == node_of(public_key)


def is_signed(public_key: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def to_text(key: bytes, prefix: str) -> str:
    return prefix + base64.b64encode(key).decode()


def from_text(text: str, prefix: str, where: str) -> bytes:
    """The 32 octets of a key as written in a configuration file."""
    if not text.startswith(prefix):
        # The text may be a secret: it is never part of the message.
        raise InputError(where, f"must begin with {prefix!r}")
    try:
        key = base64.b64decode(text[len(prefix) :], validate=True)
    except (binascii.Error, ValueError):
        raise InputError(where, f"is no base64 after {prefix!r}") from None
    if len(key) != KEY_BYTES:
        raise InputError(where, f"has {len(key)} octets, must have {KEY_BYTES}")
    return key
