"""Group keys: one to send with, several to accept, so that a group can change its key without interruption.

Each sender has its own key for each boot, derived from the group key by HKDF-Expand (RFC 5869; the group key
is uniform already, section 3.3). The cipher is ChaCha20-Poly1305: on processors with AES instructions AES-GCM
would be a little faster (`benchmarks/sealing.py`), but the small devices that this is made for (Raspberry Pi
up to 4) have none, and there AES in software is several times slower and has a timing side channel.
"""

import hmac
import secrets
import struct
from hashlib import blake2b
from typing import Self

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from roamcast.errors import InputError
from roamcast.sealing.identity import KEY_BYTES, from_text, to_text
from roamcast.units import NodeId

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
