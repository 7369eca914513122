"""Keys. Who a node is: an Ed25519 key pair, and the node number derived from it.

A derived number is the hash of the public key, so nobody needs to assign numbers, and a number alone says
which key may use it. It has 31 bits: node numbers are 32-bit signed in traces and OLSR names nodes by
32-bit addresses. Two of 1,000 nodes share one by chance in 1 of 4,300 networks; that is noticed and logged
(`Refusal.IDENTITY`), and a number can be configured instead. Configured numbers lie below `DERIVED_FROM`;
their holder cannot be proven, only remembered (`FrameOpener`).

A group has keys: one to send with, several to accept, so that it can change its key without interruption.
Each sender has its own key for each boot, derived from the group key by HKDF-Expand (RFC 5869; the group key
is uniform already, section 3.3). The cipher is ChaCha20-Poly1305: on processors with AES instructions AES-GCM
would be a little faster (`benchmarks/sealing.py`), but the small devices that this is made for (Raspberry Pi
up to 4) have none, and there AES in software is several times slower and has a timing side channel.
"""

import base64
import binascii
import hmac
import secrets
import struct
from hashlib import blake2b
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

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


KEYS_MAX = 8  # chosen by us; a rotation needs three
_SENDER = struct.Struct("!II")


class GroupKey:
    """The secret of a group. Text form: `group:…`."""

    prefix = "group:"
    name = "group key"

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise InputError(self.name, f"has {len(secret)} octets, must have {KEY_BYTES}")
        self._secret = secret
        digest = blake2b(secret, digest_size=2, person=b"roamcast key id").digest()
        self.id: int = int.from_bytes(digest, "big")  # sent with each frame; tells nothing about the key

    @classmethod
    def generate(cls) -> Self:
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(from_text(text, cls.prefix, cls.name))

    def to_text(self) -> str:
        return to_text(self._secret, self.prefix)

    def cipher(self, sender: NodeId, epoch: int) -> ChaCha20Poly1305:
        """The cipher of one boot of one sender."""
        return ChaCha20Poly1305(self.derive(b"roamcast frame 1" + _SENDER.pack(sender, epoch)))

    def derive(self, purpose: bytes) -> bytes:
        """HKDF-Expand with SHA-256 to 32 octets: one block."""
        return hmac.digest(self._secret, purpose + b"\x01", "sha256")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupKey) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id:04x})"  # never the key: this reaches logs


class KeyRing:
    """The key for sending first, then those that are accepted too: the next one, the previous one."""

    def __init__(self, sending: GroupKey, *accepted: GroupKey) -> None:
        self.sending = sending
        self.by_id: dict[int, GroupKey] = {}
        for key in (sending, *accepted):
            if self.by_id.setdefault(key.id, key) != key:
                # Happens by chance in 1 of 65,536 pairs; a frame would not say which of the two it needs.
                raise InputError("group keys", f"two have the id {key.id:04x}; generate another one")
        if len(self.by_id) > KEYS_MAX:
            raise InputError("group keys", f"are {len(self.by_id)}, at most {KEYS_MAX} are allowed")

    @classmethod
    def from_texts(cls, texts: list[str]) -> "KeyRing":
        """As in a configuration file: the first is for sending."""
        if not texts:
            raise InputError("group keys", "are none; at least one is needed, the first is for sending")
        return cls(*(GroupKey.from_text(text) for text in texts))

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(f'{key:04x}' for key in self.by_id)})"
